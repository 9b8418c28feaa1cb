// See program.hpp.
#include "litmus/program.hpp"

#include <cstdlib>

#include "support/long_run.hpp"

namespace cmi::test {

Thread::Thread(int on, std::initializer_list<Step> all) : process(static_cast<uint8_t>(on)) {
  for (const Step& s : all) steps[count++] = s;
}

Program program(std::initializer_list<Thread> threads) {
  Program p;
  for (const Thread& t : threads) p.threads[p.count++] = t;
  return p;
}

uint64_t Histogram::count(const Predicate& matches) const {
  uint64_t n = 0;
  for (auto& [outcome, times] : counts_) n += matches(outcome) ? times : 0;
  return n;
}

uint64_t Histogram::rounds() const {
  return count([](const Outcome&) { return true; });
}

std::ostream& operator<<(std::ostream& out, const Histogram& histogram) {
  for (auto& [outcome, times] : histogram.counts_) {
    out << "\n  ";
    for (size_t i = 0; i < outcome.size(); ++i) {
      if (i == kRegisters) out << "| ";
      out << static_cast<int>(outcome[i]) << ' ';
    }
    out << ": " << times;
  }
  return out;
}

bool runs_again() {
  return std::getenv("CMI_TEST_KERNEL") != nullptr || std::getenv("CMI_TEST_FAULT") != nullptr;
}

bool plays_all() { return long_run() && !runs_again(); }

uint32_t share_of(uint32_t rounds) { return plays_all() ? rounds : rounds / 4; }

}  // namespace cmi::test
