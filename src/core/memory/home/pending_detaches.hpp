// Views of another process's segment that have ended here, and of which that process, the owner,
// has not heard: it was stopped, say. The owner looks for what was stored through them in this
// process's page tables and would take the stores to whatever lies at their addresses by then for
// stores to its segment. So the addresses stay taken until the owner has answered or has ended.
//
// Pure: mapping and sending are the caller's. HomeCore::mu guards it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "core/base/clock.hpp"
#include "core/memory/vm/view_table.hpp"
#include "core/node/node.hpp"

namespace cmi::memory {

struct PendingDetach {
  node::ContextSlot owner{};
  int32_t segment = 0;
  std::byte* addr = nullptr;
  size_t len = 0, mapped = 0;
  std::shared_ptr<const View> view;  // with stores through it of which the owner has not heard
  Nanos born = 0, sent = 0;
};

class PendingDetaches {
 public:
  static constexpr Nanos kNotifyAgain = 20 * kMilli;  // then ever more rarely

  // `question`: the number of the question over the bus that notifies the owner.
  void add(uint64_t question, PendingDetach detach) {
    detaches_.emplace(question, std::move(detach));
  }
  // Its owner has heard: the addresses are the caller's to free.
  std::optional<PendingDetach> take(uint64_t question) {
    auto taken = detaches_.extract(question);
    if (taken.empty()) return std::nullopt;
    return std::move(taken.mapped());
  }
  // Calls ask(question, detach) for each detach about which the owner is to be asked again.
  template <class Ask>
  void each_due(Nanos t, Ask ask) {
    for (auto& [question, detach] : detaches_) {
      // Copies do not help a process that is stopped, and take up our own queue.
      if (t - detach.sent <= std::max(kNotifyAgain, detach.sent - detach.born)) continue;
      detach.sent = t;
      ask(question, std::as_const(detach));
    }
  }
  bool empty() const { return detaches_.empty(); }
  auto begin() const { return detaches_.begin(); }
  auto end() const { return detaches_.end(); }

 private:
  std::map<uint64_t, PendingDetach> detaches_;
};

}  // namespace cmi::memory
