// Extensible segments at home: moving the break. The file ends at the break, so the kernel itself
// keeps every view of the node's processes from what lies behind it; the faults that it raises
// there become CMI_ERROR_SEG_BRK. Registrations end at the break, too, and importers are told
// (rule 24).
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/home/home.hpp"
#include "core/memory/vm/lock_memory.hpp"
#include "core/memory/vm/store_log.hpp"

namespace cmi::memory {

namespace {
thread_local const std::byte* t_tried = nullptr;
thread_local int t_tries = 0;
constexpr int kMostTries = 1000;  // of one access that finds the break before it, and then behind
}  // namespace

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

void Home::notify_break(const std::shared_ptr<InvalidationRound>& p, const Segment& s,
                        const Sharer& h) {
  const BreakNotification m{s.uid, h.instance, s.brk, low_of(s, h)};
  notify(p, s, h, NotificationType::kBreak, Encoded(m));
}

void Home::notify_break(const std::shared_ptr<InvalidationRound>& p, Segment& s) {
  for (auto& h : s.sharers) {
    if (s.brk.bytes < h.brk_peak) {
      h.brk_low = std::min(h.brk_low, s.brk.bytes);
    } else {
      h.brk_peak = s.brk.bytes;
    }
    notify_break(p, s, h);
  }
}

// It has nothing of before any more. That of an older break says nothing of the newest.
void Home::on_break_heard(const Notification& n) {
  Segment* s = find_uid(n.uid);
  Sharer* h = s != nullptr ? find_sharer(*s, n.client, n.instance) : nullptr;
  BreakNotification told;  // by this home itself
  if (h == nullptr || !decode(n.payload, &told) || told.brk.round != s->brk.round) return;
  h->brk_peak = s->brk.bytes;
  h->brk_low = kNoLow;
}

// What an access of its failed with, as far as it is this side's; and the break. An importer that
// asks has not heard of the newest break perhaps: notices about it wait no longer.
void Home::on_cause(const fabric::ClientInfo& client, uint64_t number, const CauseRequest& m) {
  WireStatus status = WireStatus::kMalformed;
  std::byte buf[16];
  Writer out(buf);
  {
    Guard g(mu_);
    Segment* s = nullptr;
    Sharer* h = nullptr;
    status = check(client.id, m.uid, m.instance, 0, &s, &h);
    s = find_uid(m.uid);
    h = s != nullptr ? find_sharer(*s, client.id, m.instance) : nullptr;
    if (h != nullptr && access::extensible(s->flags)) {
      encode(BreakPart{s->brk}, out);
      for (auto& [notification, n] : notifications_) {
        if (n.type != NotificationType::kBreak || n.client != client.id ||
            n.instance != m.instance || n.uid != m.uid) {
          continue;
        }
        parts_.server.notification(n.client, notification, static_cast<uint16_t>(n.type),
                                   n.payload);
      }
    }
  }
  reply(parts_.server, client.id, number, status, out.done());
}

// Pages in flux behind the break are no more: there is nothing to recover. When the file has ended,
// for until then it has them. Whether there were any; *p is settled when everybody knows.
bool Home::uncover_past_break(Segment& s, const std::shared_ptr<InvalidationRound>& p) {
  const auto first = static_cast<uint32_t>(s.brk.bytes / kPageSize);
  bool changed = false;
  for (const PageRange& r :
       s.in_flux.in({first, static_cast<uint32_t>(s.size / kPageSize) - first})) {
    if (!uncover(s, r)) continue;
    s.in_flux.remove(r);
    changed = true;
  }
  if (changed) flux_changed(s, p);
  return changed;
}

// An access that the kernel was just serving when the file was cut may have left its page without
// its protection, which outlives the cut in tmpfs (hugetlbfs drops it): once the file has grown
// again, a store there would go unseen, or through a read-only view. Where the kernel notes stores
// by itself such a page counts as stored to, so nothing is lost; and in another process than the
// owner this may come late, when what was noted since must not be forgotten.
void Home::watch_again(Segment& s, uint64_t from) {
  for (HomeView& v : s.views) {
    const bool by_kernel = v.armed && v.view->stores == nullptr;
    if (from >= v.len || !(v.read_only || v.armed) || (by_kernel && !s.owned)) continue;
    if (v.view->stores != nullptr && s.owned) {
      v.view->stores->forget({static_cast<uint32_t>(from / kPageSize), kNoPage});
    }
    (by_kernel ? tracked_ : guarded_).protect(v.addr + from, v.len - from, v.page);
  }
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

Status Home::set_break(int32_t id, uint64_t to, uint64_t reservation, Nanos patience) {
  SignalsBlocked quiet;
  Guard one(resize_mu_);
  Fd file;
  uint64_t uid = 0, from = 0;
  bool reserve = false, large = false;
  {
    Guard g(mu_);
    Segment* s = find(id);
    if (s == nullptr || !s->owned) return Status::kPerm;
    if (s->removed || !access::extensible(s->flags) || to % s->page_size() != 0 || to > s->size) {
      return Status::kInval;
    }
    large = access::large_pages(s->flags);
    if (large) reservation = 0;  // holds memory of the other kind
    uid = s->uid;
    from = s->brk.bytes;
    reserve = access::reserved(s->flags);
    file.reset(fcntl(s->file.get(), F_DUPFD_CLOEXEC, 0));
  }
  struct stat end {};
  if (!file || ::fstat(file.get(), &end) != 0) return Status::kNoMem;
  if (to == from && static_cast<uint64_t>(end.st_size) == to) return Status::kOk;
  // Memory first, access after; and the other way round. What may fail comes before anybody is
  // told, because importers drop what they have stored behind a lower break.
  Status st = to > from ? parts_.node.raise_break(id, file.get(), to, reserve, reservation)
                        : parts_.node.lower_break(id, to);
  if (!ok(st)) return st == Status::kReconfig ? Status::kNoMem : st;
  if (to > from) {
    {
      Guard g(mu_);
      Segment* s = find_uid(uid);
      if (s != nullptr && s->service) {
        st = lock_memory(s->flags, s->service.data() + from, to - from);
      }
    }
    if (!ok(st)) {
      if (ok(parts_.node.lower_break(id, from))) {
        (void)parts_.node.cut(id, file.get(), from);
      }
      return Status::kNoMem;
    }
  }
  auto p = std::make_shared<InvalidationRound>();
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
      for (auto& h : s->sharers) h.intents.erase(h.intents.lower_bound(first), h.intents.end());
    }
    notify_break(p, *s);
    settle(p, &done);
  }
  run(done);
  fault_point("break_told");
  // From now on, however long the memory took.
  const bool heard = wait(*p, Deadline::in(patience));
  if (to > from) {
    // Who is silent still is told again and again, and asks before it raises SEG_BRK.
    if (!heard) trace(kFacSeg, kWarn, "CMI_SEG_BRK: an importer has not heard of it yet");
    // hugetlbfs forgets what it had protected behind a file's end whenever that end is set, which
    // the next growth would open.
    if (large) watch_again_everywhere(id, uid, to, patience);
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
      for (auto& h : s->sharers) {
        if (h.session_end > to && !mutated("mutate_session_key_kept")) h.session.reset();
      }
      renew_tokens(*s);
    }
  }
  fault_point("break_before_shrink");
  // A file of ours is always cut. Were it not, it would be the next time.
  if (st = parts_.node.cut(id, file.get(), to); !ok(st)) return st;
  auto known = std::make_shared<InvalidationRound>();
  known->waiting = 1;
  known->done.begin();
  bool uncovered = false;
  {
    Guard g(mu_);
    if (Segment* s = find_uid(uid); s != nullptr) uncovered = uncover_past_break(*s, known);
    settle(known, &done);
  }
  run(done);
  if (uncovered) (void)wait(*known, Deadline::in(patience));
  watch_again_everywhere(id, uid, to, patience);
  return Status::kOk;
}

// In the processes of the node that have attached it, too.
void Home::watch_again_everywhere(int32_t id, uint64_t uid, uint64_t from, Nanos patience) {
  {
    Guard g(mu_);
    if (Segment* s = find_uid(uid); s != nullptr) watch_again(*s, from);
  }
  const Deadline deadline = Deadline::in(patience);
  for (node::ContextSlot slot : parts_.node.attached(id)) {
    if (slot == parts_.node.slot()) continue;
    if (!ask_owner(slot, BusShrunk{kBusShrunk, id, 0, from}, -1, deadline)) {
      trace(kFacSeg, kWarn, "CMI_SEG_BRK: a process of this node has not heard of it yet");
    }
  }
}

}  // namespace cmi::memory
