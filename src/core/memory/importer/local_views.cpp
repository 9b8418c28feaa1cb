// Mapping the home's pages in the views of a local import.
#include "core/memory/importer/local_views.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "core/base/fault_point.hpp"
#include "core/memory/vm/guarded_copy.hpp"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22  // 5.14
#endif

namespace cmi::memory {

namespace {
// Mapped by one fault where they are there, as the kernel's own faults do; a power of two.
constexpr uint32_t kAround = 16;
// So many mappings a new view leaves to the process (vm.max_map_count).
constexpr size_t kMappingsLeft = 2;

size_t bytes_of(uint32_t pages) { return size_t{pages} * kPageSize; }
}  // namespace

bool LocalViews::begin(uint32_t pages, DirtyCount& dirty) {
  const char* why = nullptr;
  auto watch = Userfault::open(Userfault::Kind::kImport, &why);
  Fd empty(memfd_create("cmi-not-granted", MFD_CLOEXEC));
  if (!watch || !empty) return false;
  Guard g(mu_);
  watch_ = watch.take();
  file_ = std::move(empty);
  pages_ = pages;
  dirty_ = &dirty;
  std::byte* const swaps = map_view(nullptr, 0);
  if (swaps == nullptr) return false;
  swaps_ = Mapping(swaps, bytes_of(pages));
  views_.push_back({swaps, false, true});
  local_.store(true, std::memory_order_release);
  return true;
}

// A file that is open for reading alone is mapped privately: the kernel lets nobody watch a shared
// mapping of it. Such a page is never unprotected, so none is ever copied, and loads see the
// home's.
std::byte* LocalViews::map_view(void* addr, int how) {
  const size_t size = bytes_of(pages_);
  const int kind = mapped_ && !writable_ ? MAP_PRIVATE | MAP_NORESERVE : MAP_SHARED;
  void* const at = mmap(addr, size, PROT_READ | PROT_WRITE, kind | how, file_.get(), 0);
  if (at == MAP_FAILED) return nullptr;
  // A child that stored here would do so unseen.
  madvise(at, size, MADV_DONTFORK);
  const bool watched = ok(watch_.add(at, size));
  memory::zap(at, size);  // under mlockall(MCL_FUTURE) it was mapped whole, before it was watched
  if (watched && (addr == nullptr || at == addr)) return static_cast<std::byte*>(at);
  if ((how & MAP_FIXED) == 0) munmap(at, size);
  return nullptr;
}

// The grant is closed last: where there is no view, it goes on.
std::byte* LocalViews::add(void* addr, bool read_only) {
  Guard g(mu_);
  std::byte* const at = map_view(addr, addr != nullptr ? MAP_FIXED_NOREPLACE : 0);
  if (at == nullptr) return nullptr;
  if (!has_mappings_left()) {
    munmap(at, bytes_of(pages_));
    return nullptr;
  }
  close_locked();
  views_.push_back({at, read_only, false});
  return at;
}

// The next grant's file of marks is mapped beside that of the one before.
bool LocalViews::has_mappings_left() {
  std::array<Mapping, kMappingsLeft> some;
  for (Mapping& one : some) {
    void* const at = mmap(nullptr, kPageSize, PROT_NONE, MAP_SHARED, file_.get(), 0);
    if (at == MAP_FAILED) return false;
    one = Mapping(at, kPageSize);
  }
  return true;
}

bool LocalViews::maps(bool writable) {
  Guard g(mu_);
  return mapped_ && (writable_ || !writable);
}

bool LocalViews::map_file(Fd file, bool writable) {
  Guard g(mu_);
  close_locked();
  const size_t size = bytes_of(pages_);
  void* const behind = mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (behind == MAP_FAILED) return false;
  behind_ = Mapping(behind, size);
  madvise(behind, size, MADV_DONTFORK);
  file_ = std::move(file);
  writable_ = writable;
  mapped_ = true;
  for (const Mapped& view : views_) {
    if (map_view(view.at, MAP_FIXED) == nullptr) return false;
  }
  return true;
}

void LocalViews::remove(const std::byte* addr) {
  Guard g(mu_);
  std::erase_if(views_, [addr](const Mapped& view) { return view.at == addr; });
}

std::vector<const std::byte*> LocalViews::addresses() {
  Guard g(mu_);
  std::vector<const std::byte*> all;
  for (const Mapped& view : views_) all.push_back(view.at);
  return all;
}

bool LocalViews::open(LocalControl control, const std::vector<const std::byte*>& views) {
  Guard g(mu_);
  const auto same = [](const std::byte* at, const Mapped& view) { return at == view.at; };
  if (!std::equal(views.begin(), views.end(), views_.begin(), views_.end(), same)) return false;
  close_locked();
  control_ = std::move(control);
  open_ = true;
  // The home reads this file from now on.
  for (const PageRange& r : stored_.all()) {
    for (uint32_t i = 0; i < r.count; ++i) control_.mark(r.first + i, true);
  }
  for (const auto& [page, count] : in_flight_) control_.mark(page, true);
  return true;
}

void LocalViews::close() {
  Guard g(mu_);
  close_locked();
}

void LocalViews::close_locked() {
  zap_locked({0, pages_});
  open_ = false;  // the home goes on reading the marks
}

void LocalViews::zap(const std::vector<PageRange>& pages) {
  Guard g(mu_);
  for (const PageRange& r : pages) zap_locked(r);
}

// Returns when no CPU can use the pages.
void LocalViews::zap_locked(PageRange pages) {
  for (const Mapped& view : views_) {
    memory::zap(view.at + bytes_of(pages.first), bytes_of(pages.count));
  }
  there_.remove(pages);
  shown_.remove(pages);
  swappable_.remove(pages);
}

void LocalViews::drop_past(uint32_t first) {
  Guard g(mu_);
  const PageRange past{first, pages_ - std::min(first, pages_)};
  zap_locked(past);
  for (const PageRange& r : stored_.in(past)) {
    forget_stores(r);
    for (uint32_t i = 0; i < r.count; ++i) clear_mark(r.first + i);
  }
  any_stored_.store(!stored_.empty(), std::memory_order_seq_cst);
}

// Pages of which there is no memory yet cannot be mapped: it is asked for, once.
bool LocalViews::map_locked(std::byte* view, PageRange pages, bool writable) {
  const size_t at = bytes_of(pages.first), len = bytes_of(pages.count);
  fault_point("local_before_map");
  if (watch_.map(view + at, len, writable)) return true;
  return madvise(behind_.data() + at, len, MADV_POPULATE_READ) == 0 &&
         watch_.map(view + at, len, writable);
}

bool LocalViews::broken(uint32_t page) {
  Guard g(mu_);
  return madvise(behind_.data() + bytes_of(page), kPageSize, MADV_POPULATE_READ) != 0 &&
         errno == EHWPOISON;
}

bool LocalViews::map_protected(PageRange pages) {
  for (const Mapped& view : views_) {
    if (!view.swaps && !map_locked(view.at, pages, false)) return false;
  }
  there_.add(pages);
  return true;
}

// Pages ahead of a reader are mapped where they are there: no memory is asked for on their account.
bool LocalViews::map_ahead(PageRange pages) {
  for (const Mapped& view : views_) {
    const size_t at = bytes_of(pages.first);
    if (!view.swaps && !watch_.map(view.at + at, bytes_of(pages.count), false)) return false;
  }
  there_.add(pages);
  return true;
}

bool LocalViews::Opened::map(Streams& loads, FluxPages& flux, uint32_t end) {
  const uint32_t first = index_ / kAround * kAround;
  const uint32_t window = std::min(loads.miss(index_) * kAround, Streams::kMaxWindow);
  const PageRange around{first, std::min(std::max(first + kAround, index_ + window), end) - first};
  for (const PageRange& r : flux.missing({around})) {
    if (index_ < r.first || index_ - r.first >= r.count) continue;
    const bool ahead = r.count > kAround && views_.map_ahead(r);
    const PageRange near{r.first, ahead ? r.count : std::min(r.count, first + kAround - r.first)};
    loads.taken(index_, near.first + near.count);
    return ahead || views_.map_protected(near) || views_.map_protected({index_, 1});
  }
  return true;  // listed as in flux meanwhile: the next look says so
}

// Before a page becomes writable: whenever it is the home knows it.
void LocalViews::note_store(uint32_t page) {
  if (stored_.contains(page)) return;
  dirty_->dirtied();
  control_.mark(page, true);
  stored_.add({page, 1});
  ++stored_count_;
  if (recent_.contains(page)) hot_.add({page, 1});
  if (!hot_.contains(page)) ++cold_count_;
  any_stored_.store(true, std::memory_order_seq_cst);
}

// All of them are in stored_.
void LocalViews::forget_stores(PageRange pages) {
  stored_.remove(pages);
  stored_count_ -= pages.count;
  for (const PageRange& cold : hot_.missing({pages})) cold_count_ -= cold.count;
  for (uint32_t i = 0; i < pages.count; ++i) dirty_->cleaned_one();
}

// The word is looked at last: a home that cuts this process off writes it first, and protects the
// pages after.
bool LocalViews::let_store(uint32_t page, bool mapped) {
  note_store(page);
  bool good = true;
  for (const Mapped& view : views_) {
    if (view.read_only || view.swaps) continue;
    watch_.unprotect(view.at + bytes_of(page), kPageSize);
    good = (mapped || map_locked(view.at, {page, 1}, true)) && good;
  }
  if (control_.is_cut_off()) close_locked();
  return good;
}

// Pages that are there, and that nobody has stored to through a view.
void LocalViews::let_store_ahead(PageRange pages) {
  for (uint32_t i = 0; i < pages.count; ++i) note_store(pages.first + i);
  for (const Mapped& view : views_) {
    if (view.read_only || view.swaps) continue;
    std::byte* const at = view.at + bytes_of(pages.first);
    watch_.unprotect(at, bytes_of(pages.count));
    watch_.map(at, bytes_of(pages.count), true);  // what is not there faults
  }
  if (control_.is_cut_off()) close_locked();
}

bool LocalViews::Opened::map_for_stores(StoreStreams& streams, FluxPages& flux, uint32_t end) {
  LocalViews& v = views_;
  // A second fault: the page is not in the view, whatever was known of it.
  if (page_ == Page::kStored) return v.let_store(index_, false);
  // Nothing here tells a page that was stored to from one that may be: others drop all of them.
  const uint32_t window = std::min(streams.store(index_), StoreStreams::kLongWindow);
  const uint32_t last = std::min(index_ + window, end);
  const bool good = v.let_store(index_, v.there_.contains(index_));
  uint32_t next = index_ + 1;
  while (next < last && !v.stored_.contains(next) && !flux.contains(next)) ++next;
  streams.taken(index_, next);
  if (good && v.open_ && next > index_ + 1) v.let_store_ahead({index_ + 1, next - index_ - 1});
  return good;
}

bool LocalViews::show_for_swaps(uint32_t page, bool writable) {
  PageSet& there = writable ? swappable_ : shown_;
  if (there.contains(page)) return true;
  if (writable) watch_.unprotect(swaps_.data() + bytes_of(page), kPageSize);
  if (!map_locked(swaps_.data(), {page, 1}, writable)) return false;
  there.add({page, 1});
  return true;
}

// A word that is not as expected changes nothing, and needs no mark. Where the home cuts this
// process off the page of the library's own view is protected, and the instruction is not executed.
LocalViews::Opened::Swapped LocalViews::Opened::swap(size_t in_page, uint64_t expected,
                                                     uint64_t desired, uint64_t* found) {
  LocalViews& v = views_;
  if (page_ == Page::kNoGrant || !v.writable_ || !v.show_for_swaps(index_, false)) {
    return Swapped::kNot;
  }
  auto* const word = reinterpret_cast<uint64_t*>(v.swaps_.data() + bytes_of(index_) + in_page);
  const auto* const at = reinterpret_cast<const std::byte*>(word);
  const auto load = [&] { *found = __atomic_load_n(word, __ATOMIC_SEQ_CST); };
  const auto exchange = [&] {
    *found = expected;
    __atomic_compare_exchange_n(word, found, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  };
  bool there = unless_broken(at, sizeof *word, load);
  if (there && *found != expected) return Swapped::kLost;
  if (there) {
    v.note_store(index_);
    there = v.show_for_swaps(index_, true) && !v.control_.is_cut_off() &&
            unless_broken(at, sizeof *word, exchange);
  }
  if (!there) {
    v.zap_locked({index_, 1});
    return Swapped::kNot;
  }
  return *found == expected ? Swapped::kMade : Swapped::kLost;
}

}  // namespace cmi::memory
