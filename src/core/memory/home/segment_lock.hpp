// Finding a segment of a home and taking its own locks, which stand before HomeCore::mu.
#pragma once

#include <utility>

#include "core/memory/home/home_core.hpp"

namespace cmi::memory {

struct Uid {
  uint64_t value;
};

// Holds a segment, and its locks, for as long as it lives. Empty: there is no such segment, or
// (kTried) another thread has the lock.
class SegmentLock {
 public:
  enum Which { kMemory = 1, kViews = 2, kBoth = 3, kTriedViews = 4 };

  SegmentLock(HomeCore& home, Uid uid, Which which) CMI_EXCLUDES(home.mu) : which_(which) {
    take([&] { return home.segments.find_uid(uid.value); });
  }
  SegmentLock(HomeCore& home, int32_t id, Which which) CMI_EXCLUDES(home.mu) : which_(which) {
    take([&] { return home.segments.find(id); });
  }
  // One that has been found; empty where it has left the table since.
  SegmentLock(HomeCore& home, SegmentPtr found, Which which) CMI_EXCLUDES(home.mu) : which_(which) {
    (void)home;
    take([&] { return std::exchange(found, nullptr); });
  }
  ~SegmentLock() { release(); }
  SegmentLock(const SegmentLock&) = delete;
  SegmentLock& operator=(const SegmentLock&) = delete;

  Segment* get() const { return segment_.get(); }
  Segment& operator*() const { return *segment_; }
  Segment* operator->() const { return segment_.get(); }
  explicit operator bool() const { return segment_ != nullptr; }

 private:
  template <class Find>
  void take(const Find& find) {
    for (;;) {
      segment_ = find();
      if (segment_ == nullptr) return;
      if (!lock()) {
        segment_ = nullptr;
        return;
      }
      if (!segment_->erased.load(std::memory_order_relaxed)) return;
      release();
    }
  }
  // Which locks are taken is known when it runs only.
  bool lock() CMI_TSA(no_thread_safety_analysis) {
    if (which_ == kTriedViews) return segment_->views_mu.try_lock();
    if ((which_ & kMemory) != 0) segment_->mu.lock();
    if ((which_ & kViews) != 0) segment_->views_mu.lock();
    return true;
  }
  void release() CMI_TSA(no_thread_safety_analysis) {
    if (segment_ == nullptr) return;
    if (which_ == kTriedViews || (which_ & kViews) != 0) segment_->views_mu.unlock();
    if ((which_ & kMemory) != 0) segment_->mu.unlock();
    segment_ = nullptr;
  }

  const Which which_;
  SegmentPtr segment_;
};

}  // namespace cmi::memory
