/*
 * cmi/ofi/cmi_sync.h: locks between threads of any nodes that survive the death of their owner, and
 * the question that they ask: is this user of the memory gone? C11, and valid C++17.
 *
 * The structures lie in a segment that every user has attached. Zeros are a free lock, so that a
 * fresh segment needs no preparation. They are changed by atm_cas() alone: never store to them.
 *
 * - An owner is a context. It is gone when the segment's home says so: the process has ended, or
 * was declared dead (CMI_DEAD_AFTER), or does not import the segment any more. Then the next one
 * gets the lock with CMI_OFI_OWNER_DEAD, as with robust mutexes of POSIX, and repairs what it
 * guards. An owner that was declared dead and lives on is cut off: its stores and its release fail.
 * - Taking and releasing is one swap each, one exchange with the home, and releases carry along
 * what was stored before. Waiting is loading from cached memory.
 * - Words of a segment that is not CMI_SEG_CLIENT_CONSIST lie on pages that are stored to in no
 *   other way: a page to which a dead process was storing is in flux, and so are the locks on it.
 * - Each wait has a deadline, in milliseconds; 0: one look. What is under way at the home by then
 *   takes as long as atm_cas() may.
 * - What lies there is checked: what no lock has left there is CMI_ERR_INVAL.
 *
 * Results: 0, done; CMI_OFI_OWNER_DEAD; CMI_OFI_TIMED_OUT; -1 with cmi_get_error(). Accesses and
 * swaps raise exceptions as they do elsewhere, and cmi_enb() must have opened imports.
 */
#ifndef CMI_OFI_CMI_SYNC_H
#define CMI_OFI_CMI_SYNC_H

#include <cmi.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Done, and an owner was gone; where a call says so, not done. */
#define CMI_OFI_OWNER_DEAD 1
/** The deadline has passed. */
#define CMI_OFI_TIMED_OUT 2

/* ---- Holders that are gone ------------------------------------------------------------------ */

/**
 * A name of 40 bits, never 0, for this process as a user of the memory at addr, to be kept in words
 * that others ask about. Each import has its own; one that is imported anew has another.
 *   addr    in a view
 *   holder  gets the name
 * Returns: 0, or -1. Errors: CMI_ERR_INVAL, addr is in no view, or holder is NULL; CMI_ERR_INIT,
 * the calling thread is not registered.
 */
CMI_EXPORT int cmi_ofi_holder(cmi_ctxt* ctxt, const void* addr, uint64_t* holder);

/**
 * Whether nobody uses the segment at addr under this name any more, by the verdict of its home.
 * What a holder that is gone stored and did not publish is never seen afterwards.
 *   addr    in a view
 *   holder  a name that cmi_ofi_holder() gave in some process for an address in this segment
 * Returns: 1, gone; 0, not gone; -1. Errors: CMI_ERR_INVAL, addr is in no view, or no such name;
 * CMI_ERR_RECONFIG, the home does not answer in time; CMI_ERR_NOTSUPP, its version does not know
 * the question; CMI_ERR_INIT, the calling thread is not registered.
 */
CMI_EXPORT int cmi_ofi_holder_gone(cmi_ctxt* ctxt, const void* addr, uint64_t holder);

/* ---- Mutexes -------------------------------------------------------------------------------- */

/** One owner. */
typedef struct cmi_ofi_mutex {
  uint64_t word; /**< the owner's */
} cmi_ofi_mutex;

/**
 * Takes it. OWNER_DEAD: it is taken, and the call returns so to each owner until
 * cmi_ofi_mutex_repaired(). Errors: CMI_ERR_INVAL, not this process's context, the lock is in no
 * view or not at a multiple of 8, or what lies there is no such lock; CMI_ERR_PERM, the caller does
 * not hold it, or was declared dead while it did; CMI_ERR_INIT, the calling thread is not
 * registered; CMI_ERR_STORE, CMI_ERR_HW and CMI_ERR_NOMEM, what a swap failed with, as atm_cas()
 * says.
 */
CMI_EXPORT int cmi_ofi_mutex_lock(cmi_ctxt* ctxt, cmi_ofi_mutex* at, uint32_t timeout_ms);
/** Releases it. Errors: as cmi_ofi_mutex_lock(). */
CMI_EXPORT int cmi_ofi_mutex_unlock(cmi_ctxt* ctxt, cmi_ofi_mutex* at);
/** Says, as its owner, that what it guards is whole again. Errors: as cmi_ofi_mutex_lock(). */
CMI_EXPORT int cmi_ofi_mutex_repaired(cmi_ctxt* ctxt, cmi_ofi_mutex* at);

/** One writer, or readers of up to 63 contexts. */
typedef struct cmi_ofi_shared_mutex {
  uint64_t exclusive;   /**< the writer's */
  uint64_t readers[63]; /**< one of each context that reads */
} cmi_ofi_shared_mutex;

/**
 * Takes it alone. OWNER_DEAD: as of a mutex; readers that are gone do no harm.
 * Errors: as cmi_ofi_mutex_lock().
 */
CMI_EXPORT int cmi_ofi_shared_mutex_lock(cmi_ctxt* ctxt, cmi_ofi_shared_mutex* at,
                                         uint32_t timeout_ms);
/** Releases what cmi_ofi_shared_mutex_lock() has taken. Errors: as cmi_ofi_mutex_lock(). */
CMI_EXPORT int cmi_ofi_shared_mutex_unlock(cmi_ctxt* ctxt, cmi_ofi_shared_mutex* at);
/** As cmi_ofi_mutex_repaired(). Errors: as cmi_ofi_mutex_lock(). */
CMI_EXPORT int cmi_ofi_shared_mutex_repaired(cmi_ctxt* ctxt, cmi_ofi_shared_mutex* at);
/**
 * Takes it among others. OWNER_DEAD: not taken, a writer has to repair first.
 * Errors: as cmi_ofi_mutex_lock().
 */
CMI_EXPORT int cmi_ofi_shared_mutex_lock_shared(cmi_ctxt* ctxt, cmi_ofi_shared_mutex* at,
                                                uint32_t timeout_ms);
/** Releases what cmi_ofi_shared_mutex_lock_shared() has taken. Errors: as cmi_ofi_mutex_lock(). */
CMI_EXPORT int cmi_ofi_shared_mutex_unlock_shared(cmi_ctxt* ctxt, cmi_ofi_shared_mutex* at);

/** One owner, in the order of coming; up to 64 wait in line. */
typedef struct cmi_ofi_ticket_lock {
  uint64_t tail;       /**< the ticket that was drawn last */
  uint64_t turn;       /**< how many are done */
  uint64_t places[64]; /**< the holder of each ticket */
} cmi_ofi_ticket_lock;

/**
 * Takes it. ticket: gets what the other two calls want. OWNER_DEAD: as of a mutex.
 * Errors: as cmi_ofi_mutex_lock().
 */
CMI_EXPORT int cmi_ofi_ticket_lock_lock(cmi_ctxt* ctxt, cmi_ofi_ticket_lock* at,
                                        uint32_t timeout_ms, uint32_t* ticket);
/** Releases it. Errors: as cmi_ofi_mutex_lock(). */
CMI_EXPORT int cmi_ofi_ticket_lock_unlock(cmi_ctxt* ctxt, cmi_ofi_ticket_lock* at, uint32_t ticket);
/** As cmi_ofi_mutex_repaired(). Errors: as cmi_ofi_mutex_lock(). */
CMI_EXPORT int cmi_ofi_ticket_lock_repaired(cmi_ctxt* ctxt, cmi_ofi_ticket_lock* at,
                                            uint32_t ticket);

/* ---- Semaphores, barriers, latches ---------------------------------------------------------- */

/** Up to 63 permits, each held by a context. */
typedef struct cmi_ofi_semaphore {
  uint64_t head;        /**< how many permits */
  uint64_t permits[63]; /**< who has which */
} cmi_ofi_semaphore;

/**
 * Makes it, of 1 to 63 permits; again, with as many: does nothing.
 * Errors: as cmi_ofi_mutex_lock().
 */
CMI_EXPORT int cmi_ofi_semaphore_init(cmi_ctxt* ctxt, cmi_ofi_semaphore* at, uint32_t permits);
/**
 * Takes a permit. OWNER_DEAD: taken over from a context that is gone.
 * Errors: as cmi_ofi_mutex_lock().
 */
CMI_EXPORT int cmi_ofi_semaphore_acquire(cmi_ctxt* ctxt, cmi_ofi_semaphore* at,
                                         uint32_t timeout_ms);
/** Gives back a permit that this context has taken. Errors: as cmi_ofi_mutex_lock(). */
CMI_EXPORT int cmi_ofi_semaphore_release(cmi_ctxt* ctxt, cmi_ofi_semaphore* at);

/** Up to 63 parties that wait for each other, again and again. */
typedef struct cmi_ofi_barrier {
  uint64_t head;        /**< how many parties */
  uint64_t parties[63]; /**< who has come how often */
} cmi_ofi_barrier;

/** A party: of one thread, in its own memory, all zeros at first. */
typedef struct cmi_ofi_party {
  uint32_t place;   /**< 0: it has not come yet */
  uint32_t arrived; /**< it has come, and not gone on yet */
} cmi_ofi_party;

/**
 * Makes it, for 1 to 63 parties; again, with as many: does nothing.
 * Errors: as cmi_ofi_mutex_lock().
 */
CMI_EXPORT int cmi_ofi_barrier_init(cmi_ctxt* ctxt, cmi_ofi_barrier* at, uint32_t parties);
/**
 * Arrives, and waits until all have. OWNER_DEAD: a party has died before it came, and does not
 * count from now on; so it stays. TIMED_OUT: it has arrived; call again to wait on.
 * Errors: as cmi_ofi_mutex_lock().
 */
CMI_EXPORT int cmi_ofi_barrier_wait(cmi_ctxt* ctxt, cmi_ofi_barrier* at, cmi_ofi_party* party,
                                    uint32_t timeout_ms);

/** A number that goes down to 0, once. A process that dies before it counts is not noticed. */
typedef struct cmi_ofi_latch {
  uint64_t word; /**< how much is left */
} cmi_ofi_latch;

/** Makes it; again: does nothing. count: less than 2^39. Errors: as cmi_ofi_mutex_lock(). */
CMI_EXPORT int cmi_ofi_latch_init(cmi_ctxt* ctxt, cmi_ofi_latch* at, uint64_t count);
/**
 * Takes `by` off. CMI_ERR_INVAL as well where there is not so much left.
 * Errors: as cmi_ofi_mutex_lock().
 */
CMI_EXPORT int cmi_ofi_latch_count_down(cmi_ctxt* ctxt, cmi_ofi_latch* at, uint64_t by);
/** Waits for 0. Errors: as cmi_ofi_mutex_lock(). */
CMI_EXPORT int cmi_ofi_latch_wait(cmi_ctxt* ctxt, cmi_ofi_latch* at, uint32_t timeout_ms);

/* ---- Queues --------------------------------------------------------------------------------- */

/**
 * A thread's access to a queue of items of one size: in its own memory. Items are stored plainly,
 * so that a queue survives in a segment that is CMI_SEG_CLIENT_CONSIST.
 */
typedef struct cmi_ofi_queue {
  void* memory;       /**< where it lies */
  uint32_t cells;     /**< how many items it has room for */
  uint32_t item_size; /**< bytes of one */
  uint64_t put;       /**< the library's note of where to put the next one */
  uint64_t taken;     /**< and of where to take it from */
} cmi_ofi_queue;

/** Bytes that a queue takes: of at most 65536 cells of at most 65536 bytes. */
static inline size_t cmi_ofi_queue_size(uint32_t cells, uint32_t item_size) {
  const size_t item = item_size;
  return 8 + cells * (8 + (item + 7) / 8 * 8);
}
/**
 * Fills in queue; makes the queue at memory, a multiple of 8, where it is still all zeros.
 * Errors: as cmi_ofi_mutex_lock().
 */
CMI_EXPORT int cmi_ofi_queue_open(cmi_ctxt* ctxt, cmi_ofi_queue* queue, void* memory,
                                  uint32_t cells, uint32_t item_size);
/**
 * Puts an item in. OWNER_DEAD: nothing was put in; a process died while it filled the next cell,
 * and its item was never in the queue. The cell is free: call again. TIMED_OUT: it is full.
 * Errors: as cmi_ofi_mutex_lock().
 */
CMI_EXPORT int cmi_ofi_queue_push(cmi_ctxt* ctxt, cmi_ofi_queue* queue, const void* item,
                                  uint32_t timeout_ms);
/**
 * Takes the first item out. As cmi_ofi_queue_push(); TIMED_OUT: it is empty. An item that a process
 * died over before its call had returned goes to a caller that waits, or comes again behind others.
 * Errors: as cmi_ofi_mutex_lock().
 */
CMI_EXPORT int cmi_ofi_queue_pop(cmi_ctxt* ctxt, cmi_ofi_queue* queue, void* item,
                                 uint32_t timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
