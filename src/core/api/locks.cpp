// The calls of <cmi/ofi/cmi_sync.h>: the locks of core/locks over memory of the client's views.
//
// Loads and swaps may raise exceptions, whose handlers may jump out of the call: nothing with a
// destructor lives across them.
#include <cmi/ofi/cmi_sync.h>
#include <time.h>

#include <algorithm>
#include <cstddef>

#include "core/api/calls.hpp"
#include "core/api/entry.hpp"
#include "core/base/clock.hpp"
#include "core/base/spin.hpp"
#include "core/locks/barrier.hpp"
#include "core/locks/mutex.hpp"
#include "core/locks/queue.hpp"
#include "core/locks/semaphore.hpp"
#include "core/locks/shared_mutex.hpp"
#include "core/locks/ticket_lock.hpp"

using namespace cmi;  // the C names live outside of any namespace
using locks::Outcome;
using locks::Words;

static_assert(sizeof(cmi_ofi_shared_mutex) == sizeof(locks::SharedMutexMemory) &&
              sizeof(cmi_ofi_ticket_lock) == sizeof(locks::TicketLockMemory) &&
              sizeof(cmi_ofi_semaphore) == sizeof(locks::SemaphoreMemory) &&
              sizeof(cmi_ofi_barrier) == sizeof(locks::BarrierMemory) &&
              sizeof(cmi_ofi_party) == sizeof(locks::Party) &&
              sizeof(cmi_ofi_queue) == sizeof(locks::QueueHandle) &&
              offsetof(cmi_ofi_queue, put) == offsetof(locks::QueueHandle, put));

namespace {

class ViewWords final : public Words {
 public:
  ViewWords(cmi_ctxt* ctxt, context::Context* c, const void* at) : ctxt_(ctxt), c_(c), at_(at) {}

  // False, with a cause: there is no lock at this address.
  Status find() {
    if (reinterpret_cast<uintptr_t>(at_) % sizeof(uint64_t) != 0) {
      return because(Status::kInval, "the address is not a multiple of 8");
    }
    SignalsBlocked quiet;
    const auto self = c_->holders().own(at_);
    if (self) self_ = *self;
    return self.status();
  }

  int swap(uint64_t* at, uint64_t expected, uint64_t desired, uint64_t* found) override {
    return api::atm_cas(ctxt_, at, expected, desired, found);
  }
  uint64_t load(const uint64_t* at) override { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
  uint64_t self() override { return self_; }
  int gone(uint64_t holder) override {
    const auto gone = c_->holders().gone(at_, holder, kAnswer);
    return gone ? static_cast<int>(*gone) : -1;
  }
  Nanos time() override { return now(); }
  void pause(uint32_t n, Nanos left) override {
    const Nanos t = now();
    if (n == 0) spin_.begin(t);
    if (spin_.again(t)) return;
    const Nanos nap = std::min(left, kNap << std::min(n / kNapsOfOneLength, kLongestNap));
    const timespec span{nap / kSecond, nap % kSecond};
    nanosleep(&span, nullptr);
  }

 private:
  static constexpr Nanos kAnswer = kSecond;  // a home that takes longer is asked again
  static constexpr Nanos kNap = 50 * kMicro;
  static constexpr uint32_t kNapsOfOneLength = 64, kLongestNap = 5;  // 1.6 ms

  cmi_ctxt* ctxt_;
  context::Context* c_;
  const void* at_;
  uint64_t self_ = 0;
  SpinThenSleep spin_;
};

int result(Outcome outcome, const char* call, const void* at) {
  switch (outcome) {
    case Outcome::kDone:
      return 0;
    case Outcome::kOwnerDead:
      return CMI_OFI_OWNER_DEAD;
    case Outcome::kTimedOut:
      return CMI_OFI_TIMED_OUT;
    case Outcome::kFailed:
      return -1;
    case Outcome::kBad:
      api::fail(kFacMem, CMI_ERR_INVAL, "{}({}): CMI_ERR_INVAL, no such lock lies there", call,
                fmt::ptr(at));
      return -1;
    case Outcome::kNotOwner:
      api::fail(kFacMem, CMI_ERR_PERM, "{}({}): CMI_ERR_PERM, it is not the caller's, or no longer",
                call, fmt::ptr(at));
      return -1;
  }
  return -1;
}

template <class Body>
int with_words(cmi_ctxt* ctxt, const void* at, const char* call, Body body) {
  context::Context* const c = api::enter(ctxt, kFacMem, call);
  if (c == nullptr) return -1;
  ViewWords words(ctxt, c, at);
  const int found = api::finish(
      kFacMem, [&] { return words.find(); }, "{}({})", call, fmt::ptr(at));
  if (found != 0) return -1;
  return result(body(words), call, at);
}

Nanos span(uint32_t ms) { return Nanos{ms} * kMilli; }

locks::SharedMutexMemory* words_of(cmi_ofi_shared_mutex* at) {
  return reinterpret_cast<locks::SharedMutexMemory*>(at);
}
locks::TicketLockMemory* words_of(cmi_ofi_ticket_lock* at) {
  return reinterpret_cast<locks::TicketLockMemory*>(at);
}
locks::SemaphoreMemory* words_of(cmi_ofi_semaphore* at) {
  return reinterpret_cast<locks::SemaphoreMemory*>(at);
}
locks::BarrierMemory* words_of(cmi_ofi_barrier* at) {
  return reinterpret_cast<locks::BarrierMemory*>(at);
}
locks::QueueHandle* handle(cmi_ofi_queue* queue) {
  return reinterpret_cast<locks::QueueHandle*>(queue);
}

}  // namespace

extern "C" {

int cmi_ofi_holder(cmi_ctxt* ctxt, const void* addr, uint64_t* holder) {
  context::Context* const c = api::enter(ctxt, kFacMem, "cmi_ofi_holder");
  if (c == nullptr) return -1;
  uint64_t name = 0;
  const int rc = api::finish(
      kFacMem,
      [&] {
        if (holder == nullptr) return because(Status::kInval, "holder is null");
        SignalsBlocked quiet;
        const auto own = c->holders().own(addr);
        if (own) name = *own;
        return own.status();
      },
      "cmi_ofi_holder({})", fmt::ptr(addr));
  if (rc == 0) *holder = name;
  return rc;
}

int cmi_ofi_holder_gone(cmi_ctxt* ctxt, const void* addr, uint64_t holder) {
  context::Context* const c = api::enter(ctxt, kFacMem, "cmi_ofi_holder_gone");
  if (c == nullptr) return -1;
  bool is_gone = false;
  const int rc = api::finish(
      kFacMem,
      [&] {
        const auto gone = c->holders().gone(addr, holder, 60 * kSecond);
        if (gone) is_gone = *gone;
        return gone.status();
      },
      "cmi_ofi_holder_gone({}, {:#x})", fmt::ptr(addr), holder);
  return rc == 0 ? static_cast<int>(is_gone) : rc;
}

int cmi_ofi_mutex_lock(cmi_ctxt* ctxt, cmi_ofi_mutex* at, uint32_t timeout_ms) {
  return with_words(ctxt, at, "cmi_ofi_mutex_lock",
                    [=](Words& w) { return lock_mutex(w, &at->word, span(timeout_ms)); });
}
int cmi_ofi_mutex_unlock(cmi_ctxt* ctxt, cmi_ofi_mutex* at) {
  return with_words(ctxt, at, "cmi_ofi_mutex_unlock",
                    [=](Words& w) { return unlock_mutex(w, &at->word); });
}
int cmi_ofi_mutex_repaired(cmi_ctxt* ctxt, cmi_ofi_mutex* at) {
  return with_words(ctxt, at, "cmi_ofi_mutex_repaired",
                    [=](Words& w) { return repaired_mutex(w, &at->word); });
}

int cmi_ofi_shared_mutex_lock(cmi_ctxt* ctxt, cmi_ofi_shared_mutex* at, uint32_t timeout_ms) {
  return with_words(ctxt, at, "cmi_ofi_shared_mutex_lock",
                    [=](Words& w) { return lock_exclusive(w, words_of(at), span(timeout_ms)); });
}
int cmi_ofi_shared_mutex_unlock(cmi_ctxt* ctxt, cmi_ofi_shared_mutex* at) {
  return with_words(ctxt, at, "cmi_ofi_shared_mutex_unlock",
                    [=](Words& w) { return unlock_exclusive(w, words_of(at)); });
}
int cmi_ofi_shared_mutex_repaired(cmi_ctxt* ctxt, cmi_ofi_shared_mutex* at) {
  return with_words(ctxt, at, "cmi_ofi_shared_mutex_repaired",
                    [=](Words& w) { return repaired_exclusive(w, words_of(at)); });
}
int cmi_ofi_shared_mutex_lock_shared(cmi_ctxt* ctxt, cmi_ofi_shared_mutex* at,
                                     uint32_t timeout_ms) {
  return with_words(ctxt, at, "cmi_ofi_shared_mutex_lock_shared",
                    [=](Words& w) { return lock_shared(w, words_of(at), span(timeout_ms)); });
}
int cmi_ofi_shared_mutex_unlock_shared(cmi_ctxt* ctxt, cmi_ofi_shared_mutex* at) {
  return with_words(ctxt, at, "cmi_ofi_shared_mutex_unlock_shared",
                    [=](Words& w) { return unlock_shared(w, words_of(at)); });
}

int cmi_ofi_ticket_lock_lock(cmi_ctxt* ctxt, cmi_ofi_ticket_lock* at, uint32_t timeout_ms,
                             uint32_t* ticket) {
  return with_words(ctxt, at, "cmi_ofi_ticket_lock_lock", [=](Words& w) {
    return lock_ticket(w, words_of(at), span(timeout_ms), ticket);
  });
}
int cmi_ofi_ticket_lock_unlock(cmi_ctxt* ctxt, cmi_ofi_ticket_lock* at, uint32_t ticket) {
  return with_words(ctxt, at, "cmi_ofi_ticket_lock_unlock",
                    [=](Words& w) { return unlock_ticket(w, words_of(at), ticket); });
}
int cmi_ofi_ticket_lock_repaired(cmi_ctxt* ctxt, cmi_ofi_ticket_lock* at, uint32_t ticket) {
  return with_words(ctxt, at, "cmi_ofi_ticket_lock_repaired",
                    [=](Words& w) { return repaired_ticket(w, words_of(at), ticket); });
}

int cmi_ofi_semaphore_init(cmi_ctxt* ctxt, cmi_ofi_semaphore* at, uint32_t permits) {
  return with_words(ctxt, at, "cmi_ofi_semaphore_init",
                    [=](Words& w) { return make_semaphore(w, words_of(at), permits); });
}
int cmi_ofi_semaphore_acquire(cmi_ctxt* ctxt, cmi_ofi_semaphore* at, uint32_t timeout_ms) {
  return with_words(ctxt, at, "cmi_ofi_semaphore_acquire",
                    [=](Words& w) { return acquire_permit(w, words_of(at), span(timeout_ms)); });
}
int cmi_ofi_semaphore_release(cmi_ctxt* ctxt, cmi_ofi_semaphore* at) {
  return with_words(ctxt, at, "cmi_ofi_semaphore_release",
                    [=](Words& w) { return release_permit(w, words_of(at)); });
}

int cmi_ofi_barrier_init(cmi_ctxt* ctxt, cmi_ofi_barrier* at, uint32_t parties) {
  return with_words(ctxt, at, "cmi_ofi_barrier_init",
                    [=](Words& w) { return make_barrier(w, words_of(at), parties); });
}
int cmi_ofi_barrier_wait(cmi_ctxt* ctxt, cmi_ofi_barrier* at, cmi_ofi_party* party,
                         uint32_t timeout_ms) {
  return with_words(ctxt, at, "cmi_ofi_barrier_wait", [=](Words& w) {
    return pass_barrier(w, words_of(at), span(timeout_ms), reinterpret_cast<locks::Party*>(party));
  });
}

int cmi_ofi_latch_init(cmi_ctxt* ctxt, cmi_ofi_latch* at, uint64_t count) {
  return with_words(ctxt, at, "cmi_ofi_latch_init",
                    [=](Words& w) { return make_latch(w, &at->word, count); });
}
int cmi_ofi_latch_count_down(cmi_ctxt* ctxt, cmi_ofi_latch* at, uint64_t by) {
  return with_words(ctxt, at, "cmi_ofi_latch_count_down",
                    [=](Words& w) { return count_down(w, &at->word, by, 60 * kSecond); });
}
int cmi_ofi_latch_wait(cmi_ctxt* ctxt, cmi_ofi_latch* at, uint32_t timeout_ms) {
  return with_words(ctxt, at, "cmi_ofi_latch_wait",
                    [=](Words& w) { return await_latch(w, &at->word, span(timeout_ms)); });
}

int cmi_ofi_queue_open(cmi_ctxt* ctxt, cmi_ofi_queue* queue, void* memory, uint32_t cells,
                       uint32_t item_size) {
  return with_words(ctxt, memory, "cmi_ofi_queue_open", [=](Words& w) {
    return open_queue(w, handle(queue), memory, cells, item_size);
  });
}
int cmi_ofi_queue_push(cmi_ctxt* ctxt, cmi_ofi_queue* queue, const void* item,
                       uint32_t timeout_ms) {
  return with_words(ctxt, queue->memory, "cmi_ofi_queue_push",
                    [=](Words& w) { return push_item(w, handle(queue), item, span(timeout_ms)); });
}
int cmi_ofi_queue_pop(cmi_ctxt* ctxt, cmi_ofi_queue* queue, void* item, uint32_t timeout_ms) {
  return with_words(ctxt, queue->memory, "cmi_ofi_queue_pop",
                    [=](Words& w) { return pop_item(w, handle(queue), item, span(timeout_ms)); });
}

}  // extern "C"
