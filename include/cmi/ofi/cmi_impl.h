/*
 * cmi/ofi/cmi_impl.h: what this implementation of CMI adds to <cmi.h>: the memory barriers of the
 * specification as macros [cmi(5), CMI Memory Model], a descriptor that says that an event waits,
 * errors in words, handles and tokens as text, and counters of what the library did. C11, and valid
 * C++17. Clients that use nothing from here run on every implementation.
 */
#ifndef CMI_OFI_CMI_IMPL_H
#define CMI_OFI_CMI_IMPL_H

#include <cmi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Barriers ------------------------------------------------------------------------------- */

/*
 * cmi_mb() full barrier, cmi_wmb() write barrier, cmi_rmb() read barrier: as mb_fn(), wmb_fn() and
 * rmb_fn() of <cmi.h>, for the process's context, without an argument. Each is an expression of
 * type int: 0 on success, -1 on failure, and then cmi_get_error() tells why: CMI_ERR_INIT if the
 * calling thread is not registered (so too when the process has no context). The compiler moves no
 * memory access across them. cmi_rmb() is a fence of the CPU and nothing more, since importers are
 * told to drop their pages when stores are published; it looks at no context and is always 0.
 */
#define cmi_mb() cmi_ofi_mb_inline()
#define cmi_wmb() cmi_ofi_wmb_inline()
#define cmi_rmb() cmi_ofi_rmb_inline()

/** What cmi_mb() calls; use the macro. */
CMI_EXPORT int cmi_ofi_mb(void);
/** What cmi_wmb() calls; use the macro. */
CMI_EXPORT int cmi_ofi_wmb(void);

/* The empty asm keeps the compiler from moving accesses even where it can see into the call. */
static inline int cmi_ofi_mb_inline(void) {
  int result;
  __asm__ __volatile__("" : : : "memory");
  result = cmi_ofi_mb();
  __asm__ __volatile__("" : : : "memory");
  return result;
}

static inline int cmi_ofi_wmb_inline(void) {
  int result;
  __asm__ __volatile__("" : : : "memory");
  result = cmi_ofi_wmb();
  __asm__ __volatile__("" : : : "memory");
  return result;
}

static inline int cmi_ofi_rmb_inline(void) {
  __asm__ __volatile__("" : : : "memory");
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  __asm__ __volatile__("" : : : "memory");
  return 0;
}

/* ---- Events --------------------------------------------------------------------------------- */

/**
 * A descriptor that polls readable while evt_get() has an event to give, for clients with an event
 * loop. It is the library's: poll it, do not read or close it. It is valid until the context ends.
 * Returns: the descriptor, or -1 with cmi_get_error().
 * Errors: CMI_ERR_INVAL, not this process's context; CMI_ERR_INIT, the calling thread is not
 * registered.
 */
CMI_EXPORT int cmi_ofi_evt_fd(cmi_ctxt* ctxt);

/* ---- Errors in words ------------------------------------------------------------------------ */

/**
 * What an error, an exception or an event is called, as "CMI_ERR_INVAL", "CMI_ERROR_TOKEN" or
 * "CMI_EVENT_HW", and for cmi_ofi_strerror() what the error means, as "the calling thread is not
 * registered". Any value is taken: one that is unknown gets words that say so.
 *   exception  si_errno of a SIGSEGV whose si_code is SEGV_CMI
 *   type       cmi_event.type
 * Any thread may call them at any time, in a signal handler as well. Returns: a string that lives
 * as long as the process.
 */
CMI_EXPORT const char* cmi_ofi_strerror(cmi_error error);
/** The name of an error; see cmi_ofi_strerror(). */
CMI_EXPORT const char* cmi_ofi_error_name(cmi_error error);
/** The name of an exception; see cmi_ofi_strerror(). */
CMI_EXPORT const char* cmi_ofi_exception_name(int exception);
/** The name of an event; see cmi_ofi_strerror(). */
CMI_EXPORT const char* cmi_ofi_event_name(cmi_event_type type);

/**
 * Why the last call of the calling thread failed, in one sentence: the call with its arguments, the
 * error's name, and the cause, as "seg_get(1 bytes, flags 0x0): CMI_ERR_INVAL, the size is not a
 * multiple of the page size". It is what a trace of level ERROR shows, kept without a trace.
 *   ctxt  not looked at; may be NULL, for instance after cmi_ini() has failed
 * Returns: the sentence, "" if nothing failed. It is the thread's, and valid until its next call.
 */
CMI_EXPORT const char* cmi_ofi_error_text(cmi_ctxt* ctxt);

/* ---- Objects as text ------------------------------------------------------------------------ */

/** Bytes that hold the text of any object, its NUL included. */
#define CMI_OFI_TEXT_SIZE 1056

/**
 * The text of a handle of seg_exp(), a token of tok_new() or a node address: one word of letters,
 * digits, '-' and '_' that names its version and carries a checksum, for a command line, a file or
 * the environment. The text of a token grants what the token grants.
 *   object  the handle, token or node address
 *   text    gets the word with its NUL; CMI_OFI_TEXT_SIZE bytes suffice
 *   len     in: bytes at text; out: bytes that the word takes, its NUL included
 * Needs no context; any thread may call it. Returns: 0, or -1 with cmi_get_error().
 * Errors: CMI_ERR_INVAL, object is not valid, or a pointer is NULL; CMI_ERR_NOMEM, text is too
 * short or there is no memory, and *len says how much it takes.
 */
CMI_EXPORT int cmi_ofi_format(const void* object, char* text, size_t* len);

/**
 * The object that a text stands for, byte by byte what cmi_ofi_format() was given. Calls that take
 * a handle refuse a token and the reverse, so a mixed up text is noticed there.
 *   text    what cmi_ofi_format() made, with its NUL
 *   object  gets the object; as many bytes as attr_get() tells for its kind suffice
 *   len     in: bytes at object; out: bytes of the object
 * Needs no context; any thread may call it. Returns: 0, or -1 with cmi_get_error().
 * Errors: CMI_ERR_INVAL, text is damaged, cut, of another version or no such text, or a pointer is
 * NULL; CMI_ERR_NOMEM, object is too short or there is no memory, and *len says how much it takes.
 */
CMI_EXPORT int cmi_ofi_parse(const char* text, void* object, size_t* len);

/* ---- Finding each other --------------------------------------------------------------------- */

/**
 * Leaves a handle and a token at a place, under a name, for cmi_ofi_find() of other processes.
 *   where  the path of a folder that both see: one file, `name`.cmi, for processes of one user; it
 *          appears whole, an earlier one is replaced, and nothing takes it away but the client.
 *          "tcp://HOST:PORT": the context itself listens there, and answers until fini() or the end
 *          of the process. "tcp://HOST:PORT?secret=FILE", or CMI_SECRET: for those alone that know
 *          the same secret, which does not travel; handle and token are not hidden from those that
 *          can listen to the network.
 *          "pmix:": for the other processes of a job that a launcher with PMIx has started; they
 *          find it at "pmix:RANK", the rank of this process, where "pmix:" is rank 0. libpmix is
 *          loaded then. A name is offered once by a process, until the job's end
 *   name   1 to 200 letters, digits, '.', '-' and '_', no '.' first
 *   rseg   of seg_exp(), and
 *   tok    of tok_new() for the same segment; both NULL: takes the offer away, if there is one
 * All names at one host and port share the listener, which goes with the last of them.
 * Returns: 0, or -1 with cmi_get_error().
 * Errors: CMI_ERR_INVAL, not this process's context, no such place, another socket is at the port,
 * no such name, or no handle and token of one segment; CMI_ERR_INIT, the calling thread is not
 * registered; CMI_ERR_PERM, the folder may not be written to, the port is not for every user, or
 * the file of the secret may not be read; CMI_ERR_NOMEM, no memory, no descriptors, no room, or too
 * many offers (1024 names, 16 ports); CMI_ERR_RECONFIG, whether there is such a host is not known
 * now; CMI_ERR_NOTSUPP, no libpmix or no launcher with PMIx, or an offer there is to be changed or
 * taken away; CMI_ERR_HW, its server refuses.
 */
CMI_EXPORT int cmi_ofi_offer(cmi_ctxt* ctxt, const char* where, const char* name,
                             const cmi_rseg* rseg, const cmi_token* tok);

/**
 * Waits for such an offer, imports its segment as seg_imp() does, and sets its token as
 * CMI_SEG_TOKEN does; seg_at() and cmi_enb() follow. An offer whose home is gone is passed over
 * until another takes its place. The thread's signals are not blocked while it waits.
 *   where, name  as for cmi_ofi_offer()
 *   timeout_ms   how long to wait for an offer, in milliseconds; 0: one look
 * A look over tcp that has begun by then may take 2 s longer, one with PMIx 1 s, and the system's
 * resolver its own time; an import that has begun takes as long as seg_imp() may.
 * Returns: the imported segment, or CMI_SEG_INVALID with cmi_get_error().
 * Errors: CMI_ERR_RECONFIG, there is no offer by then, or its home is gone; CMI_ERR_PERM, the file
 * is another user's, the secrets are not the same, or the token is another node's; CMI_ERR_INVAL,
 * no such place, host or name, the offer is damaged, or what answers by then is no offer;
 * CMI_ERR_INIT, the calling thread is not registered; CMI_ERR_NOTSUPP, no libpmix, or no launcher
 * with PMIx; and as seg_imp().
 */
CMI_EXPORT cmi_seg cmi_ofi_find(cmi_ctxt* ctxt, const char* where, const char* name,
                                uint32_t timeout_ms);

/* ---- Fetching ahead ------------------------------------------------------------------------- */

/**
 * Says that a range of an imported segment is about to be loaded, in whatever order: what of it is
 * not cached comes from its home in reads of up to 1 MiB, where each page would be a miss. The call
 * does not wait for them; a load that comes to a page that is under way does. At most 16 MiB of a
 * range are asked for, and half of the import's cache; at home, and where pages are mapped or
 * nothing is cached, the call does nothing.
 *   addr  in a view
 *   len   bytes; what goes beyond the view is left out
 * It is a hint. What cannot be asked for is left to the load, and so are exceptions.
 * Returns: 0, or -1 with cmi_get_error().
 * Errors: CMI_ERR_INVAL, not this process's context, or addr is in no view; CMI_ERR_INIT, the
 * calling thread is not registered.
 */
CMI_EXPORT int cmi_ofi_prefetch(cmi_ctxt* ctxt, const void* addr, size_t len);

/* ---- Counters ------------------------------------------------------------------------------- */

/**
 * What the library did for the calling process since cmi_ini() made its context. Counters only
 * grow; they are read one by one, so that two of them may differ by an operation that is under way.
 * A page is 4096 bytes, also of a segment of large pages, which is cached in pages of this size.
 */
struct cmi_ofi_stats {
  size_t size; /**< in: sizeof(struct cmi_ofi_stats), for versions to come; the call leaves it */

  uint64_t load_misses;  /**< loads that found their page not cached */
  uint64_t store_misses; /**< stores that found their page not cached */
  uint64_t store_faults; /**< first stores to cached pages; of pages in order one for several */

  uint64_t pages_fetched;      /**< pages that came from their home, read ahead included */
  uint64_t bytes_fetched;      /**< bytes of those pages */
  uint64_t bytes_written_back; /**< bytes that had changed and went to their home */
  uint64_t pages_written_back; /**< pages that those bytes were in, counted each time */

  uint64_t publications;           /**< messages that told a home of stores */
  uint64_t invalidations_received; /**< messages of a home that told us to drop or update pages */

  uint64_t cas_calls; /**< calls of atm_cas() that were carried out */
  uint64_t cas_lost;  /**< those of them that found another value than cmpval */

  uint64_t exceptions;       /**< SIGSEGV with SEGV_CMI raised */
  uint64_t messages_dropped; /**< messages from the network that were malformed or unexpected */

  uint64_t pages_evicted; /**< pages that left a cache because it was full */

  uint64_t most_unanswered; /**< most messages of `publications` without an answer at one time */

  uint64_t ticks; /**< runs of the timer that publishes what no barrier did; it rests meanwhile */

  /** cached pages that were brought up to date by such a message, instead of dropped */
  uint64_t pages_updated;

  /** those of `publications` that ended with the direct acks of all notified importers */
  uint64_t publications_received;

  /** those of `invalidations_received` whose pages were neither cached nor being fetched here */
  uint64_t invalidations_useless;

  /** questions to a home before a store to a cached page, of which it had to know first */
  uint64_t intents_asked;

  /** those of `cas_calls` whose answer brought the page of the word, which was not cached */
  uint64_t swaps_with_page;
  /** requests that waited here because their home had more to do than it takes in */
  uint64_t requests_held_back;

  /** first stores that waited because all copies of pages, a share of CMI_MEM_MAX, were in use */
  uint64_t twins_short;
};

/**
 * Fills in stats. Any registered thread may call it, at any time.
 *   stats  stats->size set by the caller
 * Returns: 0, or -1 with cmi_get_error().
 * Errors: CMI_ERR_INVAL, not this process's context, or stats is NULL or its size is not one that
 * the library knows; CMI_ERR_INIT, the calling thread is not registered.
 */
CMI_EXPORT int cmi_ofi_get_stats(cmi_ctxt* ctxt, struct cmi_ofi_stats* stats);

/*
 * The first name of cmi_ofi_get_stats(). In C++ a function would hide the structure of its name, so
 * that `cmi_ofi_stats stats{}` would not compile; there the name is a macro that takes arguments.
 */
#ifdef __cplusplus
#define cmi_ofi_stats(ctxt, stats) cmi_ofi_get_stats(ctxt, stats)
#else
/** As cmi_ofi_get_stats(). Errors: as cmi_ofi_get_stats(). */
CMI_EXPORT int cmi_ofi_stats(cmi_ctxt* ctxt, struct cmi_ofi_stats* stats);
#endif

#ifdef __cplusplus
}
#endif

#endif
