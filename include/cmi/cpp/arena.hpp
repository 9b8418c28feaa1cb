/*
 * cmi/cpp/arena.hpp: memory inside a segment for containers of C++, as <cmi/ofi/cmi_arena.h>
 * describes it. Part of <cmi/cmi.hpp>.
 */
#ifndef CMI_CPP_ARENA_HPP
#define CMI_CPP_ARENA_HPP

#include <cmi.h>
#include <cmi/ofi/cmi_arena.h>

#include <algorithm>
#include <cmi/cpp/atomic.hpp>
#include <cmi/cpp/context.hpp>
#include <cmi/cpp/error.hpp>
#include <cmi/cpp/segment.hpp>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>
#include <random>
#include <utility>

namespace cmi {

/* ---- One address everywhere ----------------------------------------------------------------- */

/**
 * Attaches a segment at the address at which every process attaches it that uses this function, so
 * that pointers into it mean the same everywhere. The first to come chooses, in a range of 64 TiB
 * that programs and libraries seldom use, and writes the address into the segment's first 8 bytes,
 * which are this function's. Throws CMI_ERR_NOMEM where the address is taken in this process, and
 * CMI_ERR_INVAL where the first bytes are something else.
 */
inline view<std::byte> attach_alike(const context& of, const segment& shared,
                                    std::error_code& code) {
  constexpr uint64_t first = uint64_t{1} << 44, last = uint64_t{5} << 44, step = uint64_t{1} << 30;
  const size_t size = shared.size(code);
  if (code) return {};
  uint64_t address = 0;
  {
    const view<uint64_t> anywhere = shared.attach<uint64_t>(0, code);
    if (code) return {};
    const atomic_ref<uint64_t> word(of, anywhere[0]);
    address = word.load();
    if (address == 0) {
      std::random_device random;
      const uint64_t chosen = first + random() % ((last - first) / step) * step;
      if (word.compare_exchange(address, chosen, code)) address = chosen;
      if (code) return {};
    }
  }
  if (address < first || address >= last || address % step != 0) {
    code = CMI_ERR_INVAL;
    return {};
  }
  void* const at =
      CMIFN(of.get(), 10, seg_at)(of.get(), shared.id(), reinterpret_cast<void*>(address), 0);
  detail::set(code, at != nullptr);
  return code ? view<std::byte>() : view<std::byte>(of.get(), shared.id(), at, size);
}
inline view<std::byte> attach_alike(const context& of, const segment& shared) {
  std::error_code code;
  view<std::byte> made = attach_alike(of, shared, code);
  if (code == CMI_ERR_INVAL) {
    throw error(code, "attach_alike: it may not be attached, or does not begin with its address");
  }
  detail::throw_if(code);
  return made;
}

/* ---- The arena ------------------------------------------------------------------------------ */

/**
 * A thread's access to an arena: a memory resource, and what arena_allocator works with. Until
 * commit() everything is undone by sweep() if the process dies. std::bad_alloc: there is no room.
 *
 * Containers of std::pmr keep the address of their resource, which is another one in each process:
 * others may read them. Those with arena_allocator, which keeps nothing, may be changed by all.
 */
class arena final : public std::pmr::memory_resource {
 public:
  /** memory: a multiple of 4096; region_size: a power of two, the largest block. */
  arena(const context& of, void* memory, size_t size, size_t region_size, std::error_code& code)
      : ctxt_(of.get()) {
    detail::set(code, cmi_ofi_arena_open(ctxt_, &arena_, memory, size, region_size) == 0);
  }
  arena(const context& of, void* memory, size_t size, size_t region_size = 64 * 1024)
      : ctxt_(of.get()) {
    if (cmi_ofi_arena_open(ctxt_, &arena_, memory, size, region_size) != 0) {
      detail::throw_if(detail::last_error());
    }
  }
  /** All behind the first page of what attach_alike() has attached. */
  arena(const context& of, const view<std::byte>& shared, size_t region_size = 64 * 1024)
      : arena(of, shared.data() + page, shared.size() - page, region_size) {}
  arena(const arena&) = delete;
  arena& operator=(const arena&) = delete;
  ~arena() override {
    if (current() == this) current() = nullptr;
  }

  /** Keeps what was allocated, frees what was deallocated: all or nothing. */
  void commit(std::error_code& code) noexcept {
    detail::set(code, cmi_ofi_arena_commit(ctxt_, &arena_) == 0);
  }
  void commit() {
    detail::throwing([&](std::error_code& code) { commit(code); });
  }
  /** Undoes both. */
  void abort(std::error_code& code) noexcept {
    detail::set(code, cmi_ofi_arena_abort(ctxt_, &arena_) == 0);
  }
  void abort() {
    detail::throwing([&](std::error_code& code) { abort(code); });
  }
  /** Ends what clients that are gone have begun: how many blocks. */
  uint64_t sweep(std::error_code& code) noexcept {
    uint64_t blocks = 0;
    detail::set(code, cmi_ofi_arena_sweep(ctxt_, &arena_, &blocks) == 0);
    return blocks;
  }
  uint64_t sweep() {
    return detail::throwing([&](std::error_code& code) { return sweep(code); });
  }
  /** What arena_allocator uses in this thread from now on. */
  void use() noexcept { current() = this; }
  static arena*& current() noexcept {
    static thread_local arena* used = nullptr;
    return used;
  }

 private:
  static constexpr size_t page = 4096;

  void* do_allocate(size_t bytes, size_t alignment) override {
    void* block = nullptr;
    if (alignment > page) throw std::bad_alloc();
    const size_t size = std::max({bytes, alignment, size_t{1}});
    if (cmi_ofi_arena_allocate(ctxt_, &arena_, size, &block) == 0) return block;
    if (detail::last_error() == CMI_ERR_NOMEM) throw std::bad_alloc();
    detail::throw_if(detail::last_error());
    return nullptr;
  }
  void do_deallocate(void* block, size_t, size_t) override {
    cmi_ofi_arena_free(ctxt_, &arena_, block);
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  cmi_ctxt* ctxt_;
  cmi_ofi_arena arena_ = {};
};

/** An allocator without state, over the arena that the thread uses: arena::use(). */
template <class T>
struct arena_allocator {
  using value_type = T;
  arena_allocator() = default;
  template <class Other>
  arena_allocator(const arena_allocator<Other>&) noexcept {}
  T* allocate(size_t count) {
    arena* const used = arena::current();
    if (used == nullptr || count > SIZE_MAX / sizeof(T)) throw std::bad_alloc();
    return static_cast<T*>(used->allocate(count * sizeof(T), alignof(T)));
  }
  void deallocate(T* block, size_t count) noexcept {
    arena* const used = arena::current();
    if (used != nullptr) used->deallocate(block, count * sizeof(T), alignof(T));
  }
  friend bool operator==(const arena_allocator&, const arena_allocator&) noexcept { return true; }
};

}  // namespace cmi

#endif
