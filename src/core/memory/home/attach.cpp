// Attaching segments of this node in this process, and detaching them.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>

#include "core/base/cause.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/home/home_views.hpp"
#include "core/memory/home/local_grants.hpp"
#include "core/memory/home/segment_lock.hpp"
#include "core/memory/home/session_keys.hpp"
#include "core/memory/home/store_publishing.hpp"
#include "core/memory/node_bus/await.hpp"
#include "core/memory/vm/lock_memory.hpp"
#include "core/memory/vm/store_log.hpp"
#include "core/node/large_pages.hpp"
#include "core/segment/map_file.hpp"

namespace cmi::memory {

HomeViews::~HomeViews() {
  for (SegmentPtr s = home_.segments.first(); s != nullptr; s = home_.segments.after(s->id)) {
    const SegmentLock locked(home_, s, SegmentLock::kViews);
    for (auto& v : s->views) {
      // What could not be given back stays with the client.
      if (!v.adopted) munmap(v.addr, v.mapped());
    }
  }
  Guard g(home_.mu);
  for (auto& [question, detach] : home_.pending_detaches) munmap(detach.addr, detach.mapped);
}

Status map_service(Segment& s) {
  if (s.service) return Status::kOk;
  const size_t page = s.page_size(), len = (s.size + page - 1) / page * page;
  std::byte* const p = segment::map_home(s.file.get(), nullptr, len, page);
  if (p == nullptr) return Status::kNoMem;
  madvise(p, len, MADV_DONTFORK);
  s.service = Mapping(p, len);
  return Status::kOk;
}

// The file behind a segment of the node. That of large pages has no name: it is the owner's to
// give.
Result<Fd> HomeViews::file_of(int32_t id, const Result<node::SegmentInfo>& info,
                              Deadline deadline) {
  if (!info || !access::large_pages(info->flags)) {
    return home_.parts.node.segments().open_file(id);
  }
  {
    // It may be gone again before the caller looks: so it gets a descriptor of its own here too.
    if (const SegmentLock s(home_, id, SegmentLock::kViews); s && s->service) {
      Fd again(fcntl(s->file.get(), F_DUPFD_CLOEXEC, 0));
      if (!again) return Status::kNoMem;
      return again;
    }
  }
  Fd file;
  if (!home_.channel.ask(info->owner, BusFile{kBusFile, id}, -1, deadline, &file)) {
    return because(Status::kReconfig, "the process that made the segment does not answer");
  }
  struct stat st {};
  const uint64_t whole = node::whole_large_pages(info->size);
  const bool whole_file =
      file && ::fstat(file.get(), &st) == 0 && node::is_large_file(file.get()) &&
      (access::extensible(info->flags) ? static_cast<uint64_t>(st.st_size) <= whole
                                       : static_cast<uint64_t>(st.st_size) == whole);
  if (!whole_file) return because(Status::kInval, "the process that made the segment has ended");
  return file;
}

Result<SegmentPtr> HomeViews::segment_for(int32_t id, uint64_t size,
                                          const Result<node::SegmentInfo>& info, Result<Fd> file) {
  Guard g(home_.mu);
  SegmentPtr s = home_.segments.find(id);
  if (s != nullptr && s->service) return s;
  // One without memory is a removed one of ours that had this id.
  home_.segments.erase(id);
  if (!info) return Status::kInval;
  if (!file) return file.status();
  SegmentFacts facts;
  facts.id = id;
  facts.size = size;
  facts.flags = info->flags;
  facts.owner = info->owner;
  s = std::make_shared<Segment>();
  static_cast<SegmentFacts&>(*s) = facts;
  s->file = file.take();
  if (Status st = map_service(*s); !ok(st)) return st;
  home_.segments.insert(s);
  return s;
}

Status HomeViews::watch_view(const Segment& s, HomeView* view) {
  if (view->read_only) {
    // A merely read-only mapping would raise a plain SEGV_ACCERR: a write-protect fault lets us
    // say what it was.
    Userfault& guarded = home_.tracker.guarded();
    if (Status st = guarded.add(view->addr, view->mapped()); !ok(st)) return st;
    guarded.protect(view->addr, view->mapped(), view->page);
    return Status::kOk;
  }
  // Before an importer's first fetch, or an early store would go unnoticed (rule 17). An importer
  // that enters after this arms the view itself.
  bool shared = false;
  std::vector<PageRange> held;  // elsewhere the owner protects what is (arm_foreign)
  {
    Guard g(home_.mu);
    shared = s.shared();
    if (shared) held = s.directory.shared(s.pages());
  }
  if (!s.owned || shared) home_.tracker.arm(s, *view, held);
  // The stores of another process than the owner would be noted by nobody.
  return s.owned || view->armed ? Status::kOk : Status::kNoMem;
}

Status HomeViews::map_view(Segment& s, void* addr, bool read_only, HomeView* view,
                           Overlaid* overlaid) {
  view->len = s.size;
  view->page = s.page_size();
  view->read_only = read_only;
  std::byte* const at = segment::map_home(s.file.get(), addr, view->mapped(), view->page);
  if (at == nullptr) return Status::kNoMem;
  Mapping map(at, view->mapped());
  madvise(at, view->mapped(), MADV_DONTFORK);
  if (Status st = lock_when_touched(s.flags, at, s.size); !ok(st)) return st;
  view->addr = at;
  auto v = std::make_shared<View>();
  v->addr = at;
  v->len = s.size;
  v->read_only = read_only;
  v->segment = s.id;
  if (!read_only && !home_.tracker.by_kernel()) {
    v->stores = std::make_shared<StoreLog>(home_.tracker.guarded(), at, s.size, view->page);
  }
  view->view = v;
  if (Status st = watch_view(s, view); !ok(st)) return st;
  map.release();
  *overlaid = home_.parts.views.within(at, view->mapped());
  home_.parts.views.insert(view->view);
  s.views.push_back(*view);
  return Status::kOk;
}

// What another view has been mapped over, of memory of the client's own, is that segment's no more.
void HomeViews::look_at_overlaid(const Overlaid& overlaid, const HomeView& by) {
  for (const auto& view : overlaid) {
    if (!view->adopted) continue;
    const SegmentLock s(home_, view->segment, SegmentLock::kViews);
    if (!s) continue;
    for (auto& v : s->views) {
      // Where that fails, the view table knows all the same; a scan looks again.
      if (v.adopted && v.addr < by.addr + by.mapped() && by.addr < v.addr + v.len) {
        (void)home_.adopted.look(*s, v);
      }
    }
  }
}

Status HomeViews::enter_view(Segment& s, void* addr, bool read_only, HomeView* view,
                             Overlaid* overlaid, bool* covered) {
  if (Status st = map_view(s, addr, read_only, view, overlaid); !ok(st)) {
    // A process that has no view of another's segment keeps none of its memory, either.
    if (!s.owned && s.views.empty()) {
      Guard g(home_.mu);
      home_.segments.erase(s.id);
    }
    return st;
  }
  if (!s.owned && !read_only) home_.shared_segments.add();
  for (const PageRange& r : s.flux.pages.all()) {
    *covered = home_.covers.cover(s.views.back(), r) && *covered;
  }
  return Status::kOk;
}

Result<void*> HomeViews::attach(int32_t id, uint64_t size, void* addr, bool read_only,
                                Deadline deadline) {
  HomeView view;
  Overlaid overlaid;
  bool entered = false, covered = true;
  SegmentFacts facts;
  while (!entered) {
    const auto info = home_.parts.node.segments().find(id);  // these may wait
    auto segment = segment_for(id, size, info, file_of(id, info, deadline));
    if (!segment) return segment.status();
    const SegmentLock s(home_, *segment, SegmentLock::kViews);
    if (!s) continue;  // another thread's attach has failed, and has taken it out of the table
    facts = *s;
    const Status st = enter_view(*s, addr, read_only, &view, &overlaid, &covered);
    if (!ok(st)) return st;
    entered = true;
  }
  look_at_overlaid(overlaid, view);
  const bool foreign = !facts.owned && !read_only;
  const bool look = !facts.owned && !access::client_consistent(facts.flags);
  // Before this returns, what is in flux is covered.
  if (!covered || (look && !home_.channel.ask(facts.owner, BusLook{kBusLook, id}, -1, deadline))) {
    (void)detach(id, view.addr, deadline);
    return covered ? Status::kReconfig : Status::kNoMem;
  }
  const auto address = reinterpret_cast<uint64_t>(view.addr);
  const BusView shown{kBusView, id, 0, address, view.len};
  if (foreign && !home_.channel.ask(facts.owner, shown, home_.files.pagemap.get(), deadline)) {
    // An owner that does not know of the view would never publish what is stored through it.
    (void)detach(id, view.addr, deadline);
    return Status::kReconfig;
  }
  return static_cast<void*>(view.addr);
}

// Null: nothing is attached at exactly this address that could be detached.
HomeView* HomeViews::view_at(Segment& s, const void* addr) {
  const auto it = std::find_if(s.views.begin(), s.views.end(),
                               [&](const HomeView& v) { return v.addr == addr; });
  return it == s.views.end() || it->moving || it->leaving ? nullptr : &*it;
}

// Finds the view, and takes it out of the segment.
Status HomeViews::take_view(int32_t id, void* addr, HomeView* view, SegmentFacts* facts,
                            RoundPtr* last, Finished* done) {
  const SegmentLock s(home_, id, SegmentLock::kViews);
  if (!s || view_at(*s, addr) == nullptr) return Status::kInval;
  *facts = *s;
  // What was stored through this view and not published would never be found again (rule 17).
  if (s->owned && !mutated("mutate_unmap_unscanned")) {
    *last = scan_and_publish(home_, *s, {}, done);
  }
  // Once more: between parts of the scan another thread may have been here.
  const HomeView* const found = view_at(*s, addr);
  if (found == nullptr) return Status::kInval;
  *view = *found;
  // One of the client's memory stays until that has been given back, and with it the segment.
  if (!view->adopted) {
    std::erase_if(s->views, [&](const HomeView& v) { return v.view == view->view; });
  }
  return Status::kOk;
}

Status HomeViews::detach(int32_t id, void* addr, Deadline deadline, bool ending) {
  HomeView view;
  SegmentFacts facts;
  RoundPtr last;
  notify_stored(home_, id, deadline);
  Finished done;
  const Status taken = take_view(id, addr, &view, &facts, &last, &done);
  run(done);
  if (!ok(taken)) return taken;
  if (last != nullptr) await(last->done, home_.parts.server, deadline);
  bool heard = true;
  if (!facts.owned && !view.read_only) {
    const auto address = reinterpret_cast<uint64_t>(view.addr);
    const BusUnview m{kBusUnview, id, 0, address, view.len};
    heard = home_.channel.ask(facts.owner, m, -1, deadline);
    home_.shared_segments.remove();
  }
  if (view.adopted) {
    if (Status st = give_back(id, *view.view, ending); !ok(st)) return st;
  }
  home_.parts.views.erase(view.view);
  if (!heard) {
    detach_later({facts.owner, id, view.addr, view.len, view.mapped(), view.view, now(), 0});
  } else if (!view.adopted) {
    munmap(view.addr, view.mapped());
  }
  view_gone(id);
  return Status::kOk;
}

// What goes with the last view of a segment.
void HomeViews::view_gone(int32_t id) {
  Fd passed;
  {
    const SegmentLock s(home_, id, SegmentLock::kBoth);
    if (!s || !s->views.empty()) return;
    if (s->owned && s->removed) quarantine_memory(home_, *s);
    Guard g(home_.mu);
    if (!s->owned) {
      home_.segments.erase(id);
    } else if (s->removed) {
      // Importers get TOKEN while any process of the node has it attached, and SINVAL after:
      // the entry stays for asking the registry, its memory goes.
      s->sharers.clear();
      passed = take_passed_file(home_, *s);
      s->tokens.clear();
      s->file.reset();
    }
  }
  empty_passed_file(home_, id, std::move(passed), 1);  // the view that goes
  trim_quarantine(home_);
}

void HomeViews::detach_later(PendingDetach detach) {
  mprotect(detach.addr, detach.mapped, PROT_NONE);
  BusQuestions& questions = home_.channel.questions();
  const uint64_t question = questions.new_number();
  Guard g(home_.mu);
  home_.pending_detaches.add(question, std::move(detach));
  questions.add(question, [this, question] {
    Guard again(home_.mu);
    const auto over = home_.pending_detaches.take(question);
    if (over) munmap(over->addr, over->mapped);
  });
}

int32_t HomeViews::segment_at(const void* addr, size_t* offset, bool* read_only) {
  auto* a = static_cast<const std::byte*>(addr);
  const auto known = home_.parts.views.find(addr);
  if (known == nullptr || known->import != nullptr) return 0;
  const SegmentLock s(home_, known->segment, SegmentLock::kViews);
  if (!s) return 0;
  for (auto& v : s->views) {
    if (a < v.addr || a >= v.addr + v.len) continue;
    *offset = static_cast<size_t>(a - v.addr);
    if (v.adopted && !still_adopted(*s, v, *offset)) continue;
    *read_only = v.read_only;
    return s->id;
  }
  return 0;
}

const uint64_t* HomeViews::library_word(const uint64_t* addr) {
  size_t offset = 0;
  bool read_only = false;
  const int32_t id = segment_at(addr, &offset, &read_only);
  const SegmentLock s(home_, id, SegmentLock::kViews);
  if (id == 0 || !s || !s->service) return nullptr;
  return reinterpret_cast<const uint64_t*>(s->service.data() + offset);
}

}  // namespace cmi::memory
