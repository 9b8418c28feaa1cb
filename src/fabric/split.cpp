// See split.hpp. An operation that was cut up is done when all parts are over that the provider has
// taken, so that its buffer is free then; the first failure is its cause, and what was not posted
// by then never is.
#include "fabric/split.hpp"

#include <algorithm>
#include <deque>
#include <list>
#include <vector>

#include "core/base/lock.hpp"
#include "fabric/lock_order.hpp"

namespace cmi::fabric {

namespace {

class SplitEndpoint final : public Endpoint, private Receiver {
 public:
  SplitEndpoint(Receiver& receiver, size_t most) : receiver_(receiver), most_(most) {}
  ~SplitEndpoint() override { inner_.reset(); }  // before the parts that it may still touch
  Status open(Fabric& fabric, Endpoint* beside) {
    auto ep = fabric.open_endpoint(*this, beside);
    if (!ep) return ep.status();
    inner_ = ep.take();
    return Status::kOk;
  }

  Endpoint* inner() const { return inner_.get(); }
  Bytes address() const override { return inner_->address(); }
  Result<Peer> add_peer(Bytes address) override { return inner_->add_peer(address); }
  void remove_peer(Peer peer) override { inner_->remove_peer(peer); }
  Post cas(Op& op, Peer peer, uint64_t* result, const uint64_t* expected, const uint64_t* desired,
           RemoteKey at, uint64_t offset) override {
    return inner_->cas(op, peer, result, expected, desired, at, offset);
  }
  bool inject(Peer peer, const void* message, size_t len) override {
    return inner_->inject(peer, message, len);
  }
  Post send(Op& op, Peer peer, const void* message, size_t len) override {
    return inner_->send(op, peer, message, len);
  }
  Post read(Op& op, Peer peer, void* to, size_t len, RemoteKey from, uint64_t offset) override {
    if (len <= most_) return inner_->read(op, peer, to, len, from, offset);
    return cut(op, {peer, static_cast<std::byte*>(to), len, from, offset, false});
  }
  Post write(Op& op, Peer peer, const void* from, size_t len, RemoteKey to,
             uint64_t offset) override {
    if (len <= most_) return inner_->write(op, peer, from, len, to, offset);
    auto* bytes = static_cast<std::byte*>(const_cast<void*>(from));
    return cut(op, {peer, bytes, len, to, offset, true});
  }
  int poll() override {
    advance();
    int events = inner_->poll();
    if (events > 0) advance();
    events += complete_stopped();
    if (events > 0) wake_sleeper();
    return events;
  }
  bool shares_queue() const override { return inner_->shares_queue(); }
  int wait_fd() const override { return inner_->wait_fd(); }
  bool may_sleep() override {
    return unposted_.load() == 0 && stopped_count_.load() == 0 && inner_->may_sleep();
  }
  bool broken() const override { return inner_->broken(); }
  bool faulty() const override { return inner_->faulty(); }

 private:
  struct Whole;
  struct Part {
    Part(Whole& w, size_t from) : op(&Part::over, this), whole(w), at(from) {}
    static void over(Op& op) {
      auto* part = static_cast<Part*>(op.user);
      part->whole.endpoint->ended(part->whole, op.cause());
    }
    Op op;
    Whole& whole;
    const size_t at;
  };
  struct What {
    Peer peer;
    std::byte* local;
    size_t len;
    RemoteKey key;
    uint64_t offset;
    bool write;
  };
  struct Whole {
    SplitEndpoint* endpoint;
    Op& op;
    const What what;
    std::list<Whole>::iterator self;
    std::deque<Part> parts;  // posted, or being posted
    size_t next = 0;         // first byte that is not posted
    size_t flying = 0;
    Cause cause = Cause::kOk;
  };

  void on_message(Endpoint&, Bytes message) override { receiver_.on_message(*this, message); }

  Post cut(Op& op, const What& what) {
    op.begin();
    {
      Guard g(mu_);
      wholes_.push_back({this, op, what, {}, {}, 0, 0, Cause::kOk});
      wholes_.back().self = std::prev(wholes_.end());
      unposted_.fetch_add(1);
    }
    advance();
    if (stopped_count_.load() != 0) wake_sleeper();
    return Post::kPosted;
  }

  Post post(Part& part, size_t len) {
    const What& w = part.whole.what;
    return w.write
               ? inner_->write(part.op, w.peer, w.local + part.at, len, w.key, w.offset + part.at)
               : inner_->read(part.op, w.peer, w.local + part.at, len, w.key, w.offset + part.at);
  }

  // Posts what the provider has room for. Posting calls no completion: its caller may hold
  // locks that the completion takes. All completions come from poll(), those of what ends here,
  // too.
  void advance() {
    if (unposted_.load() == 0) return;
    Guard g(mu_);
    for (auto it = wholes_.begin(); it != wholes_.end();) {
      Whole& w = *it++;
      while (w.next < w.what.len) {
        const size_t len = std::min(most_, w.what.len - w.next);
        Part& part = w.parts.emplace_back(w, w.next);
        const Post p = post(part, len);
        if (p != Post::kPosted) w.parts.pop_back();
        if (p == Post::kAgain) break;
        if (p == Post::kFailed) {
          stop(w, Cause::kPeerLost);
          break;
        }
        w.next += len;
        ++w.flying;
        if (w.next == w.what.len) unposted_.fetch_sub(1);
      }
      if (!finished(w)) continue;
      stopped_.push_back(finish(w));
      stopped_count_.fetch_add(1);
    }
  }
  int complete_stopped() {
    if (stopped_count_.load() == 0) return 0;
    std::vector<std::pair<Op*, Cause>> over;
    {
      Guard g(mu_);
      over.swap(stopped_);
      stopped_count_.store(0);
    }
    for (auto [op, cause] : over) op->complete(cause);
    return static_cast<int>(over.size());
  }

  void stop(Whole& w, Cause cause) CMI_REQUIRES(mu_) {
    if (w.cause == Cause::kOk) w.cause = cause;
    if (w.next < w.what.len) unposted_.fetch_sub(1);
    w.next = w.what.len;
  }
  static bool finished(const Whole& w) { return w.next == w.what.len && w.flying == 0; }
  // The caller completes the operation, without the lock.
  std::pair<Op*, Cause> finish(Whole& w) CMI_REQUIRES(mu_) {
    const std::pair<Op*, Cause> over{&w.op, w.cause};
    wholes_.erase(w.self);
    return over;
  }

  void ended(Whole& w, Cause cause) {
    std::pair<Op*, Cause> over{};
    {
      Guard g(mu_);
      --w.flying;
      if (cause != Cause::kOk) stop(w, cause);
      if (finished(w)) over = finish(w);
    }
    if (over.first != nullptr) over.first->complete(over.second);
  }

  Receiver& receiver_;
  const size_t most_;
  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_ports)
      CMI_ACQUIRED_BEFORE(lock_order::after_queues);  // over posting, never over a poll
  std::list<Whole> wholes_ CMI_GUARDED_BY(mu_);
  std::atomic<int> unposted_{0};  // wholes of which something is not posted yet
  // Ended while they were being posted; completed by the next poll.
  std::vector<std::pair<Op*, Cause>> stopped_ CMI_GUARDED_BY(mu_);
  std::atomic<int> stopped_count_{0};
  std::unique_ptr<Endpoint> inner_;
};

class SplitFabric final : public Fabric {
 public:
  explicit SplitFabric(std::unique_ptr<Fabric> inner)
      : inner_(std::move(inner)), traits_(inner_->traits()) {
    traits_.max_rma = kWholeRma;
  }
  const Traits& traits() const override { return traits_; }
  Result<std::unique_ptr<Endpoint>> open_endpoint(Receiver& receiver, Endpoint* beside) override {
    auto ep = std::make_unique<SplitEndpoint>(receiver, inner_->traits().max_rma);
    if (Status s = ep->open(*inner_, inner_of(beside)); !ok(s)) return s;
    return std::unique_ptr<Endpoint>(std::move(ep));
  }
  Result<std::unique_ptr<Region>> register_memory(void* addr, size_t len, uint32_t rights,
                                                  uint64_t wanted_key, Endpoint* through) override {
    return inner_->register_memory(addr, len, rights, wanted_key, inner_of(through));
  }
  Result<RemoteKey> map_key(RemoteKey told, Bytes raw) override {
    return inner_->map_key(told, raw);
  }

 private:
  static Endpoint* inner_of(Endpoint* ep) {
    return ep == nullptr ? nullptr : static_cast<SplitEndpoint*>(ep)->inner();
  }

  const std::unique_ptr<Fabric> inner_;
  Traits traits_;
};

}  // namespace

std::unique_ptr<Fabric> with_whole_operations(std::unique_ptr<Fabric> fabric) {
  if (fabric->traits().max_rma >= kWholeRma) return fabric;
  return std::make_unique<SplitFabric>(std::move(fabric));
}

}  // namespace cmi::fabric
