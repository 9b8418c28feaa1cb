// What processes of one node tell each other of a segment over the node's bus: whose views there
// are, what was stored through them, and questions that are answered once what is asked for is
// done.
#include <algorithm>

#include "core/memory/home/home.hpp"
#include "core/memory/vm/store_log.hpp"
#include "core/node/quiesce.hpp"

namespace cmi::memory {

// Tells the owner that its last list of pages in flux has been acted on: until it knows, it looks
// for no stores there. False: it did not fit into its queue; the next barrier comes after it.
bool Home::say_seen(Segment& s) {
  if (s.unreported == 0) return true;
  std::byte buf[64];
  Writer out(buf);
  put_bus_head(out, kBusInFluxSeen, s.id, 0, s.unreported, 0);
  if (parts_.node.bus_send(s.owner, out.done()) == Status::kReconfig) return false;
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
    std::byte buf[64 + kAtOnce * sizeof(PageRange)];
    Writer out(buf);
    put_bus_head(out, kBusStored, id, 0, n, 0);
    for (size_t i = 0; i < n; ++i) {
      out.put(stored[i].first);
      out.put(stored[i].count);
    }
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

bool Home::ask_owner(node::ContextSlot owner, uint8_t what, int32_t segment, uint64_t a, uint64_t b,
                     int pass_fd, Deadline deadline, Fd* file) {
  auto p = std::make_shared<InvalidationRound>();
  p->waiting = 1;
  p->done.begin();
  uint64_t question;
  {
    Guard g(mu_);
    question = next_question_++;
    asked_[question] = p;
  }
  std::byte buf[64];
  Writer out(buf);
  put_bus_head(out, what, segment, question, a, b);
  bool answered = false;
  Backoff backoff;
  while (!answered) {
    const Status st = parts_.node.bus_send(owner, out.done(), pass_fd);
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
          answered = parts_.node.bus_send(owner, out.done(), pass_fd) == Status::kInval;
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
    good = ask_owner(slot, kBusToken, proxy, 0, 0, -1, deadline) && good;
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

void Home::on_datagram(node::Node::Datagram d) {
  SignalsBlocked quiet;
  Reader in(d.bytes);
  const auto what = in.get<uint8_t>();
  const auto segment = in.get<int32_t>();
  const auto question = in.get<uint64_t>();
  const auto a = in.get<uint64_t>();
  const auto b = in.get<uint64_t>();
  std::vector<PageRange> stored;
  const bool ranges_come_next = what == kBusStored || what == kBusLost;
  for (uint64_t i = 0; ranges_come_next && i < a && in.ok(); ++i) {
    const auto first = in.get<uint32_t>();
    stored.push_back({first, in.get<uint32_t>()});
  }
  if (!in.done()) return;
  if (what == kBusToken && parts_.importer != nullptr) parts_.importer->token_changed(segment);
  if (what == kBusLost) return on_bus_lost(d.sender, segment, stored, b);
  if (what == node::kBusQuiesce) return on_bus_quiesce(d.from, segment, question, a);
  Finished done;
  if (what == kBusAnswer) {
    {
      Guard g(mu_);
      auto it = asked_.find(question);
      if (it != asked_.end()) {
        it->second->file = std::move(d.fd);
        settle(std::shared_ptr<InvalidationRound>(it->second), &done);
      }
    }
    run(done);
    return;
  }
  const auto send = [this, to = d.from, segment, question](uint8_t back, uint64_t with,
                                                           int file = -1) {
    std::byte buf[64];
    Writer out(buf);
    put_bus_head(out, back, segment, question, with, 0);
    (void)parts_.node.bus_send(to, out.done(), file);
  };
  const auto answer = [send] { send(kBusAnswer, 0); };
  {
    Guard g(mu_);
    Segment* s = find(segment);
    const bool ours = s != nullptr && s->owned;
    switch (what) {
      case kBusView:
        if (ours) drop_dead_views(*s);
        if (ours && b == s->size && d.fd &&
            std::none_of(s->foreign.begin(), s->foreign.end(),
                         [&](const ForeignView& v) { return v.slot == d.from && v.addr == a; })) {
          s->foreign.push_back({d.from, d.sender, a, b, std::move(d.fd)});
        }
        done.push_back(answer);
        break;
      case kBusUnview:
      case kBusBarrier: {
        // Asked again while the first answer is still to come: that one will do.
        const BusQuestion asked{d.from, question};
        if (std::count(awaited_.begin(), awaited_.end(), asked) != 0) break;
        awaited_.push_back(asked);
        if (ours && s->shared()) scan_and_publish(*s);
        if (ours && what == kBusUnview) {
          std::erase_if(s->foreign,
                        [&](const ForeignView& v) { return v.slot == d.from && v.addr == a; });
        }
        // Another barrier's invalidation round may carry what this one no longer finds: answer
        // after all.
        const auto over = [this, answer, asked] {
          {
            Guard again(mu_);
            std::erase(awaited_, asked);
          }
          answer();
        };
        after_scans(over, &done);
        break;
      }
      case kBusPublish:
        if (ours && s->shared() && a < s->size / kPageSize && b != 0 &&
            b <= s->size / kPageSize - a) {
          const PageRange pages{static_cast<uint32_t>(a), static_cast<uint32_t>(b)};
          // Where this one is not awaited to its end, the next barrier does that.
          if (auto p = publish_scan(*s, {pages}, {}); p != nullptr) {
            p->finished = answer;
            break;
          }
        }
        done.push_back(answer);
        break;
      case kBusToken:
        done.push_back(answer);
        break;
      case kBusShrunk:
        if (s != nullptr && !s->owned && s->owner == d.from && a % kPageSize == 0) {
          watch_again(*s, a);
        }
        done.push_back(answer);
        break;
      case kBusFile:
        // Without one: it is not ours any more. Under mu_, which keeps the descriptor.
        send(kBusAnswer, 0, ours && access::large_pages(s->flags) ? s->file.get() : -1);
        break;
      case kBusLook:
        if (!ours || add_watcher(*s, d.from)) done.push_back(answer);
        break;
      case kBusInFlux:
        if (s != nullptr && !s->owned && s->owner == d.from && d.fd) {
          take_list(*s, a, d.fd);
          s->unreported = a;
          (void)say_seen(*s);  // under mu_: before any barrier of what is stored there next
        } else {
          send(kBusInFluxSeen, a);  // there is nothing to cover
        }
        break;
      case kBusInFluxSeen:
        if (ours) on_list_seen(*s, d.from, a, &done);
        break;
      case kBusStored:
        std::erase_if(stored, [&](const PageRange& r) {
          return !ours || r.count == 0 || r.first + uint64_t{r.count} > s->size / kPageSize;
        });
        if (ours && s->shared() && !stored.empty()) publish_scan(*s, stored);
        break;
      default:
        return;
    }
  }
  run(done);
}

}  // namespace cmi::memory
