// The views that the client has attached, by their addresses.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "core/base/lock.hpp"
#include "core/context/lock_order.hpp"
#include "core/memory/vm/view_table.hpp"
#include "core/node/node.hpp"

namespace cmi::context {

struct AttachedView {
  int32_t segment = 0;
  node::Attachment attachment{};
  std::shared_ptr<const memory::View> imported;  // null: a view of a home segment
};

// Any thread. Its lock is a leaf.
class AttachedViews {
 public:
  void add(void* addr, AttachedView view) {
    Guard g(mu_);
    views_[addr] = std::move(view);
  }
  // The segment's view at this very address, which ends here; none: there is no such view.
  std::optional<AttachedView> take(void* addr, int32_t segment) {
    Guard g(mu_);
    auto it = views_.find(addr);
    if (it == views_.end() || it->second.segment != segment) return std::nullopt;
    AttachedView taken = std::move(it->second);
    views_.erase(it);
    return taken;
  }
  std::map<void*, AttachedView> take_all() {
    Guard g(mu_);
    return std::exchange(views_, {});
  }
  // Where the segment's first view begins; null: it has none.
  std::byte* lowest(int32_t segment) {
    Guard g(mu_);
    for (auto& [addr, view] : views_) {  // ascending
      if (view.segment == segment) return static_cast<std::byte*>(addr);
    }
    return nullptr;
  }

 private:
  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_sizes);
  std::map<void*, AttachedView> views_ CMI_GUARDED_BY(mu_);
};

}  // namespace cmi::context
