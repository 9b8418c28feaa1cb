// One page on its way to the home and to whoever holds it, and compare-and-swap.
#include <future>
#include <optional>
#include <thread>

#include "cases.hpp"
#include "pattern.hpp"

namespace bench {

namespace {

// A store to page 0 and the barrier that publishes it, of which the time is returned.
double publish(Bench& b, const Shared& shared, uint64_t version) {
  word(shared.page(0), 1) = stamp(0, version);
  const uint64_t before = b.node.stats().pages_written_back;
  const double begun = now();
  barrier();
  const double took = now() - begun;
  return b.node.stats().pages_written_back == before + 1 ? took / kMicro : -1;
}

Side pings(Bench& b, int times) {
  return {[&b, times] {
    const double begun = now();
    for (int i = 0; i < times; ++i) b.raw.endpoint.ping(b.raw.polling_peer);
    return (now() - begun) / kMicro;
  }};
}

// Another thread of the process, which does nothing; with access to imported segments, or without.
class Sleeper {
 public:
  Sleeper(Node& node, bool access)
      : thread_([&, access] {
          std::optional<OtherThread> self;
          if (access) self.emplace(node);
          begun_.set_value();
          over_.get_future().wait();
        }) {
    begun_.get_future().wait();
  }
  ~Sleeper() {
    over_.set_value();
    thread_.join();
  }

 private:
  std::promise<void> begun_, over_;
  std::thread thread_;
};

// What a barrier over one page has to do beside messages, around and beside the least of those.
// Nobody else stores, so that the page may be protected while they travel.
template <class Messages>
void publish_bare(Trap& trap, Messages messages) {
  const Masked masked;
  must(trap.compare(0) == 1, "a bare page is not its twin and one store");
  messages([&trap] { trap.protect(0); });
}

// The floor of a row whose messages a relay plays, and the floor of these messages alone.
std::vector<FloorSide> relayed(Trap& trap, Relay& relay, std::function<double()> row,
                               std::function<double()> messages) {
  const auto begin = [&trap, &relay] {
    trap.install();
    relay.begin();
  };
  const auto end = [&trap, &relay] {
    relay.end();
    trap.restore();
  };
  return {{{std::move(row), begin, end}, RawMode::kRelay},
          {{std::move(messages), begin, end}, RawMode::kRelay}};
}

// Others import the segment; if `holding`, each has loaded the page before each barrier, and it is
// checked that it saw the last store, by a miss or by one update.
void publish_row(Bench& b, const std::string& name, int others, bool holding, int round_trips,
                 size_t count, const std::string& against) {
  Shared shared(b, 16, others);
  shared.load_all();
  uint64_t version = 0, misses[kRoles] = {};
  Side ours{[&] {
    for (int i = 0; i < others && holding; ++i) {
      const Answer a = call(b.control, kOther1 + i, Command::kLoad, 0);
      if (version > 0) {
        must(a.first == stamp(0, version), "an importer loaded a stale value");
        must(a.second == misses[i] + 1, "an importer held no copy, or lost it too early");
      }
      misses[i] = a.second;
    }
    return publish(b, shared, ++version);
  }};
  // Beside the floor of the row that of its messages alone.
  std::vector<FloorSide> floors;
  const auto trap = make_trap(1);
  std::optional<Relay> relay;
  uint64_t bare = 0;
  const auto publish_to = [&](const auto& messages) {
    word(trap->page(0), 1) = ++bare;
    const double begun = now();
    publish_bare(*trap, messages);
    return (now() - begun) / kMicro;
  };
  if (trap != nullptr && others == 0) {
    floors.push_back(trapped(*trap, [&] {
      return publish_to([&](auto protect) { b.raw.endpoint.ping(b.raw.polling_peer, protect); });
    }));
  } else if (trap != nullptr && holding) {
    relay.emplace(b.control, b.raw, others);
    const auto told = [&] {
      return publish_to([&](auto protect) { relay->once(NotifyOf::kStore, protect); });
    };
    const auto only_told = [&] {
      const double begun = now();
      relay->once(NotifyOf::kNothing);
      return (now() - begun) / kMicro;
    };
    floors = relayed(*trap, *relay, told, only_told);
  }
  const Measured m = alternate(b, ours, pings(b, round_trips), count, 32, RawMode::kPoll, floors);
  shared.check_home(1, static_cast<int>(Pattern::kWord), version);
  b.report.row(
      {name, "us", spread_of(m.ours), spread_of(m.raw), against, m.discarded, floor_of(m)});
  if (relay) {
    b.report.row({"floor_relay_" + std::to_string(others), "us", spread_of(m.floors[1]),
                  spread_of(m.raw), "two ping-pongs; what is measured: raw messages by the home",
                  0});
  }
}

}  // namespace

void publish_1(Bench& b) {
  publish_row(b, "publish_1", 0, false, 1, b.scaled(6000, 1000), "a ping-pong of 64 B");
  publish_row(b, "publish_absent_1", 1, false, 1, b.scaled(2000, 300),
              "the same; one more importer, which has not loaded the page");
  {
    const Sleeper beside(b.node, false);
    publish_row(b, "publish_beside_1", 0, false, 1, b.scaled(2000, 300),
                "the same; another thread of the process sleeps");
  }
  // Where another thread may store as well, the page is protected before its changes leave.
  const Sleeper among(b.node, true);
  publish_row(b, "publish_among_1", 0, false, 1, b.scaled(2000, 300),
              "the same; another thread, with access, sleeps");
}

void publish_shared(Bench& b) {
  for (int others : {1, 2, 3}) {
    publish_row(b, "publish_shared_" + std::to_string(others), others, true, 2, b.scaled(1500, 200),
                "two ping-pongs");
  }
}

namespace {

// Until a thread that spins on the word at another node sees it: since the barrier, as the row is
// defined, or since the store before it, whose trap and mark come on top.
void wakeup_row(Bench& b, const std::string& name, bool since_store) {
  Shared shared(b, 16, 1);
  shared.load_all();
  uint64_t version = 0;
  // It shares a CPU where there are few: it stops while raw is measured.
  Spinner spinner(b);
  Side ours{[&] {
    const uint64_t value = stamp(0, ++version);
    double begun = now();
    word(shared.page(0), 1) = value;
    if (!since_store) begun = now();
    barrier();
    spinner.await_value(value);
    return (b.control.seen_at.load() - begun) / kMicro;
  }};
  Side raw{[&] {
    const double begun = now();
    b.raw.endpoint.ping(b.raw.polling_peer);
    b.raw.endpoint.ping(b.raw.polling_peer);
    b.raw.endpoint.read(b.raw.polling_peer, b.raw.polling, b.raw.buffer, kPage, 0);
    return (now() - begun) / kMicro;
  }};
  ours.begin = [&] {
    spinner.start();
    spinner.await_value(version == 0 ? 0 : stamp(0, version));
  };
  ours.end = [&] { spinner.stop(); };
  std::vector<FloorSide> floors;
  const auto trap = make_trap(1);
  std::optional<Relay> spinning;
  uint64_t bare = 0;
  if (trap != nullptr) {
    spinning.emplace(b.control, b.raw, 1, true);
    const auto woken = [&] {
      double begun = now();
      word(trap->page(0), 1) = ++bare;
      if (!since_store) begun = now();
      publish_bare(*trap, [&](auto protect) { spinning->once(NotifyOf::kWake, protect); });
      spinning->await_seen();
      return (b.control.seen_at.load() - begun) / kMicro;
    };
    const auto only_told = [&] {
      const double begun = now();
      spinning->once(NotifyOf::kWake);
      spinning->await_seen();
      return (b.control.seen_at.load() - begun) / kMicro;
    };
    floors = relayed(*trap, *spinning, woken, only_told);
  }
  const Measured m = alternate(b, ours, raw, b.scaled(1500, 200), 32, RawMode::kPoll, floors);
  b.report.row({name, "us", spread_of(m.ours), spread_of(m.raw),
                since_store ? "the same; since the store, not since its barrier"
                            : "two ping-pongs and a read of 4 KiB",
                m.discarded, floor_of(m)});
  if (spinning && !since_store) {
    b.report.row({"floor_wakeup", "us", spread_of(m.floors[1]), spread_of(m.raw),
                  "the same; what is measured: raw messages by the home, and a word", 0});
  }
}

}  // namespace

void wakeup(Bench& b) {
  wakeup_row(b, "wakeup", false);
  wakeup_row(b, "wakeup_store", true);
}

void cas(Bench& b) {
  constexpr uint64_t kRawWord = 16;  // 0 at first, and nobody else's
  Shared shared(b, 16);
  shared.load_all();
  const bool atomics = b.raw.endpoint.has_cas();
  auto* at = reinterpret_cast<uint64_t*>(shared.page(0)) + 1;
  uint64_t value = 0, raw_value = 0;
  const auto before = b.node.stats();
  Side ours{[&] {
    uint64_t found = 0;
    const uint64_t next = stamp(0, value == 0 ? 1 : value - stamp(0, 0) + 1);
    const double begun = now();
    const int rc = CMIFN(b.node.ctxt(), 10, atm_cas)(b.node.ctxt(), at, value, next, &found);
    const double took = now() - begun;
    must(rc == 0 && found == value, "a swap found another value than was stored last");
    value = next;
    return took / kMicro;
  }};
  Side raw = pings(b, 1);
  if (atomics) {
    raw.once = [&] {
      const double begun = now();
      const uint64_t found =
          b.raw.endpoint.cas(b.raw.polling_peer, b.raw.polling, kRawWord, raw_value, raw_value + 1);
      const double took = now() - begun;
      must(found == raw_value++, "a raw swap found another value than was stored last");
      return took / kMicro;
    };
  }
  const Side masked{[&] {
    const double begun = now();
    {
      const Masked signals;
      raw.once();
    }
    return (now() - begun) / kMicro;
  }};
  const Measured m = alternate(b, ours, raw, b.scaled(6000, 1000), 64, RawMode::kPoll, {{masked}});
  const auto after = b.node.stats();
  must(after.cas_lost == before.cas_lost, "a swap was lost");
  shared.check_home(1, static_cast<int>(Pattern::kWord), value - stamp(0, 0));
  b.report.row({"cas", "us", spread_of(m.ours), spread_of(m.raw),
                atomics ? "fi_compare_atomic" : "a ping-pong of 64 B: the provider has no atomics",
                m.discarded, floor_of(m)});
}

}  // namespace bench
