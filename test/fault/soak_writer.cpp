// See soak_writer.hpp.
#include "fault/soak_writer.hpp"

#include <algorithm>
#include <random>
#include <vector>

namespace cmi::test::soak {

namespace {

struct Place {
  uint32_t segment, slot;
  bool operator==(const Place&) const = default;
};

class Writer {
 public:
  Writer(const Board::Name& name, uint32_t self, const Views& views)
      : board_(Board::open(name)), self_(self), views_(views) {}

  void store(Place place) {
    const uint64_t value = word(kBegun, place).fetch_add(1) + 1;
    if (told(store64(views_.at[place.segment] + offset_of(self_, place.slot), value))) {
      stored_.push_back({place, value});
    }
  }
  void load(Place place, uint32_t writer) {
    told(load64(views_.at[place.segment] + offset_of(writer, place.slot)));
  }
  void flush() {
    const int result = CMIFN(ctxt(), 10, wmb_fn)(ctxt());
    const Answer barrier = answer(result, result != 0);
    if (!barrier.ok() && !barrier.failed(CMI_ERR_STORE) && !barrier.failed(CMI_ERR_HW)) {
      note_wrong(kError, static_cast<uint64_t>(barrier.error));
    }
    // Whoever a barrier tells of losses finds the event at once. One that gave up waiting has
    // stores under way: they arrive, or a later event names them.
    const std::vector<Place> named = take_events();
    for (const Place& place : named) word(kUntold, place).store(0);
    for (const Stored& s : stored_) {
      if (barrier.ok()) {
        word(kFlushed, s.place).store(s.value);
      } else if (std::find(named.begin(), named.end(), s.place) == named.end()) {
        word(kUntold, s.place).store(s.value);
      }
    }
    stored_.clear();
    ++work_.rounds;
    ++(barrier.ok() ? work_.flushes : work_.losses);
  }
  bool attached(uint32_t segment) const { return views_.at[segment] != 0; }
  const Work& work() const { return work_; }

 private:
  struct Stored {
    Place place;
    uint64_t value;
  };

  Board::Word& word(Note what, Place place) {
    return board_[note(what, place.segment, self_, place.slot)];
  }
  void note_wrong(Wrong what, uint64_t value) { board_[wrong(what, self_)].store(value); }

  // Whether the access was made; if not, whether that is for a cause that there may be.
  bool told(const Access& access) {
    const int cause = access.cause();
    if (cause == Fault::kNone) return true;
    ++work_.exceptions;
    if (cause != CMI_ERROR_TRANSIENT && cause != CMI_ERROR_SINVAL && cause != CMI_ERROR_TOKEN &&
        cause != CMI_ERROR_CONSIST) {
      note_wrong(kCause, static_cast<uint64_t>(cause));
    }
    return false;
  }

  // The places where stores are lost, by all events that wait.
  std::vector<Place> take_events() {
    std::vector<Place> named;
    while (cmi_event* event = CMIFN(ctxt(), 10, evt_get)(ctxt())) {
      if (event->type == CMI_EVENT_STORE_FAILURE || event->type == CMI_EVENT_HW) {
        take_losses(event->serr, &named);
      }
      CMIFN(ctxt(), 10, evt_ret)(event, CMI_EVENT_RET_DONE);
    }
    return named;
  }
  // Of mapped pages that are stored to again and again the loss of their home names also those that
  // a barrier has covered.
  bool may_be_named(uint32_t segment, uint64_t at) const {
    return views_.mapped && at % kPage == 0 && at / kPage < kSlots &&
           load64(views_.at[segment]).cause() == CMI_ERROR_SINVAL;
  }
  void take_losses(const cmi_einfo_serr& losses, std::vector<Place>* named) {
    uint32_t segment = 0;
    while (segment < views_.nodes && views_.seg[segment] != losses.einfo_seg) ++segment;
    if (segment == views_.nodes || losses.einfo_naddrs == 0) note_wrong(kUseless, 1);
    for (uint32_t i = 0; segment < views_.nodes && i < losses.einfo_naddrs; ++i) {
      const uint64_t at = reinterpret_cast<uint64_t>(losses.einfo_addr[i]) - views_.at[segment];
      const Place place{segment, static_cast<uint32_t>(at / kPage)};
      if (at % kPage == 0 && at / kPage < kSlots &&
          word(kBegun, place).load() > word(kFlushed, place).load()) {
        named->push_back(place);
        ++work_.told;
      } else if (!may_be_named(segment, at)) {
        note_wrong(kNamed, at + 1);
      }
    }
  }

  Board::Word* const board_;
  const uint32_t self_;
  const Views& views_;
  std::vector<Stored> stored_;  // since the last barrier, without an exception
  Work work_;
};

}  // namespace

Work write(const Board::Name& name, uint32_t self, uint64_t seed, const Views& views) {
  std::mt19937_64 random(seed);
  Writer writer(name, self, views);
  while (!called_back()) {
    for (uint64_t n = 1 + random() % 4; n > 0; --n) {
      const Place place{static_cast<uint32_t>(random() % views.nodes),
                        static_cast<uint32_t>(random() % kSlots)};
      if (!writer.attached(place.segment)) continue;
      writer.store(place);
      writer.load(place, static_cast<uint32_t>(random() % views.nodes));
    }
    ::usleep(static_cast<useconds_t>(random() % 2000));  // it runs beside other tests
    writer.flush();
  }
  return writer.work();
}

}  // namespace cmi::test::soak
