// CPU time that a home and its importer take while their clients do nothing.
#include "cases.hpp"
#include "pattern.hpp"

namespace bench {

namespace {

constexpr double kSpan = 2 * kSecond;
// Threads of the library that had work spin, and marks of what was stored are kept, for less.
constexpr double kSettle = kSecond;

// ms of CPU in a second of time, of the home's process, of its raw thread and of this process.
struct Taken {
  double home, raw, importer;
};

Taken taken_while_idle(Control& control) {
  const Answer before = call(control, kHome, Command::kCpuTime);
  const double own = cpu_time(), begun = now();
  sleep_for(kSpan);
  const double own_taken = cpu_time() - own;
  const Answer after = call(control, kHome, Command::kCpuTime);
  const auto rate = [span = now() - begun](double nanos) { return nanos / span * 1e3; };
  return {rate(static_cast<double>(after.first - before.first)),
          rate(static_cast<double>(after.second - before.second)), rate(own_taken)};
}

// What an idle importer has of the segment of a home costs that home while both are idle.
void home_idle_row(Bench& b) {
  constexpr size_t kStride = 64;  // one page in so many is held
  const size_t size = b.scaled(8, 1), pages = (size << 30) / kPage / kStride;
  const Shared shared(b, pages, 0, CMI_SEG_NORESERVE, kStride);
  // What is not there after a while costs the home nothing yet: its CPU time is then the least.
  constexpr double kLongest = 30 * kSecond;
  size_t held = 0;
  for (const double enough = now() + kLongest; held < pages && now() < enough; ++held) {
    touch(shared.page(held));
  }
  const uint64_t misses = b.node.stats().load_misses;
  std::vector<double> home;
  sleep_for(kSettle);
  for (size_t i = 0; i < b.scaled(3, 1); ++i) home.push_back(taken_while_idle(b.control).home);
  for (size_t p = 0; p < held; ++p) {
    must(word(shared.page(p), 0) == stamp(p, shared.version()), "a page is not what was stored");
  }
  must(b.node.stats().load_misses == misses, "what was cached did not stay cached");
  b.report.row(
      {"home_idle_8G",
       "ms/s",
       spread_of(home),
       {},
       "an idle importer has one page in 64 of " + std::to_string(size) + " GiB" +
           (held < pages ? ", but no more than " + std::to_string(held) + " after 30 s of loading"
                         : ""),
       0});
}

// The raw side is the one thread that an idle target needs: it waits in fi_cq_sread. An idle
// initiator needs none.
void idle_rows(Bench& b) {
  constexpr size_t kPages = 256;
  const Shared shared(b, kPages);
  shared.load_all();
  const uint64_t misses = b.node.stats().load_misses;
  std::vector<double> home, importer, raw;
  for (size_t i = 0; i < b.scaled(5, 1); ++i) {
    {
      const RawServing serving(b.control, RawMode::kSleep);
      raw.push_back(taken_while_idle(b.control).raw);
    }
    sleep_for(kSettle);
    const Taken taken = taken_while_idle(b.control);
    home.push_back(taken.home);
    importer.push_back(taken.importer);
  }
  shared.load_all();
  must(b.node.stats().load_misses == misses, "what was cached did not stay cached");
  b.report.row({"idle_cpu_home", "ms/s", spread_of(home), spread_of(raw),
                "one thread in fi_cq_sread, at most 20 ms each", 0});
  b.report.row(
      {"idle_cpu_importer", "ms/s", spread_of(importer), {}, "1 MiB attached and cached", 0});
}

}  // namespace

void idle_cpu(Bench& b) {
  idle_rows(b);
  home_idle_row(b);
}

}  // namespace bench
