// Send buffers: posting, retrying in order per peer, and giving them back.
#include "fabric/port.hpp"

#include <algorithm>

#include "core/base/fault_point.hpp"

namespace cmi::fabric {

Result<std::unique_ptr<Port>> Port::open(Fabric& fabric, Receiver& receiver, Port* beside) {
  std::unique_ptr<Port> port(new Port);
  auto ep = fabric.open_endpoint(receiver, beside == nullptr ? nullptr : &beside->endpoint());
  if (!ep) return ep.status();
  port->endpoint_ = ep.take();
  return port;
}

Port::~Port() { endpoint_.reset(); }

Result<Peer> Port::add(Bytes address) {
  Guard g(mu_);
  for (auto& [peer, k] : known_) {
    if (!std::equal(k.address.begin(), k.address.end(), address.begin(), address.end())) continue;
    ++k.uses;
    return peer;
  }
  auto peer = endpoint_->add_peer(address);
  if (!peer) return peer;
  Known& k = known_[*peer];
  k.address.assign(address.begin(), address.end());
  ++k.uses;
  return peer;
}

void Port::remove(Peer peer) {
  Guard g(mu_);
  auto it = known_.find(peer);
  if (it == known_.end() || it->second.uses == 0 || --it->second.uses > 0) return;
  drop_locked(peer);
  forget_unused(peer);
}

void Port::forget_unused(Peer peer) {
  auto it = known_.find(peer);
  if (it == known_.end() || it->second.uses > 0 || it->second.under_way > 0) return;
  known_.erase(it);
  // Null: it is being closed, with all that it knows.
  if (endpoint_ != nullptr) endpoint_->remove_peer(peer);
}

// A send buffer to it is with the provider no more.
void Port::ended(Peer peer) {
  auto it = known_.find(peer);
  if (it != known_.end() && --it->second.under_way == 0) forget_unused(peer);
}

void Port::SendBuffer::sent(Op& op) {
  // Two listeners that make first contact at the same time reject one of the two connections, and
  // what was posted on it fails: tried again, a few times. Arriving twice does no harm to any of
  // our messages; what is lost without an error is repeated by its sender, by number.
  auto* buffer = static_cast<SendBuffer*>(op.user);
  const bool reached = op.cause() == Cause::kOk;
  if (reached || --buffer->attempts <= 0) {
    buffer->port.release_buffer(buffer, reached);
  } else {
    buffer->port.wait(buffer);
  }
}

Port::SendBuffer* Port::take_buffer() {
  if (free_.empty()) {
    all_.push_back(std::make_unique<SendBuffer>(*this));
    return all_.back().get();
  }
  SendBuffer* l = free_.back();
  free_.pop_back();
  return l;
}

void Port::put_buffer(SendBuffer* buffer) {
  if (auto it = known_.find(buffer->peer); it != known_.end()) {
    --it->second.buffers;
    it->second.bytes -= buffer->size;
  }
  if (free_.size() >= kSpare) buffer->bytes = {};
  free_.push_back(buffer);
}

void Port::queue(SendBuffer* buffer) {
  buffer->expires = now() + buffer->life;
  waiting_.push_back(buffer);
  ++known_[buffer->peer].waiting;
  waiting_count_.store(static_cast<int>(waiting_.size()), std::memory_order_relaxed);
}

void Port::release_buffer(SendBuffer* buffer, bool reached) {
  Guard g(mu_);
  put_buffer(buffer);
  if (auto it = known_.find(buffer->peer); reached && it != known_.end()) {
    it->second.reached = true;
    it->second.gone = std::max(it->second.gone, buffer->behind);
  }
  ended(buffer->peer);
}

void Port::wait(SendBuffer* buffer) {
  Guard g(mu_);
  if (auto it = known_.find(buffer->peer); it == known_.end() || it->second.uses == 0) {
    put_buffer(buffer);
  } else {
    queue(buffer);
  }
  ended(buffer->peer);
}

Post Port::try_post(SendBuffer& buffer) {
  return endpoint_->send(buffer.op, buffer.peer, buffer.bytes.data(), buffer.size);
}

bool Port::send(Peer peer, const Frame& frame, bool last) {
  fault_point("port_before_send");
  SendBuffer* buffer;
  bool must_wait, reached;
  {
    Guard g(mu_);
    auto known = known_.find(peer);
    if (known == known_.end() || known->second.uses == 0) return false;
    Known& k = known->second;
    reached = k.reached && k.waiting == 0;
    const size_t size = frame_size(frame);
    if (backlog_limited_ && !last && reached && size <= kShort &&
        k.injected - k.gone < kMostInjected) {
      std::byte little[kShort];
      Writer out(little);
      encode_frame(frame, out);
      if (endpoint_->inject(peer, little, size)) {
        ++k.injected;
        return true;
      }
    }
    if (backlog_limited_ && (k.buffers >= kMostBuffers || k.bytes + size > kMostBytes)) {
      return false;
    }
    buffer = take_buffer();
    ++k.buffers;
    k.bytes += size;
    buffer->peer = peer;
    buffer->attempts = kAttempts;
    buffer->life = frame.kind == FrameKind::kDirectAck ? kDirectAckLife : kSendLife;
    buffer->size = size;
    if (buffer->bytes.size() < size) buffer->bytes.resize(size);
    Writer out(buffer->bytes);
    encode_frame(frame, out);
    must_wait = k.waiting > 0;  // in order
    if (must_wait) {
      queue(buffer);
    } else {
      ++k.under_way;
      buffer->behind = k.injected;
    }
  }
  if (must_wait) return false;
  switch (try_post(*buffer)) {
    case Post::kPosted:
      break;
    case Post::kFailed:
      release_buffer(buffer);
      return false;
    case Post::kAgain:
      wait(buffer);
      return false;
  }
  return reached;
}

int Port::pump() {
  if (idle()) return 0;
  int accepted = 0;
  const Nanos t = now();
  Guard g(mu_);
  std::vector<Peer> stuck;
  std::deque<SendBuffer*> keep;
  for (SendBuffer* l : waiting_) {
    Known& k = known_[l->peer];  // there while a send buffer to it waits
    if (l->expires < t) {
      --k.waiting;
      put_buffer(l);
      continue;
    }
    if (std::find(stuck.begin(), stuck.end(), l->peer) == stuck.end()) {
      l->behind = k.injected;
      Post p = try_post(*l);  // posting does not call back into us: completions come from poll()
      if (p != Post::kAgain) --k.waiting;
      if (p == Post::kPosted) {
        ++k.under_way;
        ++accepted;
        continue;
      }
      if (p == Post::kFailed) {
        put_buffer(l);
        continue;
      }
      stuck.push_back(l->peer);
    }
    keep.push_back(l);
  }
  waiting_.swap(keep);
  waiting_count_.store(static_cast<int>(waiting_.size()), std::memory_order_relaxed);
  return accepted;
}

void Port::drop_locked(Peer peer) {
  std::deque<SendBuffer*> keep;
  for (SendBuffer* l : waiting_) {
    if (l->peer == peer) {
      --known_[peer].waiting;
      put_buffer(l);
    } else {
      keep.push_back(l);
    }
  }
  waiting_.swap(keep);
  waiting_count_.store(static_cast<int>(waiting_.size()), std::memory_order_relaxed);
}

}  // namespace cmi::fabric
