// What is done with each notification, and when it is acknowledged.
#include "core/memory/importer/notification_handler.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <span>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "core/base/usdt.hpp"
#include "core/memory/importer/dirty_intents.hpp"
#include "core/memory/importer/import_break.hpp"
#include "core/memory/importer/import_end.hpp"
#include "core/memory/importer/local_import.hpp"
#include "core/memory/importer/updates.hpp"
#include "core/memory/wire/dispatch.hpp"

namespace cmi::memory {

namespace {
constexpr size_t kReleasedHead = kWireSize<ReleasedRegions>;
constexpr uint32_t kReleasedTogether = 16;

// Of a notification that has found nothing: the absent pages beside this one are released with it
// (rule 28). A writer of a page that is absent here stores to those behind it next, most likely.
void release_beside(Import& imp, uint32_t page, Invalidation* by) {
  if (!imp.regions.known.in_use(region_of(page))) return;  // released as a whole
  const uint32_t first = page - page % kReleasedTogether;
  const uint32_t end = std::min(first + kReleasedTogether, imp.pages);
  for (uint32_t index = first; index < end; ++index) {
    if (by->released.room() < ReleasedRegions::kItem) return;
    Page& p = imp.page(index);
    p.lock();
    const bool absent = p.state == PageState::kAbsent || mutated("mutate_beside_any_state");
    if (absent && !p.released) {
      p.released = true;
      ReleasedRegions::put(by->released, {index, ReleasedRegions::kPage});
    }
    p.unlock();
  }
}
}  // namespace

// An import that was left holds nothing: its notification is acknowledged, and that is all.
template <class Message, auto handler>
void Notifications::about_import(Notifications& self, const Notified& from, const Message& m) {
  Notified n = from;
  n.import = self.core_.imports.find(n.home, m.uid, m.instance);
  if (n.import == nullptr) return self.acknowledge_directly(n);
  std::invoke(handler, self, n, m);
}

void Notifications::on_notification(const ContextId& home, uint64_t secret, uint64_t number,
                                    uint16_t type, Reader in, const fabric::DirectAck& direct_ack) {
  using Self = Notifications;
  using Table = DispatchTable<size_t{static_cast<uint16_t>(NotificationType::kLast)} + 1, Self,
                              const Notified&>;
  using Type = NotificationType;
  static constexpr auto kTable = [] {
    constexpr auto quiesce = [](Self& i, const Notified& n, const QuiesceNotification& m) {
      i.on_quiesce_round(n, m, true);
    };
    constexpr auto resume = [](Self& i, const Notified& n, const QuiesceNotification& m) {
      i.on_quiesce_round(n, m, false);
    };
    Table t;
    const auto of_import = [&t]<class Message, auto handler>(Type of) {
      t.on<Message, &about_import<Message, handler>>(of);
    };
    of_import.operator()<InvalidateNotification, &Self::on_invalidate>(Type::kInvalidate);
    of_import.operator()<RevokeNotification, &Self::on_revoke>(Type::kRevoke);
    of_import.operator()<RemovedNotification, &Self::on_removed>(Type::kRemoved);
    of_import.operator()<InFluxNotification, &Self::on_in_flux>(Type::kInFlux);
    of_import.operator()<BreakNotification, &Self::on_break_moved>(Type::kBreak);
    of_import.operator()<QuiesceNotification, quiesce>(Type::kQuiesce);
    of_import.operator()<QuiesceNotification, resume>(Type::kResume);
    t.on<HomeNotification, &Self::on_goodbye>(Type::kGoodbye);
    t.on<HomeNotification, &Self::on_alive>(Type::kAlive);
    return t;
  }();
  SignalsBlocked quiet;
  (void)kTable.dispatch(type, *this, Notified{home, secret, number, direct_ack, nullptr}, in);
}

void Notifications::on_goodbye(const Notified& n, const HomeNotification&) {
  auto links = core_.links.those_that([&](const fabric::Link& l) { return l.home() == n.home; });
  for (auto& link : links) lose_home(core_, link);
  acknowledge(n);
}

// That it is heard is the answer.
void Notifications::on_alive(const Notified& n, const HomeNotification&) {
  acknowledge_directly(n);
}

void Notifications::acknowledge(const Notified& n, Bytes release) {
  core_.parts.server.ack(n.home, n.secret, n.number, release);
}

// To the publisher, where it takes direct acks; the home hears of released regions all the same.
void Notifications::acknowledge_directly(const Notified& n, Bytes release) {
  if (!release.empty()) acknowledge(n, release);
  if (n.direct_ack.number != 0 && core_.parts.server.give(n.home, n.direct_ack)) return;
  if (release.empty()) acknowledge(n);
}

// False: malformed.
bool Notifications::drop_listed(const std::shared_ptr<Import>& imp, const InvalidateNotification& m,
                                Invalidation* by) {
  std::vector<PageRange> ranges;
  const PageRangeList listed = m.ranges();
  uint64_t pages = 0;
  for (size_t i = 0; i < listed.size(); ++i) {
    PageRange r = listed[i];
    if (r.first >= imp->pages) return false;
    r.count = std::min(r.count, imp->pages - r.first);
    pages += r.count;
    ranges.push_back(r);
  }
  by->few_pages = pages <= kReleaseSome;
  for (const PageRange& r : each_once(std::move(ranges))) {
    fault_point("invalidate_before_zap");
    if (imp->cache.ready()) drop(core_, imp, r, by);
  }
  return true;
}

// The same.
bool Notifications::apply_updates(const std::shared_ptr<Import>& imp,
                                  const InvalidateNotification& m, Invalidation* by) {
  PageUpdates updates(m);
  for (InvalidateNotification::Update u; updates.next(&u);) {
    if (u.page >= imp->pages) return false;
    fault_point("update_before_apply");
    if (!imp->cache.ready()) continue;
    if (update(core_, *imp, u)) {
      by->found = true;
    } else {
      drop(core_, imp, {u.page, 1}, by);
    }
  }
  return true;
}

void Notifications::on_invalidate(const Notified& n, const InvalidateNotification& m) {
  const std::shared_ptr<Import>& imp = n.import;
  count(core_.parts.stats.invalidations_received);
  count(imp->stats.invalidations_received);
  CMI_PROBE3(notice, imp->id, n.number, m.count);
  trace(kFacMem, kDebug, "notice {}: segment {}, ranges: {}", n.number, imp->id, m.count);
  std::byte buf[kReleasedHead + kMaxReleased * ReleasedRegions::kItem];
  Invalidation by{Writer(buf), n.direct_ack.number == 0};
  encode(ReleasedRegions{m.uid, m.instance, {}}, by.released);
  if (mutated("mutate_answer_before_zap")) acknowledge_directly(n);
  if (!drop_listed(imp, m, &by) || !apply_updates(imp, m, &by)) return;
  if (!by.found) {
    count(core_.parts.stats.invalidations_useless);
    count(imp->stats.invalidations_useless);
    if (by.few_pages && m.ranges().size() == 1 && imp->cache.ready()) {
      release_beside(*imp, m.ranges()[0].first, &by);
    }
  }
  fault_point("invalidate_before_ack");
  acknowledge_directly(n, by.released.size() > kReleasedHead ? by.released.done() : Bytes{});
  count_costs(*imp, m, !by.found);
}

// Behind the acknowledgement, which others wait for.
void Notifications::count_costs(Import& imp, const InvalidateNotification& m, bool useless) {
  constexpr size_t kMost = 32;
  std::array<PageRange, kMost> pages;
  size_t n = 0;
  const PageRangeList listed = m.ranges();
  for (; n < std::min(kMost, listed.size()); ++n) {
    pages[n] = listed[n];
    pages[n].count = std::min(pages[n].count, imp.pages - pages[n].first);
  }
  PageUpdates updates(m);
  for (InvalidateNotification::Update u; n < kMost && updates.next(&u); ++n) {
    pages[n] = {u.page, 1};
  }
  imp.stats.pages.count_notice(std::span(pages).first(n), useless);
}

void Notifications::on_revoke(const Notified& n, const RevokeNotification& m) {
  const std::shared_ptr<Import>& imp = n.import;
  fault_point("revoke_before_verdict");
  if (end_import(core_, imp, ImportState::kRevoked, m.token)) {
    trace(kFacTok, kInfo, "segment {}: token revoked", imp->id);
  } else {
    // A late copy of a notification about a token that has been replaced since. The answer would
    // say that no page cached under that token can be loaded any more. Until that is true the copy
    // is dropped, and the home repeats it.
    if (imp->grant.is_swept()) return;
    // The key of that token is idle once another key has been asked for.
    if (imp->token.taken() == imp->grant.token_id()) return acknowledge(n);
  }
  answer_when_key_idle(n);
}

void Notifications::on_removed(const Notified& n, const RemovedNotification& m) {
  const std::shared_ptr<Import>& imp = n.import;
  if ((m.how & kRemovedEnding) == 0) imp->events.marked.store(true);
  end_import(core_, imp, (m.how & kRemovedGone) != 0 ? ImportState::kGone : ImportState::kRemoved);
  end_quiesce(core_, *imp);
  (void)core_.parts.node.marks().settle(2 * kMilli);
  answer_when_key_idle(n);
}

// Answered when no operation that carries the session key is under way any more, so that the home
// may close it without breaking our link.
void Notifications::answer_when_key_idle(const Notified& n) {
  core_.answers.add({n.import, n.home, n.secret, n.number});
  answer_pending();
}

void Notifications::on_in_flux(const Notified& n, const InFluxNotification& m) {
  if (core_.answers.awaited(n.home, n.number)) return;
  PendingAnswer later{n.import, n.home, n.secret, n.number, PendingAnswer::To::kInFluxList};
  if (!take_in_flux(*n.import, m, &later.unsettled)) return;
  if (n.import->views.local.local()) {
    n.import->views.local.zap(later.unsettled);
    announce_stores(core_, n.import);
  } else if (!n.import->cache.ready()) {
    later.unsettled.clear();
  } else {
    for (const PageRange& r : later.unsettled) invalidate(core_, n.import, r);
  }
  fault_point("in_flux_before_ack");
  core_.answers.add(std::move(later));  // the service thread's next round answers
}

void Notifications::on_break_moved(const Notified& n, const BreakNotification& m) {
  const std::shared_ptr<Import>& imp = n.import;
  // Another thread that polls the listener may be at a copy of it, or at an older one, and has not
  // dropped everything yet: this one is dropped, and the home repeats it.
  if (!imp->brk.begin_notified()) return;
  PendingAnswer later{imp, n.home, n.secret, n.number, PendingAnswer::To::kBreak};
  const bool taken = !core_.answers.awaited(n.home, n.number) && on_break(core_, imp, m, &later);
  if (taken) {
    fault_point("break_before_ack");
    core_.answers.add(std::move(later));
  }
  imp->brk.end_notified();
  if (taken) answer_pending();
}

void Notifications::on_quiesce_round(const Notified& n, const QuiesceNotification& m, bool on) {
  if (on) {
    fault_point("mutation_quiesce_window");
  } else {
    fault_point("mutation_resume_window");
  }
  on_quiesce(core_, n.import, on, m.round);
  acknowledge(n);
}

void Notifications::answer_pending() {
  std::vector<const Import*> waiting;  // for what a break has to wait for
  const auto ready = core_.answers.take([&waiting](PendingAnswer& a) {
    const bool key_in_use = a.import->key.in_use();
    switch (a.to) {
      case PendingAnswer::To::kRevocation:
        return !key_in_use;
      case PendingAnswer::To::kInFluxList:
        settle_pages(*a.import, &a.unsettled);
        return a.unsettled.empty();
      case PendingAnswer::To::kBreak:
        break;
    }
    // No operation with the key that reaches behind the break is under way, and no write-back of
    // what lay there. One break after the other: a later one may bring those pages back.
    const bool used = key_in_use && a.import->key.asked() == a.keys;
    const bool done = !used && std::count(waiting.begin(), waiting.end(), a.import.get()) == 0 &&
                      settle_past_break(*a.import, &a.unsettled);
    if (!done) waiting.push_back(a.import.get());
    return done;
  });
  for (auto& r : ready) {
    fault_point("revoke_before_ack");
    if (r.then.round != 0) grow_to(core_, *r.import, r.then);
    core_.parts.server.ack(r.home, r.secret, r.number);
  }
}

}  // namespace cmi::memory
