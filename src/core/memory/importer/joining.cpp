// The link to a home, and its first answer.
#include "core/memory/importer/joining.hpp"

#include <algorithm>
#include <utility>

#include "core/base/cause.hpp"
#include "core/base/descriptors_left.hpp"
#include "core/base/log.hpp"
#include "core/emulate/emulate.hpp"
#include "core/memory/importer/cache.hpp"
#include "core/memory/importer/import_break.hpp"
#include "core/memory/importer/import_end.hpp"
#include "core/memory/importer/imported_homes.hpp"
#include "fabric/reach.hpp"
#include "fabric/routes.hpp"

namespace cmi::memory {

namespace {
constexpr Nanos kLineWait = 5 * kSecond;
constexpr int kOfLifeline = 2;  // descriptors: its connection, and one beside it
// Whether anybody listens at its listener is looked at after so long, and then every second: it
// leaves a connection behind there (see membership.cpp).
constexpr Nanos kLookAtListener = 100 * kMilli;
constexpr int kRefusals = 3;               // for want of descriptors, a second or two apart
constexpr Nanos kLastLook = 200 * kMilli;  // over the network, when the time is over

std::shared_ptr<Import> new_import(const access::RsegInfo& rseg, int32_t id, bool ours,
                                   std::shared_ptr<fabric::Link> link) {
  ImportFacts facts;
  facts.id = id;
  facts.ours = ours;
  facts.rseg = rseg;
  facts.link = std::move(link);
  facts.pages = static_cast<uint32_t>(rseg.size / kPageSize);
  facts.extensible = access::extensible(rseg.flags);
  facts.write_through = (rseg.attrib & access::kWriteThrough) != 0;
  facts.intents = !facts.write_through && !access::client_consistent(rseg.flags);
  auto imp = std::make_shared<Import>(std::move(facts));
  if (!imp->extensible) imp->brk.fix(imp->pages);
  return imp;
}
}  // namespace

std::vector<fabric::Route> Joining::routes_to(const access::RsegInfo& rseg) const {
  const uint64_t machine = node::machine_id();
  const auto same = machine == 0 || rseg.machine == 0 ? fabric::SameMachine::kUnknown
                    : machine == rseg.machine         ? fabric::SameMachine::kYes
                                                      : fabric::SameMachine::kNo;
  const std::vector<fabric::ListenerAddress> own = core_.parts.server.listeners();
  const char* why = nullptr;
  std::vector<fabric::Route> routes;
  for (const auto& [ours, theirs] : fabric::routes_between(own, rseg.listeners, same, &why)) {
    const fabric::LocalInterface& way = core_.parts.interfaces[ours];
    routes.push_back(
        {way.linking.get(), ours, way.cas, own[ours].blob, rseg.listeners[theirs].blob});
  }
  if (routes.empty()) {
    alert(kFacSeg, "seg_imp: no way to the home over {}: {}", own[0].provider, why);
  }
  return routes;
}

std::shared_ptr<fabric::Link> Joining::link_to(const access::RsegInfo& rseg) {
  return core_.links.find_or_make(rseg.home, [&]() -> std::shared_ptr<fabric::Link> {
    std::vector<fabric::Route> routes = routes_to(rseg);
    if (routes.empty()) return nullptr;
    // A secret of this pair: no other home can speak for this one.
    fabric::Identity self = core_.parts.self;
    self.notification_secret = random_u64();
    const auto taking = [&server = core_.parts.server, home = rseg.home,
                         secret = self.notification_secret](const fabric::Route& r) {
      return ok(server.add_home(home, r.home_listener, secret, r.listener_index));
    };
    return std::make_shared<fabric::Link>(std::move(routes), self, rseg.home,
                                          core_.parts.watch.dead_after(), taking,
                                          &core_.parts.stats.requests_held_back);
  });
}

// The first question to a home, for which there may be no session yet.
Result<std::vector<std::byte>> Joining::open(fabric::Link& link, bool write_through, Bytes question,
                                             NoAnswer* why, const JoinTime& time) {
  // Of several routes, the later rounds take longer: see Link::patience_locked.
  const Nanos rounds = link.routes().count() > 1 ? 4 * kSecond : 0;
  const Deadline last{std::max(time.reach.at, time.answer.at + rounds)};
  const auto type = write_through ? RequestType::kOpenWriteThrough : RequestType::kOpen;
  auto request = link.start(static_cast<uint16_t>(type), question);
  auto cause = fabric::Cause::kTimeout;
  *why = NoAnswer::kBusy;
  const int refusals = link.health().refusals();
  for (Nanos look = kLookAtListener; !last.passed(); look = kSecond) {
    cause = link.await(request, Deadline{std::min(last.at, now() + look)});
    if (cause != fabric::Cause::kTimeout) break;
    *why = look_for_home(link, refusals, time);
    if (*why != NoAnswer::kBusy) break;
  }
  if (cause == fabric::Cause::kOk) {
    return std::vector<std::byte>(request->reply().begin(), request->reply().end());
  }
  link.forget(request);
  if (cause == fabric::Cause::kPeerLost) *why = NoAnswer::kEnded;
  return *why == NoAnswer::kLocal ? Status::kNoMem : Status::kInval;
}

Joining::NoAnswer Joining::look_for_home(fabric::Link& link, int refusals, const JoinTime& time) {
  const bool over = time.reach.passed();
  if (link.health().local_fault() && over) return NoAnswer::kLocal;
  if (link.health().refusals() >= refusals + kRefusals) return NoAnswer::kRefused;
  const std::vector<fabric::ListenerAddress> listeners = link.home_listeners();
  const bool no_listener = link.routes().without_listener() && link.health().heard() == 0;
  const auto reach = no_listener ? fabric::Reach::kRefused
                                 : fabric::probe_any(listeners, over ? kLastLook : kMilli);
  if (reach == fabric::Reach::kRefused) return NoAnswer::kEnded;
  if (over && reach == fabric::Reach::kUnknown &&
      std::all_of(listeners.begin(), listeners.end(), fabric::may_be_probed)) {
    return NoAnswer::kOutOfReach;
  }
  return NoAnswer::kBusy;
}

// What was seen, and no more than that.
void Joining::say_no_answer(const access::RsegInfo& rseg, const fabric::Link& link, NoAnswer why) {
  const std::vector<fabric::ListenerAddress> listeners = link.home_listeners();
  const bool on_loopback = std::all_of(listeners.begin(), listeners.end(), [](auto& listener) {
    return fabric::is_loopback(listener.blob);
  });
  const uint64_t machine = node::machine_id();
  const bool same_machine = machine != 0 && machine == rseg.machine;
  const bool met = why == NoAnswer::kLocal || why == NoAnswer::kRefused;
  if (on_loopback && !same_machine && !met) {
    return alert(kFacSeg,
                 "seg_imp: the home cannot be reached; it listens on loopback only, which no other "
                 "machine reaches: CMI_ADDRESS there");
  }
  const char* words =
      "the home is busy, or stopped: it listens, and has not answered in time (CMI_JOIN_TIMEOUT)";
  if (why == NoAnswer::kEnded) words = "the home has ended: nobody listens at its address any more";
  if (why == NoAnswer::kOutOfReach) words = "the home cannot be reached: no way to its address";
  if (why == NoAnswer::kRefused) words = "the home has no descriptors left for another importer";
  if (why == NoAnswer::kLocal) words = "this process has no descriptors or no memory left for it";
  alert(kFacSeg, "seg_imp: {}", words);
}

const char* Joining::cause_of(NoAnswer why) {
  switch (why) {
    case NoAnswer::kEnded:
      return "the home has ended";
    case NoAnswer::kBusy:
      return "the home is busy";
    case NoAnswer::kRefused:
      return "the home is full";
    case NoAnswer::kLocal:
      return "this process has no descriptors or no memory left for it";
    case NoAnswer::kOutOfReach:
      break;
  }
  return "the home cannot be reached";
}

// An import that came to nothing, of which the home may have heard all the same.
void Joining::take_back(const std::shared_ptr<Import>& imp, Bytes question, bool refused) {
  forget(core_, imp);
  core_.parts.watch.unwatch_home(imp->rseg.home);
  const auto& link = imp->link;
  if (!refused) {
    // A home that has never welcomed us knows of no import: there is nothing to leave.
    if (link->health().heard() != 0)
      link->start(static_cast<uint16_t>(RequestType::kLeave), question);
    return;
  }
  // A context without its listener never comes back. Where we have other imports from it,
  // Membership finds out.
  if (ImportedHomes(core_).imports_from(imp->rseg.home)) return;
  core_.links.erase(imp->rseg.home, link);
  link->condemn();
  link->advance();  // ends what nobody will answer
}

// The failure that an answer other than the segment's facts stands for.
Status Joining::refused_by(WireStatus status) {
  const char* words = "the home has answered what this version of the library does not understand";
  if (status == WireStatus::kImportedOtherwise) {
    words = "the segment is imported the other way now, cached or write-through";
  } else if (status == WireStatus::kNoMem) {
    return because(Status::kNoMem,
                   "the home takes no more imports of this segment: it has as many as it can keep");
  } else if (status == WireStatus::kGone || status == WireStatus::kRemoved) {
    words = "the home no longer has the segment";
  } else if (status == WireStatus::kEnding) {
    words = "the home is ending";
  }
  return because(Status::kInval, words);
}

Result<Joining::Opened> Joining::take_answer(const std::shared_ptr<Import>& imp, Bytes answer) {
  const auto reply = split_reply(answer);
  const WireStatus status = reply ? reply->status : WireStatus::kMalformed;
  Opened opened;
  if (status == WireStatus::kOk && decode(reply->body, &opened.reply) &&
      (!imp->extensible || read_break(*imp, opened.reply.break_part(), &opened.brk)) &&
      opened.reply.size == imp->rseg.size && opened.reply.size % kPageSize == 0 &&
      opened.reply.size / kPageSize <= UINT32_MAX) {
    (void)decode(opened.reply.quiesce_part(imp->extensible), &opened.quiesce);
    FeaturesPart features;
    if (decode(opened.reply.features_part(imp->extensible), &features)) {
      imp->features.store(features.bits);
    }
    return opened;
  }
  forget(core_, imp);
  return refused_by(status);
}

// The home is watched, and the break is known to the node.
Status Joining::watch(const std::shared_ptr<Import>& imp, const Opened& opened,
                      const JoinTime& time) {
  // It has just answered.
  if (!descriptors_left(kOfLifeline)) {
    return because(Status::kNoMem, "this process has no descriptors left for the home's lifeline");
  }
  const Deadline line{std::max({time.reach.at, time.answer.at, now() + kLineWait})};
  if (!core_.parts.watch.watch_home(imp->rseg, *imp->link, opened.reply.lifeline_port,
                                    opened.reply.lifeline_secret, line)) {
    return because(Status::kInval, imp->link->condemned()
                                       ? "the home ended just after it had answered"
                                       : "the port of the home's lifelines cannot be reached");
  }
  if (!imp->extensible) return Status::kOk;
  if (imp->ours) {
    const uint64_t bytes = std::min<uint64_t>(opened.brk.bytes, imp->cache.use.most_bytes());
    const Status room = core_.parts.node.breaks().has_room(bytes, imp->rseg.flags);
    if (room == Status::kNoMem) return room;
  }
  (void)take_break(*imp, opened.brk);
  store_break(core_, *imp);
  return Status::kOk;
}

Result<std::shared_ptr<Import>> Joining::import(const access::RsegInfo& rseg, int32_t id, bool ours,
                                                const JoinTime& time, size_t cache) {
  auto link = link_to(rseg);
  if (link == nullptr) return because(Status::kInval, "there is no way to the home");
  const std::shared_ptr<Import> imp = new_import(rseg, id, ours, link);
  if (imp->write_through && !emulate::supported()) {
    trace(kFacSeg, kError, "seg_imp: this build or this CPU cannot use write-through segments");
    return Status::kInval;
  }
  if (cache != 0) set_cache_size(core_, imp, cache);
  core_.imports.add(imp);  // before the home knows of it, so that its notifications find it
  const Encoded question(OpenRequest{rseg.uid, imp->instance});
  auto no_answer = NoAnswer::kBusy;
  auto answer = open(*link, imp->write_through, question, &no_answer, time);
  if (!answer) {
    say_no_answer(rseg, *link, no_answer);
    take_back(imp, question, no_answer == NoAnswer::kEnded);
    return because(answer.status(), cause_of(no_answer));
  }
  const auto opened = take_answer(imp, *answer);
  if (!opened) return opened.status();
  if (const Status watched = watch(imp, *opened, time); !ok(watched)) {
    take_back(imp, question, false);
    return watched;
  }
  core_.parts.watch.look();
  if (!core_.losses.confirm(*imp)) {
    forget(core_, imp);
    return Status::kInval;
  }
  if (opened->quiesce.on != 0) on_quiesce(core_, imp, true, opened->quiesce.round);
  // By the notification, too, which may be the faster one: no seg_at comes before it is known.
  if (ours) (void)core_.parts.node.marks().settle(node::kUsualWait);
  return imp;
}

}  // namespace cmi::memory
