/*
 * cmi/ofi/cmi_arena.h: memory inside a segment, handed out and given back by processes of many
 * nodes, which may be killed at any time. C11, and valid C++17.
 *
 * - Blocks are of sizes that are powers of two, from 128 bytes to the arena's regions, at multiples
 *   of their size, or of a page where that is less. A region keeps the size of its first block.
 * - What is taken and given back belongs to a transaction of the thread's arena, until it is
 *   committed: all of it, or nothing. What a client that is gone had not committed is undone by the
 *   next cmi_ofi_arena_sweep() of any client, and what it had committed is finished.
 * - Each block costs one swap, and one more at the commit, which has two of its own. Words of
 * blocks lie apart from the blocks, and are changed by atm_cas() alone.
 */
#ifndef CMI_OFI_CMI_ARENA_H
#define CMI_OFI_CMI_ARENA_H

#include <cmi.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A client's access to an arena, in its own memory; of one thread at a time. Opaque. */
typedef struct cmi_ofi_arena {
  uint64_t opaque[72]; /**< the library's */
} cmi_ofi_arena;

/**
 * Opens the arena at memory, and makes it where there are zeros.
 *   memory       in a view, a multiple of 4096
 *   size         bytes
 *   region_size  a power of two from 4096 to 2^30: the largest block, and what the arena is cut
 * into All processes give the same sizes. 62 clients can have it open and use it. Errors:
 * CMI_ERR_INVAL, not this process's context, not such sizes, what lies there is no such arena, or
 * memory or a block is not one of it that is in use; CMI_ERR_NOMEM, no room is left, or there are
 * too many clients, or no memory for a swap; CMI_ERR_PERM, this client was declared dead and its
 * transaction undone; CMI_ERR_INIT, the calling thread is not registered; CMI_ERR_STORE and
 * CMI_ERR_HW, what a swap failed with, as atm_cas() says.
 */
CMI_EXPORT int cmi_ofi_arena_open(cmi_ctxt* ctxt, cmi_ofi_arena* arena, void* memory, size_t size,
                                  size_t region_size);
/** A block of at least so many bytes, with anything in it. Errors: as cmi_ofi_arena_open(). */
CMI_EXPORT int cmi_ofi_arena_allocate(cmi_ctxt* ctxt, cmi_ofi_arena* arena, size_t size,
                                      void** block);
/** Gives a block back, at the commit where it was kept. Errors: as cmi_ofi_arena_open(). */
CMI_EXPORT int cmi_ofi_arena_free(cmi_ctxt* ctxt, cmi_ofi_arena* arena, void* block);
/** Keeps what was taken, frees what was given back. Errors: as cmi_ofi_arena_open(). */
CMI_EXPORT int cmi_ofi_arena_commit(cmi_ctxt* ctxt, cmi_ofi_arena* arena);
/** Undoes both. Errors: as cmi_ofi_arena_open(). */
CMI_EXPORT int cmi_ofi_arena_abort(cmi_ctxt* ctxt, cmi_ofi_arena* arena);
/** Ends what clients that are gone have begun. blocks: how many. Errors: as cmi_ofi_arena_open().
 */
CMI_EXPORT int cmi_ofi_arena_sweep(cmi_ctxt* ctxt, cmi_ofi_arena* arena, uint64_t* blocks);

#ifdef __cplusplus
}
#endif

#endif
