// What homes tell us: drop these pages, this token is gone, this segment is gone. Runs in whatever
// thread polls the listener, the service thread mostly, and never waits: a publisher somewhere is
// waiting for our answer.
#include <algorithm>
#include <optional>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/importer/importer.hpp"
#include "core/memory/wire/dispatch.hpp"

namespace cmi::memory {

namespace {
constexpr size_t kLetGoHead = kWireSize<ReleasedRegions>;
// An invalidation of more pages than these releases none of them by itself: what stores to so many
// at once stores to none of them often.
constexpr uint64_t kReleaseSome = 4;
}  // namespace

// The list is ascending by instance.
std::shared_ptr<Import> Importer::find_import(const ContextId& home, uint64_t uid,
                                              uint32_t instance) {
  Guard g(imports_mu_);
  const auto it =
      std::lower_bound(imports_.begin(), imports_.end(), instance,
                       [](const auto& imp, uint32_t wanted) { return imp->instance < wanted; });
  if (it == imports_.end() || (*it)->instance != instance) return nullptr;
  return (*it)->rseg.uid == uid && (*it)->rseg.home == home ? *it : nullptr;
}

// What is malformed, or of no known type, is let fall: no honest home has sent it.
void Importer::on_notification(const ContextId& home, uint64_t secret, uint64_t number,
                               uint16_t type, Reader in, const fabric::DirectAck& direct_ack) {
  using Table = DispatchTable<size_t{static_cast<uint16_t>(NotificationType::kLast)} + 1, Importer,
                              const Notified&>;
  using Type = NotificationType;
  static constexpr auto kTable = [] {
    constexpr auto quiesce = [](Importer& i, const Notified& n, const QuiesceNotification& m) {
      i.on_quiesce_notice(n, m, true);
    };
    constexpr auto resume = [](Importer& i, const Notified& n, const QuiesceNotification& m) {
      i.on_quiesce_notice(n, m, false);
    };
    Table t;
    t.on<InvalidateNotification, &Importer::on_invalidate>(Type::kInvalidate);
    t.on<RevokeNotification, &Importer::on_revoke>(Type::kRevoke);
    t.on<RemovedNotification, &Importer::on_removed>(Type::kRemoved);
    t.on<InFluxNotification, &Importer::on_in_flux>(Type::kInFlux);
    t.on<BreakNotification, &Importer::on_break_notice>(Type::kBreak);
    t.on<QuiesceNotification, quiesce>(Type::kQuiesce);
    t.on<QuiesceNotification, resume>(Type::kResume);
    return t;
  }();
  SignalsBlocked quiet;
  NotificationHead head;
  if (!decode(in, &head)) return;
  if (static_cast<NotificationType>(type) == NotificationType::kGoodbye) {
    on_goodbye(home);
    return parts_.server.ack(home, secret, number);
  }
  const std::shared_ptr<Import> imp = find_import(home, head.uid, head.instance);
  const Notified n{home, secret, number, direct_ack, imp};
  // An import that was left holds nothing; about the home, that it is heard is the answer.
  if (imp == nullptr) return acknowledge_directly(n);
  (void)kTable.dispatch(type, *this, n, in);
}

void Importer::acknowledge(const Notified& n, Bytes release) {
  parts_.server.ack(n.home, n.secret, n.number, release);
}

// To the publisher, where it takes direct acks; the home hears of released regions all the same.
void Importer::acknowledge_directly(const Notified& n, Bytes release) {
  if (!release.empty()) acknowledge(n, release);
  if (n.direct_ack.number != 0 && parts_.server.give(n.home, n.direct_ack)) return;
  if (release.empty()) acknowledge(n);
}

void Importer::on_invalidate(const Notified& n, const InvalidateNotification& m) {
  const std::shared_ptr<Import>& imp = n.import;
  count(parts_.stats.invalidations_received);
  count(imp->stats.invalidations_received);
  std::byte buf[kLetGoHead + kMaxReleased * ReleasedRegions::kItem];
  Invalidation by{Writer(buf), n.direct_ack.number == 0};
  encode(ReleasedRegions{m.uid, m.instance, {}}, by.released);
  if (mutated("mutate_answer_before_zap")) acknowledge_directly(n);
  std::vector<PageRange> ranges;
  const PageRangeList listed = m.ranges();
  uint64_t pages = 0;
  for (size_t i = 0; i < listed.size(); ++i) {
    PageRange r = listed[i];
    if (r.first >= imp->pages) return;
    r.count = std::min(r.count, imp->pages - r.first);
    pages += r.count;
    ranges.push_back(r);
  }
  by.few_pages = pages <= kReleaseSome;
  for (const PageRange& r : each_once(std::move(ranges))) {
    fault_point("invalidate_before_zap");
    if (imp->cache.ready()) drop(imp, r, &by);
  }
  for (Reader in = m.updates(); in.left() > 0;) {
    const auto [page, epoch, number, diff] = InvalidateNotification::take_update(in);
    if (page >= imp->pages) return;
    fault_point("update_before_apply");
    if (!imp->cache.ready()) continue;
    if (update(*imp, page, epoch, number, diff)) {
      by.found = true;
    } else {
      drop(imp, {page, 1}, &by);
    }
  }
  if (!by.found) {
    count(parts_.stats.invalidations_useless);
    count(imp->stats.invalidations_useless);
  }
  fault_point("invalidate_before_ack");
  acknowledge_directly(n, by.released.size() > kLetGoHead ? by.released.done() : Bytes{});
}

void Importer::on_revoke(const Notified& n, const RevokeNotification& m) {
  const std::shared_ptr<Import>& imp = n.import;
  fault_point("revoke_before_verdict");
  if (end_import(imp, ImportState::kRevoked, m.token)) {
    trace(kFacTok, kInfo, "segment {}: token revoked", imp->id);
  } else {
    // A late copy of a notification for a token that has been replaced since. Its answer says that
    // nobody loads any more what was cached under that; until that is so, it is let fall and told
    // again.
    if (imp->grant.is_swept()) return;
    // Its key is idle once another one has been asked for.
    if (imp->token.presented_id.load() == imp->grant.token_id()) return acknowledge(n);
  }
  answer_when_key_idle(n);
}

void Importer::on_removed(const Notified& n, const RemovedNotification& m) {
  const std::shared_ptr<Import>& imp = n.import;
  if ((m.how & kRemovedEnding) == 0) imp->events.marked.store(true);
  end_import(imp, (m.how & kRemovedGone) != 0 ? ImportState::kGone : ImportState::kRemoved);
  end_quiesce(*imp);
  (void)parts_.node.settle_marks(2 * kMilli);
  answer_when_key_idle(n);
}

// Answered when no operation that carries the session key is under way any more, so that the home
// may close it without breaking our link.
void Importer::answer_when_key_idle(const Notified& n) {
  answers_.add({n.import, n.home, n.secret, n.number});
  answer_pending_revocations();
}

void Importer::on_in_flux(const Notified& n, const InFluxNotification& m) {
  if (answers_.awaited(n.home, n.number)) return;
  PendingAnswer later{n.import, n.home, n.secret, n.number, PendingAnswer::To::kInFluxList};
  if (!take_in_flux(n.import, m, &later.unsettled)) return;
  if (!n.import->cache.ready()) later.unsettled.clear();
  for (const PageRange& r : later.unsettled) invalidate(n.import, r);
  fault_point("in_flux_before_ack");
  answers_.add(std::move(later));  // the service thread's next round answers
}

void Importer::on_break_notice(const Notified& n, const BreakNotification& m) {
  const std::shared_ptr<Import>& imp = n.import;
  // Another thread that polls the listener may be at a copy of it, or at an older one, and has not
  // dropped everything yet: this one is let fall, and told again.
  if (!imp->brk.begin_notified()) return;
  PendingAnswer later{imp, n.home, n.secret, n.number, PendingAnswer::To::kBreak};
  const bool taken = !answers_.awaited(n.home, n.number) && on_break(imp, m, &later);
  if (taken) {
    fault_point("break_before_ack");
    answers_.add(std::move(later));
  }
  imp->brk.end_notified();
  if (taken) answer_pending_revocations();
}

void Importer::on_quiesce_notice(const Notified& n, const QuiesceNotification& m, bool on) {
  on_quiesce(n.import, on, m.round);
  acknowledge(n);
}

void Importer::answer_pending_revocations() {
  std::vector<const Import*> waiting;  // for what a break has to wait for
  const auto ready = answers_.take([&waiting](PendingAnswer& a) {
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
    if (r.then.round != 0) grow_to(*r.import, r.then);
    parts_.server.ack(r.home, r.secret, r.number);
  }
}

bool Importer::end_import(const std::shared_ptr<Import>& imp, ImportState state, uint64_t token) {
  // Begun before anybody can see the new state, so that a report of what is lost waits for us.
  auto batch = begin_write_back(imp);
  std::optional<Grant::Sweep> sweep = imp->grant.end(state, token);
  const bool ends = sweep.has_value();
  if (ends) {
    fault_point("end_before_drop");
    if (imp->cache.ready()) drop_all(imp);
    sweep.reset();
  }
  end_part(batch);
  return ends;
}

void Importer::lose_home(const std::shared_ptr<fabric::Link>& link) {
  if (!link->condemn()) return;
  fault_point("mutation_lost_home_window");
  for (auto& imp : all_imports()) {
    if (imp->link != link) continue;
    end_import(imp, ImportState::kGone);
    end_quiesce(*imp);
  }
  (void)parts_.node.settle_marks(2 * kMilli);
  link->advance();  // ends what was under way as lost
  {
    Guard batches(write_backs_mu_);
    losses_.add(link, next_write_back_);
  }
  report();
}

}  // namespace cmi::memory
