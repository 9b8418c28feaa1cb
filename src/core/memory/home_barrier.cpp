// Stores by processes of the home node: found by the kernel's own tracking or by the faults of
// first stores, published at barriers and by the timer; swaps at home; and the questions that other
// processes of the node ask over the bus.
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/memory/home.hpp"
#include "core/memory/store_log.hpp"
#include "core/node/quiesce.hpp"

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
  if (scan_view(foreign, left, written)) return true;
  if (fault_point_fails("mutate_view_with_holes_forgotten")) return false;
  PageSet holes;
  while (!left.empty()) {
    const PageRange r = left.back();
    left.pop_back();
    if (scan_view(foreign, {r}, written)) continue;
    if (!has_pages(v.pagemap.get(), v.addr)) return false;
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
  return true;
}

std::vector<PageRange> Home::scan(Segment& s, const std::vector<PageRange>& ranges) {
  std::vector<PageRange> written;
  if (ranges.empty()) return written;
  // What is covered is no view's: it is published when it has been recovered.
  const auto open = s.in_flux.missing(ranges);
  for (auto& v : s.views) {
    if (fault_point_fails("mutate_late_arming")) arm(v);
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
    // Without tracking, they tell their stores themselves, as long as they live.
    if (tracked_ ? scan_foreign(s, *it, ranges, &written)
                 : has_pages(it->pagemap.get(), it->addr)) {
      ++it;
      continue;
    }
    // The process is gone, and with it what the kernel knew of its stores (rule 17).
    if (!fault_point_fails("mutate_dead_writer_forgotten")) {
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

void Home::forget_stores(Segment& s, const std::vector<PageRange>& ranges) {
  if (!tracked_) return;  // what was noted is published once for nothing
  std::vector<PageRange> ignored;
  const auto open = s.in_flux.missing(ranges);
  for (auto& v : s.views) {
    if (v.armed) scan_own(s, v, open, &ignored);
  }
  for (auto& f : s.foreign) {
    scan_view({f.pagemap.get(), f.addr, s.size, s.page_size()}, uncovered(s, f, ranges), &ignored);
  }
}

std::shared_ptr<Home::Publication> Home::scan_and_publish(Segment& s, const PageSet* named) {
  // Full fence: stores before the barrier are in the page tables' sight before they are read.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // What nobody holds is left alone: its stores stay noted by the kernel until somebody does.
  auto ranges = scan(s, s.directory.held(static_cast<uint32_t>(s.size / kPageSize)));
  if (named != nullptr) {
    PageSet pages = *named;
    for (const PageRange& r : ranges) pages.add(r);
    ranges = pages.all();
  }
  if (ranges.empty()) return nullptr;
  fault_point("home_scanned_before_publish");
  if (fault_point_fails("mutate_scan_unlocked")) {
    mu_.unlock();
    fault_point("mutation_window");
    mu_.lock();
  }
  return publish_scan(s, ranges);
}

// Publishes what processes of this node stored.
std::shared_ptr<Home::Publication> Home::publish_scan(Segment& s,
                                                      const std::vector<PageRange>& ranges) {
  return publish_scan(s, ranges, whole_pages(s, ranges));
}

std::shared_ptr<Home::Publication> Home::publish_scan(Segment& s,
                                                      const std::vector<PageRange>& ranges,
                                                      const std::vector<StoredPage>& stored) {
  auto p = publish(s, ContextId{}, 0, ranges, stored);
  if (p != nullptr) scans_.push_back(p);  // somebody has yet to answer
  return p;
}

// Tells the owner which pages of its segment were stored to through our views, without waiting:
// what we send it next, it takes in after this. False: not all fitted into its queue; the rest
// stays.
bool Home::send_stored(Segment& s) {
  constexpr size_t kAtOnce = 512;  // ranges of one datagram
  for (auto& v : s.views) {
    if (v.view->stores == nullptr) continue;
    auto stored = v.view->stores->take();
    while (!stored.empty()) {
      const size_t n = std::min(kAtOnce, stored.size());
      std::byte buf[64 + kAtOnce * sizeof(PageRange)];
      Writer out(buf);
      out.put<uint8_t>(kBusStored);
      out.put(s.id);
      out.put<uint64_t>(0);
      out.put<uint64_t>(n);
      out.put<uint64_t>(0);
      for (size_t i = 0; i < n; ++i) {
        out.put(stored[i].first);
        out.put(stored[i].count);
      }
      if (parts_.node.bus_send(s.owner, out.done()) == Status::kReconfig) {
        v.view->stores->put_back(stored);
        return false;
      }
      stored.erase(stored.begin(), stored.begin() + static_cast<ptrdiff_t>(n));
    }
  }
  return true;
}

// For a segment of another process: until its owner has been sent all of it.
bool Home::tell_stored(int32_t id, Deadline deadline) {
  for (Backoff backoff;; backoff.pause()) {
    {
      Guard g(mu_);
      Segment* s = find(id);
      if (s == nullptr || s->owned || send_stored(*s)) return true;
    }
    if (deadline.passed()) return false;
  }
}

Status Home::barrier(Nanos within, const Lines& named) {
  // The stores before the barrier come first, also for an importer that appears just now.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (held_segments_.load(std::memory_order_seq_cst) == 0) return Status::kOk;
  const Deadline deadline = Deadline::in(within);
  SignalsBlocked quiet;
  std::vector<std::shared_ptr<Publication>> waits;
  std::vector<std::pair<node::ContextSlot, int32_t>> owners;
  {
    Guard g(mu_);
    for (auto& [id, s] : segments_) {
      if (s.owned && s.held()) {
        const auto lines = named.find(id);
        scan_and_publish(s, lines == named.end() ? nullptr : &lines->second);
      } else if (!s.owned && !s.views.empty() && !fault_point_fails("mutate_neighbour_not_asked")) {
        owners.emplace_back(s.owner, id);
      }
    }
    waits = scans_;
  }
  bool good = true;
  for (auto& [owner, id] : owners) {
    good = tell_stored(id, deadline) && good;
    good = ask_owner(owner, kBusBarrier, id, 0, 0, -1, deadline) && good;
    const auto lines = named.find(id);
    if (lines == named.end()) continue;
    for (const PageRange& r : lines->second.all()) {
      good = ask_owner(owner, kBusPublish, id, r.first, r.count, -1, deadline) && good;
    }
  }
  for (auto& p : waits) good = wait(*p, deadline) && good;
  return good ? Status::kOk : Status::kStore;
}

Result<uint64_t> Home::cas(int32_t id, size_t offset, uint64_t expected, uint64_t desired,
                           Deadline deadline) {
  SignalsBlocked quiet;
  std::shared_ptr<Publication> p;
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
    if (fault_point_fails("mutate_home_cas_unpublished")) return expected;
    if (swapped && owned && s->held()) {
      // The tracking does not see stores through the service view (rule 16).
      p = publish_scan(*s, {{static_cast<uint32_t>(offset / kPageSize), 1}}, word_of(*s, offset));
    }
    break;
  }
  bool good = true;
  if (swapped && !owned)
    good = ask_owner(owner, kBusPublish, id, offset / kPageSize, 1, -1, deadline);
  if (p != nullptr) good = wait(*p, deadline);
  // The swap has happened; that somebody has not dropped its copy yet is the detector's business.
  if (!good) trace(kFacMem, kWarn, "atm_cas: an importer did not answer in time");
  return expected;
}

bool Home::ask_owner(node::ContextSlot owner, uint8_t what, int32_t segment, uint64_t a, uint64_t b,
                     int pass_fd, Deadline deadline, Fd* file) {
  auto p = std::make_shared<Publication>();
  p->waiting = 1;
  p->done.begin();
  uint64_t question;
  {
    Guard g(mu_);
    question = next_question_++;
    asked_[question] = p;
  }
  std::byte buf[64];
  Writer out(buf);
  out.put(what);
  out.put(segment);
  out.put(question);
  out.put(a);
  out.put(b);
  bool answered = false;
  Backoff backoff;
  while (!answered) {
    const Status st = parts_.node.bus_send(owner, out.done(), pass_fd);
    if (st == Status::kInval) {
      answered = true;  // the owner has ended: no remote node has the segment any more
    } else if (ok(st)) {
      // In slices: an owner that dies meanwhile will never answer.
      while (!answered && !deadline.passed()) {
        answered = wait(*p, Deadline{std::min(deadline.at, now() + 100 * kMilli)});
        if (answered) break;
        // A registry that cannot be had says nothing: who stopped may be the one who has it.
        const auto info = parts_.node.find(segment, 2 * kMilli);
        answered =
            info ? info->owner == owner && !info->owner_alive : info.status() == Status::kInval;
        // The answer may have found our queue full: ask again. Each thing is done twice without
        // harm.
        if (!answered) {
          answered = parts_.node.bus_send(owner, out.done(), pass_fd) == Status::kInval;
        }
      }
      break;
    } else if (deadline.passed()) {
      break;
    } else {
      backoff.pause();
    }
  }
  Guard g(mu_);
  asked_.erase(question);
  if (file != nullptr) *file = std::move(p->file);
  return answered;
}

bool Home::tell_token(int32_t proxy, Deadline deadline) {
  bool good = true;
  for (node::ContextSlot slot : parts_.node.members()) {
    if (slot == parts_.node.slot()) continue;
    good = ask_owner(slot, kBusToken, proxy, 0, 0, -1, deadline) && good;
  }
  return good;
}

void Home::on_datagram(node::Node::Datagram d) {
  SignalsBlocked quiet;
  Reader in(d.bytes);
  const auto what = in.get<uint8_t>();
  const auto segment = in.get<int32_t>();
  const auto question = in.get<uint64_t>();
  const auto a = in.get<uint64_t>();
  const auto b = in.get<uint64_t>();
  std::vector<PageRange> stored;
  const bool ranges_follow = what == kBusStored || what == kBusLost;
  for (uint64_t i = 0; ranges_follow && i < a && in.ok(); ++i) {
    const auto first = in.get<uint32_t>();
    stored.push_back({first, in.get<uint32_t>()});
  }
  if (!in.done()) return;
  if (what == kBusToken && parts_.importer != nullptr) parts_.importer->token_changed(segment);
  if (what == kBusLost) return on_bus_lost(segment, stored, b);
  if (what == node::kBusQuiesce) return on_bus_quiesce(d.from, segment, question, a);
  Finished done;
  if (what == kBusAnswer) {
    {
      Guard g(mu_);
      auto it = asked_.find(question);
      if (it != asked_.end()) {
        it->second->file = std::move(d.fd);
        settle(std::shared_ptr<Publication>(it->second), &done);
      }
    }
    run(done);
    return;
  }
  const auto send = [this, to = d.from, segment, question](uint8_t back, uint64_t with,
                                                           int file = -1) {
    std::byte buf[64];
    Writer out(buf);
    out.put(back);
    out.put(segment);
    out.put(question);
    out.put(with);
    out.put<uint64_t>(0);
    (void)parts_.node.bus_send(to, out.done(), file);
  };
  const auto answer = [send] { send(kBusAnswer, 0); };
  const auto seen = [send, a] { send(kBusInFluxSeen, a); };
  {
    Guard g(mu_);
    Segment* s = find(segment);
    const bool ours = s != nullptr && s->owned;
    switch (what) {
      case kBusView:
        if (ours && b == s->size && d.fd &&
            std::none_of(s->foreign.begin(), s->foreign.end(),
                         [&](const ForeignView& v) { return v.slot == d.from && v.addr == a; })) {
          s->foreign.push_back({d.from, a, b, std::move(d.fd)});
        }
        done.push_back(answer);
        break;
      case kBusUnview:
      case kBusBarrier: {
        if (ours && s->held()) scan_and_publish(*s);
        if (ours && what == kBusUnview) {
          std::erase_if(s->foreign,
                        [&](const ForeignView& v) { return v.slot == d.from && v.addr == a; });
        }
        // Another barrier's publication may carry what this one no longer finds: answer after all.
        auto rest = std::make_shared<Publication>();
        rest->waiting = 1;
        rest->done.begin();
        rest->finished = answer;
        for (auto& open : scans_) {
          ++rest->waiting;
          auto before = std::move(open->finished);
          open->finished = [this, before, rest] {
            if (before) before();
            Finished more;
            {
              Guard again(mu_);
              settle(rest, &more);
            }
            run(more);
          };
        }
        settle(rest, &done);
        break;
      }
      case kBusPublish:
        if (ours && s->held() && a < s->size / kPageSize && b != 0 &&
            b <= s->size / kPageSize - a) {
          const PageRange pages{static_cast<uint32_t>(a), static_cast<uint32_t>(b)};
          // Where this one is not awaited to its end, the next barrier does that.
          if (auto p = publish_scan(*s, {pages}, {}); p != nullptr) {
            p->finished = answer;
            break;
          }
        }
        done.push_back(answer);
        break;
      case kBusToken:
        done.push_back(answer);
        break;
      case kBusShrunk:
        if (s != nullptr && !s->owned && s->owner == d.from && a % kPageSize == 0) {
          watch_again(*s, a);
        }
        done.push_back(answer);
        break;
      case kBusFile:
        // Without one: it is not ours any more. Under mu_, which keeps the descriptor.
        send(kBusAnswer, 0, ours && access::large_pages(s->flags) ? s->file.get() : -1);
        break;
      case kBusLook:
        if (!ours || add_watcher(*s, d.from)) done.push_back(answer);
        break;
      case kBusInFlux:
        if (s != nullptr && !s->owned && s->owner == d.from && d.fd) take_list(*s, a, d.fd);
        done.push_back(seen);
        break;
      case kBusInFluxSeen:
        if (ours) on_list_seen(*s, d.from, a, &done);
        break;
      case kBusStored:
        std::erase_if(stored, [&](const PageRange& r) {
          return !ours || r.count == 0 || r.first + uint64_t{r.count} > s->size / kPageSize;
        });
        if (ours && s->held() && !stored.empty()) publish_scan(*s, stored);
        break;
      default:
        return;
    }
  }
  run(done);
}

}  // namespace cmi::memory
