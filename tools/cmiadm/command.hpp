// What the commands of cmiadm are given, and what they are. Each prints its result to standard
// output and what went wrong to standard error, and returns the exit status.
#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <string>

#include "core/base/clock.hpp"
#include "survey.hpp"

namespace cmi::adm {

enum ExitStatus : int {
  kFine = 0,
  kTrouble = 1,  // what was asked for could not be done, or was found not to be in order
  kUsage = 2,
};

struct Options {
  std::string runtime_dir;  // absolute
  std::string node;         // folder name of the node meant; empty: all
  bool json = false;
  bool ids = false;          // list: segment ids and nothing else
  Nanos wait = 2 * kSecond;  // for whatever somebody else has to answer; 0: ask nobody
  Nanos every = kSecond;     // top: between two looks
  unsigned count = 0;        // top: looks; 0: without end on a terminal, else one
  // show, quiesce, resume, hot, map: a segment, or to show, a process; hot: 0 for all
  int32_t id = 0;
  std::string file;  // ping: of a handle
  std::string svg;   // map: file of a picture; empty: text
  uint64_t key = 0;  // reservation delete

  Survey look() const { return survey(runtime_dir, node); }
};

int list(const Options& options);
int show(const Options& options);
int reap(const Options& options);
int doctor(const Options& options);
int ping(const Options& options);
int quiesce(const Options& options);
int resume(const Options& options);
int reservation(const Options& options);
int top(const Options& options);
int hot(const Options& options);
int map(const Options& options);
int metrics(const Options& options);

// "cmiadm: ..." on standard error.
template <class... Args>
void complain(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  std::fprintf(stderr, "cmiadm: %s\n", text.c_str());
}

// Complains about what stands in the way of reading the runtime folder or nodes in it.
void complain_about(const Survey& s);

}  // namespace cmi::adm
