// One fault of an application thread on a view: a load miss, a store miss, a first store, or a
// mapping that is missing. Each try takes a snapshot under the page's lock, decides
// (fault_decision.hpp) and carries the decision out. One thread, all
// signals blocked; what a miss runs through is [[gnu::hot]], so that it lies on a few pages of
// code, which after a pause are in no cache (performance.md, load_miss_idle).
#pragma once

#include <optional>

#include "core/memory/importer/fault_decision.hpp"
#include "core/memory/importer/importer_core.hpp"

namespace cmi::memory {

class Fault {
 public:
  Fault(ImporterCore& core, const View& view, const std::byte* addr, bool store,
        const PageSeen* seen, Deadline deadline)
      : core_(core),
        view_(view),
        imp_(*view.import),
        index_(static_cast<uint32_t>(static_cast<size_t>(addr - view.addr) / kPageSize)),
        at_(view.addr + size_t{index_} * kPageSize),
        page_(imp_.page(index_)),
        store_(store),
        seen_(seen),
        deadline_(deadline) {}
  Fault(const Fault&) = delete;
  Fault& operator=(const Fault&) = delete;

  // kNone: the access may be tried again.
  Exception serve();

 private:
  using Outcome = std::optional<Exception>;  // none: to be looked at again

  // Each of these begins with the page's lock held and ends without it.
  Outcome try_once();
  FaultDecision decide();
  Outcome carry_out(const FaultDecision& decision);
  Outcome fetch(bool asks_intent);
  Outcome ask_intent(bool may_widen);
  Outcome first_store(bool may_widen);
  Outcome map(FaultAction how);

  // The rest begin and end without it.
  Outcome refuse();
  Outcome ask_break();
  Outcome ask_flux();
  Outcome await_lease();
  Outcome await_change();
  Outcome open_window(uint32_t window);
  Outcome mapped(bool mapped, bool readahead);
  Outcome find_twin();

  uint32_t store_window(bool may_widen);
  bool map_and_compare();

  ImporterCore& core_;
  const View& view_;
  Import& imp_;
  const uint32_t index_;
  std::byte* const at_;
  Page& page_;
  const bool store_;
  // The page as it was while the thread that faulted was waiting; null once something is under way
  // in the name of this fault, which has to be seen through.
  const PageSeen* seen_;
  const Deadline deadline_;
  bool alone_ = false;    // the pages behind this one have had their try with it
  bool no_twin_ = false;  // could be had at the last try
  // As they were at the last snapshot.
  uint32_t changes_ = 0, brk_ = 0;
  Exception refusal_ = Exception::kNone;
};

}  // namespace cmi::memory
