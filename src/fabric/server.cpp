// First contacts, exactly-once requests, notices, fences. Looks at the ports: server_poll.cpp;
// direct acks: server_receipts.cpp.
#include "fabric/server.hpp"

#include <algorithm>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "fabric/link.hpp"
#include "fabric/serving.hpp"

namespace cmi::fabric {

namespace {
constexpr size_t kMadeRoom = 4;  // clients that make room for one: it needs more than an endpoint
constexpr size_t kLargeAnswer = 256, kMostLargeAnswers = 64;  // bytes; kept for each client
// Of all answers, and of requests that are worked on: more than a Link has under way, so that it
// can do without the answers before.
constexpr size_t kMostAnswers = 2 * Link::kMostUnderWay, kMostOpen = 2 * Link::kMostUnderWay;
}  // namespace

Result<std::unique_ptr<Server>> Server::open(std::vector<Fabric*> fabrics, ContextId self,
                                             ServerHandler& handler) {
  std::unique_ptr<Server> s(new Server(std::move(fabrics), self, handler));
  for (Fabric* fabric : s->fabrics_) {
    auto listener = Port::open(*fabric, *s);
    if (!listener) return listener.status();
    s->doors_.push_back(listener.take());
    s->doors_.back()->limit_backlog();
  }
  return s;
}

Server::~Server() {
  std::vector<std::shared_ptr<Serving>> servings;
  {
    Guard g(mu_);
    clients_.clear();
    servings.swap(servings_);
  }
  servings.clear();
  doors_.clear();
}

std::vector<ListenerAddress> Server::listeners() const {
  std::vector<ListenerAddress> all;
  for (size_t via = 0; via < doors_.size(); ++via) {
    const Bytes at = door_address(via);
    all.push_back({fabrics_[via]->traits().provider, {at.begin(), at.end()}});
  }
  return all;
}

// A fence waits for who holds the serving endpoint, so that it is there until the region is bound
// to it; and the session's keys are closed after that.
Result<std::unique_ptr<Region>> Server::register_for(const ContextId& client, void* addr,
                                                     size_t len, uint32_t rights,
                                                     uint64_t wanted_key) {
  std::shared_ptr<Serving> serving;
  Fabric* fabric = nullptr;
  {
    Guard g(mu_);
    auto it = clients_.find(client);
    if (it == clients_.end() || it->second.serving == nullptr) return std::unique_ptr<Region>();
    serving = it->second.serving;
    fabric = fabrics_[it->second.info.via];
  }
  return fabric->register_memory(addr, len, rights, wanted_key, &serving->port->endpoint());
}

Result<std::unique_ptr<Region>> Server::register_at(size_t via, void* addr, size_t len,
                                                    uint32_t rights, uint64_t wanted_key) {
  return fabrics_[via]->register_memory(addr, len, rights, wanted_key, &doors_[via]->endpoint());
}

size_t Server::door_of(const Endpoint& ep) const {
  size_t via = 0;
  while (via + 1 < doors_.size() && &doors_[via]->endpoint() != &ep) ++via;
  return via;
}

void Server::on_message(Endpoint& ep, Bytes message) {
  Frame f;
  if (!decode_frame(message, &f)) return drop();
  if (f.kind == FrameKind::kHello) return hello(door_of(ep), f);
  Reader in(f.payload);
  ContextId from{in.get<uint64_t>(), 0};
  from.lo = in.get<uint64_t>();
  if (!in.ok()) return drop();
  if (f.kind == FrameKind::kNotice) {
    const auto secret = in.get<uint64_t>();
    {
      Guard g(mu_);
      auto it = homes_.find(from);
      if (!in.ok() || it == homes_.end() || it->second.secret != f.secret) return drop();
    }
    DirectAck direct_ack;
    if (f.settled != 0) {
      direct_ack.number = f.settled;
      direct_ack.share = in.get<uint64_t>();
      direct_ack.to = in.blob();
      if (!in.ok() || direct_ack.to.size() > kMaxDirectAckAddress) return drop();
    }
    return handler_.on_notification(from, secret, f.number, f.type, in, direct_ack);
  }
  if (f.kind == FrameKind::kAck) {
    {
      Guard g(mu_);
      auto it = clients_.find(from);
      if (it == clients_.end() || it->second.fenced || it->second.ack_secret != f.secret) {
        return drop();
      }
    }
    return handler_.on_ack(from, f.number, in);
  }
  drop();
}

void Server::hello(size_t via, const Frame& f) {
  Reader in(f.payload);
  ClientInfo info;
  info.via = via;
  info.id.hi = in.get<uint64_t>();
  info.id.lo = in.get<uint64_t>();
  info.node.hi = in.get<uint64_t>();
  info.node.lo = in.get<uint64_t>();
  ContextId meant;
  meant.hi = in.get<uint64_t>();
  meant.lo = in.get<uint64_t>();
  const auto client_notification_secret = in.get<uint64_t>();
  const auto generation = in.get<uint32_t>();
  const auto nonce = in.get<uint64_t>();
  Bytes initiator = in.blob();
  Bytes client_listener = in.blob();
  // A hello for an earlier user of this address must find nobody.
  if (!in.done() || meant != self_ || !info.id || generation == 0) return drop();
  if (!handler_.on_hello(info)) return drop();

  Guard one(hello_mu_);
  const bool known = !handler_.may_sweep(info.id);
  bool crowded;
  {
    Guard g(mu_);
    crowded = clients_.count(info.id) == 0 && servings_.size() >= kCrowded;
  }
  if (crowded) let_go(kStrangersStay, kMadeRoom, info.id);
  std::shared_ptr<Serving> old;
  {
    Guard g(mu_);
    auto it = clients_.find(info.id);
    // Those fenced for ever are remembered, but take no endpoint.
    if (it == clients_.end() && servings_.size() >= kMaxClients) return drop();
    if (it != clients_.end()) {
      if (it->second.fenced || it->second.generation >= generation ||
          it->second.notification_secret != client_notification_secret) {
        return drop();
      }
      if (!mutated("mutate_rebuild_unfenced")) old = std::move(it->second.serving);
      if (old != nullptr) ++it->second.closing;
      it->second.secret = random_u64();
    }
  }
  if (old != nullptr) close_serving(std::move(old));
  handler_.on_new_session(info);

  auto serving = std::make_shared<Serving>(*this, info.id);
  auto port = Port::open(fabric(via), *serving, doors_[via].get());
  // Who has something here comes before all who have not.
  if (!port && let_go(known ? 0 : kStrangersStay, kMadeRoom, info.id) > 0) {
    port = Port::open(fabric(via), *serving, doors_[via].get());
  }
  if (!port) {
    trace(kFacMem, kWarn, "server: no serving endpoint: {}", status_name(port.status()));
    return;
  }
  serving->port = port.take();
  serving->port->limit_backlog();
  auto peer = serving->port->add(initiator);
  if (!peer) return drop();
  auto door_peer = doors_[via]->add(client_listener);
  if (!door_peer) return drop();
  serving->peer = *peer;

  std::byte payload[128];
  Writer out(payload);
  out.put(generation);
  out.put(nonce);
  out.blob(serving->port->endpoint().address());
  Frame welcome{FrameKind::kWelcome, 0, 0, 0, 0, out.done()};
  {
    Guard g(mu_);
    Client& c = clients_[info.id];
    if (c.fenced) {  // meanwhile
      doors_[via]->remove(*door_peer);
      return drop();
    }
    // A stranger may have named the listener of another, who keeps it.
    if (c.generation != 0) doors_[c.info.via]->remove(c.door_peer);
    c.info = info;
    c.generation = generation;
    c.secret = random_u64();
    c.notification_secret = client_notification_secret;
    if (c.ack_secret == 0) c.ack_secret = random_u64();
    c.heard = now();
    c.listener.assign(client_listener.begin(), client_listener.end());
    c.initiator.assign(initiator.begin(), initiator.end());
    c.door_peer = *door_peer;
    c.serving = serving;
    welcome.secret = c.secret;
    servings_.push_back(serving);
  }
  fault_point("server_before_welcome");
  // From the serving endpoint, so that the connection the client will use is the one that is made.
  serving->port->send(*peer, welcome);
  trace(kFacMem, kInfo, "server: welcomed {:016x} generation {}", info.id.hi, generation);
}

// True: that of some of them nobody waits for an answer any more is news.
bool Server::settle_locked(Client& c, uint64_t number) {
  if (number <= c.settled) return false;
  c.settled = number;
  return std::erase_if(c.open, [&](uint64_t n) { return n < number; }) > 0;
}

// Whether this request is to be executed: each number once. What has been answered is answered
// again.
bool Server::admit_locked(Client& c, Serving& serving, const Frame& f) {
  if (f.number < c.settled) return false;
  const bool no_record = mutated("mutate_repeat_executed");
  if (!no_record && std::find(c.open.begin(), c.open.end(), f.number) != c.open.end()) {
    // Asked again while it is being worked on: a sign of life (no request has number 0).
    serving.port->send(serving.peer, {FrameKind::kReply, 0, c.secret, 0, 0, {}});
    return false;
  }
  auto answer = c.answers.find(f.number);
  if (!no_record && answer != c.answers.end()) {
    serving.port->send(serving.peer, {FrameKind::kReply, 0, c.secret, f.number, 0, answer->second});
    return false;
  }
  if (f.number <= c.forgotten || c.open.size() >= kMostOpen) {
    drop();
    return false;
  }
  c.open.push_back(f.number);
  return true;
}

void Server::request(Serving& serving, const Frame& f) {
  ClientInfo info;
  const uint64_t settled = std::min(f.settled, f.number);
  bool news, admitted;
  {
    Guard g(mu_);
    auto it = clients_.find(serving.client);
    if (it == clients_.end() || it->second.serving.get() != &serving ||
        it->second.secret != f.secret || it->second.fenced || f.number == 0) {
      return drop();
    }
    Client& c = it->second;
    info = c.info;
    c.heard = now();
    news = settle_locked(c, settled);
    admitted = admit_locked(c, serving, f);
  }
  if (news) handler_.on_acked_below(info.id, settled, {});
  if (admitted) handler_.on_request(info, f.number, f.type, Reader(f.payload));
}

// What was answered, for who asks again, until it is settled or there is too much of it.
void Server::keep_answer_locked(Client& c, uint64_t number, Bytes payload) {
  c.answers.erase(c.answers.begin(), c.answers.lower_bound(c.settled));
  c.answers[number].assign(payload.begin(), payload.end());
  c.answered.push_back(number);
  while (!c.answered.empty() &&
         (c.answered.front() < c.settled || c.answered.size() > kMostAnswers)) {
    if (c.answers.erase(c.answered.front()) > 0) {
      c.forgotten = std::max(c.forgotten, c.answered.front());
    }
    c.answered.pop_front();
  }
  if (payload.size() <= kLargeAnswer) return;
  // One old request without an answer keeps all later ones from being settled. What a large answer
  // tells is read anew when it is asked for again.
  c.large.push_back(number);
  if (c.large.size() <= kMostLargeAnswers) return;
  c.answers.erase(c.large.front());
  c.large.pop_front();
}

void Server::reply(const ContextId& client, uint64_t number, Bytes payload, Shared shared) {
  fault_point("server_before_reply");
  Guard g(mu_);
  auto it = clients_.find(client);
  if (it == clients_.end()) return;
  Client& c = it->second;
  if (std::erase(c.open, number) == 0) return;
  // Under way first, then kept: the client waits.
  if (c.serving != nullptr) {
    c.serving->port->send(c.serving->peer, {FrameKind::kReply, static_cast<uint16_t>(shared),
                                            c.secret, number, 0, payload});
    Port* const port = c.serving->port.get();
    awaited_.store(port->endpoint().shares_queue() ? doors_[c.info.via].get() : port,
                   std::memory_order_relaxed);
  }
  keep_answer_locked(c, number, payload);
}

bool Server::notification(const ContextId& client, uint64_t number, uint16_t type, Bytes payload,
                          bool last, const DirectAck& direct_ack) {
  std::byte head[kNoticeHeader + kReceiptHeader];
  Writer out(head);
  out.put(self_.hi);
  out.put(self_.lo);
  Guard g(mu_);  // also while it is sent: the peer stays who it is
  auto it = clients_.find(client);
  if (it == clients_.end() || it->second.fenced) return false;
  const Client& c = it->second;
  out.put(c.ack_secret);
  if (direct_ack.number != 0) {
    out.put(direct_ack.share);
    out.blob(direct_ack.to);
  }
  Port& listener = *doors_[c.info.via];
  listener.send(c.door_peer,
                {FrameKind::kNotice, type, c.notification_secret, number, direct_ack.number,
                 out.done(), payload},
                last);
  // Who is to have the direct ack is heard of next, and not at the listener.
  if (direct_ack.number == 0) awaited_.store(&listener, std::memory_order_relaxed);
  return true;
}

Status Server::add_home(const ContextId& home, Bytes listener, uint64_t secret, size_t via) {
  auto peer = doors_[via]->add(listener);
  if (!peer) return peer.status();
  Guard g(mu_);
  if (auto it = homes_.find(home); it != homes_.end()) {
    doors_[it->second.via]->remove(it->second.peer);
  }
  homes_[home] = {via, *peer, secret};
  return Status::kOk;
}

void Server::ack(const ContextId& home, uint64_t secret, uint64_t number, Bytes payload) {
  std::byte head[2 * sizeof(uint64_t)];
  Writer out(head);
  out.put(self_.hi);
  out.put(self_.lo);
  Guard g(mu_);
  auto it = homes_.find(home);
  if (it == homes_.end()) return;
  const HomeDoor& listener = it->second;
  doors_[listener.via]->send(listener.peer,
                             {FrameKind::kAck, 0, secret, number, 0, out.done(), payload});
}

void Server::close_serving(std::shared_ptr<Serving> serving) {
  {
    Guard g(mu_);
    std::erase(servings_, serving);
  }
  // Pollers hold it for the length of one poll. It must be closed, not just forgotten, when the
  // fence returns.
  Backoff backoff;
  while (serving.use_count() > 1) backoff.pause();
  const ContextId client = serving->client;
  serving.reset();
  Guard g(mu_);
  --clients_.at(client).closing;  // sweep() leaves an entry alone until then
}

void Server::fence(const ContextId& client, bool forever) {
  std::shared_ptr<Serving> serving;
  Peer listener{};
  size_t via = 0;
  bool had_door = false;
  {
    Guard g(mu_);
    auto it = clients_.find(client);
    if (it == clients_.end()) {
      // Its first hello may be on its way, or be in the middle of hello().
      if (forever) clients_[client].fenced = true;
      return;
    }
    if (!mutated("mutate_fence_in_mid_payload")) serving = std::move(it->second.serving);
    it->second.serving = nullptr;
    if (serving != nullptr) ++it->second.closing;
    it->second.secret = random_u64();
    listener = it->second.door_peer;
    via = it->second.info.via;
    if (forever) {
      // Who it was is remembered, and nothing else.
      had_door = !std::exchange(it->second.fenced, true) && it->second.generation != 0;
      it->second.open.clear();
      it->second.answers.clear();
      it->second.answered.clear();
      it->second.large.clear();
    }
  }
  if (serving != nullptr) close_serving(std::move(serving));
  // A hello, or another fence, may have taken the endpoint out before us and still be closing it.
  for (Backoff backoff;; backoff.pause()) {
    Guard g(mu_);
    auto it = clients_.find(client);  // may be swept meanwhile
    if (it == clients_.end() || it->second.closing == 0) break;
  }
  if (had_door) doors_[via]->remove(listener);
}

void Server::sweep(Nanos silence) {
  let_go(silence, SIZE_MAX);
  let_go_of_waiters(silence);
}

// The longest silent first. Returns how many.
size_t Server::let_go(Nanos silence, size_t most, const ContextId& but) {
  std::vector<std::pair<Nanos, ContextId>> idle;
  {
    Guard g(mu_);
    const Nanos t = now();
    for (auto& [id, c] : clients_) {
      if (!c.fenced && c.open.empty() && c.closing == 0 && t - c.heard > silence && id != but) {
        idle.emplace_back(c.heard, id);
      }
    }
  }
  std::sort(idle.begin(), idle.end());
  size_t gone = 0;
  for (auto& [heard, id] : idle) {
    if (gone == most) break;
    if (!handler_.may_sweep(id)) continue;
    fence(id, false);
    ++gone;
    // What it asked for before the fence may have made it one who stays.
    if (!handler_.may_sweep(id)) continue;
    Guard g(mu_);
    auto it = clients_.find(id);
    // It may have come back, or been fenced for ever, since it was looked at.
    if (it == clients_.end() || it->second.serving != nullptr || it->second.closing != 0 ||
        it->second.fenced) {
      continue;
    }
    doors_[it->second.info.via]->remove(it->second.door_peer);
    clients_.erase(it);
  }
  return gone;
}

bool Server::knows(const ContextId& client) {
  Guard g(mu_);
  auto it = clients_.find(client);
  return it != clients_.end() && !it->second.fenced;
}

uint32_t Server::session_of(const ContextId& client) {
  Guard g(mu_);
  auto it = clients_.find(client);
  if (it == clients_.end() || (it->second.serving == nullptr && it->second.closing == 0)) return 0;
  return it->second.generation;
}

ListenerAddress Server::client_listener(const ContextId& client) {
  Guard g(mu_);
  auto it = clients_.find(client);
  if (it == clients_.end()) return {};
  return {fabrics_[it->second.info.via]->traits().provider, it->second.listener};
}

Nanos Server::heard(const ContextId& client) {
  Guard g(mu_);
  auto it = clients_.find(client);
  return it == clients_.end() ? 0 : it->second.heard;
}

}  // namespace cmi::fabric
