// Extensible segments at home: moving the break. The file ends at the break, so the kernel itself
// keeps every view of the node's processes from what lies behind it; the faults that it raises
// there become CMI_ERROR_SEG_BRK. Registrations end at the break, too, and importers are told
// (rule 24).
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/memory/home.hpp"
#include "core/memory/lock_memory.hpp"
#include "core/memory/store_log.hpp"

namespace cmi::memory {

namespace {
thread_local const std::byte* t_tried = nullptr;
thread_local int t_tries = 0;
constexpr int kMostTries = 1000;  // of one access that finds the break before it, and then behind
}  // namespace

void Home::put_break(Writer& out, const Segment& s) {
  out.put(s.brk.bytes);
  out.put(s.brk.round);
}

uint64_t Home::break_of(const Segment& s) {
  if (s.owned || !access::extensible(s.flags)) return s.owned ? s.brk.bytes : s.size;
  struct stat st {};
  return ::fstat(s.file.get(), &st) == 0 ? static_cast<uint64_t>(st.st_size) : 0;
}

bool Home::past_break(int32_t id, size_t offset) {
  Guard g(mu_);
  Segment* s = find(id);
  return s != nullptr && offset >= break_of(*s);
}

bool Home::past_break(const View& view, const std::byte* addr) {
  Guard g(mu_);
  Segment* s = find(view.segment);
  if (s == nullptr || !access::extensible(s->flags)) return false;
  // The file's end, not what is decided on: a break that moves up is there before it is told.
  struct stat st {};
  if (::fstat(s->file.get(), &st) != 0 ||
      static_cast<uint64_t>(addr - view.addr) < static_cast<uint64_t>(st.st_size)) {
    return false;
  }
  t_tried = nullptr;
  return true;
}

bool Home::break_may_have_moved(const View& view, const std::byte* addr) {
  Guard g(mu_);
  Segment* s = find(view.segment);
  if (s == nullptr || !access::extensible(s->flags)) return false;
  t_tries = t_tried == addr ? t_tries + 1 : 0;
  t_tried = addr;
  return t_tries < kMostTries;
}

void Home::tell_break(const std::shared_ptr<Publication>& p, Segment& s) {
  for (auto& h : s.holders) {
    std::byte buf[32];
    Writer out(buf);
    out.put(s.uid);
    out.put(h.instance);
    put_break(out, s);
    tell(p, s, h, NoticeType::kBreak, out.done());
  }
}

// Pages in flux behind the break are no more: there is nothing to recover. When the file has ended,
// for until then it has them. *p is settled when everybody knows.
void Home::forget_past_break(Segment& s, const std::shared_ptr<Publication>& p) {
  const auto first = static_cast<uint32_t>(s.brk.bytes / kPageSize);
  bool changed = false;
  for (const PageRange& r :
       s.in_flux.in({first, static_cast<uint32_t>(s.size / kPageSize) - first})) {
    if (!uncover(s, r)) continue;
    s.in_flux.remove(r);
    changed = true;
  }
  if (changed) flux_changed(s, p);
}

// Tokens keep their keys, which now open what lies before the break.
void Home::renew_tokens(Segment& s) {
  for (auto& [id, t] : s.tokens) {
    if (t.revoked) continue;
    t.region.reset();
    auto region = register_for(s, t.info, t.info.keys.front().key.key);
    if (region) {
      t.region = region.take();
    } else {
      trace(kFacTok, kWarn, "segment {}: a token is not registered again", s.id);
    }
  }
}

Status Home::set_break(int32_t id, uint64_t to, uint64_t reservation, Deadline deadline) {
  // For the importers' answers, from when they are asked: however long the memory takes.
  const Nanos patience = deadline.at - now();
  SignalsBlocked quiet;
  Guard one(resize_mu_);
  Fd file;
  uint64_t uid = 0, from = 0;
  bool reserve = false;
  {
    Guard g(mu_);
    Segment* s = find(id);
    if (s == nullptr || !s->owned) return Status::kPerm;
    if (s->removed || !access::extensible(s->flags) || to % s->page_size() != 0 || to > s->size) {
      return Status::kInval;
    }
    if (access::large_pages(s->flags)) reservation = 0;  // holds memory of the other kind
    uid = s->uid;
    from = s->brk.bytes;
    reserve = access::reserved(s->flags);
    file.reset(fcntl(s->file.get(), F_DUPFD_CLOEXEC, 0));
  }
  struct stat end {};
  if (!file || ::fstat(file.get(), &end) != 0) return Status::kNoMem;
  if (to == from && static_cast<uint64_t>(end.st_size) == to) return Status::kOk;
  // Memory first, access after; and the other way round.
  if (to > from) {
    Status st = parts_.node.move_break(id, file.get(), to, reserve, reservation);
    if (!ok(st)) return st == Status::kReconfig ? Status::kNoMem : st;
    {
      Guard g(mu_);
      Segment* s = find_uid(uid);
      if (s != nullptr && s->service) {
        st = lock_memory(s->flags, s->service.data() + from, to - from);
      }
    }
    if (!ok(st)) {
      (void)parts_.node.move_break(id, file.get(), from, reserve, reservation);
      return Status::kNoMem;
    }
  }
  auto p = std::make_shared<Publication>();
  p->waiting = 1;
  p->done.begin();
  Finished done;
  {
    Guard g(mu_);
    Segment* s = find_uid(uid);
    if (s == nullptr || s->removed) return Status::kInval;
    s->brk = {to, s->brk.round + 1};
    if (to > from) {
      renew_tokens(*s);
    } else {
      const auto first = static_cast<uint32_t>(to / kPageSize);
      for (auto& h : s->holders) h.marks.erase(h.marks.lower_bound(first), h.marks.end());
    }
    tell_break(p, *s);
    settle(p, &done);
  }
  run(done);
  fault_point("break_told");
  const bool heard = wait(*p, Deadline::in(patience));
  if (to > from) {
    // Who is silent still is told again and again; until it listens, it raises too much.
    if (!heard) trace(kFacSeg, kWarn, "CMI_SEG_BRK: an importer has not heard of it yet");
    return Status::kOk;
  }
  if (!heard) {
    trace(kFacSeg, kWarn, "CMI_SEG_BRK: an importer did not answer; it is cut off");
    cut_off_silent(p, uid);
  }
  {
    // No importer uses the keys that reach further any more.
    Guard g(mu_);
    if (Segment* s = find_uid(uid); s != nullptr && s->service) {
      for (auto& h : s->holders) {
        if (h.session_end > to) h.session.reset();
      }
      renew_tokens(*s);
    }
  }
  fault_point("break_before_shrink");
  if (Status st = parts_.node.move_break(id, file.get(), to, reserve); !ok(st)) {
    // What lies there is what it was, and everybody may access it again.
    auto undone = std::make_shared<Publication>();
    undone->waiting = 1;
    undone->done.begin();
    {
      Guard g(mu_);
      if (Segment* s = find_uid(uid); s != nullptr && !s->removed) {
        s->brk = {from, s->brk.round + 1};
        renew_tokens(*s);
        tell_break(undone, *s);
      }
      settle(undone, &done);
    }
    run(done);
    (void)wait(*undone, Deadline::in(patience));
    return st == Status::kReconfig ? Status::kNoMem : st;
  }
  auto known = std::make_shared<Publication>();
  known->waiting = 1;
  known->done.begin();
  {
    Guard g(mu_);
    if (Segment* s = find_uid(uid); s != nullptr) forget_past_break(*s, known);
    settle(known, &done);
  }
  run(done);
  (void)wait(*known, Deadline::in(patience));
  // A store through a view that the kernel was just serving may have left it without its watch.
  Guard g(mu_);
  Segment* s = find_uid(uid);
  for (size_t i = 0; s != nullptr && i < s->views.size(); ++i) {
    HomeView& v = s->views[i];
    if (!v.read_only && !v.armed) continue;
    if (v.view->stores != nullptr) {
      v.view->stores->forget({static_cast<uint32_t>(to / kPageSize), kNoPage});
    }
    Userfault& watch = v.read_only || !tracked_ ? guarded_ : tracked_;
    watch.protect(v.addr + to, v.len - to, v.page);
  }
  return Status::kOk;
}

}  // namespace cmi::memory
