#include "core/memory/home/importer_watch.hpp"

#include <algorithm>

#include "core/base/fault_point.hpp"
#include "core/base/holder.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/home/home_mutations.hpp"
#include "core/memory/home/local_grants.hpp"
#include "core/memory/home/sharing.hpp"

namespace cmi::memory {

bool ImporterWatch::knows(const ContextId& client) {
  Guard g(home_.mu);
  return imports_any(home_, client);
}

bool ImporterWatch::imported(const ContextId& client, access::NaddrInfo* who) {
  Guard g(home_.mu);
  return !imported_by(home_, client, who).empty();
}

void ImporterWatch::unacknowledged_since(std::map<ContextId, Nanos>* since) {
  Guard g(home_.mu);
  home_.rounds.table().unacknowledged_since(since, home_.parts.watch.dead_after());
}

Nanos ImporterWatch::unacknowledged_since(const ContextId& client) {
  std::map<ContextId, Nanos> all;
  unacknowledged_since(&all);
  auto it = all.find(client);
  return it == all.end() ? 0 : it->second;
}

void ImporterWatch::extend_deadlines() {
  const Nanos t = now();
  Guard g(home_.mu);
  home_.rounds.table().extend_deadlines(t);
}

// Whether it had anything of ours. Should it live on, stopped or behind a cut: the first thing it
// hears is that all is over, and it drops its pages.
bool ImporterWatch::say_goodbye(const ContextId& client, bool goodbye) {
  Guard g(home_.mu);
  bool had_something = false;
  home_.rounds.table().for_each(
      [&](const Notification& n) { had_something = had_something || n.client == client; });
  home_.segments.each([&](const Segment& s) {
    for (auto& h : s.sharers) had_something |= h.client == client && h.ever.presented;
  });
  if (!goodbye) {
    home_.parts.server.notification(client, home_.rounds.table().new_number(),
                                    static_cast<uint16_t>(NotificationType::kGoodbye), kAboutHome,
                                    true);
  }
  return had_something;
}

void ImporterWatch::forget(const ContextId& client, bool goodbye) {
  SignalsBlocked quiet;
  const bool had_something = say_goodbye(client, goodbye);
  // Fenced before anything is decided on its death (rule 19): nothing it sent is applied after
  // this. An importer that has said goodbye sends nothing more, and is swept instead of remembered,
  // and so is one that never had anything of ours.
  if (mutated("mutate_verdict_unfenced")) {
    HomeMutations::keep_keys(home_, client);
  } else {
    home_.parts.server.fence(client, !goodbye && had_something);
  }
  Finished done;
  const RoundPtr known = begin_round();  // over when all that may access a page in flux know
  {
    Guard g(home_.mu);
    access::NaddrInfo who;
    std::vector<int32_t> segments = imported_by(home_, client, &who);
    if (!segments.empty()) {
      // Only then may the client begin to recover them.
      known->finished = [this, who, segments = std::move(segments)] {
        home_.parts.observer.importer_down(who, segments);
      };
    }
    // Of what it imports no longer, rounds may be left.
    for (SegmentPtr s = home_.segments.first(); s != nullptr; s = home_.segments.after(s->id)) {
      if (s->owned && !has_import(*s, client)) home_.rounds.close_received(*s, client, 0, known);
    }
  }
  fault_point("forget_before_in_flux");
  each_imported(home_, client, [&](Segment& s) {
    cut_off_local(s, client, 0);
    home_.flux.lose_intents(s, client, 0, known);
    Guard g(home_.mu);
    for (auto& h : s.sharers) {
      if (h.client == client) known->gone.push_back(holder_of(client, h.instance));
    }
    forget_content(home_, s, client, 0);
  });
  forget_client(home_, client, &done);
  {
    Guard g(home_.mu);
    home_.rounds.settle(known, &done);
  }
  run(done);
}

uint64_t ImporterWatch::ask_importers() {
  Guard g(home_.mu);
  const RoundPtr p = begin_round();  // never settled: end_call() takes it away
  std::vector<ContextId> importers;
  home_.segments.each([&](const Segment& s) {
    if (!s.owned || s.removed) return;
    for (auto& h : s.sharers) importers.push_back(h.client);
  });
  std::sort(importers.begin(), importers.end());
  importers.erase(std::unique(importers.begin(), importers.end()), importers.end());
  for (auto& c : importers) {
    home_.rounds.notify(p, c, 0, 0, NotificationType::kAlive, kAboutHome);
  }
  const uint64_t call = next_call_++;
  calls_[call] = p;
  return call;
}

bool ImporterWatch::all_answered(uint64_t call) {
  Guard g(home_.mu);
  return calls_.at(call)->waiting == 1;
}

std::vector<ImporterWatch::Silent> ImporterWatch::end_call(uint64_t call) {
  std::vector<Silent> silent;
  Guard g(home_.mu);
  const RoundPtr p = calls_.at(call);
  calls_.erase(call);
  NotificationTable& table = home_.rounds.table();
  for (uint64_t number : table.matching([&](const Notification& n) { return n.round == p; })) {
    const Notification n = table.take(number);
    Silent s{{{}, n.client}, home_.parts.server.client_listener(n.client)};
    (void)imported_by(home_, n.client, &s.who);
    silent.push_back(std::move(s));
  }
  return silent;
}

}  // namespace cmi::memory
