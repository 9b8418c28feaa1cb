// What processes of one node tell each other of a segment over the node's bus: whose views there
// are, what was stored through them, and questions that are answered once what is asked for is
// done.
#include <algorithm>

#include "core/memory/home/home.hpp"
#include "core/memory/vm/store_log.hpp"
#include "core/memory/wire/dispatch.hpp"

namespace cmi::memory {

// Tells the owner that its last list of pages in flux has been acted on: until it knows, it looks
// for no stores there. False: it did not fit into its queue; the next barrier comes after it.
bool Home::say_seen(Segment& s) {
  if (s.unreported == 0) return true;
  BusInFluxSeen m;
  m.segment = s.id;
  m.version = s.unreported;
  if (parts_.node.bus_send(s.owner, Encoded(m)) == Status::kReconfig) return false;
  s.unreported = 0;
  return true;
}

// Tells the owner which pages of its segment were stored to through our views, without waiting:
// what we send it next, it takes in after this. False: not all fitted into its queue; the rest
// stays.
bool Home::send_stored(Segment& s) {
  bool all = true;
  for (auto& v : s.views) {
    if (v.view->stores != nullptr) all = all && send_stored(s.owner, s.id, *v.view->stores);
  }
  return all;
}

bool Home::send_stored(node::ContextSlot owner, int32_t id, StoreLog& stores) {
  constexpr size_t kAtOnce = 512;  // ranges of one datagram
  auto stored = stores.take();
  while (!stored.empty()) {
    const size_t n = std::min(kAtOnce, stored.size());
    std::byte buf[kWireSize<BusStored> + kAtOnce * PageRangeList::kItem];
    Writer out(buf);
    BusStored m;
    m.segment = id;
    m.count = n;
    encode(m, out);
    for (size_t i = 0; i < n; ++i) PageRangeList::put(out, stored[i]);
    if (parts_.node.bus_send(owner, out.done()) == Status::kReconfig) {
      stores.put_back(stored);
      return false;
    }
    stored.erase(stored.begin(), stored.begin() + static_cast<ptrdiff_t>(n));
  }
  return true;
}

// For a segment of another process: until its owner has been sent all of it.
bool Home::notify_stored(int32_t id, Deadline deadline) {
  for (Backoff backoff;; backoff.pause()) {
    {
      Guard g(mu_);
      Segment* s = find(id);
      if (s == nullptr || s->owned || (say_seen(*s) && send_stored(*s))) return true;
    }
    if (deadline.passed()) return false;
  }
}

std::shared_ptr<Home::InvalidationRound> Home::new_question(uint64_t* question) {
  auto p = std::make_shared<InvalidationRound>();
  p->waiting = 1;
  p->done.begin();
  Guard g(mu_);
  *question = next_question_++;
  asked_[*question] = p;
  return p;
}

bool Home::await_answer(node::ContextSlot owner, int32_t segment, uint64_t question,
                        const std::shared_ptr<InvalidationRound>& p, Bytes datagram, int pass_fd,
                        Deadline deadline, Fd* file) {
  bool answered = false;
  Backoff backoff;
  while (!answered) {
    const Status st = parts_.node.bus_send(owner, datagram, pass_fd);
    if (st == Status::kInval) {
      answered = true;  // the owner has ended: no remote node has the segment any more
    } else if (ok(st)) {
      // In slices: an owner that dies meanwhile will never answer.
      while (!answered && !deadline.passed()) {
        answered = wait(*p, Deadline{std::min(deadline.at, now() + 100 * kMilli)});
        if (answered) break;
        // A registry that cannot be had says nothing: who stopped may be the one who has it.
        const auto info = parts_.node.find(segment, 2 * kMilli);
        answered =
            info ? info->owner == owner && !info->owner_alive : info.status() == Status::kInval;
        // The answer may have found our queue full: ask again. Each thing is done twice without
        // harm.
        if (!answered) {
          answered = parts_.node.bus_send(owner, datagram, pass_fd) == Status::kInval;
        }
      }
      break;
    } else if (deadline.passed()) {
      break;
    } else {
      backoff.pause();
    }
  }
  Guard g(mu_);
  asked_.erase(question);
  if (file != nullptr) *file = std::move(p->file);
  return answered;
}

bool Home::notify_token(int32_t proxy, Deadline deadline) {
  bool good = true;
  for (node::ContextSlot slot : parts_.node.members()) {
    if (slot == parts_.node.slot()) continue;
    good = ask_owner(slot, BusToken{kBusToken, proxy}, -1, deadline) && good;
  }
  return good;
}

void Home::after_scans(const std::function<void()>& then, Finished* done) {
  auto rest = std::make_shared<InvalidationRound>();
  rest->waiting = 1;
  rest->done.begin();
  rest->finished = then;
  for (auto& open : scans_) {
    ++rest->waiting;
    open->then.push_back(rest);
  }
  settle(rest, done);
}

void Home::answer(node::ContextSlot to, int32_t segment, uint64_t question, Status status,
                  int file) {
  BusAnswer m;
  m.segment = segment;
  m.question = question;
  m.status = static_cast<uint64_t>(status);
  (void)parts_.node.bus_send(to, Encoded(m), file);
}

// What is malformed, or of no known kind, is let fall.
void Home::on_datagram(node::Node::Datagram d) {
  static constexpr auto kTable = [] {
    DispatchTable<size_t{UINT8_MAX} + 1, Home, const BusFrom&> t;
    t.on<BusView, &Home::on_bus_view>(kBusView);
    t.on<BusUnview, &Home::on_bus_unview>(kBusUnview);
    t.on<BusBarrier, &Home::on_bus_barrier>(kBusBarrier);
    t.on<BusPublish, &Home::on_bus_publish>(kBusPublish);
    t.on<BusStored, &Home::on_bus_stored>(kBusStored);
    t.on<BusLook, &Home::on_bus_look>(kBusLook);
    t.on<BusInFlux, &Home::on_bus_in_flux>(kBusInFlux);
    t.on<BusInFluxSeen, &Home::on_bus_in_flux_seen>(kBusInFluxSeen);
    t.on<BusFile, &Home::on_bus_file>(kBusFile);
    t.on<BusLost, &Home::on_bus_lost>(kBusLost);
    t.on<BusToken, &Home::on_bus_token>(kBusToken);
    t.on<BusShrunk, &Home::on_bus_shrunk>(kBusShrunk);
    t.on<BusAnswer, &Home::on_bus_answer>(kBusAnswer);
    t.on<BusQuiesce, &Home::on_bus_quiesce>(node::kBusQuiesce);
    return t;
  }();
  if (d.bytes.empty()) return;
  SignalsBlocked quiet;
  const std::vector<std::byte> bytes = std::move(d.bytes);
  Finished done;
  (void)kTable.dispatch(static_cast<uint8_t>(bytes[0]), *this, BusFrom{d, done}, Reader(bytes));
  run(done);
}

Home::Segment* Home::own_segment(int32_t id) {
  Segment* s = find(id);
  return s != nullptr && s->owned ? s : nullptr;
}

void Home::on_bus_view(const BusFrom& from, const BusView& m) {
  Guard g(mu_);
  Segment* s = own_segment(m.segment);
  if (s != nullptr) drop_dead_views(*s);
  Fd& pagemap = from.datagram.fd;
  if (s != nullptr && m.length == s->size && pagemap &&
      std::none_of(s->foreign.begin(), s->foreign.end(), [&](const ForeignView& v) {
        return v.slot == from.slot() && v.addr == m.address;
      })) {
    s->foreign.push_back(
        {from.slot(), from.datagram.sender, m.address, m.length, std::move(pagemap)});
  }
  answer_when_done(from, m);
}

void Home::on_bus_unview(const BusFrom& from, const BusUnview& m) {
  Guard g(mu_);
  scan_and_answer(from, m.segment, m.question, own_segment(m.segment), &m);
}

void Home::on_bus_barrier(const BusFrom& from, const BusBarrier& m) {
  Guard g(mu_);
  scan_and_answer(from, m.segment, m.question, own_segment(m.segment), nullptr);
}

// `view`: ends, once it has been looked at.
void Home::scan_and_answer(const BusFrom& from, int32_t segment, uint64_t question, Segment* own,
                           const BusUnview* view) {
  // Asked again while the first answer is still to come: that one will do.
  const BusQuestion asked{from.slot(), question};
  if (std::count(awaited_.begin(), awaited_.end(), asked) != 0) return;
  awaited_.push_back(asked);
  if (own != nullptr && own->shared()) scan_and_publish(*own);
  if (own != nullptr && view != nullptr) {
    std::erase_if(own->foreign, [&](const ForeignView& v) {
      return v.slot == from.slot() && v.addr == view->address;
    });
  }
  // Another barrier's invalidation round may carry what this one no longer finds: answer after all.
  const auto over = [this, asked, segment] {
    {
      Guard again(mu_);
      std::erase(awaited_, asked);
    }
    answer(asked.first, segment, asked.second);
  };
  after_scans(over, &from.done);
}

void Home::on_bus_publish(const BusFrom& from, const BusPublish& m) {
  Guard g(mu_);
  Segment* s = own_segment(m.segment);
  const uint64_t all = s != nullptr ? s->size / kPageSize : 0;
  if (s != nullptr && s->shared() && m.first < all && m.count != 0 && m.count <= all - m.first) {
    const PageRange pages{static_cast<uint32_t>(m.first), static_cast<uint32_t>(m.count)};
    // Where this one is not awaited to its end, the next barrier does that.
    if (auto p = publish_scan(*s, {pages}, {}); p != nullptr) {
      p->finished = [this, to = from.slot(), segment = m.segment, question = m.question] {
        answer(to, segment, question);
      };
      return;
    }
  }
  answer_when_done(from, m);
}

void Home::on_bus_stored(const BusFrom&, const BusStored& m) {
  Guard g(mu_);
  Segment* s = own_segment(m.segment);
  if (s == nullptr || !s->shared()) return;
  std::vector<PageRange> stored;
  const PageRangeList ranges = m.ranges();
  for (size_t i = 0; i < ranges.size(); ++i) {
    const PageRange r = ranges[i];
    if (r.count != 0 && r.first + uint64_t{r.count} <= s->size / kPageSize) stored.push_back(r);
  }
  if (!stored.empty()) publish_scan(*s, stored);
}

void Home::on_bus_token(const BusFrom& from, const BusToken& m) {
  if (parts_.importer != nullptr) parts_.importer->token_changed(m.segment);
  answer_when_done(from, m);
}

void Home::on_bus_shrunk(const BusFrom& from, const BusShrunk& m) {
  Guard g(mu_);
  Segment* s = find(m.segment);
  if (s != nullptr && !s->owned && s->owner == from.slot() && m.bytes % kPageSize == 0) {
    watch_again(*s, m.bytes);
  }
  answer_when_done(from, m);
}

void Home::on_bus_file(const BusFrom& from, const BusFile& m) {
  Guard g(mu_);  // keeps the descriptor
  Segment* s = own_segment(m.segment);
  // Without one: it is not ours any more.
  const int file = s != nullptr && access::large_pages(s->flags) ? s->file.get() : -1;
  answer(from.slot(), m.segment, m.question, Status::kOk, file);
}

void Home::on_bus_look(const BusFrom& from, const BusLook& m) {
  Guard g(mu_);
  Segment* s = own_segment(m.segment);
  if (s == nullptr || add_watcher(*s, from.slot())) answer_when_done(from, m);
}

void Home::on_bus_in_flux(const BusFrom& from, const BusInFlux& m) {
  Guard g(mu_);
  Segment* s = find(m.segment);
  if (s != nullptr && !s->owned && s->owner == from.slot() && from.datagram.fd) {
    take_list(*s, m.version, from.datagram.fd);
    s->unreported = m.version;
    (void)say_seen(*s);  // under mu_: before any barrier of what is stored there next
    return;
  }
  BusInFluxSeen seen;  // there is nothing to cover
  seen.segment = m.segment;
  seen.question = m.question;
  seen.version = m.version;
  (void)parts_.node.bus_send(from.slot(), Encoded(seen));
}

void Home::on_bus_in_flux_seen(const BusFrom& from, const BusInFluxSeen& m) {
  Guard g(mu_);
  Segment* s = own_segment(m.segment);
  if (s != nullptr) on_list_seen(*s, from.slot(), m.version, &from.done);
}

void Home::on_bus_answer(const BusFrom& from, const BusAnswer& m) {
  Guard g(mu_);
  auto it = asked_.find(m.question);
  if (it == asked_.end()) return;
  it->second->file = std::move(from.datagram.fd);
  settle(std::shared_ptr<InvalidationRound>(it->second), &from.done);
}

}  // namespace cmi::memory
