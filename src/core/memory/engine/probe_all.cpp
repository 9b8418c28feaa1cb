// See roll_call.hpp; and what either side asks of its peers.
#include "core/memory/engine/probe_all.hpp"

#include <algorithm>

#include "fabric/reach.hpp"

namespace cmi::memory {

namespace {
constexpr Nanos kProbe = 200 * kMilli;
}

std::vector<Importer::Asked> Importer::ask_homes() {
  std::vector<Asked> asked;
  for (auto& imp : all_imports()) {
    if (!imp->ours || !imp->made.load() || imp->marked.load()) continue;  // not to be told of
    if (std::any_of(asked.begin(), asked.end(),
                    [&](const Asked& a) { return a.link == imp->link; })) {
      continue;
    }
    Asked a{{imp->rseg.home_node, imp->rseg.home}, imp->link->home_listener(), imp->link, nullptr};
    if (!a.link->condemned()) {
      a.request = a.link->start(static_cast<uint16_t>(RequestType::kAlive), {});
    }
    asked.push_back(std::move(a));
  }
  return asked;
}

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

std::vector<access::NaddrInfo> unreachable_peers(Engine& engine, Deadline deadline,
                                                 const std::atomic<bool>& stop) {
  Importer& importer = engine.importer();
  Home& home = engine.home();
  std::vector<Importer::Asked> homes = importer.ask_homes();
  const uint64_t call = home.ask_importers();
  engine.wake();
  const auto answered = [](const Importer::Asked& a) {
    return a.request != nullptr && a.request->answered() && !a.link->condemned();
  };
  const auto waits_for = [&](const Importer::Asked& a) {
    if (!a.link->condemned()) a.link->advance();
    return !a.link->condemned() && !answered(a);
  };
  while (!stop.load() && !deadline.passed()) {
    if (std::none_of(homes.begin(), homes.end(), waits_for) && home.all_answered(call)) break;
    fabric::Op never;
    never.begin();
    never.nap(kMilli);
  }
  std::vector<access::NaddrInfo> silent;
  std::vector<fabric::ListenerAddress> listeners;
  for (auto& a : homes) {
    if (answered(a)) continue;
    if (a.request != nullptr) a.link->forget(a.request);
    silent.push_back(a.who);
    listeners.push_back(a.listener);
  }
  for (auto& s : home.end_call(call)) {
    silent.push_back(s.who);
    listeners.push_back(std::move(s.listener));
  }
  if (stop.load()) return {};
  const auto reach = fabric::probe_listeners(listeners, kProbe);
  std::vector<access::NaddrInfo> cut_off;
  for (size_t i = 0; i < silent.size(); ++i) {
    if (reach[i] == fabric::Reach::kUnknown) cut_off.push_back(silent[i]);
  }
  return cut_off;
}

}  // namespace cmi::memory
