#include "core/memory/home/home.hpp"

#include <algorithm>

#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/home/segment_lock.hpp"
#include "core/memory/home/store_publishing.hpp"
#include "core/memory/node_bus/await.hpp"
#include "core/memory/vm/lock_memory.hpp"
#include "core/memory/wire/dispatch.hpp"
#include "core/segment/placement.hpp"
#include "fabric/reach.hpp"

namespace cmi::memory {

Result<std::unique_ptr<Home>> Home::open(Parts parts) {
  std::unique_ptr<Home> h(new Home(parts));
  if (Status st = h->core_.files.open(); !ok(st)) return st;
  if (Status st = h->core_.tracker.open(); !ok(st)) return st;
  return h;
}

bool Home::owns(int32_t id) { return core_.segments.find_owned(id) != nullptr; }

Result<int32_t> Home::create(uint64_t size, int32_t flags, uint64_t reservation) {
  node::Node& node = core_.parts.node;
  Fd large;
  auto id =
      node.segments().create_home(size, flags, access::reserved(flags), access::extensible(flags),
                                  reservation, access::large_pages(flags) ? &large : nullptr);
  if (!id) return id.status();
  auto file = large ? Result<Fd>(std::move(large)) : node.segments().open_file(*id);
  Status made = file.status();
  if (file) made = begin_segment(*id, size, flags, file.take());
  if (ok(made)) return *id;
  (void)node.segments().remove(*id);  // where the registry is held, it goes with the process
  return made;
}

Status Home::begin_segment(int32_t id, uint64_t size, int32_t flags, Fd file) {
  // Nobody knows of it until it is complete.
  const auto s = std::make_shared<Segment>();
  static_cast<SegmentFacts&>(*s) = {id, random_u64(), size, flags, core_.parts.node.slot(), true};
  s->brk = {access::extensible(flags) ? 0 : size, 1};
  s->file = std::move(file);
  if (Status st = map_service(*s); !ok(st)) return st;
  segment::place_memory(s->service.data(), size, device());
  if (Status st = lock_memory(flags, s->service.data(), s->brk.bytes); !ok(st)) return st;
  Guard g(core_.mu);
  core_.segments.insert(s);
  return Status::kOk;
}

// What most of the traffic with other machines goes through.
const std::string& Home::device() const {
  const auto listeners = core_.parts.server.listeners();
  size_t index = 0;
  while (index + 1 < listeners.size() && fabric::is_loopback(listeners[index].blob)) ++index;
  return core_.parts.server.fabric(index).traits().device;
}

void Home::on_new_session(const fabric::ClientInfo& client) {
  // Its registrations are what its old connection may still be using.
  if (mutated("mutate_rebuild_unfenced")) return;
  Guard g(core_.mu);
  core_.segments.each([&](Segment& s) {
    for (auto& h : s.sharers) {
      if (h.client == client.id) h.session.region.reset();
    }
  });
  core_.rounds.new_session(client.id);
}

void Home::on_acked_below(const ContextId& client, uint64_t below,
                          std::span<const uint64_t> behind) {
  Finished done;
  {
    Guard g(core_.mu);
    core_.rounds.acked_below(client, below, behind, &done);
  }
  run(done);
}

// Behind an acknowledgement, if it says so: what the importer has released.
static void on_released(HomeCore& core, const ContextId& client, uint64_t number,
                        const ReleasedRegions& m) CMI_REQUIRES(core.mu) {
  const SegmentPtr s = core.segments.find_uid(m.uid);
  Sharer* h = s != nullptr ? s->sharers.find(client, m.instance) : nullptr;
  for (size_t i = 0; h != nullptr && i < m.size(); ++i) {
    const auto [index, epoch] = m.item(i);
    if (epoch == ReleasedRegions::kPage) {
      h->regions.release(index, number);
    } else {
      s->directory.drop(h->regions, index, epoch);
    }
  }
}

void Home::on_ack(const ContextId& client, uint64_t number, Reader released) {
  Finished done;
  {
    Guard g(core_.mu);
    // Whatever has become of the notification: its publisher may have said that it is over.
    (void)dispatch_as<ReleasedRegions, on_released>(released, core_, client, number);
    core_.rounds.acknowledged(client, number, &done);
  }
  run(done);
}

// Each thing is done twice without harm, so a question is repeated as it was.
void Home::remind_owners(Nanos t, Finished* done) {
  core_.pending_detaches.each_due(t, [&](uint64_t question, const PendingDetach& d) {
    StoreLog* const stores = d.view->stores.get();
    if (stores != nullptr && !core_.channel.send_stored(d.owner, d.segment, *stores)) return;
    const BusUnview m{kBusUnview, d.segment, question, reinterpret_cast<uint64_t>(d.addr), d.len};
    if (core_.channel.send(d.owner, Encoded(m)) != Status::kInval) return;
    // It has ended.
    done->push_back([this, question] { core_.channel.questions().answer(question, {}); });
  });
}

// Of another's segment: what was stored here is sent to its owner. The service thread waits for no
// thread that has the views: what that one leaves goes with the next tick. False: a list of pages
// in flux may have to be sent again.
bool Home::remind_processes(const SegmentPtr& segment, bool lists, Nanos t, Finished* done) {
  if (segment->owned && !lists) return true;
  const SegmentLock s(core_, segment, SegmentLock::kTriedViews);
  if (!s) return false;
  if (!s->owned) {
    // What does not fit goes with the next.
    if (core_.flux.report_seen(*s)) send_stored(core_, *s);
    return true;
  }
  return !core_.flux.remind(*s, t, done);
}

void Home::tick(Nanos t) {
  Finished done;
  {
    Guard g(core_.mu);
    core_.rounds.resend(t);
    remind_owners(t, &done);
  }
  const bool lists = core_.flux.take_unseen();
  bool seen = true;
  for (SegmentPtr s = core_.segments.first(); s != nullptr; s = core_.segments.after(s->id)) {
    seen = remind_processes(s, lists, t, &done) && seen;
  }
  if (lists && !seen) core_.flux.set_unseen();
  run(done);
  // Stores that no barrier published (rule 11's counterpart at home).
  timer_scans_.tick(t);
}

bool Home::busy() {
  Guard g(core_.mu);
  return !core_.rounds.table().empty() || core_.shared_segments.any() || core_.flux.unseen() ||
         !core_.pending_detaches.empty();
}

bool Home::notify_token(int32_t proxy, Deadline deadline) {
  bool good = true;
  node::Node& node = core_.parts.node;
  for (node::ContextSlot slot : node.members().living()) {
    if (slot == node.slot()) continue;
    good = core_.channel.ask(slot, BusToken{kBusToken, proxy}, -1, deadline) && good;
  }
  return good;
}

void Home::close(Deadline deadline) {
  std::vector<int32_t> owned;
  std::vector<ContextId> importers;
  {
    Guard g(core_.mu);
    core_.segments.each([&](const Segment& s) {
      if (!s.owned || !s.exported.any || s.removed) return;
      owned.push_back(s.id);
      for (auto& h : s.sharers) importers.push_back(h.client);
    });
  }
  (void)barriers_.barrier(deadline.left());
  // Importers are answered for stores and swaps that are being published before they are notified
  // of the end: a store that has happened must not look lost. No other answer is waited for.
  std::vector<RoundPtr> answered;
  {
    Guard g(core_.mu);
    answered = core_.rounds.unanswered();
    core_.ending = true;
  }
  bool heard = true;
  fabric::Server& server = core_.parts.server;
  for (auto& p : answered) heard = await(p->done, server, deadline) && heard;
  for (int32_t id : owned) (void)exports_.removed(id, {deadline.left(), 0});
  std::sort(importers.begin(), importers.end());
  importers.erase(std::unique(importers.begin(), importers.end()), importers.end());
  const RoundPtr p = begin_round();
  Finished done;
  {
    Guard g(core_.mu);
    for (auto& c : importers) {
      core_.rounds.notify(p, c, 0, 0, NotificationType::kGoodbye, kAboutHome);
    }
    core_.rounds.settle(p, &done);
  }
  run(done);
  heard = await(p->done, server, deadline) && heard;
  if (!heard) trace(kFacMem, kWarn, "the end of the context: an importer did not answer");
}

// What the home's side says of itself to a process that asks over the bus, on the service thread.
void Home::report(node::ContextReport* out) {
  Guard g(core_.mu);
  core_.segments.each([&](Segment& s) {
    if (!s.owned) return;
    node::HomeLine& line = out->homes.emplace_back();
    line.id = s.id;
    line.publications = s.counts.publications;
    line.notifications = s.counts.notifications;
    for (const auto& [name, t] : s.tokens) {
      line.tokens.push_back({node::token_fingerprint(name), t.info.rights, t.info.node, t.revoked});
    }
    for (const Sharer& h : s.sharers)
      line.sharers.push_back({h.client, h.instance, h.granted.rights});
    s.writers.report(&line);
  });
}

// The same of the pages of one segment: which importers may have them, and which are in flux.
void Home::draw(int32_t id, std::vector<node::MapLine>* out) {
  Guard g(core_.mu);
  core_.segments.each([&](const Segment& s) {
    if (!s.owned || s.id != id) return;
    node::MapLine& map = out->emplace_back(true, s.pages());
    const std::vector<PageRange> all{{0, s.pages()}};
    for (const Sharer& h : s.sharers) {
      node::MapLine own(true, s.pages());
      for (const PageRange& r : h.regions.of(all)) own.mark(r.first, r.count, node::kMapHeld);
      for (size_t i = 0; i < map.cells.size(); ++i) {
        if (own.cells[i] == 0) continue;
        map.cells[i] |= map.cells[i] == 0 ? node::kMapHeld : node::kMapMany;
      }
    }
    for (const PageRange& r : s.flux.pages.in(all[0])) map.mark(r.first, r.count, node::kMapFlux);
  });
}

}  // namespace cmi::memory
