// The file of the record, and the history in it.
#include "checker/random/record.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>

#include "core/base/fd.hpp"

namespace cmi::checker {

Record::Record(const std::string& path, const Program& program)
    : count_(static_cast<uint32_t>(program.threads.size() + program.processes.size())) {
  size_t longest = program.cells.size();
  for (const auto& ops : program.threads) longest = std::max(longest, ops.size());
  capacity_ = 2 * longest + 1;  // a spin makes two events; an epoch that is left open, one more
  bytes_ = sizeof(GateRecord) + 64 + count_ * (sizeof(ThreadRecord) + capacity_ * sizeof(Event));
  Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  void* at = MAP_FAILED;
  // A file of zeros is a record of nothing.
  if (file && ::ftruncate(file.get(), static_cast<off_t>(bytes_)) == 0) {
    at = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  }
  if (at == MAP_FAILED) throw std::runtime_error("no file for the record at " + path);
  base_ = static_cast<std::byte*>(at);
  threads_ = reinterpret_cast<ThreadRecord*>(base_ + 64);
  events_ = reinterpret_cast<Event*>(threads_ + count_);
}

Record::~Record() { ::munmap(base_, bytes_); }

History Record::history(const Program& program) {
  History history;
  history.line = kPageBytes;
  history.cells = program.cells;
  for (uint32_t t = 0; t < count_; ++t) {
    Thread thread;
    const auto played = static_cast<uint32_t>(program.threads.size());
    thread.process = t < played ? program.process_of(t) : t - played;
    thread.node = program.processes[thread.process];
    const Event* first = events(t);
    thread.events.assign(first, first + threads_[t].events.load(std::memory_order_acquire));
    history.threads.push_back(std::move(thread));
  }
  return history;
}

void dump(const History& history, const std::string& path) {
  struct Line {
    uint32_t thread, number;
    const Event* event;
  };
  std::vector<Line> lines;
  for (uint32_t t = 0; t < history.threads.size(); ++t) {
    const auto& events = history.threads[t].events;
    for (uint32_t i = 0; i < events.size(); ++i) lines.push_back({t, i, &events[i]});
  }
  std::sort(lines.begin(), lines.end(),
            [](const Line& a, const Line& b) { return a.event->begin < b.event->begin; });
  static const char* const kNames[] = {"load", "store", "swap", "barrier", "flush"};
  std::ofstream out(path);
  out << "begin end process thread number kind at width value compare desired\n";
  for (const Line& line : lines) {
    const Event& e = *line.event;
    const Time start = lines.front().event->begin;
    out << e.begin - start << ' ' << e.end - start << ' ' << history.threads[line.thread].process
        << ' ' << line.thread << ' ' << line.number << ' ' << kNames[static_cast<size_t>(e.kind)]
        << ' ' << e.at << ' ' << int{e.width} << std::hex << ' ' << e.value << ' ' << e.compare
        << ' ' << e.desired << std::dec << '\n';
  }
}

}  // namespace cmi::checker
