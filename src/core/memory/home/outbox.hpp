// Invalidations that wait at the home because their sharer has not answered earlier ones. Per
// sharer a few are under way that it acknowledges to the home; the pages of further ones are
// merged, and their rounds wait, until one of those under way is over. Then one notification goes
// out with all that waits. So a home that is behind gets less to do, not more. One that names a
// page of which a notification is under way waits as well: the answer may say that the sharer has
// the page no more (rule 28), and then nothing has to be sent.
//
// Invariant: something waits for a sharer only while an invalidation of that sharer is under way
// that it acknowledges to the home, so each end of such a one, over() or forget(), settles it.
//
// Pure: the sending is the caller's. HomeCore::mu guards it.
#pragma once

#include <array>
#include <compare>
#include <map>
#include <span>
#include <vector>

#include "core/memory/home/invalidation_round.hpp"
#include "core/memory/page/page_set.hpp"

namespace cmi::memory {

// The pages that a notification names, where they are so few that its answer may release them; of
// others, and of one that asks for a direct ack, none are noted.
struct NamedPages {
  std::array<uint32_t, kReleaseSome> pages{};
  uint32_t count = 0;
  NamedPages() = default;
  explicit NamedPages(std::span<const PageRange> ranges);
  std::span<const uint32_t> all() const { return std::span(pages).first(count); }
};

// One import of one client.
struct SharerKey {
  ContextId client;
  uint64_t uid = 0;  // of the segment
  uint32_t instance = 0;
  auto operator<=>(const SharerKey&) const = default;
};

class Outbox {
 public:
  // From this many sharers of a segment on, stores of all to the same pages are a crowd.
  static constexpr size_t kFewSharers = 8;
  // How many invalidations of each sharer are under way at most.
  static size_t limit(size_t sharers) { return sharers > kFewSharers ? 1 : 4; }

  struct Waiting {
    SharerKey to;
    PageSet pages;
    std::vector<RoundPtr> rounds;  // that wait for their answer
  };

  // Whether a further invalidation of this sharer, of these pages, has to wait.
  bool must_wait(const SharerKey& to, size_t limit, std::span<const PageRange> pages) const;
  // Whether no invalidation of this sharer is under way, as far as the home knows, one that asks
  // for a direct ack neither.
  bool idle(const SharerKey& to) const { return sharers_.find(to) == sharers_.end(); }
  // An invalidation was sent. `direct`: it asks for a direct ack, so the home learns late that it
  // is over, and nothing waits for it.
  void sent(const SharerKey& to, bool direct, const NamedPages& named = {});
  // Adds pages that the sharer has to drop, where must_wait(); the round waits.
  void add(const SharerKey& to, size_t limit, const std::vector<PageRange>& pages,
           const RoundPtr& round);
  // An invalidation that was sent is over. Returns what is to be sent now; no pages: nothing.
  Waiting over(const SharerKey& to, bool direct, const NamedPages& named = {});
  // The sharer is gone. Returns the rounds that have waited for it, to be settled.
  std::vector<RoundPtr> forget(const SharerKey& gone);
  std::vector<RoundPtr> forget(const ContextId& client);
  // All that waits is to be sent now.
  std::vector<Waiting> take_all();
  template <class Visit>
  void for_each_round(Visit visit) const {
    for (const auto& [to, sharer] : sharers_) {
      for (const RoundPtr& round : sharer.rounds) visit(round);
    }
  }

 private:
  struct Sharer {
    size_t under_way = 0, direct = 0;  // those that ask for direct acks apart
    size_t limit = 0;                  // by which something waits
    std::vector<uint32_t> named;       // by those under way, each as often as it is
    PageSet pages;                     // that wait
    std::vector<RoundPtr> rounds;
  };
  using Sharers = std::map<SharerKey, Sharer>;  // those with something under way
  static Waiting take(const SharerKey& to, Sharer* from);
  static bool may_go(const Sharer& sharer);

  Sharers sharers_;
};

}  // namespace cmi::memory
