// Datagrams between the contexts of one node, about a segment: one struct for each. All of them
// begin alike: u8 what, i32 segment, u64 question, u64 a, u64 b. What a and b are is named here;
// where they mean nothing they are sent as 0 and not looked at. core/node/quiesce.hpp has the same
// layout for programs without a context.
#pragma once

#include "core/memory/wire/requests.hpp"
#include "core/node/quiesce.hpp"

namespace cmi::memory {

// One that says nothing beyond what it is, about which segment, and in which question.
template <uint8_t kWhat>
struct BusSignal {
  uint8_t what = kWhat;
  int32_t segment = 0;
  uint64_t question = 0;
  uint64_t unused_a = 0, unused_b = 0;
  static auto fields(auto& m) {
    return std::tie(m.what, m.segment, m.question, m.unused_a, m.unused_b);
  }
};
using BusBarrier = BusSignal<kBusBarrier>;
using BusLook = BusSignal<kBusLook>;
using BusFile = BusSignal<kBusFile>;
using BusToken = BusSignal<kBusToken>;

template <uint8_t kWhat>
struct BusViewRange {
  uint8_t what = kWhat;
  int32_t segment = 0;
  uint64_t question = 0;
  uint64_t address = 0, length = 0;
  static auto fields(auto& m) {
    return std::tie(m.what, m.segment, m.question, m.address, m.length);
  }
};
using BusView = BusViewRange<kBusView>;  // a pagemap descriptor comes along
using BusUnview = BusViewRange<kBusUnview>;

struct BusPublish {
  uint8_t what = kBusPublish;
  int32_t segment = 0;
  uint64_t question = 0;
  uint64_t first = 0, count = 0;
  static auto fields(auto& m) { return std::tie(m.what, m.segment, m.question, m.first, m.count); }
};

template <uint8_t kWhat>
struct BusListVersion {
  uint8_t what = kWhat;
  int32_t segment = 0;
  uint64_t question = 0;
  uint64_t version = 0, unused_b = 0;
  static auto fields(auto& m) {
    return std::tie(m.what, m.segment, m.question, m.version, m.unused_b);
  }
};
using BusInFlux = BusListVersion<kBusInFlux>;  // the list's file comes along
using BusInFluxSeen = BusListVersion<kBusInFluxSeen>;

struct BusShrunk {
  uint8_t what = kBusShrunk;
  int32_t segment = 0;
  uint64_t question = 0;
  uint64_t bytes = 0, unused_b = 0;
  static auto fields(auto& m) {
    return std::tie(m.what, m.segment, m.question, m.bytes, m.unused_b);
  }
};

struct BusHolder {
  uint8_t what = kBusHolder;
  int32_t segment = 0;
  uint64_t question = 0;
  uint64_t holder = 0, unused_b = 0;
  static auto fields(auto& m) {
    return std::tie(m.what, m.segment, m.question, m.holder, m.unused_b);
  }
};

struct BusQuiesce {
  uint8_t what = node::kBusQuiesce;
  int32_t segment = 0;
  uint64_t question = 0;
  uint64_t on = 0, unused_b = 0;  // 1: quiesce, 0: resume; others are refused by the answer
  static auto fields(auto& m) { return std::tie(m.what, m.segment, m.question, m.on, m.unused_b); }
};

struct BusAnswer {
  uint8_t what = kBusAnswer;
  int32_t segment = 0;
  uint64_t question = 0;
  uint64_t status = 0, unused_b = 0;  // Status of a quiesce, or of a question for a holder
  static auto fields(auto& m) {
    return std::tie(m.what, m.segment, m.question, m.status, m.unused_b);
  }
};

// Ranges of pages follow.
template <uint8_t kWhat>
struct BusRanges {
  uint8_t what = kWhat;
  int32_t segment = 0;
  uint64_t question = 0;
  uint64_t count = 0;
  uint64_t how = 0;  // of kBusLost
  Bytes body;
  static auto fields(auto& m) { return std::tie(m.what, m.segment, m.question, m.count, m.how); }
  bool check() const {
    return body.size() % PageRangeList::kItem == 0 && body.size() / PageRangeList::kItem == count;
  }
  PageRangeList ranges() const { return PageRangeList(body); }
};
using BusStored = BusRanges<kBusStored>;
using BusLost = BusRanges<kBusLost>;

}  // namespace cmi::memory
