// What goes to and fro between a Server and its clients: requests, replies, notifications,
// acknowledgements. Each is checked against the session that is served, and posted, under mu_.
#include <algorithm>
#include <cstring>

#include "fabric/client_table.hpp"

namespace cmi::fabric {

ClientTable::Client* ClientTable::present(const Serving& from, uint64_t secret) {
  auto it = clients_.find(from.client());
  if (it == clients_.end()) return nullptr;
  Client& c = it->second;
  return c.serving.get() == &from && c.secret == secret && !c.fenced ? &c : nullptr;
}

std::optional<AdmittedRequest> ClientTable::admit(Serving& from, const Frame& request) {
  AdmittedRequest admitted;
  Guard g(mu_);
  Client* const c = present(from, request.secret);
  if (c == nullptr || request.number == 0) return std::nullopt;
  c->heard = now();
  admitted.client = c->info;
  admitted.acked_below = std::min(request.acked_below, request.number);
  admitted.newly_acked = c->requests.acknowledge(admitted.acked_below);
  admitted.verdict = c->requests.admit(request.number);
  if (admitted.verdict == ReplyCache::Verdict::kExecute) {
    intake_.took(c->intake, c->heard);
    has_taken_.store(true, std::memory_order_relaxed);
  }
  count_open(*c);
  const uint64_t credit = intake_.credit(c->heard);
  if (admitted.verdict == ReplyCache::Verdict::kUnderWay) {
    // A sign of life: no request has number 0.
    from.send({FrameKind::kReply, 0, c->secret, 0, credit, {}});
  } else if (admitted.verdict == ReplyCache::Verdict::kAnswered) {
    from.send({FrameKind::kReply, 0, c->secret, request.number, credit,
               c->requests.answer(request.number)});
  }
  return admitted;
}

std::optional<bool> ClientTable::acknowledge(const Serving& from, const Frame& f,
                                             std::span<const uint64_t> behind) {
  Guard g(mu_);
  Client* const c = present(from, f.secret);
  if (c == nullptr) return std::nullopt;
  c->heard = now();
  // Nobody waits for their answers, and they must not be executed again.
  for (uint64_t number : behind) {
    if (c->requests.finish(number)) c->requests.keep(number, {});
  }
  const bool news = c->requests.acknowledge(f.acked_below) || !behind.empty();
  count_open(*c);
  return news;
}

ClientTable::Answered ClientTable::reply(const ContextId& client, uint64_t number, Bytes payload,
                                         TokensSent tokens) {
  Guard g(mu_);
  auto it = clients_.find(client);
  if (it == clients_.end() || !it->second.requests.finish(number)) return {};
  Client& c = it->second;
  count_open(c);
  // Sent first, then kept: the client waits.
  if (c.serving != nullptr) {
    c.serving->send({FrameKind::kReply, static_cast<uint16_t>(tokens), c.secret, number,
                     intake_.credit(now_or_a_tick_ago()), payload});
  }
  c.requests.keep(number, payload);
  return {c.serving, c.info.listener_index};
}

// A first sign of life by the ring tells the client that it has been taken.
bool ClientTable::take_rings(const ring::Proof& proof, std::unique_ptr<ring::Channel> requests,
                             std::unique_ptr<ring::Channel> notifications) {
  Guard g(mu_);
  auto it = clients_.find(proof.client);
  if (it == clients_.end()) return false;
  Client& c = it->second;
  if (c.fenced || c.serving == nullptr || c.serving->has_rings() || c.secret != proof.secret) {
    return false;
  }
  c.serving->take_rings(std::move(requests), std::move(notifications));
  c.serving->send({FrameKind::kReply, 0, c.secret, 0, intake_.credit(now()), {}});
  return true;
}

std::optional<ClientTable::Notified> ClientTable::notify(const ContextId& client, Frame frame,
                                                         std::span<std::byte> head, bool last) {
  Guard g(mu_);
  auto it = clients_.find(client);
  if (it == clients_.end() || it->second.fenced) return std::nullopt;
  const Client& c = it->second;
  std::memcpy(head.data() + kAckSecretAt, &c.ack_secret, sizeof c.ack_secret);
  frame.secret = c.notification_secret;
  frame.more = frame.payload;
  frame.payload = head;
  // The last one has to have gone when the rings are closed, which a port sees to.
  if (!last && c.serving != nullptr && c.serving->notify(frame)) {
    return Notified{c.info.listener_index, c.serving->port()};
  }
  ports_.send(c.info.listener_index, c.at_listener, frame, last);
  return Notified{c.info.listener_index};
}

bool ClientTable::may_acknowledge(const ContextId& client, uint64_t secret) {
  Guard g(mu_);
  auto it = clients_.find(client);
  return it != clients_.end() && !it->second.fenced && it->second.ack_secret == secret;
}

Bytes ClientTable::initiator_of(const ContextId& client, std::span<const ContextId> senders,
                                std::span<std::byte> to) {
  Guard g(mu_);
  auto it = clients_.find(client);
  if (it == clients_.end() || it->second.serving == nullptr) return {};
  const Client& c = it->second;
  for (const ContextId& sender : senders) {
    auto other = clients_.find(sender);
    if (other == clients_.end() || other->second.fenced ||
        other->second.info.listener_index != c.info.listener_index) {
      return {};
    }
  }
  if (c.initiator.size() > to.size()) return {};
  std::copy(c.initiator.begin(), c.initiator.end(), to.begin());
  return to.first(c.initiator.size());
}

}  // namespace cmi::fabric
