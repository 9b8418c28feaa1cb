// What the home's side says of itself to a process that asks over the bus. Runs on the service
// thread; takes each lock for a look at a list.
#include "core/memory/home/home.hpp"

namespace cmi::memory {

void Home::report(node::ContextReport* out) {
  Guard g(mu_);
  for (const auto& [id, s] : segments_) {
    if (!s.owned) continue;
    node::HomeLine& line = out->homes.emplace_back();
    line.id = id;
    line.publications = s.publications;
    line.notifications = s.notifications;
    for (const auto& [name, t] : s.tokens) {
      line.tokens.push_back({node::token_fingerprint(name), t.info.rights, t.info.node, t.revoked});
    }
    for (const Sharer& h : s.sharers) line.sharers.push_back({h.client, h.instance, h.rights});
  }
}

}  // namespace cmi::memory
