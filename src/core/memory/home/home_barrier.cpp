// Stores by processes of the home node: found by the kernel's own tracking or by the faults of
// first stores, published at barriers and by the timer; and swaps at home.
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/home/home.hpp"
#include "core/memory/home/home_mutations.hpp"
#include "core/memory/vm/store_log.hpp"

namespace cmi::memory {

namespace {
constexpr int kScanBatch = 64;

void add_range(std::vector<PageRange>* out, uint64_t first, uint64_t count) {
  if (!out->empty() && out->back().first + out->back().count == first) {
    out->back().count += static_cast<uint32_t>(count);
  } else {
    out->push_back({static_cast<uint32_t>(first), static_cast<uint32_t>(count)});
  }
}

// A view of this process, or of another one; `size`: of the segment, `page`: of its memory.
struct Scanned {
  int pagemap;
  uint64_t addr;
  uint64_t size, page;
};

// False when the pages of that process cannot be asked for any more. Looks at whole pages of the
// memory, and finds whole ones, which may be more than was asked for.
bool scan_view(const Scanned& v, const std::vector<PageRange>& ranges,
               std::vector<PageRange>* out) {
  WrittenRange found[kScanBatch];
  for (const PageRange& r : ranges) {
    const uint64_t from = uint64_t{r.first} * kPageSize, to = from + uint64_t{r.count} * kPageSize;
    uint64_t at = v.addr + from / v.page * v.page;
    const uint64_t end = v.addr + (to + v.page - 1) / v.page * v.page;
    while (at < end) {
      uint64_t next = end;
      const int n = scan_written(v.pagemap, at, end - at, found, kScanBatch, &next);
      if (n < 0) return false;
      for (int i = 0; i < n; ++i) {
        const uint64_t first = found[i].start - v.addr, past = found[i].end - v.addr;
        add_range(out, first / kPageSize, (std::min(past, v.size) - first) / kPageSize);
      }
      if (next <= at) break;
      at = next;
    }
  }
  return true;
}

// False when the process has ended: its pages cannot be looked at any more.
bool has_pages(int pagemap, uint64_t addr) {
  uint64_t entry;
  return ::pread(pagemap, &entry, sizeof entry,
                 static_cast<off_t>(addr / kPageSize * sizeof entry)) == sizeof entry;
}
}  // namespace

// Those of the ranges that this view surely does not have covered.
std::vector<PageRange> Home::uncovered(const Segment& s, const ForeignView& v,
                                       const std::vector<PageRange>& ranges) {
  for (const Watcher& w : s.watchers) {
    if (w.slot == v.slot) return w.covered.missing(ranges);
  }
  return ranges;  // client-consistent
}

// False: the scan broke off, and not all that it had found is in *out.
bool Home::scan_own(Segment& s, HomeView& v, const std::vector<PageRange>& ranges,
                    std::vector<PageRange>* out) {
  const Scanned own{pagemap_.get(), reinterpret_cast<uint64_t>(v.addr), s.size, v.page};
  if (!v.adopted) {
    scan_view(own, ranges, out);
    return true;
  }
  if (scan_view(own, v.here(ranges), out)) return true;
  (void)look_at_adopted(s, v);  // the client has mapped something else there
  return false;
}

// False: the process has ended. One that found no memory to single out the pages in flux has
// covered more than those: no mapping of the file is there, which the kernel says of the whole
// range. Such pages are looked for, and count as covered: they are published when it has them back.
bool Home::scan_foreign(Segment& s, const ForeignView& v, const std::vector<PageRange>& ranges,
                        std::vector<PageRange>* written) {
  const Scanned foreign{v.pagemap.get(), v.addr, s.size, s.page_size()};
  const auto least = static_cast<uint32_t>(foreign.page / kPageSize);
  std::vector<PageRange> left = outward(s, uncovered(s, v, ranges));
  // Of a process that has ended, or is about to, a scan finds nothing and says so: had it pages
  // still when that was over, it had them all the while.
  if (scan_view(foreign, left, written)) return has_pages(v.pagemap.get(), v.addr);
  if (mutated("mutate_view_with_holes_forgotten")) return false;
  PageSet holes;
  while (!left.empty()) {
    const PageRange r = left.back();
    left.pop_back();
    if (scan_view(foreign, {r}, written)) continue;
    if (!has_pages(v.pagemap.get(), v.addr) || !parts_.node.alive(v.slot, v.process)) return false;
    if (r.count <= least) {
      holes.add(r);
    } else {
      const uint32_t half = std::max(r.count / 2 / least, 1U) * least;
      left.push_back({r.first, half});
      left.push_back({r.first + half, r.count - half});
    }
  }
  for (Watcher& w : s.watchers) {
    if (w.slot != v.slot) continue;
    for (const PageRange& r : holes.all()) w.covered.add(r);
  }
  return has_pages(v.pagemap.get(), v.addr);
}

std::vector<PageRange> Home::scan(Segment& s, const std::vector<PageRange>& ranges) {
  std::vector<PageRange> written;
  if (ranges.empty()) return written;
  // What is covered is no view's: it is published when it has been recovered.
  const auto open = s.in_flux.missing(ranges);
  for (auto& v : s.views) {
    if (mutated("mutate_late_arming")) arm(v);
    if (!v.armed && !v.read_only) {
      written.insert(written.end(), ranges.begin(), ranges.end());  // nothing is known of it
    } else if (v.armed && !tracked_) {
      const auto stored = v.view->stores->take();
      written.insert(written.end(), stored.begin(), stored.end());
    } else if (v.armed && !scan_own(s, v, open, &written)) {
      // What the kernel had noted before it came upon what is not ours is gone with the error.
      const auto here = v.here(ranges);
      written.insert(written.end(), here.begin(), here.end());
    }
  }
  for (auto it = s.foreign.begin(); it != s.foreign.end();) {
    // Without tracking, they tell their stores themselves, as long as they live. A process may live
    // on when its context has ended; what lies at the address then is not the segment.
    if (parts_.node.member(it->slot, it->process) &&
        (tracked_ ? scan_foreign(s, *it, ranges, &written)
                  : has_pages(it->pagemap.get(), it->addr))) {
      ++it;
      continue;
    }
    // The process is gone, and with it what the kernel knew of its stores (rule 17).
    if (!mutated("mutate_dead_writer_forgotten")) {
      written.insert(written.end(), ranges.begin(), ranges.end());
    }
    it = s.foreign.erase(it);
  }
  if (written.size() > 1) {
    std::sort(written.begin(), written.end(),
              [](const PageRange& a, const PageRange& b) { return a.first < b.first; });
  }
  return written;
}

// Of processes that have ended. A scan finds them as well, but there is none while nobody holds a
// page, and each keeps what is left of its process.
void Home::drop_dead_views(Segment& s) {
  const size_t before = s.foreign.size();
  std::erase_if(s.foreign,
                [&](const ForeignView& v) { return !parts_.node.alive(v.slot, v.process); });
  if (s.foreign.size() == before || !s.shared()) return;
  // With them is gone what the kernel knew of their stores (rule 17).
  publish_scan(s, s.directory.shared(static_cast<uint32_t>(s.size / kPageSize)));
}

void Home::forget_stores(Segment& s, const std::vector<PageRange>& ranges) {
  if (!tracked_) return;  // what was noted is published once for nothing
  std::vector<PageRange> ignored;
  const auto open = s.in_flux.missing(ranges);
  for (auto& v : s.views) {
    if (v.armed) scan_own(s, v, open, &ignored);
  }
  for (auto& f : s.foreign) {
    if (!parts_.node.member(f.slot, f.process)) continue;
    scan_view({f.pagemap.get(), f.addr, s.size, s.page_size()}, uncovered(s, f, ranges), &ignored);
  }
}

std::shared_ptr<Home::InvalidationRound> Home::scan_and_publish(Segment& s, const PageSet* named) {
  // Full fence: stores before the barrier are in the page tables' sight before they are read.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // What nobody holds is left alone: its stores stay noted by the kernel until somebody does.
  auto ranges = scan(s, s.directory.shared(static_cast<uint32_t>(s.size / kPageSize)));
  if (named != nullptr) {
    PageSet pages = *named;
    for (const PageRange& r : ranges) pages.add(r);
    ranges = pages.all();
  }
  if (ranges.empty()) return nullptr;
  fault_point("home_scanned_before_publish");
  if (mutated("mutate_scan_unlocked")) mutation::let_others_in(mu_);
  return publish_scan(s, ranges);
}

// Publishes what processes of this node stored.
std::shared_ptr<Home::InvalidationRound> Home::publish_scan(Segment& s,
                                                            const std::vector<PageRange>& ranges) {
  return publish_scan(s, ranges, whole_pages(s, ranges));
}

std::shared_ptr<Home::InvalidationRound> Home::publish_scan(Segment& s,
                                                            const std::vector<PageRange>& ranges,
                                                            const std::vector<StoredPage>& stored) {
  auto p = publish(s, ContextId{}, 0, ranges, stored);
  if (p != nullptr) scans_.push_back(p);  // somebody has yet to answer
  return p;
}

Status Home::barrier(Nanos within, const Lines& named) {
  // The stores before the barrier come first, also for an importer that appears just now.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (shared_segments_.load(std::memory_order_seq_cst) == 0) return Status::kOk;
  const Deadline deadline = Deadline::in(within);
  SignalsBlocked quiet;
  std::vector<std::shared_ptr<InvalidationRound>> waits;
  std::vector<std::pair<node::ContextSlot, int32_t>> owners;
  {
    Guard g(mu_);
    for (auto& [id, s] : segments_) {
      if (s.owned && s.shared()) {
        const auto lines = named.find(id);
        const bool only_scanned = lines == named.end() || mutated("mutate_named_lines_scanned");
        scan_and_publish(s, only_scanned ? nullptr : &lines->second);
      } else if (!s.owned && !s.views.empty() && !mutated("mutate_neighbour_not_asked")) {
        owners.emplace_back(s.owner, id);
      }
    }
    if (!mutated("mutate_acks_not_awaited")) waits = scans_;
  }
  bool good = true;
  for (auto& [owner, id] : owners) {
    good = notify_stored(id, deadline) && good;
    good = ask_owner(owner, BusBarrier{kBusBarrier, id}, -1, deadline) && good;
    const auto lines = named.find(id);
    if (lines == named.end()) continue;
    for (const PageRange& r : lines->second.all()) {
      good =
          ask_owner(owner, BusPublish{kBusPublish, id, 0, r.first, r.count}, -1, deadline) && good;
    }
  }
  for (auto& p : waits) good = wait(*p, deadline) && good;
  return good ? Status::kOk : Status::kStore;
}

Result<uint64_t> Home::cas(int32_t id, size_t offset, uint64_t expected, uint64_t desired,
                           Deadline deadline) {
  SignalsBlocked quiet;
  std::shared_ptr<InvalidationRound> p;
  bool swapped = false, owned = true;
  node::ContextSlot owner{};
  for (Backoff backoff;; backoff.pause()) {
    Guard g(mu_);
    Segment* s = find(id);
    if (s == nullptr || !s->service || offset % 8 != 0 || offset > s->size - 8) {
      return Status::kInval;
    }
    if (s->in_flux.contains(static_cast<uint32_t>(offset / kPageSize))) return Status::kReconfig;
    // Through the service view: the library never touches a client's view.
    bool past = false;
    const auto swap = [&](uint64_t brk) {
      past = offset >= std::min(break_of(*s), brk);
      if (past) return;
      auto* word = reinterpret_cast<uint64_t*>(s->service.data() + offset);
      swapped = __atomic_compare_exchange_n(word, &expected, desired, false, __ATOMIC_SEQ_CST,
                                            __ATOMIC_SEQ_CST);
    };
    if (s->owned || !access::extensible(s->flags)) {
      swap(s->size);
    } else if (!ok(parts_.node.while_steady(id, swap))) {
      // Another process has the node's lock, perhaps a stopped one: not waited for under mu_.
      if (!deadline.passed()) continue;
      return Status::kNoMem;
    }
    if (past) return Status::kBound;
    owned = s->owned;
    owner = s->owner;
    if (mutated("mutate_home_cas_unpublished")) return expected;
    if (swapped && owned && s->shared()) {
      // The tracking does not see stores through the service view (rule 16).
      p = publish_scan(*s, {{static_cast<uint32_t>(offset / kPageSize), 1}}, word_of(*s, offset));
    }
    break;
  }
  bool good = true;
  if (swapped && !owned)
    good = ask_owner(owner, BusPublish{kBusPublish, id, 0, offset / kPageSize, 1}, -1, deadline);
  if (p != nullptr) good = wait(*p, deadline);
  // The swap has happened; that somebody has not dropped its copy yet is the detector's business.
  if (!good) trace(kFacMem, kWarn, "atm_cas: an importer did not answer in time");
  return expected;
}

}  // namespace cmi::memory
