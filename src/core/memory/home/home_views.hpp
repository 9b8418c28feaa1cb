// Views of segments of this node in this process.
//
// seg_getva: memory of the client's becomes a segment in place, and is given back. The range is
// moved onto the segment's file: copied while nobody can store to it, then mapped over. Importers
// and the fabric only ever see the file. So what the client maps there later, having freed this
// memory, can be reached by no remote node; but neither may we take it for ours: it is not scanned,
// protected, covered or unmapped (adopted_views.hpp). A registration with a userfaultfd goes with
// the mapping, so tracking never strays.
//
// Threads: any; attach() and detach() wait for other processes of the node.
// Files: attach.cpp, adopt.cpp, give_back.cpp.
#pragma once

#include "core/memory/home/home_core.hpp"

namespace cmi::memory {

class HomeViews {
 public:
  explicit HomeViews(HomeCore& home) : home_(home) {}
  ~HomeViews();

  Result<void*> attach(int32_t id, uint64_t size, void* addr, bool read_only, Deadline deadline);
  // kInval: nothing of that segment is attached at exactly this address. Memory of the client's own
  // is given back; kNoMem: there is no room for that, kHw: some of it is broken. The view then
  // stays, but at the end of the context (`ending`), where broken pages alone are left as they are.
  Status detach(int32_t id, void* addr, Deadline deadline, bool ending = false);
  // seg_getva. The memory at va, as much as the new segment is large, becomes its memory and its
  // first view. Until then nobody else knows of the segment. On failure the memory is as it was.
  // kInval: some of it is not mapped, or a segment's. kPerm, kNotSupp: see segment::own_memory.
  Status adopt(int32_t id, void* va);
  // Fault handler: whether a store has to wait.
  bool being_moved(const View& view);
  // The process ends and nobody takes its faults any more.
  void stop_watching_adopted();
  // The home view that `addr` lies in: its segment, or 0.
  int32_t segment_at(const void* addr, size_t* offset, bool* read_only);
  // The same word where the library has it mapped for itself, for calls that bear that it has gone
  // meanwhile. Null: it has not.
  const uint64_t* library_word(const uint64_t* addr);

 private:
  using Overlaid = std::vector<std::shared_ptr<const View>>;  // views that another is mapped over
  Result<Fd> file_of(int32_t id, const Result<node::SegmentInfo>& info, Deadline deadline);
  Result<SegmentPtr> segment_for(int32_t id, uint64_t size, const Result<node::SegmentInfo>& info,
                                 Result<Fd> file) CMI_EXCLUDES(home_.mu);
  // Those that are given a segment run under its `views_mu`.
  Status enter_view(Segment& s, void* addr, bool read_only, HomeView* view, Overlaid* overlaid,
                    bool* covered) CMI_EXCLUDES(home_.mu);
  Status map_view(Segment& s, void* addr, bool read_only, HomeView* view, Overlaid* overlaid)
      CMI_EXCLUDES(home_.mu);
  Status watch_view(const Segment& s, HomeView* view) CMI_EXCLUDES(home_.mu);
  static HomeView* view_at(Segment& s, const void* addr);
  void look_at_overlaid(const Overlaid& overlaid, const HomeView& by) CMI_EXCLUDES(home_.mu);
  Status take_view(int32_t id, void* addr, HomeView* view, SegmentFacts* facts, RoundPtr* last,
                   Finished* done) CMI_EXCLUDES(home_.mu);
  void view_gone(int32_t id);
  void detach_later(PendingDetach detach);

  Status enter_adopted(int32_t id, const std::shared_ptr<View>& view, int* file,
                       const std::byte** content);
  bool look_at_adopted(const std::byte* at, size_t size) CMI_EXCLUDES(home_.mu);
  Status move_onto(int file, const std::byte* content, std::byte* at, size_t size);
  bool still_adopted(Segment& s, HomeView& v, size_t offset);
  Status give_back(int32_t id, const View& view, bool leave_broken) CMI_EXCLUDES(home_.mu);

  HomeCore& home_;
};

// Maps the segment's memory for the library itself, once.
Status map_service(Segment& s);

}  // namespace cmi::memory
