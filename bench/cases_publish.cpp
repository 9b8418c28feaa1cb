// One page on its way to the home and to whoever holds it, and compare-and-swap.
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

// Others import the segment; if `holding`, each has loaded the page before each barrier, and it is
// checked that it saw the last store by a miss.
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
  const Measured m = alternate(b, ours, pings(b, round_trips), count, 32);
  shared.check_home(1, static_cast<int>(Pattern::kWord), version);
  b.report.row({name, "us", spread_of(m.ours), spread_of(m.raw), against, m.discarded});
}

}  // namespace

void publish_1(Bench& b) {
  publish_row(b, "publish_1", 0, false, 1, b.scaled(6000, 1000), "a ping-pong of 64 B");
  publish_row(b, "publish_absent_1", 1, false, 1, b.scaled(2000, 300),
              "the same; one more importer, which has not loaded the page");
}

void publish_shared(Bench& b) {
  for (int others : {1, 2, 3}) {
    publish_row(b, "publish_shared_" + std::to_string(others), others, true, 2, b.scaled(1500, 200),
                "two ping-pongs");
  }
}

void wakeup(Bench& b) {
  Shared shared(b, 16, 1);
  shared.load_all();
  uint64_t version = 0;
  // It shares a CPU where there are few: it stops while raw is measured.
  Spinner spinner(b);
  Side ours{[&] {
    const uint64_t value = stamp(0, ++version);
    const double begun = now();
    word(shared.page(0), 1) = value;
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
  const Measured m = alternate(b, ours, raw, b.scaled(1500, 200), 32);
  b.report.row({"wakeup", "us", spread_of(m.ours), spread_of(m.raw),
                "two ping-pongs and a read of 4 KiB", m.discarded});
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
  const Measured m = alternate(b, ours, raw, b.scaled(6000, 1000), 64);
  const auto after = b.node.stats();
  must(after.cas_lost == before.cas_lost, "a swap was lost");
  shared.check_home(1, static_cast<int>(Pattern::kWord), value - stamp(0, 0));
  b.report.row({"cas", "us", spread_of(m.ours), spread_of(m.raw),
                atomics ? "fi_compare_atomic" : "a ping-pong of 64 B: the provider has no atomics",
                m.discarded});
}

}  // namespace bench
