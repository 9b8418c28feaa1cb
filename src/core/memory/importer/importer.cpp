// Composition, and what the service thread does for all imports.
#include "core/memory/importer/importer.hpp"

#include <algorithm>
#include <utility>

#include "core/base/log.hpp"

namespace cmi::memory {

namespace {
// The service thread does without a look at a link that others wait for.
constexpr Nanos kLeftToOthers = 2 * kMilli;
}  // namespace

Result<std::unique_ptr<Importer>> Importer::open(Parts parts) {
  std::unique_ptr<Importer> i(new Importer(std::move(parts)));
  const char* why = nullptr;
  using Kind = Userfault::Kind;
  auto u = Userfault::open(i->core_.parts.fault_threads ? Kind::kThreads : Kind::kImport, &why);
  if (!u) {
    alert(kFacIni, "{}", why);
    return u.status();
  }
  i->core_.userfault = u.take();
  return i;
}

Importer::~Importer() {
  // A request that was never answered holds its link through its callback: end what is pending
  // while everything that the callbacks touch is still here.
  for (auto& link : core_.links.those_that([](const fabric::Link&) { return true; })) {
    link->condemn();
    link->advance();
  }
}

bool Importer::waits_on(const Import& imp) const {
  const fabric::Link& link = *imp.link;
  return !core_.reconf_timeout.is_set() && !link.condemned() && !link.health().local_fault() &&
         now() - std::max(link.health().alive(), link.health().heard()) <
             core_.parts.watch.dead_after() / 2;
}

void Importer::thread_enabled(bool enabled) {
  SignalsBlocked quiet;
  if (enabled) {
    core_.enabled.add();
    return core_.lease_alarm.add();
  }
  core_.lease_alarm.remove();
  const bool last = core_.enabled.remove();
  PendingStore pending = core_.pending_stores.take();
  PendingStores::drop(pending);
  if (!last) return;
  core_.enabled.await_served();
  views_.close_all();
}

int Importer::advance() {
  int events = 0;
  // Operations without a waiter (Link::has_detached) are taken in by a thread that comes to need
  // their result, and by the tick.
  const bool later = core_.stranded.any() || core_.answers.any();
  Nanos t = 0;
  for (auto& link : core_.links.those_that([later](const fabric::Link& l) {
         return l.has_pending() || (later && l.has_detached()) || l.dial_due();
       })) {
    if (link->dial_due()) {
      link->dial_again();
      continue;
    }
    // A thread that waits for an answer takes it in itself. If the service thread polled as well,
    // the waiting thread would yield to it, and the service thread would find work without end.
    if (link->left_to_waiters()) {
      if (t == 0) {
        t = now();
        if (t - hot_links_seen_ >= kLeftToOthers) hot_links_seen_ = t;
      }
      if (t != hot_links_seen_) continue;
    }
    events += link->advance();
  }
  if (core_.answers.any()) notifications_.answer_pending();
  return events;
}

bool Importer::busy() const {
  return core_.dirty.any() || core_.write_backs.count() != 0 ||
         core_.traffic.reads_ahead.load() != 0 || core_.stranded.any() || core_.answers.any() ||
         core_.losses.neighbours_due() || core_.traffic.acked_below_unreported.load() ||
         core_.traffic.intents_unused.load();
}

Nanos Importer::descriptors(std::vector<int>* fds) {
  Nanos at_most = kSecond;
  // Without the lock: the last reference to a session runs what has waited for the session's end.
  for (auto& link : core_.links.those_that([](const fabric::Link& l) { return l.has_pending(); })) {
    if (link->left_to_waiters()) {
      at_most = kLeftToOthers;
      continue;
    }
    if (auto s = link->current(); s != nullptr && !s->descriptors(fds)) at_most = 0;
  }
  return at_most;
}

}  // namespace cmi::memory
