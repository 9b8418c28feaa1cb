// Runs the initiator that is bound by nothing, a program of its own: rogue/rogue.cpp. Any thread.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "core/base/codec.hpp"
#include "fabric/fabric.hpp"

namespace cmi::test {

struct RogueOutcome {
  int status = -1;   // what it ended with; -1: it could not be run
  std::string line;  // what it printed
  bool refused() const { return status == 1 || status == 2; }
};

inline std::string hexadecimal(Bytes bytes) {
  std::string text;
  for (std::byte b : bytes) {
    char hex[3];
    std::snprintf(hex, sizeof hex, "%02x", static_cast<unsigned>(b));
    text += hex;
  }
  return text;
}

// `what`: "read" or "write". `address`: hexadecimal.
inline RogueOutcome run_rogue(const std::string& provider, const std::string& address,
                              fabric::RemoteKey key, uint64_t offset, size_t len,
                              const char* what) {
  std::string command = std::string("'") + CMI_ROGUE_PROGRAM + "' '" + provider + "' " + address;
  for (uint64_t v : {key.key, key.base, offset, uint64_t{len}}) command += " " + std::to_string(v);
  command += std::string(" ") + what;
  RogueOutcome outcome;
  FILE* out = ::popen(command.c_str(), "re");
  if (out == nullptr) return outcome;
  char line[1024] = {};
  if (std::fgets(line, sizeof line, out) != nullptr) outcome.line = line;
  const int status = ::pclose(out);
  if (WIFEXITED(status)) outcome.status = WEXITSTATUS(status);
  return outcome;
}

}  // namespace cmi::test
