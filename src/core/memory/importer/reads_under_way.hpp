// Reads of one import that were started ahead, with no thread that waits (prefetch.cpp). Any
// thread; the lock is a leaf.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "core/base/lock.hpp"
#include "core/memory/importer/lock_order.hpp"
#include "core/memory/wire/wire.hpp"
#include "fabric/link.hpp"

namespace cmi::memory {

// The pages are kFetching until `done`.
struct ReadUnderWay {
  PageRange pages;
  std::weak_ptr<fabric::Session> session;
  fabric::Op done;
};

class ReadsUnderWay {
 public:
  void add(std::shared_ptr<ReadUnderWay> read) {
    Guard g(mu_);
    reads_.push_back(std::move(read));
  }
  void remove(const std::shared_ptr<ReadUnderWay>& read) {
    Guard g(mu_);
    std::erase(reads_, read);
  }
  // The read that brings this page; null: none does.
  std::shared_ptr<ReadUnderWay> find(uint32_t page) {
    Guard g(mu_);
    for (auto& r : reads_) {
      if (page >= r->pages.first && page - r->pages.first < r->pages.count) return r;
    }
    return nullptr;
  }

 private:
  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_write_backs);
  std::vector<std::shared_ptr<ReadUnderWay>> reads_ CMI_GUARDED_BY(mu_);
};

}  // namespace cmi::memory
