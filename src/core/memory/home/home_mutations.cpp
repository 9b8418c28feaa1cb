#include "core/memory/home/home_mutations.hpp"

#include <utility>
#include <vector>

#include "core/base/fault_point.hpp"
#include "core/memory/page/diff.hpp"

namespace cmi::memory {

void HomeMutations::publish_before_data(Home& home, const fabric::ClientInfo& client,
                                        uint64_t number, Reader in) {
  const auto uid = in.get<uint64_t>();
  const auto instance = in.get<uint32_t>();
  const auto n = in.get<uint32_t>();
  const Bytes rest = in.rest();
  Home::Segment* s;
  const auto store = [&home, n, id = client.id, number,
                      diffs = std::vector(rest.begin(), rest.end())](Home::Segment& to) {
    Reader late(diffs);
    for (uint32_t i = 0; i < n; ++i) {
      const size_t page = late.get<uint32_t>();
      late.get<uint8_t>();  // epoch of its dirty intent
      apply_diff(late, to.service.data() + page * kPageSize);
    }
    Home::reply(home.parts_.server, id, number, WireStatus::kOk);
  };
  {
    Guard g(home.mu_);
    s = home.find_uid(uid);
    const PageRange all{0, static_cast<uint32_t>(s->size / kPageSize)};
    if (auto p = home.publish(*s, client.id, instance, {all}); p != nullptr) {
      p->finished = [store, s] { store(*s); };
      return;
    }
  }
  store(*s);
}

void HomeMutations::keep_keys(Home& home, const ContextId& client) {
  Guard g(home.mu_);
  for (auto& [id, s] : home.segments_) {
    for (auto& h : s.holders) {
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
