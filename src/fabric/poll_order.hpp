// Which ports a Server looks at in one round of polling. The hot peer's port is the one that most
// likely has something next: a client that has just been answered asks again, and a notification is
// acknowledged at the listener that sent it. The hot port is looked at in each round, and the
// others take turns: a look costs a system call of the provider, and with a look at each port in a
// row a message at the hot one would wait for all of them. Pure. Threads: any; two threads that
// poll at once share the turns.
#pragma once

#include <atomic>
#include <cstddef>

namespace cmi::fabric {

class PollOrder {
 public:
  // Beyond so many ports more than one other is looked at in a round.
  static constexpr size_t kPortsPerOther = 8;
  // Where each look at the hot port finds something, the others are looked at in one round of so
  // many.
  static constexpr unsigned kBusyRounds = 8;

  // The address of a port is only compared: the port may be gone.
  void expect(const void* port) { hot_.store(port, std::memory_order_relaxed); }
  const void* hot() const { return hot_.load(std::memory_order_relaxed); }

  // After a look at the hot port that found so many events: how many of `ports` are to be looked at
  // besides. A round that found something may end there, since what has come may be acted on
  // before the other ports are looked at.
  size_t others(int events, size_t ports) {
    if (events > 0 && busy_rounds_.fetch_add(1, std::memory_order_relaxed) % kBusyRounds != 0) {
      return 0;
    }
    return 1 + ports / kPortsPerOther;
  }
  // The index of the next one of these others.
  size_t next(size_t ports) { return next_.fetch_add(1, std::memory_order_relaxed) % ports; }

 private:
  std::atomic<const void*> hot_{nullptr};
  std::atomic<unsigned> busy_rounds_{0};  // rounds in which the hot port had something
  std::atomic<size_t> next_{0};           // of all ports, the one whose turn it is
};

}  // namespace cmi::fabric
