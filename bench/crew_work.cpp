// What a member of the crew does.
#include <algorithm>
#include <random>
#include <vector>

#include "crew.hpp"
#include "node.hpp"

namespace bench {

namespace {

constexpr size_t kWordsOfPage = kPage / 8;

// A hash table with a lock in each bucket, which is one cache line: lock, value, its complement. A
// swap takes the lock and another one gives it back; every other operation by chance is a put. The
// member's progress word, on a page of its own, counts its operations.
class Table final : public CrewWork {
 public:
  explicit Table(const CrewPlace& place)
      : p_(place), random_(static_cast<unsigned>(place.self) + 1) {}
  void prepare() override {
    for (int i = 0; i < kWarm; ++i) operate();
  }
  void work() override {
    const uint64_t counted = twice_;
    const double begun = now();
    uint64_t n = 0;
    while (n < p_.amount && now() - begun < kLongest) {
      operate();
      ++n;
    }
    p_.results.nanos = now() - begun;
    p_.results.operations = n;
    p_.results.last = done_;
    p_.results.requests = twice_ - counted;
  }
  void finish() override { barrier(); }

 private:
  static constexpr int kWarm = 200;
  static constexpr double kLongest = 10 * kSecond;
  static constexpr size_t kBuckets = kTablePages * kPage / 64;

  void operate() {
    const size_t bucket = random_() % kBuckets;
    const bool put = random_() % 2 == 0;
    volatile uint64_t* const at =
        reinterpret_cast<volatile uint64_t*>(p_.import.page(0)) + bucket * 8;
    const uint64_t mine = p_.self + 1;
    const double give_up = now() + 20 * kSecond;
    while (swap(at, 0, mine) != 0) must(now() < give_up, "a lock is never free");
    if (put) {
      const uint64_t value = mine << 48 | ++puts_;
      at[1] = value;
      at[2] = ~value;
    } else {
      const uint64_t value = at[1], complement = at[2];
      must((value == 0 && complement == 0) || complement == ~value,
           "a bucket holds halves of two puts");
    }
    word(p_.import.page(kTablePages + p_.self), 0) = ++done_;
    must(swap(at, mine, 0) == mine, "a lock was taken from who had it");
  }
  uint64_t swap(volatile uint64_t* at, uint64_t expected, uint64_t desired) {
    cmi_ctxt* const ctxt = p_.node.ctxt();
    uint64_t found = 0;
    const uint64_t before = p_.node.stats().publications;
    const int rc =
        CMIFN(ctxt, 10, atm_cas)(ctxt, const_cast<uint64_t*>(at), expected, desired, &found);
    must(rc == 0, "atm_cas failed");
    // At least one of these was the swap's own message.
    if (p_.node.stats().publications != before) ++twice_;
    return found;
  }

  const CrewPlace p_;
  std::mt19937 random_;
  uint64_t puts_ = 0, done_ = 0, twice_ = 0;
};

// Every so many-eth word of all pages, in random order, and one barrier. It gives up after a while:
// what was sent until then is the least that all would have taken.
class Scatter final : public CrewWork {
 public:
  explicit Scatter(const CrewPlace& place) : p_(place) {
    for (size_t w = p_.self; w < p_.amount * kWordsOfPage; w += p_.members) {
      order_.push_back(static_cast<uint32_t>(w));
    }
    std::shuffle(order_.begin(), order_.end(), std::mt19937(static_cast<unsigned>(place.self) + 1));
  }
  void work() override {
    const uint64_t value = 0x5a5a5a5a00000000u + p_.self;
    const double begun = now();
    size_t done = 0;
    for (uint32_t w : order_) {
      word(p_.import.page(0), w) = value;
      if (++done % 64 == 0 && now() - begun > kGiveUp) break;
    }
    p_.results.nanos = now() - begun;
    p_.results.operations = done;
    p_.results.last = value;
  }
  void finish() override { barrier(); }

 private:
  static constexpr double kGiveUp = 15 * kSecond;
  const CrewPlace p_;
  std::vector<uint32_t> order_;
};

// Its words of the same few pages, and a barrier, again and again for so many ms: one member after
// another, or all at once.
class Crowd final : public CrewWork {
 public:
  Crowd(const CrewPlace& place, bool in_turn) : p_(place), in_turn_(in_turn) {}
  void prepare() override { round(); }
  void work() override {
    const double until = now() + static_cast<double>(p_.amount) * kMilli;
    for (uint32_t turns = 0; !in_turn_ || my_turn(turns, until); ++turns) {
      p_.results.nanos += round();
      ++p_.results.operations;
      if (in_turn_) {
        leave_turn(turns);
      } else if (now() >= until) {
        break;
      }
    }
  }

 private:
  static constexpr size_t kPages = 8;

  // ns of the barrier.
  double round() {
    ++p_.results.last;
    for (size_t w = p_.self; w < kPages * kWordsOfPage; w += p_.members) {
      word(p_.import.page(0), w) = p_.results.last;
    }
    const double begun = now();
    barrier();
    return now() - begun;
  }
  // False: the time is over.
  bool my_turn(uint32_t turns, double until) {
    const uint32_t before = p_.self == 0 ? turns : turns + 1;
    for (uint32_t seen; (seen = p_.results.turn.load()) < before;) {
      if (now() >= until) return false;
      futex_wait(p_.results.turn, seen, 100 * kMilli);
    }
    return now() < until;
  }
  void leave_turn(uint32_t turns) {
    p_.next.turn.store(turns + 1);
    futex_wake(p_.next.turn);
  }

  const CrewPlace p_;
  const bool in_turn_;
};

}  // namespace

std::unique_ptr<CrewWork> make_work(CrewJob job, const CrewPlace& place) {
  switch (job) {
    case CrewJob::kTable:
      return std::make_unique<Table>(place);
    case CrewJob::kScatter:
      return std::make_unique<Scatter>(place);
    case CrewJob::kTurns:
      return std::make_unique<Crowd>(place, true);
    case CrewJob::kCrowd:
      return std::make_unique<Crowd>(place, false);
  }
  fail("no such work");
}

}  // namespace bench
