// Notifications of homes that are answered later: when no operation carries the session key any
// more, when nothing of ours is in a list of pages in flux, when nothing past a break is under way.
// Any thread; the lock is held while it is looked whether they are done, which takes page locks.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/ids.hpp"
#include "core/base/lock.hpp"
#include "core/memory/importer/lock_order.hpp"
#include "core/memory/wire/wire.hpp"

namespace cmi::memory {

struct Import;

struct PendingAnswer {
  enum class To : uint8_t { kRevocation, kInFluxList, kBreak };
  std::shared_ptr<Import> import;
  ContextId home;
  uint64_t secret, number;
  To to = To::kRevocation;
  // Of a list: pages with bytes of ours that are not home yet. Of a break: pages of before.
  std::vector<PageRange> unsettled{};
  // Of a break: how many keys had been asked for, and the break to be used once nothing of before
  // is under way; round 0: it is used already.
  uint32_t keys = 0;
  Break then{};
};

class PendingAnswers {
 public:
  static constexpr ptrdiff_t kMost = 1024;  // of one home

  // Beyond kMost answers of one home are dropped: no honest home has so many notifications open. It
  // would repeat those.
  void add(PendingAnswer answer) {
    Guard g(mu_);
    const auto waiting = std::count_if(answers_.begin(), answers_.end(),
                                       [&](const auto& a) { return a.home == answer.home; });
    if (waiting >= kMost) return;
    answers_.push_back(std::move(answer));
    count_.fetch_add(1);
  }
  // Whether this notification has come before and waits here.
  bool awaited(const ContextId& home, uint64_t number) {
    Guard g(mu_);
    return std::any_of(answers_.begin(), answers_.end(),
                       [&](const auto& a) { return a.home == home && a.number == number; });
  }
  bool any() const { return count_.load() != 0; }
  // Those that `done` says to be done, in the order in which they came. It may change them.
  template <class Done>
  std::vector<PendingAnswer> take(Done done) {
    std::vector<PendingAnswer> taken;
    Guard g(mu_);
    std::erase_if(answers_, [&](PendingAnswer& a) {
      if (!done(a)) return false;
      taken.push_back(std::move(a));
      count_.fetch_sub(1);
      return true;
    });
    return taken;
  }

 private:
  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_import_views)
      CMI_ACQUIRED_BEFORE(lock_order::after_answers);
  std::vector<PendingAnswer> answers_ CMI_GUARDED_BY(mu_);
  std::atomic<int> count_{0};
};

}  // namespace cmi::memory
