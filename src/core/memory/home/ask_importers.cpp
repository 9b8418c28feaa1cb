// The question whether importers can be reached (engine/probe_all.hpp).
#include <algorithm>

#include "core/memory/home/home.hpp"

namespace cmi::memory {

uint64_t Home::ask_importers() {
  Guard g(mu_);
  auto p = std::make_shared<InvalidationRound>();
  p->waiting = 1;  // never settled: end_call() takes it away
  std::vector<ContextId> importers;
  for (auto& [id, s] : segments_) {
    if (!s.owned || s.removed) continue;
    for (auto& h : s.sharers) importers.push_back(h.client);
  }
  std::sort(importers.begin(), importers.end());
  importers.erase(std::unique(importers.begin(), importers.end()), importers.end());
  for (auto& c : importers) notify(p, c, 0, 0, NotificationType::kAlive, kAboutHome);
  const uint64_t call = next_question_++;
  calls_[call] = std::move(p);
  return call;
}

bool Home::all_answered(uint64_t call) {
  Guard g(mu_);
  return calls_.at(call)->waiting == 1;
}

std::vector<Home::Silent> Home::end_call(uint64_t call) {
  std::vector<Silent> silent;
  Guard g(mu_);
  auto p = calls_.at(call);
  calls_.erase(call);
  for (auto it = notifications_.begin(); it != notifications_.end();) {
    const Notification& n = it->second;
    if (n.round != p) {
      ++it;
      continue;
    }
    Silent s{{{}, n.client}, parts_.server.client_listener(n.client)};
    (void)imported_by(n.client, &s.who);
    silent.push_back(std::move(s));
    it = drop_notification(it);
  }
  return silent;
}

}  // namespace cmi::memory
