// Imports and tokens; what the service thread does for them.
#include "core/memory/importer/importer.hpp"

#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "core/base/cause.hpp"
#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "core/emulate/emulate.hpp"
#include "fabric/reach.hpp"
#include "fabric/routes.hpp"

namespace cmi::memory {

namespace {
constexpr Nanos kLineWait = 5 * kSecond;
// Whether anybody listens at its listener is looked at after so long, and then every second: it
// leaves a connection behind there (see watch.cpp).
constexpr Nanos kLookAtListener = 100 * kMilli;
// The service thread does without a look at a link that others wait for.
constexpr Nanos kLeftToOthers = 2 * kMilli;
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

Result<std::unique_ptr<Importer>> Importer::open(Parts parts) {
  std::unique_ptr<Importer> i(new Importer(std::move(parts)));
  const char* why = nullptr;
  using Kind = Userfault::Kind;
  auto u = Userfault::open(i->parts_.fault_threads ? Kind::kThreads : Kind::kImport, &why);
  if (!u) {
    alert(kFacIni, "{}", why);
    return u.status();
  }
  i->userfault_ = u.take();
  return i;
}

Importer::~Importer() {
  // A request that was never answered holds its link through its callback: end what is pending
  // while everything that the callbacks touch is still here.
  for (auto& link : links_that([](const fabric::Link&) { return true; })) {
    link->condemn();
    link->advance();
  }
}

std::vector<fabric::Route> Importer::routes_to(const access::RsegInfo& rseg) const {
  const uint64_t machine = node::machine_id();
  const auto same = machine == 0 || rseg.machine == 0 ? fabric::SameMachine::kUnknown
                    : machine == rseg.machine         ? fabric::SameMachine::kYes
                                                      : fabric::SameMachine::kNo;
  const std::vector<fabric::ListenerAddress> own = parts_.server.listeners();
  const char* why = nullptr;
  std::vector<fabric::Route> routes;
  for (const auto& [ours, theirs] : fabric::routes_between(own, rseg.listeners, same, &why)) {
    const fabric::LocalInterface& way = parts_.interfaces[ours];
    routes.push_back(
        {way.linking.get(), ours, way.cas, own[ours].blob, rseg.listeners[theirs].blob});
  }
  if (routes.empty()) {
    alert(kFacSeg, "seg_imp: no way to the home over {}: {}", own[0].provider, why);
  }
  return routes;
}

std::shared_ptr<fabric::Link> Importer::link_to(const access::RsegInfo& rseg) {
  return links_.find_or_make(rseg.home, [&]() -> std::shared_ptr<fabric::Link> {
    std::vector<fabric::Route> routes = routes_to(rseg);
    if (routes.empty()) return nullptr;
    // A secret of this pair: no other home can speak for this one.
    fabric::Identity self = parts_.self;
    self.notification_secret = random_u64();
    const auto taking = [&server = parts_.server, home = rseg.home,
                         secret = self.notification_secret](const fabric::Route& r) {
      return ok(server.add_home(home, r.home_listener, secret, r.listener_index));
    };
    return std::make_shared<fabric::Link>(std::move(routes), self, rseg.home,
                                          parts_.watch.dead_after(), taking);
  });
}

// The first question to a home, for which there may be no session yet.
Result<std::vector<std::byte>> Importer::open(fabric::Link& link, bool write_through,
                                              Bytes question, NoAnswer* why, const JoinTime& time) {
  // Of several routes, the later rounds take longer: see Link::patience_locked.
  const Nanos rounds = link.routes() > 1 ? 4 * kSecond : 0;
  const Deadline last{std::max(time.reach.at, time.answer.at + rounds)};
  const std::vector<fabric::ListenerAddress> listeners = link.home_listeners();
  const auto type = write_through ? RequestType::kOpenWriteThrough : RequestType::kOpen;
  auto request = link.start(static_cast<uint16_t>(type), question);
  auto cause = fabric::Cause::kTimeout;
  *why = NoAnswer::kBusy;
  const int refusals = link.refusals();
  for (Nanos look = kLookAtListener; !last.passed(); look = kSecond) {
    cause = link.await(request, Deadline{std::min(last.at, now() + look)});
    if (cause != fabric::Cause::kTimeout) break;
    const bool over = time.reach.passed();
    if (link.local_fault() && over) {
      *why = NoAnswer::kLocal;
      break;
    }
    if (link.refusals() >= refusals + kRefusals) {
      *why = NoAnswer::kRefused;
      break;
    }
    const bool no_listener = link.without_listener() && link.heard() == 0;
    const auto reach = no_listener ? fabric::Reach::kRefused
                                   : fabric::probe_any(listeners, over ? kLastLook : kMilli);
    if (reach == fabric::Reach::kRefused) {
      *why = NoAnswer::kEnded;
      break;
    }
    if (over && reach == fabric::Reach::kUnknown &&
        std::all_of(listeners.begin(), listeners.end(), fabric::may_be_probed)) {
      *why = NoAnswer::kOutOfReach;
      break;
    }
  }
  if (cause == fabric::Cause::kOk) {
    return std::vector<std::byte>(request->reply().begin(), request->reply().end());
  }
  link.forget(request);
  if (cause == fabric::Cause::kPeerLost) *why = NoAnswer::kEnded;
  return *why == NoAnswer::kLocal ? Status::kNoMem : Status::kInval;
}

// What was seen, and no more than that.
void Importer::say_no_answer(const access::RsegInfo& rseg, const fabric::Link& link, NoAnswer why) {
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

// An import that came to nothing, of which the home may have heard all the same.
void Importer::take_back(const std::shared_ptr<Import>& imp, Bytes question, bool refused) {
  forget(imp);
  parts_.watch.unwatch_home(imp->rseg.home);
  const auto& link = imp->link;
  if (!refused) {
    // Who has never welcomed us was never asked anything.
    if (link->heard() != 0) link->start(static_cast<uint16_t>(RequestType::kLeave), question);
    return;
  }
  // A context whose listener is gone never comes back. Where it has imports here, the watch finds
  // out.
  if (imports_from(imp->rseg.home)) return;
  links_.erase(imp->rseg.home, link);
  link->condemn();
  link->advance();  // ends what nobody will answer
}

bool Importer::waits_on(const Import& imp) const {
  const fabric::Link& link = *imp.link;
  return !reconf_timeout_set() && !link.condemned() && !link.local_fault() &&
         now() - std::max(link.alive(), link.heard()) < parts_.watch.dead_after() / 2;
}

std::vector<std::shared_ptr<Import>> Importer::all_imports() {
  Guard g(imports_mu_);
  return imports_;
}

uint32_t Importer::pages_of_ours(int32_t id) {
  Guard g(imports_mu_);
  for (auto& imp : imports_) {
    if (imp->id == id && imp->ours && !imp->events.marked.load()) return imp->pages;
  }
  return 0;
}

Result<std::shared_ptr<Import>> Importer::import(const access::RsegInfo& rseg, int32_t id,
                                                 bool ours, const JoinTime& time) {
  auto link = link_to(rseg);
  if (link == nullptr) return because(Status::kInval, "there is no way to the home");
  const std::shared_ptr<Import> imp = new_import(rseg, id, ours, link);
  if (imp->write_through && !emulate::supported()) {
    trace(kFacSeg, kError, "seg_imp: this build or this CPU cannot use write-through segments");
    return Status::kInval;
  }
  {
    // Known before the home knows of it, so that what the home has to tell finds it.
    Guard g(imports_mu_);
    imp->instance = next_instance_++;
    imp->lease_expired.store(leases_expired_.count(rseg.home) != 0, std::memory_order_relaxed);
    imports_.push_back(imp);
  }
  const Encoded question(OpenRequest{rseg.uid, imp->instance});
  auto no_answer = NoAnswer::kBusy;
  auto answer = open(*link, imp->write_through, question, &no_answer, time);
  if (!answer) {
    say_no_answer(rseg, *link, no_answer);
    take_back(imp, question, no_answer == NoAnswer::kEnded);
    return because(answer.status(), no_answer == NoAnswer::kEnded  ? "the home has ended"
                                    : no_answer == NoAnswer::kBusy ? "the home is busy"
                                    : no_answer == NoAnswer::kRefused
                                        ? "the home is full"
                                        : "the home cannot be reached");
  }
  const auto reply = split_reply(*answer);
  const WireStatus status = reply ? reply->status : WireStatus::kMalformed;
  OpenReply opened;
  Break brk;
  if (status != WireStatus::kOk || !decode(reply->body, &opened) ||
      (imp->extensible && !read_break(*imp, opened.break_part(), &brk)) ||
      opened.size != rseg.size || opened.size % kPageSize != 0 ||
      opened.size / kPageSize > UINT32_MAX) {
    const bool other_way = status == WireStatus::kImportedOtherwise;
    forget(imp);
    return because(Status::kInval,
                   other_way ? "the segment is imported the other way now, cached or write-through"
                             : "the home no longer has the segment");
  }
  // It has just answered.
  const Deadline line{std::max({time.reach.at, time.answer.at, now() + kLineWait})};
  if (!parts_.watch.watch_home(rseg, *link, opened.lifeline_port, opened.lifeline_secret, line)) {
    take_back(imp, question, false);
    return because(Status::kInval, "the home has gone, or its lifelines cannot be reached");
  }
  if (imp->extensible) {
    if (ours && parts_.node.has_room(brk.bytes) == Status::kNoMem) {
      take_back(imp, question, false);
      return because(Status::kNoMem, "the node's memory is used up");
    }
    (void)take_break(*imp, brk);
    store_break(*imp);
  }
  parts_.watch.look();
  {
    // Either the end of its home is told with this import, or the import fails.
    SignalsBlocked quiet;
    Guard g(observer_mu_);
    imp->events.made.store(!link->condemned());
  }
  if (!imp->events.made.load()) {
    forget(imp);
    return Status::kInval;
  }
  return imp;
}

Status Importer::set_token(const std::shared_ptr<Import>& import, const access::TokenInfo& token,
                           Deadline deadline) {
  Import& imp = *import;
  if (token.uid != imp.rseg.uid) {
    return because(Status::kInval, "the token is of another segment");
  }
  if (!token.any_node && token.node != parts_.self.node) {
    return because(Status::kPerm, "the token is for another node");
  }
  if (token.part.size > imp.rseg.size || token.part.offset > imp.rseg.size - token.part.size) {
    return because(Status::kInval, "the token is of a part that the segment does not have");
  }
  // Without READ there is no twin, hence no caching.
  if (!imp.write_through && (token.rights & fabric::kWrite) != 0 &&
      (token.rights & fabric::kRead) == 0) {
    return because(Status::kInval, "a token with WRITE and without READ");
  }
  const ImportState before = imp.grant.state();
  if (before == ImportState::kGone || before == ImportState::kRemoved) {
    return because(Status::kInval, "the segment is gone or was removed");
  }
  LossMark ignored;
  if (before == ImportState::kUsable) {
    // Stores made under the old token travel under it.
    if (Status s = barrier(ignored, Patience{deadline}); !ok(s)) {
      trace(kFacTok, kWarn, "CMI_SEG_TOKEN: stores under the old token were lost");
    }
  }
  std::optional<Grant::Sweep> sweep;
  for (Backoff backoff;; backoff.pause()) {
    Guard g(imp.token.mu);
    if (auto begun = imp.grant.begin(token, imp.pages, imp.key)) {
      imp.token.info = token;
      sweep.emplace(std::move(*begun));
      break;
    }
    if (deadline.passed()) return because(Status::kReconfig, "the former token still ends");
  }
  // What is cached under the old token may be more than the new one allows. Nothing is lost by it.
  if (imp.cache.ready()) invalidate(import, {0, imp.pages});
  sweep.reset();
  // Presented now, so that a revoked token is known at the first access, cached pages or not; an
  // unreachable home is that access's business.
  if (auto session = imp.link->session(deadline); session != nullptr) {
    fabric::RemoteKey key;
    session_key(imp, *session, &key, deadline);
  }
  return Status::kOk;
}

void Importer::thread_enabled(bool enabled) {
  SignalsBlocked quiet;
  bool last = false;
  {
    Guard g(enabled_mu_);
    if (enabled) {
      if (fault_point_fails("enable_no_memory")) throw std::bad_alloc();
      enabled_.push_back(gettid());
    } else {
      std::erase(enabled_, gettid());
      last = enabled_.empty();
    }
  }
  // Acquire pairs with the end of an ExclusiveAccess: what was sent meanwhile is protected.
  if (enabled && !mutated("mutate_access_meanwhile")) {
    for (Backoff backoff; exclusive_.load(std::memory_order_acquire);) backoff.pause();
  }
  if (!enabled) {
    PendingStore pending = pending_.take();
    PendingStores::drop(pending);
  }
  if (last) {
    // What is being served began when somebody was enabled, or finds that nobody is. Acquire pairs
    // with the release in end_serving: its mappings are there to be taken.
    for (Backoff backoff; serving_.load(std::memory_order_acquire) != 0;) backoff.pause();
    // Nobody may access anything: the next access of each page faults again. Only the mappings go,
    // pages keep their states and come back without asking the home.
    for (auto& imp : all_imports()) {
      Guard views(imp->views.mu);
      for (auto& v : imp->views.list) zap(v->addr, v->len);
    }
  }
}

bool Importer::begin_serving(pid_t thread) {
  Guard g(enabled_mu_);
  serving_.fetch_add(1, std::memory_order_relaxed);
  return std::find(enabled_.begin(), enabled_.end(), thread) != enabled_.end();
}

bool Importer::begin_serving() {
  Guard g(enabled_mu_);
  serving_.fetch_add(1, std::memory_order_relaxed);
  return !enabled_.empty();
}

int Importer::advance() {
  int events = 0;
  // What was started for later is taken in by those who come to need it, and by the tick.
  const bool later = later_count_.load() != 0 || answers_.any();
  Nanos t = 0;
  for (auto& link : links_that([later](const fabric::Link& l) {
         return l.has_pending() || (later && l.has_detached());
       })) {
    // Who waits for an answer takes it in himself: with two of us at it, the one that he gives his
    // processor to is the other, and we find work without end.
    if (link->left_to_waiters()) {
      if (t == 0) {
        t = now();
        if (t - hot_links_seen_ >= kLeftToOthers) hot_links_seen_ = t;
      }
      if (t != hot_links_seen_) continue;
    }
    events += link->advance();
  }
  if (answers_.any()) answer_pending_revocations();
  return events;
}

bool Importer::busy() const {
  return dirty_pages_.load() != 0 || open_write_back_count_.load() != 0 || aheads_.load() != 0 ||
         later_count_.load() != 0 || answers_.any() || others_due_.load() != 0 ||
         acked_below_unreported_.load();
}

Nanos Importer::descriptors(std::vector<int>* fds) {
  Nanos at_most = kSecond;
  // Without the lock: the last one to let go of a session runs what waited for its end.
  for (auto& link : links_that([](const fabric::Link& l) { return l.has_pending(); })) {
    if (link->left_to_waiters()) {
      at_most = kLeftToOthers;
      continue;
    }
    if (auto s = link->current(); s != nullptr && s->endpoint().may_sleep()) {
      fds->push_back(s->endpoint().wait_fd());
    }
  }
  return at_most;
}

}  // namespace cmi::memory
