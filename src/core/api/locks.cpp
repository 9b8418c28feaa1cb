// The calls of <cmi/ofi/cmi_sync.h>: the locks of core/locks over memory of the client's views.
#include <cmi/ofi/cmi_sync.h>

#include <cstddef>

#include "core/api/view_words.hpp"
#include "core/locks/barrier.hpp"
#include "core/locks/mutex.hpp"
#include "core/locks/queue.hpp"
#include "core/locks/semaphore.hpp"
#include "core/locks/shared_mutex.hpp"
#include "core/locks/ticket_lock.hpp"

using namespace cmi;  // the C names live outside of any namespace
using api::with_words;
using locks::Words;

static_assert(sizeof(cmi_ofi_shared_mutex) == sizeof(locks::SharedMutexMemory) &&
              sizeof(cmi_ofi_ticket_lock) == sizeof(locks::TicketLockMemory) &&
              sizeof(cmi_ofi_semaphore) == sizeof(locks::SemaphoreMemory) &&
              sizeof(cmi_ofi_barrier) == sizeof(locks::BarrierMemory) &&
              sizeof(cmi_ofi_party) == sizeof(locks::Party) &&
              sizeof(cmi_ofi_queue) == sizeof(locks::QueueHandle) &&
              offsetof(cmi_ofi_queue, put) == offsetof(locks::QueueHandle, put));

namespace {

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
