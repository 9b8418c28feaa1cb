#include "core/memory/home/bus_handlers.hpp"

#include <algorithm>

#include "core/memory/home/holders.hpp"
#include "core/memory/home/segment_lock.hpp"
#include "core/memory/home/store_publishing.hpp"
#include "core/memory/wire/dispatch.hpp"

namespace cmi::memory {

void BusHandlers::on_datagram(node::Bus::Datagram d) {
  static constexpr auto kTable = [] {
    DispatchTable<size_t{UINT8_MAX} + 1, BusHandlers, const BusFrom&> t;
    t.on<BusView, &BusHandlers::on_view>(kBusView);
    t.on<BusUnview, &BusHandlers::on_unview>(kBusUnview);
    t.on<BusBarrier, &BusHandlers::on_barrier>(kBusBarrier);
    t.on<BusPublish, &BusHandlers::on_publish>(kBusPublish);
    t.on<BusStored, &BusHandlers::on_stored>(kBusStored);
    t.on<BusLook, &BusHandlers::on_look>(kBusLook);
    t.on<BusInFlux, &BusHandlers::on_in_flux>(kBusInFlux);
    t.on<BusInFluxSeen, &BusHandlers::on_in_flux_seen>(kBusInFluxSeen);
    t.on<BusFile, &BusHandlers::on_file>(kBusFile);
    t.on<BusHolder, &BusHandlers::on_holder>(kBusHolder);
    t.on<BusLost, &BusHandlers::on_lost>(kBusLost);
    t.on<BusToken, &BusHandlers::on_token>(kBusToken);
    t.on<BusShrunk, &BusHandlers::on_shrunk>(kBusShrunk);
    t.on<BusAnswer, &BusHandlers::on_answer>(kBusAnswer);
    t.on<BusQuiesce, &BusHandlers::on_quiesce>(node::kBusQuiesce);
    return t;
  }();
  if (d.bytes.empty()) return;
  SignalsBlocked quiet;
  const std::vector<std::byte> bytes = std::move(d.bytes);
  Finished done;
  (void)kTable.dispatch(static_cast<uint8_t>(bytes[0]), *this, BusFrom{d, done}, Reader(bytes));
  run(done);
}

void BusHandlers::on_view(const BusFrom& from, const BusView& m) {
  const SegmentLock s(home_, m.segment, SegmentLock::kViews);
  if (s && s->owned) {
    drop_dead_views(home_, *s);
    Fd& pagemap = from.datagram.fd;
    if (m.length == s->size && pagemap &&
        std::none_of(s->foreign.begin(), s->foreign.end(), [&](const ForeignView& v) {
          return v.slot == from.slot() && v.addr == m.address;
        })) {
      ForeignView v{from.slot(), from.datagram.sender, m.address, m.length, std::move(pagemap)};
      if (arm_foreign(home_, *s, v)) s->foreign.push_back(std::move(v));
    }
  }
  answer_when_done(from, m);
}

void BusHandlers::on_unview(const BusFrom& from, const BusUnview& m) {
  scan_and_answer(from, m.segment, m.question, &m);
}

void BusHandlers::on_barrier(const BusFrom& from, const BusBarrier& m) {
  scan_and_answer(from, m.segment, m.question, nullptr);
}

// `view`: ends, once it has been looked at.
void BusHandlers::scan_and_answer(const BusFrom& from, int32_t segment, uint64_t question,
                                  const BusUnview* view) {
  const Asker asked{from.slot(), question};
  {
    Guard g(home_.mu);
    // Asked again while the first answer is still to come: that one will do.
    if (std::count(awaited_.begin(), awaited_.end(), asked) != 0) return;
    awaited_.push_back(asked);
  }
  if (const SegmentLock own(home_, segment, SegmentLock::kViews); own && own->owned) {
    (void)scan_and_publish(home_, *own, {nullptr, true}, &from.done);
    if (view != nullptr) {
      std::erase_if(own->foreign, [&](const ForeignView& v) {
        return v.slot == from.slot() && v.addr == view->address;
      });
    }
  }
  // Another barrier's invalidation round may carry what this one no longer finds: answer after all.
  const auto over = [this, asked, segment] {
    {
      Guard again(home_.mu);
      std::erase(awaited_, asked);
    }
    home_.channel.answer(asked.first, segment, asked.second);
  };
  Guard g(home_.mu);
  home_.rounds.after_stores(over, &from.done);
}

void BusHandlers::on_publish(const BusFrom& from, const BusPublish& m) {
  Guard g(home_.mu);
  const SegmentPtr s = home_.segments.find_owned(m.segment);
  const uint64_t all = s != nullptr ? s->size / kPageSize : 0;
  if (s != nullptr && s->shared() && m.first < all && m.count != 0 && m.count <= all - m.first) {
    const PageRange pages{static_cast<uint32_t>(m.first), static_cast<uint32_t>(m.count)};
    // Where this one is not awaited to its end, the next barrier does that.
    if (auto p = home_.rounds.publish_stores(*s, {pages}, {}); p != nullptr) {
      p->finished = [this, to = from.slot(), segment = m.segment, question = m.question] {
        home_.channel.answer(to, segment, question);
      };
      return;
    }
  }
  answer_when_done(from, m);
}

void BusHandlers::on_stored(const BusFrom&, const BusStored& m) {
  Guard g(home_.mu);
  const SegmentPtr s = home_.segments.find_owned(m.segment);
  if (s == nullptr || !s->shared()) return;
  std::vector<PageRange> stored;
  const PageRangeList ranges = m.ranges();
  for (size_t i = 0; i < ranges.size(); ++i) {
    const PageRange r = ranges[i];
    if (r.count != 0 && r.first + uint64_t{r.count} <= s->size / kPageSize) stored.push_back(r);
  }
  if (!stored.empty()) home_.rounds.publish_stores(*s, stored);
}

void BusHandlers::on_token(const BusFrom& from, const BusToken& m) {
  if (home_.parts.importer != nullptr) home_.parts.importer->token_changed(m.segment);
  answer_when_done(from, m);
}

void BusHandlers::on_shrunk(const BusFrom& from, const BusShrunk& m) {
  const SegmentLock s(home_, m.segment, SegmentLock::kViews);
  if (s && !s->owned && s->owner == from.slot() && m.bytes % kPageSize == 0) {
    home_.tracker.watch_again(*s, m.bytes);
  }
  answer_when_done(from, m);
}

void BusHandlers::on_file(const BusFrom& from, const BusFile& m) {
  const SegmentLock s(home_, m.segment, SegmentLock::kViews);  // keeps the descriptor
  // Without one: it is not ours any more.
  const int file = s && s->owned && access::large_pages(s->flags) ? s->file.get() : -1;
  home_.channel.answer(from.slot(), m.segment, m.question, Status::kOk, file);
}

void BusHandlers::on_holder(const BusFrom& from, const BusHolder& m) {
  Status status = Status::kReconfig;  // it is not ours any more
  if (const SegmentLock s(home_, m.segment, SegmentLock::kMemory); s && s->owned) {
    status = holder_gone(home_, *s, m.holder) ? Status::kInval : Status::kOk;
  }
  home_.channel.answer(from.slot(), m.segment, m.question, status);
}

void BusHandlers::on_look(const BusFrom& from, const BusLook& m) {
  const SegmentLock s(home_, m.segment, SegmentLock::kViews);
  if (!s || !s->owned || home_.flux.add_watcher(*s, from.slot())) answer_when_done(from, m);
}

void BusHandlers::on_in_flux(const BusFrom& from, const BusInFlux& m) {
  const SegmentLock s(home_, m.segment, SegmentLock::kViews);
  if (s && !s->owned && s->owner == from.slot() && from.datagram.fd) {
    home_.flux.take_list(*s, m.version, from.datagram.fd);
    s->flux.unreported = m.version;
    // Under the lock: before any barrier of what is stored there next.
    (void)home_.flux.report_seen(*s);
    return;
  }
  BusInFluxSeen seen;  // there is nothing to cover
  seen.segment = m.segment;
  seen.question = m.question;
  seen.version = m.version;
  (void)home_.channel.send(from.slot(), Encoded(seen));
}

void BusHandlers::on_in_flux_seen(const BusFrom& from, const BusInFluxSeen& m) {
  const SegmentLock s(home_, m.segment, SegmentLock::kViews);
  if (s && s->owned) home_.flux.seen(*s, from.slot(), m.version, &from.done);
}

void BusHandlers::on_answer(const BusFrom& from, const BusAnswer& m) {
  home_.channel.questions().answer(m.question, std::move(from.datagram.fd), m.status);
}

void BusHandlers::on_quiesce(const BusFrom& from, const BusQuiesce& m) {
  const auto say = [this, to = from.slot(), segment = m.segment, question = m.question](
                       Status status) { home_.channel.answer(to, segment, question, status); };
  if (m.on > 1) return say(Status::kInval);
  const Status status = m.on != 0 ? quiescing_.quiesce(m.segment, [say] { say(Status::kOk); })
                                  : quiescing_.resume(m.segment);
  if (m.on == 0 || !ok(status)) say(status);
}

// The service thread's, which does not wait for the registry.
void BusHandlers::on_lost(const BusFrom& from, const BusLost& m) {
  const ContextId sender = from.datagram.sender;
  const int32_t segment = m.segment;
  const uint64_t size =
      home_.parts.importer != nullptr ? home_.parts.importer->pages_of_ours(segment) : 0;
  if (size == 0) return;  // no import of ours, or marked for deletion: nothing is reported any more
  std::vector<uint32_t> all;
  {
    Guard g(home_.mu);
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
      const auto& [who, of] = part.first;
      if (of != segment || (who != sender && home_.parts.node.members().find(who))) return false;
      all.insert(all.end(), part.second.begin(), part.second.end());
      return true;
    });
  }
  if (!all.empty())
    home_.parts.observer.stores_lost(segment, std::move(all), (m.how & kLostLocal) != 0);
}

}  // namespace cmi::memory
