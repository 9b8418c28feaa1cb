#include "core/memory/home/home_mutations.hpp"

#include <utility>
#include <vector>

#include "core/base/fault_point.hpp"
#include "core/memory/home/access_check.hpp"
#include "core/memory/page/diff.hpp"

namespace cmi::memory {

void HomeMutations::publish_before_data(HomeCore& home, const fabric::ClientInfo& client,
                                        uint64_t number, const PublishRequest& m) {
  const SegmentPtr s = home.segments.find_uid(m.uid);
  const auto store = [&home, pages = m.pages, id = client.id, number,
                      diffs = std::vector(m.body.begin(), m.body.end())](Segment& to) {
    PublishRequest late;
    late.body = diffs;
    PublishedPages in(late);
    DirtyIntent page;
    for (uint32_t i = 0; i < pages && in.next(&page); ++i) {
      apply_diff(in.diff(), to.service.data() + size_t{page.page} * kPageSize);
    }
    reply(home.parts.server, id, number, WireStatus::kOk);
  };
  {
    Guard g(home.mu);
    const PageRange all{0, s->pages()};
    if (auto p = home.rounds.publish(*s, client.id, m.instance, {all}); p != nullptr) {
      p->finished = [store, s] { store(*s); };
      return;
    }
  }
  store(*s);
}

void HomeMutations::keep_keys(HomeCore& home, const ContextId& client) {
  Guard g(home.mu);
  home.segments.each([&](Segment& s) {
    for (auto& h : s.sharers) {
      if (h.client != client) continue;
      Token kept;
      kept.info.id = random_u64();
      kept.region = std::move(h.session.region);
      kept.revoked = true;
      s.tokens.add(std::move(kept));
    }
  });
}

namespace mutation {

void let_others_in(HandoverMutex& mu) {
  mu.unlock();
  fault_point("mutation_window");
  mu.lock();
}

}  // namespace mutation
}  // namespace cmi::memory
