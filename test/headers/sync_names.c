/*
 * sync_names.c: uses every name of <cmi/ofi/cmi_sync.h> and cmi_arena.h with the type it must have,
 * and holds the layouts against what processes of other versions rely on. Also C++17.
 */
#include <assert.h>
#include <cmi/ofi/cmi_arena.h>
#include <cmi/ofi/cmi_sync.h>

static_assert(CMI_OFI_OWNER_DEAD == 1 && CMI_OFI_TIMED_OUT == 2, "results");
static_assert(sizeof(cmi_ofi_mutex) == 8, "one word");
static_assert(sizeof(cmi_ofi_shared_mutex) == 512, "64 words");
static_assert(offsetof(cmi_ofi_shared_mutex, readers) == 8, "behind the writer's");
static_assert(sizeof(cmi_ofi_ticket_lock) == 528, "66 words");
static_assert(offsetof(cmi_ofi_ticket_lock, places) == 16, "behind tail and turn");
static_assert(sizeof(cmi_ofi_semaphore) == 512 && sizeof(cmi_ofi_barrier) == 512, "64 words");
static_assert(sizeof(cmi_ofi_latch) == 8 && sizeof(cmi_ofi_party) == 8, "one word");

int sync_names(cmi_ctxt* ctxt, void* memory);

int sync_names(cmi_ctxt* ctxt, void* memory) {
  int (*holder)(cmi_ctxt*, const void*, uint64_t*) = cmi_ofi_holder;
  int (*gone)(cmi_ctxt*, const void*, uint64_t) = cmi_ofi_holder_gone;
  int (*lock[])(cmi_ctxt*, cmi_ofi_mutex*, uint32_t) = {cmi_ofi_mutex_lock};
  int (*unlock[])(cmi_ctxt*, cmi_ofi_mutex*) = {cmi_ofi_mutex_unlock, cmi_ofi_mutex_repaired};
  int (*enter[])(cmi_ctxt*, cmi_ofi_shared_mutex*, uint32_t) = {cmi_ofi_shared_mutex_lock,
                                                                cmi_ofi_shared_mutex_lock_shared};
  int (*leave[])(cmi_ctxt*, cmi_ofi_shared_mutex*) = {cmi_ofi_shared_mutex_unlock,
                                                      cmi_ofi_shared_mutex_unlock_shared,
                                                      cmi_ofi_shared_mutex_repaired};
  int (*draw)(cmi_ctxt*, cmi_ofi_ticket_lock*, uint32_t, uint32_t*) = cmi_ofi_ticket_lock_lock;
  int (*done[])(cmi_ctxt*, cmi_ofi_ticket_lock*, uint32_t) = {cmi_ofi_ticket_lock_unlock,
                                                              cmi_ofi_ticket_lock_repaired};
  int (*permits[])(cmi_ctxt*, cmi_ofi_semaphore*, uint32_t) = {cmi_ofi_semaphore_init,
                                                               cmi_ofi_semaphore_acquire};
  int (*release)(cmi_ctxt*, cmi_ofi_semaphore*) = cmi_ofi_semaphore_release;
  int (*parties)(cmi_ctxt*, cmi_ofi_barrier*, uint32_t) = cmi_ofi_barrier_init;
  int (*pass)(cmi_ctxt*, cmi_ofi_barrier*, cmi_ofi_party*, uint32_t) = cmi_ofi_barrier_wait;
  int (*count[])(cmi_ctxt*, cmi_ofi_latch*, uint64_t) = {cmi_ofi_latch_init,
                                                         cmi_ofi_latch_count_down};
  int (*wait)(cmi_ctxt*, cmi_ofi_latch*, uint32_t) = cmi_ofi_latch_wait;
  int (*open)(cmi_ctxt*, cmi_ofi_queue*, void*, uint32_t, uint32_t) = cmi_ofi_queue_open;
  int (*push)(cmi_ctxt*, cmi_ofi_queue*, const void*, uint32_t) = cmi_ofi_queue_push;
  int (*pop)(cmi_ctxt*, cmi_ofi_queue*, void*, uint32_t) = cmi_ofi_queue_pop;
  int (*make)(cmi_ctxt*, cmi_ofi_arena*, void*, size_t, size_t) = cmi_ofi_arena_open;
  int (*take)(cmi_ctxt*, cmi_ofi_arena*, size_t, void**) = cmi_ofi_arena_allocate;
  int (*give)(cmi_ctxt*, cmi_ofi_arena*, void*) = cmi_ofi_arena_free;
  int (*end[])(cmi_ctxt*, cmi_ofi_arena*) = {cmi_ofi_arena_commit, cmi_ofi_arena_abort};
  int (*sweep)(cmi_ctxt*, cmi_ofi_arena*, uint64_t*) = cmi_ofi_arena_sweep;
  cmi_ofi_queue queue = {memory, 4, sizeof(uint64_t), 0, 0};
  uint64_t name = 0;
  const int named = holder(ctxt, memory, &name) + gone(ctxt, memory, name);
  return named != 0 && lock[0] && unlock[0] && enter[0] && leave[0] && draw && done[0] &&
         permits[0] && release && parties && pass && count[0] && wait && open && push && pop &&
         make && take && give && end[0] && sweep &&
         cmi_ofi_queue_size(queue.cells, queue.item_size) == 72;
}
