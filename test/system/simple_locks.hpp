// A spin lock, a ticket lock and a bounded queue between the threads of many nodes, over atm_cas()
// and plain loads, as small as they can be: they show what the memory model promises, and do not
// outlive their owners. Programs use <cmi/ofi/cmi_sync.h>.
//
// What lies in the segment is plain data, named ...State, whose zeros are its beginning: a fresh
// segment holds free locks and empty queues. A handle of class SpinLock, TicketLock or Queue is the
// context and an address; each process makes its own, and its threads may share one.
//
// Three rules make them work, and fast:
// 1. A word that hands something over is changed by atm_cas() alone. It publishes what the caller
//    stored before, so that who sees the new word sees that too; a plain store that repeats the
//    byte of a stale cached copy would be no change, and nobody would ever see it.
// 2. Waiting is loading: a cached word is local memory until another node changes it, and then one
//    miss. A failed atm_cas(), on the other hand, is a round trip.
// 3. Words that are waited for lie away from words that others change meanwhile: the page is what
//    the others drop and fetch again.
//
// A node that dies keeps what it has locked, and the cell of a queue that it was filling or
// emptying; recovering that takes knowledge of the data. What the segment does not allow raises
// SIGSEGV as any access does; what atm_cas() refuses throws Refused.
#pragma once

#include <cmi.h>
#include <cmi/ofi/cmi_impl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>

namespace locks {

inline constexpr size_t kPage = 4096;

struct Refused : std::runtime_error {
  explicit Refused(cmi_error why)
      : std::runtime_error("atm_cas failed with error " + std::to_string(static_cast<int>(why))),
        error(why) {}
  cmi_error error;
};

// A word of a segment that nodes hand to each other.
class Word {
 public:
  Word(cmi_ctxt* context, uint64_t* at) : context_(context), at_(at) {}

  // From the cache where it is cached; never older than what this thread has seen of it.
  [[nodiscard]] uint64_t load() const {
    return std::atomic_ref<uint64_t>(*at_).load(std::memory_order_acquire);
  }
  // True: it was `expected` and is `desired`, and all that was stored before is visible everywhere.
  // False: `expected` is what it is instead.
  bool swap(uint64_t& expected, uint64_t desired) {
    uint64_t found = 0;
    if (CMIFN(context_, 10, atm_cas)(context_, at_, expected, desired, &found) != 0) {
      throw Refused(cmi_get_error(context_));
    }
    cmi_rmb();  // what follows is not loaded before
    if (found == expected) return true;
    expected = found;
    return false;
  }
  // As swap(), by the one who alone may change the word now.
  void hand_over(uint64_t expected, uint64_t desired) {
    if (!swap(expected, desired)) throw std::logic_error("a word was changed by two owners");
  }
  // Adds one; what it was.
  uint64_t take_number() {
    uint64_t number = load();
    while (!swap(number, number + 1)) {
    }
    return number;
  }
  // Loads until `done(word)`.
  template <class Done>
  uint64_t wait(Done done) const {
    constexpr int kSpins = 200;  // longer, and whoever is waited for may need this CPU
    for (int spins = 0;; ++spins) {
      const uint64_t word = load();
      if (done(word)) {
        cmi_rmb();  // what follows is not loaded before
        return word;
      }
      if (spins >= kSpins) std::this_thread::yield();
    }
  }

 private:
  cmi_ctxt* context_;
  uint64_t* at_;
};

// ---- Spin lock: whoever is quickest. Cheapest without contention, unfair with it. ---------------

struct alignas(kPage) SpinLockState {
  uint64_t locked;  // 0 or 1
};

// For std::lock_guard and its like.
class SpinLock {
 public:
  SpinLock(cmi_ctxt* context, SpinLockState* at) : locked_(context, &at->locked) {}

  bool try_lock() {
    uint64_t expected = 0;
    return locked_.load() == 0 && locked_.swap(expected, 1);
  }
  void lock() {
    while (!try_lock()) locked_.wait([](uint64_t word) { return word == 0; });
  }
  void unlock() { locked_.hand_over(1, 0); }

 private:
  Word locked_;
};

// ---- Ticket lock: first come, first served.
// ------------------------------------------------------

struct TicketLockState {
  alignas(kPage) uint64_t next;     // ticket of who comes next
  alignas(kPage) uint64_t serving;  // ticket of who has the lock, or may take it
};

class TicketLock {
 public:
  TicketLock(cmi_ctxt* context, TicketLockState* at)
      : next_(context, &at->next), serving_(context, &at->serving) {}

  // In two steps: who has drawn a ticket has a place in the line, and has to wait for its turn.
  uint64_t draw() { return next_.take_number(); }
  void wait(uint64_t ticket) {
    serving_.wait([=](uint64_t word) { return word == ticket; });
  }

  // The ticket: how many had the lock before.
  uint64_t lock() {
    const uint64_t ticket = draw();
    wait(ticket);
    return ticket;
  }
  void unlock() {
    const uint64_t ticket = serving_.load();
    serving_.hand_over(ticket, ticket + 1);
  }

 private:
  Word next_;
  Word serving_;
};

// ---- Queue: many producers, many consumers, each item once, in the order of push().
// --------------

// A cell is used again every kCells places; its `steps` say how often it was filled and emptied.
template <class Item, size_t kCells>
struct QueueState {
  static_assert(std::is_trivially_copyable_v<Item>);
  struct Cell {
    uint64_t steps;  // odd: holds an item
    Item item;
  };
  alignas(kPage) uint64_t pushed;  // place of the next item to come
  alignas(kPage) uint64_t popped;  // place of the next item to go
  alignas(kPage) Cell cells[kCells];
};

template <class Item, size_t kCells>
class Queue {
 public:
  using State = QueueState<Item, kCells>;
  Queue(cmi_ctxt* context, State* at)
      : context_(context),
        cells_(at->cells),
        pushed_(context, &at->pushed),
        popped_(context, &at->popped) {}

  // Waits while the queue is full. Returns the item's place, counted from the first item ever.
  uint64_t push(const Item& item) {
    const uint64_t place = pushed_.take_number();
    Word steps = steps_of(place);
    const uint64_t empty = place / kCells * 2;
    steps.wait([=](uint64_t word) { return word == empty; });
    cells_[place % kCells].item = item;
    steps.hand_over(empty, empty + 1);
    return place;
  }
  // Waits while the queue is empty. Returns the item's place.
  uint64_t pop(Item* item) {
    const uint64_t place = popped_.take_number();
    Word steps = steps_of(place);
    const uint64_t full = place / kCells * 2 + 1;
    steps.wait([=](uint64_t word) { return word == full; });
    *item = cells_[place % kCells].item;
    steps.hand_over(full, full + 1);
    return place;
  }

 private:
  Word steps_of(uint64_t place) { return {context_, &cells_[place % kCells].steps}; }

  cmi_ctxt* context_;
  typename State::Cell* cells_;
  Word pushed_;
  Word popped_;
};

}  // namespace locks
