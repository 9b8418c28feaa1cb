// See probe_all.hpp.
#include "core/memory/engine/probe_all.hpp"

#include <algorithm>

#include "fabric/reach.hpp"

namespace cmi::memory {

namespace {
constexpr Nanos kProbe = 200 * kMilli;
}

std::vector<access::NaddrInfo> unreachable_peers(Engine& engine, Deadline deadline,
                                                 const std::atomic<bool>& stop) {
  Importer& importer = engine.importer();
  Home& home = engine.home();
  std::vector<ImportedHomes::Asked> homes = importer.homes().ask();
  const uint64_t call = home.importers().ask_importers();
  engine.wake();
  const auto answered = [](const ImportedHomes::Asked& a) {
    return a.request != nullptr && a.request->answered() && !a.link->condemned();
  };
  const auto waits_for = [&](const ImportedHomes::Asked& a) {
    if (!a.link->condemned()) a.link->advance();
    return !a.link->condemned() && !answered(a);
  };
  while (!stop.load() && !deadline.passed()) {
    if (std::none_of(homes.begin(), homes.end(), waits_for) && home.importers().all_answered(call))
      break;
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
  for (auto& s : home.importers().end_call(call)) {
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
