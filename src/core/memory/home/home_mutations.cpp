#include "core/memory/home/home_mutations.hpp"

#include <utility>
#include <vector>

#include "core/base/fault_point.hpp"
#include "core/memory/page/diff.hpp"

namespace cmi::memory {

void HomeMutations::publish_before_data(Home& home, const fabric::ClientInfo& client,
                                        uint64_t number, const PublishRequest& m) {
  Home::Segment* s;
  const auto store = [&home, pages = m.pages, id = client.id, number,
                      diffs = std::vector(m.body.begin(), m.body.end())](Home::Segment& to) {
    PublishRequest late;
    late.body = diffs;
    PublishedPages in(late);
    DirtyIntent page;
    for (uint32_t i = 0; i < pages && in.next(&page); ++i) {
      apply_diff(in.diff(), to.service.data() + size_t{page.page} * kPageSize);
    }
    Home::reply(home.parts_.server, id, number, WireStatus::kOk);
  };
  {
    Guard g(home.mu_);
    s = home.find_uid(m.uid);
    const PageRange all{0, static_cast<uint32_t>(s->size / kPageSize)};
    if (auto p = home.publish(*s, client.id, m.instance, {all}); p != nullptr) {
      p->finished = [store, s] { store(*s); };
      return;
    }
  }
  store(*s);
}

void HomeMutations::keep_keys(Home& home, const ContextId& client) {
  Guard g(home.mu_);
  for (auto& [id, s] : home.segments_) {
    for (auto& h : s.sharers) {
      if (h.client == client) s.tokens[random_u64()] = {{}, std::move(h.session), true};
    }
  }
}

namespace mutation {

void let_others_in(Mutex& mu) {
  mu.unlock();
  fault_point("mutation_window");
  mu.lock();
}

}  // namespace mutation
}  // namespace cmi::memory
