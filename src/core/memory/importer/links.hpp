// The links to the homes that segments are imported from, one for each home. Any thread; the lock
// is the outermost of the importer's.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/ids.hpp"
#include "core/base/lock.hpp"
#include "core/memory/importer/lock_order.hpp"
#include "fabric/link.hpp"

namespace cmi::memory {

class Links {
 public:
  using LinkPtr = std::shared_ptr<fabric::Link>;

  LinkPtr find(const ContextId& home) {  // null: there is none
    Guard g(mu_);
    auto it = links_.find(home);
    return it == links_.end() ? nullptr : it->second;
  }
  // Null: there was none, and make() has returned null.
  template <class Make>
  LinkPtr find_or_make(const ContextId& home, Make make) {
    Guard g(mu_);
    auto it = links_.find(home);
    if (it != links_.end()) return it->second;
    LinkPtr link = make();
    if (link != nullptr) links_.emplace(home, link);
    return link;
  }
  // Nothing where the home has another link by now.
  void erase(const ContextId& home, const LinkPtr& link) {
    Guard g(mu_);
    auto it = links_.find(home);
    if (it != links_.end() && it->second == link) links_.erase(it);
  }
  template <class Predicate>
  std::vector<LinkPtr> those_that(Predicate wanted) {
    std::vector<LinkPtr> found;
    Guard g(mu_);
    for (auto& [id, link] : links_) {
      if (wanted(*link)) found.push_back(link);
    }
    return found;
  }

 private:
  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_reports)
      CMI_ACQUIRED_BEFORE(lock_order::after_tables);
  std::map<ContextId, LinkPtr> links_ CMI_GUARDED_BY(mu_);
};

}  // namespace cmi::memory
