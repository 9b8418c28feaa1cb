// Extensible segments at home: moving the break. The file ends at the break, so the kernel itself
// keeps every view of the node's processes from what lies behind it; the faults that it raises
// there become CMI_ERROR_SEG_BRK. Registrations end at the break, too, and importers are notified
// (rule 24).
//
// Threads: any; set_break() is for application threads, of which one at a time moves a break.
#pragma once

#include "core/memory/home/home_core.hpp"
#include "core/memory/home/unfinished_ends.hpp"

namespace cmi::memory {

uint64_t break_of(const Segment& s);  // as it is now; bytes

class Breaks {
 public:
  explicit Breaks(HomeCore& home) : home_(home) {}
  // CMI_SEG_BRK. kOk: nobody anywhere accesses what lies behind `to`, or everybody may access what
  // lies before it, though of a higher break an importer may hear later, by asking. kReconfig: the
  // break is lower, but an importer has neither answered nor been declared dead; once more waits
  // for that. kPerm: another process's segment. kInval: no such break. kNoMem: there is no memory,
  // or no lock.
  Status set_break(int32_t id, uint64_t to, uint64_t reservation, const EndWait& wait);
  // Fault handler: whether the page lies past the break; and of one that does not, whether it may
  // have when it was accessed.
  bool past_break(const View& view, const std::byte* addr);
  bool may_have_moved(const View& view, const std::byte* addr);
  bool past_break(int32_t id, size_t offset);

 private:
  struct Move;  // of one break
  Status move_break(Move* to_make);
  Status begin(Move* move);
  Status make_room(const Move& move);
  Status notify_importers(Move* move);
  Status shrink(const Move& move, bool heard);
  void notify_break(const RoundPtr& p, Segment& s) CMI_REQUIRES(home_.mu);
  // Each under the segment's own locks.
  void set(Segment& s, const Move& move) CMI_EXCLUDES(home_.mu);
  void close_sessions(Segment& s, uint64_t past) CMI_EXCLUDES(home_.mu);
  bool uncover_past_break(Segment& s, const RoundPtr& p) CMI_EXCLUDES(home_.mu);
  void renew_tokens(Segment& s) CMI_EXCLUDES(home_.mu);
  void watch_again_everywhere(const Move& move);

  HomeCore& home_;
  Mutex resize_mu_ CMI_ACQUIRED_BEFORE(lock_order::after_breaks);
  UnfinishedEnds unfinished_;
};

}  // namespace cmi::memory
