// Fetches that were given up: their pages stay kFetching until the session is destroyed, since the
// provider may store to them until then. Any thread; the lock is a leaf.
#pragma once

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/lock.hpp"
#include "core/memory/importer/import.hpp"
#include "core/memory/importer/lock_order.hpp"

namespace cmi::memory {

struct StrandedFetch {
  std::weak_ptr<void> session;  // its life
  std::shared_ptr<Import> import;
  PageRange pages;
};

class StrandedFetches {
 public:
  void add(StrandedFetch fetch) {
    Guard g(mu_);
    fetches_.push_back(std::move(fetch));
    count_.fetch_add(1);
  }
  bool any() const { return count_.load() != 0; }
  // Those whose sessions have ended.
  std::vector<StrandedFetch> take_free() {
    std::vector<StrandedFetch> taken;
    Guard g(mu_);
    std::erase_if(fetches_, [&](StrandedFetch& f) {
      if (!f.session.expired()) return false;
      taken.push_back(std::move(f));
      count_.fetch_sub(1);
      return true;
    });
    return taken;
  }

 private:
  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_write_backs);
  std::vector<StrandedFetch> fetches_ CMI_GUARDED_BY(mu_);
  std::atomic<int> count_{0};
};

}  // namespace cmi::memory
