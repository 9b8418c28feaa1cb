// First contacts, and what goes between a Server's parts, its ports and its handler. Looks at the
// ports: server_poll.cpp.
#include "fabric/server.hpp"

#include <algorithm>

#include "core/base/descriptors_left.hpp"
#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"

namespace cmi::fabric {

namespace {
// Clients that make room for a new one: a client needs more descriptors than an endpoint's.
constexpr size_t kMadeRoom = 4;
constexpr Nanos kTellRefusedEvery = 10 * kSecond;

ContextId read_context(Reader& in) {
  ContextId id;
  id.hi = in.get<uint64_t>();
  id.lo = in.get<uint64_t>();
  return id;
}
}  // namespace

Result<std::unique_ptr<Server>> Server::open(std::vector<Fabric*> fabrics, ContextId self,
                                             ServerHandler& handler) {
  std::unique_ptr<Server> s(new Server(std::move(fabrics), self, handler));
  for (Fabric* fabric : s->fabrics_) {
    auto port = Port::open(*fabric, *s);
    if (!port) return port.status();
    s->ports_.push_back(port.take());
    s->ports_.back()->limit_backlog();
  }
  return s;
}

// Ports are closed while the tables are there: closing one may still hand out messages.
Server::~Server() {
  clients_.clear();
  ports_.clear();
}

std::vector<ListenerAddress> Server::listeners() const {
  std::vector<ListenerAddress> all;
  for (size_t i = 0; i < ports_.size(); ++i) {
    const Bytes at = listener_address(i);
    all.push_back({fabrics_[i]->traits().provider, {at.begin(), at.end()}});
  }
  return all;
}

// A fence waits for whoever holds the serving endpoint, so the endpoint is there until the region
// is bound to it; the session's keys are closed after that.
Result<std::unique_ptr<Region>> Server::register_for(const ContextId& client, void* addr,
                                                     size_t len, uint32_t rights,
                                                     uint64_t wanted_key) {
  const auto served = clients_.served(client);
  if (served.serving == nullptr) return std::unique_ptr<Region>();
  return fabrics_[served.index]->register_memory(addr, len, rights, wanted_key,
                                                 &served.serving->endpoint());
}

Result<std::unique_ptr<Region>> Server::register_at(size_t listener_index, void* addr, size_t len,
                                                    uint32_t rights, uint64_t wanted_key) {
  return fabrics_[listener_index]->register_memory(addr, len, rights, wanted_key,
                                                   &ports_[listener_index]->endpoint());
}

size_t Server::index_of(const Endpoint& ep) const {
  size_t i = 0;
  while (i + 1 < ports_.size() && &ports_[i]->endpoint() != &ep) ++i;
  return i;
}

void Server::on_message(Endpoint& ep, Bytes message) {
  Frame f;
  if (!decode_frame(message, &f)) return drop();
  if (f.kind == FrameKind::kHello) return on_hello(index_of(ep), f);
  Reader in(f.payload);
  const ContextId from = read_context(in);
  if (!in.ok()) return drop();
  if (f.kind == FrameKind::kNotification) return on_notification(from, f, in);
  if (f.kind != FrameKind::kAck || !clients_.may_acknowledge(from, f.secret)) return drop();
  handler_.on_ack(from, f.number, in);
}

void Server::on_notification(const ContextId& from, const Frame& f, Reader in) {
  const auto secret = in.get<uint64_t>();
  if (!in.ok() || !homes_.vouches_for(from, f.secret)) return drop();
  DirectAck direct_ack;
  if (f.acked_below != 0) {
    direct_ack.number = f.acked_below;
    direct_ack.token = in.get<uint64_t>();
    direct_ack.to = in.blob();
    if (!in.ok() || direct_ack.to.size() > kMaxDirectAckAddress) return drop();
  }
  handler_.on_notification(from, secret, f.number, f.type, in, direct_ack);
}

// False: it is malformed, or meant for an earlier user of this address.
bool Server::read_hello(const Frame& f, Hello* hello) const {
  Reader in(f.payload);
  hello->info.id = read_context(in);
  hello->info.node.hi = in.get<uint64_t>();
  hello->info.node.lo = in.get<uint64_t>();
  const ContextId meant = read_context(in);
  hello->notification_secret = in.get<uint64_t>();
  hello->generation = in.get<uint32_t>();
  hello->nonce = in.get<uint64_t>();
  hello->initiator = in.blob();
  hello->listener_address = in.blob();
  return in.done() && meant == self_ && hello->info.id && hello->generation != 0;
}

void Server::on_hello(size_t index, const Frame& f) {
  Hello hello;
  hello.info.listener_index = index;
  const ContextId& id = hello.info.id;
  if (!read_hello(f, &hello) || !handler_.on_hello(hello.info)) return drop();

  Guard one(hello_mu_);
  const bool known = !handler_.may_sweep(id);
  make_room(id);
  if (!known && clients_.session_of(id) == 0 && !may_come(hello)) return refuse(hello);
  if (!clients_.end_session(hello, kMaxClients)) return drop();
  handler_.on_new_session(hello.info);

  auto serving = std::make_shared<Serving>(static_cast<ServingSink&>(*this), id);
  if (!open_serving(*serving, hello, known)) return;
  if (serving->connect(hello.initiator) != Status::kOk) return drop();
  auto at_listener = ports_[index]->add(hello.listener_address);
  if (!at_listener) return drop();
  const auto secret = clients_.begin_session(hello, *at_listener, serving);
  if (!secret) return drop();

  std::byte payload[128];
  Writer out(payload);
  out.put(hello.generation);
  out.put(hello.nonce);
  out.blob(serving->endpoint().address());
  fault_point("server_before_welcome");
  // From the serving endpoint: so the connection that is made is the one that the client will use.
  serving->send({FrameKind::kWelcome, 0, *secret, 0, 0, out.done()});
  trace(kFacMem, kInfo, "server: welcomed {:016x} generation {}", id.hi, hello.generation);
}

// All that a newcomer needs has to be there: one that is let in and then lacks something holds up
// the others. Another one that came just now may not have all of it yet.
bool Server::may_come(const Hello& hello) {
  const Nanos t = now();
  const int others = t - newcomer_ < kComingIn ? kDescriptorsOfClient : 0;
  const int needed = kDescriptorsOfClient + others;
  if (!descriptors_left(needed) &&
      (close_silent(kStrangersStay, kMadeRoom, hello.info.id) == 0 || !descriptors_left(needed))) {
    return false;
  }
  newcomer_ = t;
  return true;
}

void Server::refuse(const Hello& hello) {
  if (const Nanos t = now(); t - refused_ > kTellRefusedEvery) {
    refused_ = t;
    alert(kFacMem,
          "an importer is refused: this process has no descriptors left for it (ulimit -n)");
  }
  drop();
  Port& listener = *ports_[hello.info.listener_index];
  auto peer = listener.add(hello.initiator);
  if (!peer) return;
  std::byte payload[sizeof hello.generation + sizeof hello.nonce];
  Writer out(payload);
  out.put(hello.generation);
  out.put(hello.nonce);
  listener.send(*peer, {FrameKind::kRefusal, 0, 0, 0, 0, out.done()}, true);
  listener.remove(*peer);
}

void Server::make_room(const ContextId& newcomer) {
  if (clients_.serving_count() < kCrowded || clients_.listed(newcomer)) return;
  close_silent(kStrangersStay, kMadeRoom, newcomer);
}

// A client that the handler keeps something for comes before all others.
bool Server::open_serving(Serving& serving, const Hello& hello, bool known) {
  Fabric& fabric = *fabrics_[hello.info.listener_index];
  Port* const beside = ports_[hello.info.listener_index].get();
  Status s = serving.open(fabric, beside);
  if (s != Status::kOk && close_silent(known ? 0 : kStrangersStay, kMadeRoom, hello.info.id) > 0) {
    s = serving.open(fabric, beside);
  }
  if (s == Status::kOk) return true;
  trace(kFacMem, kWarn, "server: no serving endpoint: {}", status_name(s));
  return false;
}

void Server::on_client_frame(Serving& from, const Frame& f) {
  if (f.kind == FrameKind::kRequest) return on_request(from, f);
  if (f.kind == FrameKind::kAckedBelow) return on_acked_below(from, f);
  drop();
}

void Server::on_client_ack(const Serving& from, const Frame& f) {
  Reader in(f.payload);
  const ContextId client = read_context(in);
  if (f.kind != FrameKind::kAck || !in.ok() || client != from.client() ||
      !clients_.may_acknowledge(client, f.secret)) {
    return drop();
  }
  handler_.on_ack(client, f.number, in);
}

void Server::on_home_frame(const ContextId& home, const Frame& f) {
  Reader in(f.payload);
  const ContextId from = read_context(in);
  if (f.kind != FrameKind::kNotification || !in.ok() || from != home) return drop();
  on_notification(from, f, in);
}

bool Server::take_rings(const ring::Proof& proof, ring::Channel::Passed requests,
                        ring::Channel::Passed notifications) {
  auto first = ring::Channel::take(std::move(requests), &ring_sockets_);
  auto second = ring::Channel::take(std::move(notifications), &ring_sockets_);
  const bool taken = first && second && clients_.take_rings(proof, first.take(), second.take());
  trace(kFacMem, taken ? kInfo : kWarn, "server: rings of {:016x} are {}", proof.client.hi,
        taken ? "taken" : "not taken");
  return taken;
}

void Server::on_request(Serving& from, const Frame& f) {
  using Verdict = ReplyCache::Verdict;
  const auto admitted = clients_.admit(from, f);
  if (!admitted) return drop();
  const Verdict verdict = admitted->verdict;
  if (verdict == Verdict::kForgotten || verdict == Verdict::kTooMany) drop();
  if (admitted->newly_acked) {
    handler_.on_acked_below(admitted->client.id, admitted->acked_below, {});
  }
  if (verdict == Verdict::kExecute) {
    handler_.on_request(admitted->client, f.number, f.type, Reader(f.payload));
  }
}

void Server::on_acked_below(Serving& from, const Frame& f) {
  Reader in(f.payload);
  std::vector<uint64_t> behind(in.left() / sizeof(uint64_t));
  if (behind.size() > kMostAckedBelow) return drop();
  for (uint64_t& number : behind) number = in.get<uint64_t>();
  if (!in.done()) return drop();
  std::sort(behind.begin(), behind.end());
  const auto news = clients_.acknowledge(from, f, behind);
  if (!news) return drop();
  if (*news) handler_.on_acked_below(from.client(), f.acked_below, behind);
}

void Server::reply(const ContextId& client, uint64_t number, Bytes payload, TokensSent tokens) {
  fault_point("server_before_reply");
  const auto answered = clients_.reply(client, number, payload, tokens);
  if (answered.serving == nullptr) return;
  Port* const port = answered.serving->port();
  const bool by_listener = port->endpoint().shares_queue() && !answered.serving->asked_by_ring();
  order_.expect(by_listener ? ports_[answered.index].get() : port);
}

bool Server::notification(const ContextId& client, uint64_t number, uint16_t type, Bytes payload,
                          bool last, const DirectAck& direct_ack) {
  std::byte head[kNotificationHeader + kDirectAckHeader];
  Writer out(head);
  out.put(self_.hi);
  out.put(self_.lo);
  out.put<uint64_t>(0);  // the client's secret for acknowledgements: the table knows it
  if (direct_ack.number != 0) {
    out.put(direct_ack.token);
    out.blob(direct_ack.to);
  }
  const Frame frame{FrameKind::kNotification, type, 0, number, direct_ack.number, payload};
  const auto sent = clients_.notify(client, frame, std::span(head).first(out.done().size()), last);
  if (!sent) return false;
  // Where direct acknowledgements go elsewhere, the next message does not come to the listener.
  if (direct_ack.number == 0) {
    order_.expect(sent->by_ring != nullptr ? sent->by_ring : ports_[sent->index].get());
  }
  return true;
}

void Server::ack(const ContextId& home, uint64_t secret, uint64_t number, Bytes payload) {
  std::byte head[2 * sizeof(uint64_t)];
  Writer out(head);
  out.put(self_.hi);
  out.put(self_.lo);
  homes_.send(home, {FrameKind::kAck, 0, secret, number, 0, out.done(), payload});
}

bool Server::give(const ContextId& home, const DirectAck& direct_ack) {
  fault_point("direct_ack_before_send");
  if (fault_point_fails("direct_ack_lost")) return true;
  const auto index = homes_.listener_of(home);
  if (!index) return false;
  return direct_acks_.send(direct_ack.to, *index,
                           {FrameKind::kDirectAck, 0, direct_ack.token, direct_ack.number, 0, {}},
                           now_or_a_tick_ago());
}

void Server::sweep(Nanos silence) {
  for (auto& port : ports_) port->endpoint().end_strangers();
  for (size_t i = 0; const auto serving = clients_.serving_at(i); ++i) {
    serving->endpoint().end_strangers();
  }
  close_silent(silence, SIZE_MAX);
  direct_acks_.sweep(silence, now());
}

// The longest silent first. Returns how many.
size_t Server::close_silent(Nanos silence, size_t most, const ContextId& but) {
  size_t closed = 0;
  for (const ContextId& id : clients_.silent(silence, but)) {
    if (closed == most) break;
    if (!handler_.may_sweep(id)) continue;
    clients_.fence(id, false);
    ++closed;
    // What it asked for before the fence may have made the handler keep something for it.
    if (handler_.may_sweep(id)) clients_.erase_if_closed(id);
  }
  return closed;
}

ListenerAddress Server::client_listener(const ContextId& client) {
  auto at = clients_.listener_of(client);
  if (!at) return {};
  return {fabrics_[at->first]->traits().provider, std::move(at->second)};
}

}  // namespace cmi::fabric
