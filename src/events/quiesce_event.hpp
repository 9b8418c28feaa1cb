// CMI_EVENT_QUIESCE and CMI_EVENT_RESUME: stop using a segment, and go on. They are not counted, so
// at most one of each waits for a segment: what the client has not heard of may be left out. Pure.
#pragma once

#include "events/event.hpp"

namespace cmi::events {

class Quiesce final : public Event {
 public:
  Quiesce(cmi_event_type t, int32_t segment) : Event(t), segment_(segment) {}

  // The newer round of the same is the one to be answered.
  bool absorb(Event& newer) override {
    if (!concerns_same(newer) || newer.type != type) return false;
    returned = std::move(newer.returned);
    return true;
  }
  bool undone_by(const Event& newer) const override {
    return concerns_same(newer) && newer.type != type;
  }
  bool forget(int32_t segment) override { return segment == segment_; }
  size_t room() const override { return 0; }
  void fill(cmi_event* out, Block, std::byte*, uint16_t) const override {
    out->seg.einfo_seg = segment_;
  }

 private:
  bool concerns_same(const Event& other) const {
    return (other.type == CMI_EVENT_QUIESCE || other.type == CMI_EVENT_RESUME) &&
           static_cast<const Quiesce&>(other).segment_ == segment_;
  }
  const int32_t segment_;
};

}  // namespace cmi::events
