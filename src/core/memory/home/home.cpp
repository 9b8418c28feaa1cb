// Segments of this node in this process, and their views.
#include "core/memory/home/home.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/vm/lock_memory.hpp"
#include "core/memory/vm/store_log.hpp"
#include "core/segment/map_file.hpp"
#include "core/segment/mappings.hpp"
#include "core/segment/placement.hpp"
#include "fabric/reach.hpp"

namespace cmi::memory {

bool Home::Segment::shared() const {
  return !removed && std::any_of(sharers.begin(), sharers.end(),
                                 [](const Sharer& h) { return h.loads() && !h.write_through; });
}

Result<std::unique_ptr<Home>> Home::open(Parts parts) {
  std::unique_ptr<Home> h(new Home(std::move(parts)));
  const char* why = nullptr;
  auto guarded = Userfault::open(Userfault::Kind::kGuarded, &why);
  if (!guarded) {
    alert(kFacIni, "{}", why);
    return guarded.status();
  }
  h->guarded_ = guarded.take();
  h->hole_.reset(static_cast<int>(syscall(SYS_memfd_create, "cmi-hole", 1u)));  // MFD_CLOEXEC
  if (!h->hole_) return Status::kNoMem;
  h->pagemap_.reset(::open("/proc/thread-self/pagemap", O_RDONLY | O_CLOEXEC));
  bool opened = static_cast<bool>(h->pagemap_);
  {
    Guard g(h->mu_);  // now: later there may be no descriptor left
    h->maps_ = segment::open_maps();
    opened = opened && h->maps_;
  }
  if (!opened) {
    if (errno == EMFILE || errno == ENFILE) return Status::kNoMem;
    alert(kFacIni,
          "/proc/self/pagemap or maps cannot be opened (errno {}): /proc must be there, and who "
          "has changed its user since it was started calls prctl(PR_SET_DUMPABLE, 1) first",
          errno);
    return Status::kNotSupp;
  }
  if (Userfault::features().async_tracking) {
    auto tracked = Userfault::open(Userfault::Kind::kTracked, &why);
    if (tracked.status() == Status::kNoMem) return Status::kNoMem;
    if (tracked) h->tracked_ = tracked.take();
  }
  if (!h->tracked_) {
    trace(kFacIni, kInfo,
          "this kernel does not note stores by itself (6.7 does): the first store to a page on the "
          "home node faults, and system calls cannot write to segments that others import");
  }
  return h;
}

Home::~Home() {
  Guard g(mu_);
  for (auto& [id, s] : segments_) {
    for (auto& v : s.views) {
      // What could not be given back stays with the client.
      if (!v.adopted) munmap(v.addr, v.mapped());
    }
  }
  for (auto& [question, l] : pending_detaches_) munmap(l.addr, l.mapped);
}

Home::Segment* Home::find(int32_t id) {
  auto it = segments_.find(id);
  return it == segments_.end() ? nullptr : &it->second;
}

Home::Segment* Home::find_uid(uint64_t uid) {
  for (auto& [id, s] : segments_) {
    if (s.uid == uid) return &s;
  }
  return nullptr;
}

Home::Sharer* Home::find_sharer(Segment& s, const ContextId& client, uint32_t instance) {
  for (auto& h : s.sharers) {
    if (h.client == client && h.instance == instance) return &h;
  }
  return nullptr;
}

bool Home::owns(int32_t id) {
  Guard g(mu_);
  Segment* s = find(id);
  return s != nullptr && s->owned;
}

uint32_t Home::exports() {
  Guard g(mu_);
  return static_cast<uint32_t>(std::count_if(segments_.begin(), segments_.end(), [](auto& e) {
    return e.second.exported && !e.second.removed;
  }));
}

Result<int32_t> Home::create(uint64_t size, int32_t flags, uint64_t reservation) {
  Fd large;
  auto id = parts_.node.create_home(size, flags, access::reserved(flags), access::extensible(flags),
                                    reservation, access::large_pages(flags) ? &large : nullptr);
  if (!id) return id.status();
  auto file = large ? Result<Fd>(std::move(large)) : parts_.node.open_segment_file(*id);
  Status made = file.status();
  if (file) made = begin_segment(*id, size, flags, file.take());
  if (ok(made)) return *id;
  (void)parts_.node.remove(*id);  // where the registry is held, it goes with the process
  return made;
}

Status Home::begin_segment(int32_t id, uint64_t size, int32_t flags, Fd file) {
  Guard g(mu_);
  segments_.erase(id);  // of a removed segment that had this id
  Segment& s = segments_[id];
  s.id = id;
  s.uid = random_u64();
  s.size = size;
  s.brk = {access::extensible(flags) ? 0 : size, 1};
  s.flags = flags;
  s.owned = true;
  s.owner = parts_.node.slot();
  s.file = std::move(file);
  Status st = map_service(s);
  if (ok(st)) {
    segment::place_memory(s.service.data(), size, device());
    st = lock_memory(flags, s.service.data(), s.brk.bytes);
  }
  if (!ok(st)) segments_.erase(id);
  return st;
}

// What most of the traffic with other machines goes through.
const std::string& Home::device() const {
  const auto listeners = parts_.server.listeners();
  size_t via = 0;
  while (via + 1 < listeners.size() && fabric::is_loopback(listeners[via].blob)) ++via;
  return parts_.server.fabric(via).traits().device;
}

Status Home::map_service(Segment& s) {
  if (s.service) return Status::kOk;
  const size_t page = s.page_size(), len = (s.size + page - 1) / page * page;
  std::byte* const p = segment::map_home(s.file.get(), nullptr, len, page);
  if (p == nullptr) return Status::kNoMem;
  madvise(p, len, MADV_DONTFORK);
  s.service = Mapping(p, len);
  return Status::kOk;
}

void Home::arm(HomeView& v) {
  if (v.read_only || v.armed) return;
  Userfault& tracker = tracked_ ? tracked_ : guarded_;
  if (!ok(tracker.add(v.addr, v.mapped()))) return;
  tracker.protect(v.addr, v.mapped(), v.page);
  v.armed = true;
}

void Home::arm(Segment& s) {
  for (auto& v : s.views) arm(v);
}

Result<void*> Home::attach(int32_t id, uint64_t size, void* addr, bool read_only,
                           Deadline deadline) {
  HomeView view;
  bool foreign = false, look = false, covered = true;
  node::ContextSlot owner{};
  const auto info = parts_.node.find(id);  // these may wait
  auto file = file_of(id, info, deadline);
  {
    Guard g(mu_);
    Segment* s = find(id);
    if (s != nullptr && !s->service) {  // a removed one of ours that had this id
      segments_.erase(id);
      s = nullptr;
    }
    if (s == nullptr) {
      if (!info) return Status::kInval;
      if (!file) return file.status();
      s = &segments_[id];
      s->id = id;
      s->size = size;
      s->flags = info->flags;
      s->owner = info->owner;
      s->file = file.take();
      if (Status st = map_service(*s); !ok(st)) {
        segments_.erase(id);
        return st;
      }
    }
    // Who has no view of another's segment keeps none of its memory, either.
    const auto failed = [&](Status st) CMI_REQUIRES(mu_) {
      if (!s->owned && s->views.empty()) segments_.erase(id);
      return st;
    };
    view.len = size;
    view.page = s->page_size();
    std::byte* const at = segment::map_home(s->file.get(), addr, view.mapped(), view.page);
    if (at == nullptr) return failed(Status::kNoMem);
    Mapping map(at, view.mapped());
    madvise(at, view.mapped(), MADV_DONTFORK);
    if (Status st = lock_when_touched(s->flags, at, size); !ok(st)) return failed(st);
    view.addr = at;
    view.read_only = read_only;
    auto v = std::make_shared<View>();
    v->addr = view.addr;
    v->len = size;
    v->read_only = read_only;
    v->segment = id;
    if (!read_only && !tracked_) {
      v->stores = std::make_shared<StoreLog>(guarded_, view.addr, size, view.page);
    }
    view.view = v;
    if (read_only) {
      // A merely read-only mapping would raise a plain SEGV_ACCERR: a write-protect fault lets us
      // say what it was.
      if (Status st = guarded_.add(at, view.mapped()); !ok(st)) return failed(st);
      guarded_.protect(at, view.mapped(), view.page);
    } else if (!s->owned) {
      arm(view);
      if (!view.armed) return failed(Status::kNoMem);  // its stores would be noted by nobody
      foreign = true;
    } else if (s->shared()) {
      arm(view);  // before this returns, or an early store would go unnoticed (rule 17)
    }
    owner = s->owner;
    map.release();
    mapped_over(view.addr, view.mapped());
    parts_.views.insert(view.view);
    s->views.push_back(view);
    if (foreign) shared_segments_.fetch_add(1);
    for (const PageRange& r : s->in_flux.all()) covered = cover(s->views.back(), r) && covered;
    look = !s->owned && !access::client_consistent(s->flags);
  }
  // Before this returns, what is in flux is covered.
  if (!covered || (look && !ask_owner(owner, BusLook{kBusLook, id}, -1, deadline))) {
    (void)detach(id, view.addr, deadline);
    return covered ? Status::kReconfig : Status::kNoMem;
  }
  const auto address = reinterpret_cast<uint64_t>(view.addr);
  const BusView shown{kBusView, id, 0, address, view.len};
  if (foreign && !ask_owner(owner, shown, pagemap_.get(), deadline)) {
    // An owner that does not know of the view would never publish what is stored through it.
    (void)detach(id, view.addr, deadline);
    return Status::kReconfig;
  }
  return static_cast<void*>(view.addr);
}

Status Home::detach(int32_t id, void* addr, Deadline deadline, bool ending) {
  HomeView view;
  bool owned;
  node::ContextSlot owner{};
  std::shared_ptr<InvalidationRound> last;
  notify_stored(id, deadline);
  {
    Guard g(mu_);
    Segment* s = find(id);
    if (s == nullptr) return Status::kInval;
    auto it = std::find_if(s->views.begin(), s->views.end(),
                           [&](const HomeView& v) { return v.addr == addr; });
    if (it == s->views.end() || it->moving || it->leaving) return Status::kInval;
    view = *it;
    owned = s->owned;
    owner = s->owner;
    // What was stored through this view and not published would never be found again (rule 17).
    if (owned && s->shared() && !mutated("mutate_unmap_unscanned")) last = scan_and_publish(*s);
    // One of the client's memory stays until that has been given back, and with it the segment.
    if (!view.adopted) {
      std::erase_if(s->views, [&](const HomeView& v) { return v.view == view.view; });
    }
  }
  if (last != nullptr) wait(*last, deadline);
  bool heard = true;
  if (!owned && !view.read_only) {
    const auto address = reinterpret_cast<uint64_t>(view.addr);
    heard = ask_owner(owner, BusUnview{kBusUnview, id, 0, address, view.len}, -1, deadline);
    shared_segments_.fetch_sub(1);
  }
  if (view.adopted) {
    if (Status st = give_back(id, *view.view, ending); !ok(st)) return st;
  }
  parts_.views.erase(view.view);
  if (!heard) {
    detach_later({owner, id, view.addr, view.len, view.mapped(), view.view, now(), 0});
  } else if (!view.adopted) {
    munmap(view.addr, view.mapped());
  }
  {
    Guard g(mu_);
    Segment* s = find(id);
    if (s == nullptr || !s->views.empty()) return Status::kOk;
    if (!s->owned) {
      segments_.erase(id);
    } else if (s->removed) {
      // Importers are told TOKEN while any process of the node has it attached, and SINVAL after:
      // the entry stays for asking the registry, its memory goes.
      s->sharers.clear();
      s->tokens.clear();
      bury(*s);
      s->file.reset();
    }
  }
  unbury();
  return Status::kOk;
}

int32_t Home::segment_at(const void* addr, size_t* offset, bool* read_only) {
  auto* a = static_cast<const std::byte*>(addr);
  Guard g(mu_);
  for (auto& [id, s] : segments_) {
    for (auto& v : s.views) {
      if (a >= v.addr && a < v.addr + v.len) {
        *offset = static_cast<size_t>(a - v.addr);
        if (v.adopted && !still_adopted(s, v, *offset)) continue;
        *read_only = v.read_only;
        return id;
      }
    }
  }
  return 0;
}

}  // namespace cmi::memory
