// What the threads of a random program write down while they run: a file that the test and all its
// processes map, so that the events of a process that hangs or dies are there too.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "checker/history.hpp"
#include "checker/program.hpp"

namespace cmi::checker {

// Lies in shared memory. Written by one thread; the counts are stored with release and loaded with
// acquire by who judges.
struct alignas(64) ThreadRecord {
  std::atomic<uint32_t> events{0};  // complete ones
  std::atomic<uint32_t> ops{0};     // begun ones of the program
  std::atomic<uint32_t> ended{0};   // 1: the thread came to its end
  std::atomic<uint32_t> transients{
      0};  // accesses that raised CMI_ERROR_TRANSIENT and were made again
  // Where somebody may die (Part::mortal): by segment, the cause of the exception after which the
  // thread left it alone, and what the first barrier or swap that failed said.
  std::array<std::atomic<int32_t>, kMaxSegments> left{};
  std::atomic<int32_t> error{0};
  std::array<char, 112> failure{};  // what failed, or nothing
};

struct GateRecord {
  std::atomic<uint32_t> arrived{0};  // threads that wait for the others to begin
  std::atomic<uint32_t> open{0};     // 1: nobody waits any more, one of them has died
};

class Record {
 public:
  // Maps the file, which is made if there is none. Throws what Cluster's helpers throw.
  Record(const std::string& path, const Program& program);
  ~Record();
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;

  GateRecord& gate() { return *reinterpret_cast<GateRecord*>(base_); }
  // The program's threads, and behind them one for each process, for what is read at the end.
  ThreadRecord& thread(uint32_t t) { return threads_[t]; }
  Event* events(uint32_t t) { return events_ + size_t{t} * capacity_; }
  uint32_t threads() const { return count_; }

  // What was recorded, of all threads that are behind the program's too.
  History history(const Program& program);

 private:
  uint32_t count_;
  size_t capacity_;  // events of a thread
  size_t bytes_ = 0;
  std::byte* base_ = nullptr;
  ThreadRecord* threads_ = nullptr;
  Event* events_ = nullptr;
};

// Writes a line for each event, in the order of their begins.
void dump(const History& history, const std::string& path);

}  // namespace cmi::checker
