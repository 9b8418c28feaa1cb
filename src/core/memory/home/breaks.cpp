#include "core/memory/home/breaks.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "core/base/cause.hpp"
#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/home/segment_lock.hpp"
#include "core/memory/home/session_keys.hpp"
#include "core/memory/home/sharing.hpp"
#include "core/memory/node_bus/await.hpp"
#include "core/memory/vm/lock_memory.hpp"

namespace cmi::memory {

namespace {
thread_local const std::byte* t_tried = nullptr;
thread_local int t_tries = 0;
constexpr int kMostTries = 1000;  // of one access that finds the break before it, and then behind
}  // namespace

uint64_t break_of(const Segment& s) {
  if (s.owned || !access::extensible(s.flags)) return s.owned ? s.brk.bytes : s.size;
  struct stat st {};
  return ::fstat(s.file.get(), &st) == 0 ? static_cast<uint64_t>(st.st_size) : 0;
}

bool Breaks::past_break(int32_t id, size_t offset) {
  const SegmentLock s(home_, id, SegmentLock::kViews);
  return s && offset >= break_of(*s);
}

bool Breaks::past_break(const View& view, const std::byte* addr) {
  const SegmentLock s(home_, view.segment, SegmentLock::kViews);
  if (!s || !access::extensible(s->flags)) return false;
  // The file's end, not what is decided on: a break that moves up is there before anybody hears of
  // it.
  struct stat st {};
  if (::fstat(s->file.get(), &st) != 0 ||
      static_cast<uint64_t>(addr - view.addr) < static_cast<uint64_t>(st.st_size)) {
    return false;
  }
  t_tried = nullptr;
  return true;
}

bool Breaks::may_have_moved(const View& view, const std::byte* addr) {
  const SegmentPtr s = home_.segments.find(view.segment);
  if (s == nullptr || !access::extensible(s->flags)) return false;
  t_tries = t_tried == addr ? t_tries + 1 : 0;
  t_tried = addr;
  return t_tries < kMostTries;
}

void Breaks::notify_break(const RoundPtr& p, Segment& s) {
  for (auto& h : s.sharers) {
    if (s.brk.bytes < h.brk.peak) {
      h.brk.low = std::min(h.brk.low, s.brk.bytes);
    } else {
      h.brk.peak = s.brk.bytes;
    }
    const BreakNotification m{s.uid, h.instance, s.brk, low_of(s, h)};
    home_.rounds.notify_break(p, s, h, m);
  }
}

// Pages in flux behind the break end: there is nothing to recover. To be called when the file has
// been cut, since until then it has these pages. Returns whether there were any; *p is over when
// all importers know.
bool Breaks::uncover_past_break(Segment& s, const RoundPtr& p) {
  const auto first = static_cast<uint32_t>(s.brk.bytes / kPageSize);
  std::vector<PageRange> over = s.flux.pages.in({first, s.pages() - first});
  std::erase_if(over, [&](const PageRange& r) { return !home_.covers.uncover(s, r); });
  if (over.empty()) return false;
  Guard g(home_.mu);
  for (const PageRange& r : over) s.flux.pages.remove(r);
  home_.flux.changed(s, p);
  return true;
}

// Tokens keep their keys, which now open what lies before the break.
void Breaks::renew_tokens(Segment& s) {
  for (auto& [id, t] : s.tokens) {
    if (t.revoked) continue;
    t.region.reset();
    auto region = register_for(home_, s, t.info, t.info.keys.front().key.key);
    if (region) {
      t.region = region.take();
    } else {
      trace(kFacTok, kWarn, "segment {}: a token is not registered again", s.id);
    }
  }
}

struct Breaks::Move {
  int32_t id;
  uint64_t to, reservation;
  EndWait wait;
  Fd file;
  RoundPtr notified{};  // null: nobody had to be
  Nanos notified_at = 0;
  uint64_t uid = 0, from = 0;
  bool reserve = false, large = false;
  bool grows() const { return to > from; }
};

Status Breaks::begin(Move* move) {
  const SegmentLock s(home_, move->id, SegmentLock::kMemory);
  if (!s || !s->owned) return Status::kPerm;
  if (s->removed || !access::extensible(s->flags) || move->to % s->page_size() != 0 ||
      move->to > s->size) {
    return Status::kInval;
  }
  move->large = access::large_pages(s->flags);
  if (move->large) move->reservation = 0;  // holds memory of the other kind
  move->uid = s->uid;
  move->from = s->brk.bytes;
  move->reserve = access::reserved(s->flags);
  move->file.reset(fcntl(s->file.get(), F_DUPFD_CLOEXEC, 0));
  return Status::kOk;
}

// Memory first, access after; and the other way round. What may fail comes before anybody is
// notified, because importers drop what they have stored behind a lower break.
Status Breaks::make_room(const Move& move) {
  node::Node& node = home_.parts.node;
  Status st = move.grows() ? node.breaks().raise(move.id, move.file.get(), move.to, move.reserve,
                                                 move.reservation)
                           : node.breaks().lower(move.id, move.to);
  if (!ok(st)) return st == Status::kReconfig ? Status::kNoMem : st;
  if (!move.grows()) return Status::kOk;
  {
    const SegmentLock s(home_, Uid{move.uid}, SegmentLock::kMemory);
    if (s && s->service) {
      st = lock_memory(s->flags, s->service.data() + move.from, move.to - move.from);
    }
  }
  if (ok(st)) return st;
  if (ok(node.breaks().lower(move.id, move.from))) {
    (void)node.breaks().cut(move.id, move.file.get(), move.from);
  }
  return Status::kNoMem;
}

void Breaks::set(Segment& s, const Move& move) {
  Guard g(home_.mu);
  s.brk = {move.to, s.brk.round + 1};
  if (move.grows()) return;
  const auto first = static_cast<uint32_t>(move.to / kPageSize);
  for (auto& h : s.sharers) h.intents.cut(first);
}

Status Breaks::notify_importers(Move* move) {
  const RoundPtr p = begin_round();
  Finished done;
  {
    const SegmentLock s(home_, Uid{move->uid}, SegmentLock::kBoth);
    if (!s || s->removed) return Status::kInval;
    set(*s, *move);
    if (move->grows()) renew_tokens(*s);
    Guard g(home_.mu);
    notify_break(p, *s);
    home_.rounds.settle(p, &done);
  }
  run(done);
  move->notified = p;
  move->notified_at = now();
  return Status::kOk;
}

// The last wait of a shrinking is without the lock: other segments' breaks move meanwhile.
Status Breaks::set_break(int32_t id, uint64_t to, uint64_t reservation, const EndWait& wait) {
  SignalsBlocked quiet;
  Move move{.id = id, .to = to, .reservation = reservation, .wait = wait, .file = {}};
  {
    Guard one(resize_mu_);
    if (Status st = move_break(&move); !ok(st)) return st;
  }
  if (move.grows()) return Status::kOk;
  const auto what = static_cast<uint32_t>(id);
  const bool anew = move.notified != nullptr;
  // Where the break was there already, an earlier call may have left something.
  const RoundPtr lowered = anew ? move.notified : unfinished_.find(what);
  const Nanos from = anew ? move.notified_at : now();
  if (lowered == nullptr || await_end(home_, lowered, Deadline{from + wait.answer})) {
    return Status::kOk;
  }
  if (anew) unfinished_.add(what, lowered);
  return because(Status::kReconfig,
                 "an importer may still read what it has cached behind the break: it has neither "
                 "answered nor been declared dead");
}

Status Breaks::move_break(Move* to_make) {
  Move& move = *to_make;
  if (Status st = begin(&move); !ok(st)) return st;
  struct stat end {};
  if (!move.file || ::fstat(move.file.get(), &end) != 0) return Status::kNoMem;
  if (move.to == move.from && static_cast<uint64_t>(end.st_size) == move.to) return Status::kOk;
  if (Status st = make_room(move); !ok(st)) return st;
  if (Status st = notify_importers(&move); !ok(st)) return st;
  fault_point("break_notified");
  // From now on, however long the memory took.
  const bool heard = await(move.notified->done, home_.parts.server, Deadline::in(move.wait.fence));
  if (!move.grows()) return shrink(move, heard);
  // A silent importer is notified again and again, and asks before it raises SEG_BRK.
  if (!heard) trace(kFacSeg, kWarn, "CMI_SEG_BRK: an importer has not heard of it yet");
  // hugetlbfs forgets what it had protected behind a file's end whenever that end is set, which
  // the next growth would open.
  if (move.large) watch_again_everywhere(move);
  return Status::kOk;
}

void Breaks::close_sessions(Segment& s, uint64_t past) {
  Guard g(home_.mu);
  for (auto& h : s.sharers) {
    if (h.session.end > past && !mutated("mutate_session_key_kept")) h.session.region.reset();
  }
}

Status Breaks::shrink(const Move& move, bool heard) {
  if (!heard) {
    trace(kFacSeg, kWarn, "CMI_SEG_BRK: an importer did not answer; it is cut off");
    cut_off_silent(home_, move.notified, move.uid);
  }
  {
    // No importer uses the keys that reach further any more.
    const SegmentLock s(home_, Uid{move.uid}, SegmentLock::kMemory);
    if (s && s->service) {
      close_sessions(*s, move.to);
      renew_tokens(*s);
    }
  }
  fault_point("break_before_shrink");
  // A file of ours is always cut. Were it not, it would be the next time.
  if (Status st = home_.parts.node.breaks().cut(move.id, move.file.get(), move.to); !ok(st))
    return st;
  const RoundPtr known = begin_round();
  Finished done;
  bool uncovered = false;
  {
    const SegmentLock s(home_, Uid{move.uid}, SegmentLock::kBoth);
    if (s) uncovered = uncover_past_break(*s, known);
    Guard g(home_.mu);
    home_.rounds.settle(known, &done);
  }
  run(done);
  if (uncovered) {
    (void)await(known->done, home_.parts.server, Deadline::in(move.wait.fence));
  }
  watch_again_everywhere(move);
  return Status::kOk;
}

// In the processes of the node that have attached it, too.
void Breaks::watch_again_everywhere(const Move& move) {
  {
    const SegmentLock s(home_, Uid{move.uid}, SegmentLock::kViews);
    if (s) home_.tracker.watch_again(*s, move.to);
  }
  const Deadline deadline = Deadline::in(move.wait.fence);
  for (node::ContextSlot slot : home_.parts.node.attachments().of(move.id)) {
    if (slot == home_.parts.node.slot()) continue;
    if (!home_.channel.ask(slot, BusShrunk{kBusShrunk, move.id, 0, move.to}, -1, deadline)) {
      trace(kFacSeg, kWarn, "CMI_SEG_BRK: a process of this node has not heard of it yet");
    }
  }
}

}  // namespace cmi::memory
