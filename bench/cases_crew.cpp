// Several importers that store to the same memory. What they send is counted by the library's
// statistics, so that most bars need no clock.
#include <fmt/format.h>

#include <algorithm>

#include "cases.hpp"
#include "crew.hpp"

namespace bench {

namespace {

constexpr size_t kCrowds[] = {4, 16, 32, 64};

// What the members did together.
struct Sum {
  double operations = 0, nanos = 0, misses = 0, requests = 0, publications = 0, notifications = 0,
         useless = 0, segments = 0;
  std::vector<double> means;  // of each member, ns an operation
  double messages() const { return requests + notifications; }
};

// A segment, which nobody else imports, and a crew's work on it.
Sum crew_works(Bench& b, CrewJob job, size_t members, size_t pages, uint64_t amount,
               bool without_timer = false) {
  struct Segment {
    Bench& b;
    Segment(Bench& bench, size_t size) : b(bench) {
      call(b.control, kHome, Command::kMakeSegment, size, 1);
    }
    ~Segment() {
      try {
        call(b.control, kHome, Command::kDropSegment);
      } catch (const Failure&) {  // the next case finds out
      }
    }
  } const segment(b, pages * kPage);
  constexpr double kWithin = 360 * kSecond;  // more than the bounds of all its steps
  ask(b.control, kCrew, Command::kWork, static_cast<uint64_t>(job), members, amount,
      without_timer ? 1 : 0);
  await(b.control, kCrew, kWithin);
  Sum sum;
  for (size_t i = 0; i < members; ++i) {
    const CrewMember& m = b.control.crew[i];
    sum.operations += static_cast<double>(m.operations);
    sum.nanos += m.nanos;
    sum.misses += static_cast<double>(m.misses);
    sum.requests += static_cast<double>(m.requests);
    sum.publications += static_cast<double>(m.publications);
    sum.notifications += static_cast<double>(m.notifications);
    sum.useless += static_cast<double>(m.useless);
    sum.segments += static_cast<double>(m.segments);
    if (m.operations > 0) sum.means.push_back(m.nanos / static_cast<double>(m.operations));
    if (job != CrewJob::kTable) continue;
    const Answer a = call(b.control, kHome, Command::kPeek, kTablePages + i);
    must(a.first == m.last, "a progress word did not come home");
  }
  must(sum.operations > 0, "nothing was done");
  if (job == CrewJob::kTable) return sum;
  const size_t words = pages * kPage / 8;
  const size_t left_out =
      job == CrewJob::kScatter ? words - static_cast<size_t>(sum.operations) : 0;
  call(b.control, kHome, Command::kCheckWords, pages, members, left_out);
  return sum;
}

std::string per(double count, double operations, const char* what) {
  return fmt::format("{:.2f} {}", count / operations, what);
}

}  // namespace

// The same work on mapped pages.
void local_kv(Bench& b) {
  for (size_t n = 1; n <= 3; ++n) {
    std::vector<double> times;
    for (size_t i = 0; i < b.scaled(3, 1); ++i) {
      const Sum s = crew_works(b, CrewJob::kTable, n, kTablePages + 3, b.scaled(3000, 500));
      must(s.misses == 0, "pages were cached, not mapped");
      times.push_back(s.nanos / s.operations / kMicro);
    }
    b.report.row({"local_kv_" + std::to_string(n),
                  "us",
                  spread_of(times),
                  {},
                  "an operation of kv on mapped pages",
                  0});
  }
}

// Round trips of an operation on a table: a lock, a load or a store, and the unlock that takes the
// store and the member's progress word along.
void kv(Bench& b) {
  constexpr size_t kMost = 3;
  std::vector<double> trips[kMost], times[kMost], growth, useless;
  std::string said[kMost];
  for (size_t i = 0; i < b.scaled(3, 1); ++i) {
    for (size_t n = 1; n <= kMost; ++n) {
      const Sum s = crew_works(b, CrewJob::kTable, n, kTablePages + kMost, b.scaled(3000, 500));
      trips[n - 1].push_back(s.requests / s.operations);
      times[n - 1].push_back(s.nanos / s.operations / kMicro);
      said[n - 1] = "round trips of an operation, " + std::to_string(n) +
                    (n == 1 ? " node; " : " nodes; ") + per(s.misses, s.operations, "misses, ") +
                    per(s.notifications, s.operations, "notifications, ") +
                    per(s.segments, s.operations, "TCP segments sent");
      // Nobody else is there to be told or to be answered: a segment is a request.
      must(n > 1 || s.segments == 0 ||
               (s.segments >= 0.8 * s.requests && s.segments <= 1.2 * s.requests),
           "what was sent is not what was counted: " + said[0]);
      if (n < kMost) continue;
      must(s.notifications > 0, "no member was told of another one's stores");
      growth.push_back(trips[kMost - 1].back() / trips[0].back());
      useless.push_back(100 * s.useless / s.notifications);
    }
  }
  for (size_t n = 1; n <= kMost; ++n) {
    b.report.row({"kv_" + std::to_string(n), "trips", spread_of(trips[n - 1]), {}, said[n - 1], 0});
  }
  b.report.row({"kv_3_growth", "x", spread_of(growth), {}, "round trips of kv_3 to kv_1", 0});
  b.report.row({"useless_notifications",
                "%",
                spread_of(useless),
                {},
                "of the notifications in kv_3: those that found none of their pages",
                0});
  for (size_t n = 1; n <= kMost; ++n) {
    b.report.row({"kv_" + std::to_string(n) + "_time",
                  "us",
                  spread_of(times[n - 1]),
                  {},
                  "time of an operation",
                  0});
  }
}

// The raw side is the library itself, whose timer does not run while the stores are made.
void scatter(Bench& b) {
  constexpr size_t kPages = (size_t{8} << 20) / kPage, kWords = kPages * kPage / 8;
  for (size_t n : {2, 4}) {
    Measured messages, misses;
    double least = kWords;
    for (size_t i = 0; i < b.scaled(2, 1); ++i) {
      const Sum without = crew_works(b, CrewJob::kScatter, n, kPages, kPages, true);
      const Sum with = crew_works(b, CrewJob::kScatter, n, kPages, kPages);
      must(without.operations == kWords, "without a timer not all words could be stored");
      least = std::min(least, with.operations);
      messages.ours.push_back(with.messages());
      messages.raw.push_back(without.messages());
      misses.ours.push_back(with.misses);
      misses.raw.push_back(without.misses);
    }
    const std::string name = "scatter_" + std::to_string(n);
    std::string said =
        "the same without the timer, whose thread is stopped; requests and notifications";
    if (least < kWords) {
      said += fmt::format("; GAVE UP when {:.0f} % of the words were stored: at least so many",
                          100 * least / kWords);
    }
    b.report.row({name, "msgs", spread_of(messages.ours), spread_of(messages.raw), said, 0});
    b.report.row({name + "_misses", "", spread_of(misses.ours), spread_of(misses.raw),
                  "the same; loads and stores that found no page", 0});
  }
}

namespace {
void report_crowd(Bench& b, CrewJob job, size_t members, const std::string& suffix,
                  uint64_t millis) {
  const Sum s = crew_works(b, job, members, 8, millis);
  must(s.operations > static_cast<double>(members) / 2, "most importers never had their turn");
  const std::string name = "crowd_" + std::to_string(members);
  b.report.row({name + suffix,
                "ms",
                spread_of({s.nanos / s.operations / kMilli}),
                {},
                "mean of " + std::to_string(static_cast<uint64_t>(s.operations)) + " barriers in " +
                    number(static_cast<double>(millis) / 1e3) + " s, no error",
                0});
  b.report.row({name + "_messages" + suffix,
                "msgs",
                spread_of({(s.publications + s.notifications) / s.operations}),
                {},
                "of a barrier: " + per(s.publications, s.operations, "to the home, ") +
                    per(s.notifications, s.operations, "by it; ") +
                    per(s.requests - s.publications, s.operations, "of the stores before it, ") +
                    per(s.misses, s.operations, "of them misses; ") +
                    per(s.segments, s.operations, "TCP segments sent by importers"),
                0});
  if (job != CrewJob::kCrowd) return;
  must(s.means.size() == members, "an importer was never answered");
  std::vector<double> means = s.means;
  std::sort(means.begin(), means.end());
  b.report.row({name + "_slowest" + suffix,
                "x",
                spread_of({means.back() / means[members / 2]}),
                {},
                "mean wait of the slowest importer to the median's",
                0});
}
}  // namespace

std::vector<const char*> crowd_rows() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const size_t n : kCrowds) {
      const std::string name = "crowd_" + std::to_string(n);
      for (const char* row :
           {"", "_messages", "_at_once", "_messages_at_once", "_slowest_at_once"}) {
        all.push_back(name + row);
      }
    }
    return all;
  }();
  std::vector<const char*> rows;
  rows.reserve(names.size());
  for (const auto& name : names) rows.push_back(name.c_str());
  return rows;
}

void crowd(Bench& b) {
  for (const size_t n : kCrowds) {
    // A peer that falls silent counts as dead after 10 s: of the largest crowd, 60 s show that
    // none does.
    report_crowd(b, CrewJob::kTurns, n, "", n == 64 && b.longest ? 60000 : b.scaled(4000, 1500));
    report_crowd(b, CrewJob::kCrowd, n, "_at_once", b.scaled(4000, 1500));
  }
}

}  // namespace bench
