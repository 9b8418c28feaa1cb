// The ends of contexts as a home sees them: an importer that leaves or says goodbye, and its own
// end, which it tells to all importers. And stores that neighbours on the node have lost, because
// the bus ends here.
#include <algorithm>

#include "core/base/log.hpp"
#include "core/memory/home/home.hpp"

namespace cmi::memory {

WireStatus Home::why_gone(const Segment* s) {
  if (ending_) return WireStatus::kEnding;
  if (s == nullptr || !s->removed) return WireStatus::kGone;
  // Who asks while the registry is locked asks again.
  auto info = parts_.node.find(s->id, 2 * kMilli);
  const bool there = info ? info->attachments > 0 : info.status() == Status::kReconfig;
  return there ? WireStatus::kRemoved : WireStatus::kGone;
}

std::vector<int32_t> Home::imported_by(const ContextId& client, access::NaddrInfo* who) {
  std::vector<int32_t> ids;
  for (auto& [id, s] : segments_) {
    if (!s.owned || s.removed) continue;
    auto h = std::find_if(s.sharers.begin(), s.sharers.end(),
                          [&](const Sharer& sharer) { return sharer.client == client; });
    if (h == s.sharers.end()) continue;
    *who = {h->node, client};
    ids.push_back(id);
  }
  return ids;
}

bool Home::imported(const ContextId& client, access::NaddrInfo* who) {
  Guard g(mu_);
  return !imported_by(client, who).empty();
}

void Home::on_leave(const fabric::ClientInfo& client, uint64_t number, const LeaveRequest& m) {
  Finished done;
  {
    Guard g(mu_);
    // It has dropped all that it was told to.
    for (auto it = notifications_.begin(); it != notifications_.end();) {
      const Notification& n = it->second;
      const bool its = n.client == client.id && n.uid == m.uid && n.instance == m.instance;
      it = its ? over(it, &done) : std::next(it);
    }
    if (Segment* s = find_uid(m.uid); s != nullptr) {
      forget_sharers(
          *s, [&](const Sharer& h) { return h.client == client.id && h.instance == m.instance; });
      complete_quiesce(*s, &done);
    }
  }
  run(done);
  reply(parts_.server, client.id, number, WireStatus::kOk);
}

void Home::on_goodbye(const fabric::ClientInfo& client, uint64_t number, const GoodbyeRequest&) {
  Finished done;
  access::NaddrInfo who;
  std::vector<int32_t> segments;
  {
    Guard g(mu_);
    segments = imported_by(client.id, &who);
    forget_client(client.id, &done);
  }
  run(done);
  if (!segments.empty()) parts_.observer.importer_down(who, std::move(segments));
  reply(parts_.server, client.id, number, WireStatus::kOk);
}

void Home::close(Deadline deadline) {
  std::vector<int32_t> owned;
  std::vector<ContextId> importers;
  {
    Guard g(mu_);
    for (auto& [id, s] : segments_) {
      if (!s.owned || !s.exported || s.removed) continue;
      owned.push_back(id);
      for (auto& h : s.sharers) importers.push_back(h.client);
    }
  }
  (void)barrier(deadline.left());
  // Importers whose stores and swaps are being published are answered before they are told that it
  // is over: what has happened must not look as if it had not. Nobody waits for anything else that
  // somebody may owe.
  std::vector<std::shared_ptr<InvalidationRound>> unacknowledged_since;
  {
    Guard g(mu_);
    for (auto& [number, n] : notifications_) {
      if (n.round->finished) unacknowledged_since.push_back(n.round);
    }
    ending_ = true;
  }
  bool heard = true;
  for (auto& p : unacknowledged_since) heard = wait(*p, deadline) && heard;
  for (int32_t id : owned) removed(id, deadline);
  std::sort(importers.begin(), importers.end());
  importers.erase(std::unique(importers.begin(), importers.end()), importers.end());
  auto p = std::make_shared<InvalidationRound>();
  p->waiting = 1;
  p->done.begin();
  Finished done;
  {
    Guard g(mu_);
    for (auto& c : importers) notify(p, c, 0, 0, NotificationType::kGoodbye, kAboutHome);
    settle(p, &done);
  }
  run(done);
  heard = wait(*p, deadline) && heard;
  if (!heard) trace(kFacMem, kWarn, "the end of the context: an importer did not answer");
}

// The service thread's, which does not wait for the registry.
void Home::on_bus_lost(const BusFrom& bus, const BusLost& m) {
  const ContextId sender = bus.datagram.sender;
  const int32_t segment = m.segment;
  const uint64_t size = parts_.importer != nullptr ? parts_.importer->pages_of_ours(segment) : 0;
  if (size == 0) return;  // no import of ours, or marked for deletion: nobody is told any more
  std::vector<uint32_t> all;
  {
    Guard g(mu_);
    auto& pages = lost_beside_[{sender, segment}];
    const PageRangeList ranges = m.ranges();
    for (size_t k = 0; k < ranges.size(); ++k) {
      const PageRange r = ranges[k];
      for (uint64_t i = r.first; i < r.first + uint64_t{r.count} && i < size; ++i) {
        pages.push_back(static_cast<uint32_t>(i));
      }
    }
    if ((m.how & kLostLast) == 0) return;
    all.swap(pages);
    // And what others had begun to tell of it when they were killed.
    std::erase_if(lost_beside_, [&](auto& part) {
      const auto& [from, of] = part.first;
      if (of != segment || (from != sender && parts_.node.find_context(from))) return false;
      all.insert(all.end(), part.second.begin(), part.second.end());
      return true;
    });
  }
  if (!all.empty()) parts_.observer.stores_lost(segment, std::move(all), (m.how & kLostLocal) != 0);
}

}  // namespace cmi::memory
