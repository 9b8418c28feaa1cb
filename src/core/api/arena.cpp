// The calls of <cmi/ofi/cmi_arena.h>: core/locks/arena.hpp over memory of the client's views.
#include "core/locks/arena.hpp"

#include <cmi/ofi/cmi_arena.h>

#include <bit>
#include <type_traits>

#include "core/api/view_words.hpp"

using namespace cmi;  // the C names live outside of any namespace

static_assert(sizeof(locks::Arena) <= sizeof(cmi_ofi_arena) &&
              alignof(locks::Arena) <= alignof(cmi_ofi_arena) &&
              std::is_trivially_copyable_v<locks::Arena>);

namespace {

locks::Arena* access_of(cmi_ofi_arena* arena) { return reinterpret_cast<locks::Arena*>(arena); }

// As with_words(), where a call that finds no room fails.
template <class Body>
int in_arena(cmi_ctxt* ctxt, const void* at, const char* call, Body body) {
  const int result = api::with_words(ctxt, at, call, body);
  if (result != CMI_OFI_TIMED_OUT) return result;
  api::fail(kFacMem, CMI_ERR_NOMEM, "{}({}): CMI_ERR_NOMEM, no room is left", call, fmt::ptr(at));
  return -1;
}

}  // namespace

extern "C" {

int cmi_ofi_arena_open(cmi_ctxt* ctxt, cmi_ofi_arena* arena, void* memory, size_t size,
                       size_t region_size) {
  return in_arena(ctxt, memory, "cmi_ofi_arena_open", [=](locks::Words& w) {
    if (!std::has_single_bit(region_size) || reinterpret_cast<uintptr_t>(memory) % kPageSize != 0) {
      return locks::Outcome::kBad;
    }
    const auto shift = static_cast<uint32_t>(std::countr_zero(region_size));
    return open_arena(w, access_of(arena), memory, size, shift);
  });
}
int cmi_ofi_arena_allocate(cmi_ctxt* ctxt, cmi_ofi_arena* arena, size_t size, void** block) {
  return in_arena(ctxt, access_of(arena)->memory, "cmi_ofi_arena_allocate", [=](locks::Words& w) {
    return allocate_block(w, access_of(arena), size, block);
  });
}
int cmi_ofi_arena_free(cmi_ctxt* ctxt, cmi_ofi_arena* arena, void* block) {
  return in_arena(ctxt, access_of(arena)->memory, "cmi_ofi_arena_free",
                  [=](locks::Words& w) { return free_block(w, access_of(arena), block); });
}
int cmi_ofi_arena_commit(cmi_ctxt* ctxt, cmi_ofi_arena* arena) {
  return in_arena(ctxt, access_of(arena)->memory, "cmi_ofi_arena_commit",
                  [=](locks::Words& w) { return commit_arena(w, access_of(arena)); });
}
int cmi_ofi_arena_abort(cmi_ctxt* ctxt, cmi_ofi_arena* arena) {
  return in_arena(ctxt, access_of(arena)->memory, "cmi_ofi_arena_abort",
                  [=](locks::Words& w) { return abort_arena(w, access_of(arena)); });
}
int cmi_ofi_arena_sweep(cmi_ctxt* ctxt, cmi_ofi_arena* arena, uint64_t* blocks) {
  return in_arena(ctxt, access_of(arena)->memory, "cmi_ofi_arena_sweep",
                  [=](locks::Words& w) { return sweep_arena(w, access_of(arena), blocks); });
}

}  // extern "C"
