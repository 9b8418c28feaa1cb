// The three sides of the relay.
#include "relay.hpp"

#include <sched.h>

#include <thread>

#include "node.hpp"

namespace bench {

namespace {
constexpr double kWithin = 20 * kSecond;  // first contact included

struct Message {
  uint64_t number;
  uint32_t sharers;  // 0: from one
  NotifyOf what;
  std::byte rest[kPingSize - 16];
};
static_assert(sizeof(Message) == kPingSize);

void send(RawEndpoint& endpoint, fi_addr_t to, const Message& m) {
  endpoint.send(to, reinterpret_cast<const std::byte*>(&m));
}
bool receive(RawEndpoint& endpoint, Message* m) {
  return endpoint.receive(reinterpret_cast<std::byte*>(m));
}
}  // namespace

void RelayHome::step() {
  Message m;
  if (!receive(endpoint_, &m)) {
    sched_yield();
    return;
  }
  must(m.sharers <= kOthers, "a relay to more sharers than there are");
  for (uint32_t i = 0; i < m.sharers; ++i) {
    if (!sharers_[i]) sharers_[i] = endpoint_.add_peer(control_.relay_address[i]);
    send(endpoint_, *sharers_[i], m);
  }
}

RelaySharer::RelaySharer(Control& control, int role, const std::string& provider)
    : control_(control), endpoint_(provider, nullptr, 0, false) {
  RawTarget self;
  endpoint_.describe(&self);
  control.relay_address[role - kOther1] = self.address;
  publisher_ = endpoint_.add_peer(control.peer_address);
  endpoint_.set_yields(true);
}

void RelaySharer::on_notified(NotifyOf what, uint64_t number) {
  if (what != NotifyOf::kNothing) word_.store(number, std::memory_order_release);
}

// As the library's row has it: the value is looked at again and again, by an ordinary load.
void RelaySharer::spin() {
  for (uint64_t last = word_.load(); !stop_spinning_.load(std::memory_order_relaxed);) {
    const uint64_t value = word_.load(std::memory_order_acquire);
    if (value != last) {
      last = value;
      control_.seen_at.store(now(), std::memory_order_relaxed);
      control_.seen_value.store(value, std::memory_order_release);
    }
    sched_yield();
  }
}

void RelaySharer::serve(bool spinning) {
  struct Spinning {
    std::atomic<bool>& stop;
    std::thread thread;
    ~Spinning() {
      stop.store(true);
      if (thread.joinable()) thread.join();
    }
  } spinner{stop_spinning_, {}};
  stop_spinning_.store(false);
  if (spinning) spinner.thread = std::thread([this] { spin(); });
  control_.relays_ready.fetch_add(1);
  while (control_.stop_relay.load(std::memory_order_relaxed) == 0) {
    Message m;
    if (!receive(endpoint_, &m)) {
      sched_yield();
      continue;
    }
    on_notified(m.what, m.number);
    m.sharers = 0;
    send(endpoint_, publisher_, m);
  }
}

Relay::Relay(Control& control, const Raw& raw, int sharers, bool spinning)
    : control_(control),
      raw_(raw),
      sharers_(sharers),
      spinning_(spinning),
      number_(static_cast<uint64_t>(now())) {
  for (int i = 0; i < sharers; ++i) call(control, kOther1 + i, Command::kOpenRelay);
}

Relay::~Relay() {
  try {
    end();
  } catch (const Failure&) {  // the next command to that process finds out
  }
}

void Relay::begin() {
  control_.stop_relay.store(0);
  control_.relays_ready.store(0);
  for (int i = 0; i < sharers_; ++i) ask(control_, kOther1 + i, Command::kRelay, spinning_ ? 1 : 0);
  serving_ = true;
  const double give_up = now() + kWithin;
  while (control_.relays_ready.load() < static_cast<uint32_t>(sharers_)) {
    must(now() < give_up, "a sharer does not begin to serve");
    sched_yield();
  }
}

void Relay::end() {
  if (!serving_) return;
  serving_ = false;
  control_.stop_relay.store(1);
  for (int i = 0; i < sharers_; ++i) await(control_, kOther1 + i);
}

void Relay::once(NotifyOf what, const std::function<void()>& meanwhile) {
  Message m{++number_, static_cast<uint32_t>(sharers_), what, {}};
  send(raw_.endpoint, raw_.polling_peer, m);
  if (meanwhile) meanwhile();
  const double give_up = now() + kWithin;
  for (int missing = sharers_; missing > 0; --missing) {
    for (unsigned idle = 0; !receive(raw_.endpoint, &m);) {
      sched_yield();
      if (++idle % 4096 == 0) must(now() < give_up, "a relayed message is not answered");
    }
    must(m.number == number_, "the answer to another relayed message arrived");
  }
}

void Relay::await_seen() const {
  const double give_up = now() + kWithin;
  while (control_.seen_value.load(std::memory_order_acquire) != number_) {
    must(now() < give_up, "the spinning thread does not see what it was told");
    sched_yield();
  }
}

}  // namespace bench
