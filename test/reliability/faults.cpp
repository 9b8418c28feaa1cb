// How each fault is injected, and from when to when it is measured. In the process of one
// injection.
#include "reliability/faults.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <stdexcept>

#include "fault/broken_memory.hpp"
#include "fault/lying_home.hpp"
#include "reliability/importers.hpp"
#include "reliability/scene.hpp"

namespace cmi::reliability {

namespace {

Seen home_killed() {
  Scene s;
  auto client = s.begin();
  const Nanos fault = now();
  s.home->signal(SIGKILL);
  s.must_reach(kCauseAt);
  s.must_tell(CMI_EVENT_HCTXT_DOWN);
  client.finish();
  s.home->kill();
  return {ms_between(fault, s.board[kCauseAt]), noticed(s.board), ""};
}

Seen idle_home_killed() {
  Scene s;
  auto client = s.peer->start([](Board::Name name) { wait_for_events(name); }, s.board.name());
  ::usleep(kMoment);
  const Nanos fault = now();
  s.home->signal(SIGKILL);
  const uint64_t told = s.must_tell(CMI_EVENT_HCTXT_DOWN);
  client.finish();
  s.home->kill();
  return {ms_between(fault, told), noticed(s.board), ""};
}

Seen importer_killed() {
  Scene s;
  auto client = s.use_at(*s.home, s.exported.at);
  ::usleep(kMoment);
  const Nanos fault = now();
  s.third->signal(SIGKILL);
  const uint64_t told = s.must_tell(CMI_EVENT_RCTXT_DOWN);
  client.finish();
  s.third->kill();
  return {ms_between(fault, told), noticed(s.board), ""};
}

Seen home_stopped_for_a_while() {
  Scene s;
  return silent_for_a_while(
      s, [&] { s.home->stop(); }, [&] { s.home->signal(SIGCONT); });
}

Seen home_stopped_for_good() {
  Scene s(false, verdict());
  auto client = s.begin();
  const Nanos fault = now();
  s.home->stop();
  const uint64_t told = s.must_tell(CMI_EVENT_HCTXT_DOWN);
  client.finish();
  s.home->kill();
  return {ms_between(fault, told), noticed(s.board), ""};
}

// The others' flushes wait for an importer that holds the page.
Seen importer_stopped_for_a_while() {
  Scene s;
  auto client = s.begin();
  const uint64_t before = s.board[kRounds];
  REQUIRE(load(*s.third, s.other.at).cause() == Fault::kNone);
  s.third->stop();
  ::usleep(800'000);
  const Nanos back = now();
  s.third->signal(SIGCONT);
  const uint64_t then = s.board[kRounds];
  if (!s.board.reaches(kRounds, then + 2, kPatience)) throw std::runtime_error("it stays");
  const auto well = static_cast<uint64_t>(now());
  client.finish();
  CHECK(then >= before);
  return {ms_between(back, well), noticed(s.board), ""};
}

Seen importer_stopped_for_good() {
  Scene s(false, verdict());
  auto client = s.use_at(*s.home, s.exported.at);
  ::usleep(kMoment);
  const Nanos fault = now();
  s.third->stop();
  const uint64_t told = s.must_tell(CMI_EVENT_RCTXT_DOWN);
  client.finish();
  s.third->kill();
  return {ms_between(fault, told), noticed(s.board), ""};
}

Seen cut_healed() {
  Scene s(true);
  if (!s.here()) return s.skipped();
  return silent_for_a_while(
      s, [&] { s.network->part({"peer"}, {"home"}); }, [&] { s.network->heal(); });
}

Seen one_way_loss() {
  Scene s(true);
  if (!s.here()) return s.skipped();
  return silent_for_a_while(
      s, [&] { s.network->drop("home", "peer"); }, [&] { s.network->heal(); });
}

Seen cut_not_healed() {
  Scene s(true, verdict());
  if (!s.here()) return s.skipped();
  auto client = s.begin();
  const Nanos fault = now();
  s.network->part({"peer"}, {"home", "third"});
  const uint64_t told = s.must_tell(CMI_EVENT_HCTXT_DOWN);
  client.finish();
  return {ms_between(fault, told), noticed(s.board), ""};
}

Seen token_revoked() {
  Scene s;
  auto client = s.begin();
  const Nanos fault = now();
  REQUIRE(tok_del(*s.home, s.exported.token).ok());
  s.must_reach(kCauseAt);
  client.finish();
  return {ms_between(fault, s.board[kCauseAt]), noticed(s.board), ""};
}

Seen home_ends() {
  Scene s;
  auto client = s.begin();
  const Nanos fault = now();
  REQUIRE(fini(*s.home).ok());
  s.must_reach(kCauseAt);
  s.must_tell(CMI_EVENT_HCTXT_DOWN);
  client.finish();
  return {ms_between(fault, s.board[kCauseAt]), noticed(s.board), ""};
}

Seen segment_removed() {
  Scene s;
  auto client = s.begin();
  const Nanos fault = now();
  REQUIRE(seg_rm(*s.home, s.exported.seg).ok());
  REQUIRE(seg_dt(*s.home, s.exported.seg, s.exported.at).ok());
  s.must_reach(kCauseAt);
  client.finish();
  return {ms_between(fault, s.board[kCauseAt]), noticed(s.board), ""};
}

Seen memory_broken() {
  if (const char* why = why_memory_cannot_break()) return {0, "", why};
  Scene s;
  auto client = s.begin();
  // Another page than the one in use, which nobody has cached.
  const Nanos fault = now();
  REQUIRE(s.home->run([](uint64_t at) { return break_page(at, 5); }, s.exported.at));
  const int cause = load(*s.third, s.other.at + 5 * kPage).cause();
  const auto told = static_cast<uint64_t>(now());
  client.finish();
  CHECK(noticed(s.board) == "nothing");
  return {ms_between(fault, told), cause == CMI_ERROR_UE ? "UE" : std::to_string(cause), ""};
}

// Who is there goes on; who comes is refused.
Seen descriptors_exhausted() {
  Scene s;
  auto client = s.begin();
  REQUIRE(limit_descriptors(*s.home, true));
  Process& late = s.cluster.spawn("late");
  const Nanos fault = now();
  const Answer refused = seg_imp(late, s.exported.handle);
  const auto told = static_cast<uint64_t>(now());
  REQUIRE(limit_descriptors(*s.home, false));
  client.finish();
  CHECK(noticed(s.board) == "nothing");
  return {ms_between(fault, told), refused.ok() ? "imported" : "seg_imp fails", ""};
}

Seen memory_full() {
  Scene s;
  auto client = s.begin();
  const Nanos fault = now();
  // More than there is, whatever the machine.
  const Answer refused = seg_get(*s.home, size_t{1} << 45);
  const auto told = static_cast<uint64_t>(now());
  client.finish();
  CHECK(noticed(s.board) == "nothing");
  return {ms_between(fault, told),
          refused.failed(CMI_ERR_NOMEM) ? "CMI_ERR_NOMEM" : std::to_string(refused.error), ""};
}

// The longest round of a client of honest homes while another home lies to it.
Seen lying_home() {
  Scene s;
  Process& liar = s.cluster.spawn_bare("liar");
  const FalseSegment segment =
      liar.run([](Flat honest, size_t size) { return open_false_home(honest, size); },
               s.exported.handle, kSize);
  Board lying(s.cluster);
  auto serving = liar.start(
      [](Board::Name name, Flat honest) {
        return serve_falsely(HomeLie::kNotifications, 7, name, honest);
      },
      lying.name(), s.exported.handle);
  const Answer imported = seg_imp(*s.peer, segment.handle);
  lying[0] = 1;
  auto client = s.begin();
  ::usleep(3 * kMoment);
  client.finish();
  serving.finish();
  CHECK(imported.ok());
  return {longest_round(s.board), noticed(s.board), ""};
}

// How long rounds took, from one to the one before another: what half of them took at most, and the
// longest.
struct Spans {
  double median = 0, worst = 0;
};
Spans spans_of(Board& board, uint64_t from, uint64_t to) {
  constexpr uint64_t kRoom = kWords - kSpans;
  if (to <= from || to - from > kRoom) throw std::runtime_error("not as many rounds as there are");
  std::vector<uint64_t> spans;
  for (uint64_t i = from; i < to; ++i) spans.push_back(board[kSpans + i % kRoom]);
  std::sort(spans.begin(), spans.end());
  return {static_cast<double>(spans[spans.size() / 2]), static_cast<double>(spans.back())};
}

// How many times its usual time a round of a neighbour takes while one of ten peers fails. All ten
// go on storing to pages that lie beside each other, before and after, so that each flush has to
// ask all the others; they rest in between, so that none waits for a processor. Where none fails
// the same is measured: what else the machine does shows in that.
Seen one_of_ten(bool fails) {
  constexpr useconds_t kRest = 5'000, kRestOfOthers = 20'000;
  constexpr uint64_t kLooked = 60;  // looked at before the fault, and from it on
  Scene s;
  Board crowd(s.cluster);
  std::vector<Process*> others{s.third};
  std::vector<uint64_t> places{s.other.at + kPage};
  for (uint64_t i = 2; i < 10; ++i) {
    others.push_back(&s.cluster.spawn("peer" + std::to_string(i)));
    places.push_back(import_segment(*others.back(), s.exported).at + i * kPage);
  }
  const auto start = [](Process& process, Board& board, uint64_t at, useconds_t rest) {
    return process.start([](Board::Name name, uint64_t address,
                            useconds_t pause) { use(name, address, Round::kStore, pause); },
                         board.name(), at, rest);
  };
  std::vector<Pending<void>> working;
  for (size_t i = 0; i < others.size(); ++i) {
    working.push_back(start(*others[i], crowd, places[i], kRestOfOthers));
  }
  auto client = start(*s.peer, s.board, s.import.at, kRest);
  const auto reach = [&](uint64_t rounds) {
    if (!s.board.reaches(kRounds, rounds, kPatience)) throw std::runtime_error("no rounds");
    return s.board[kRounds].load();
  };
  const uint64_t settled = reach(40);
  const uint64_t then = reach(settled + kLooked);
  const Spans usual = spans_of(s.board, settled, then);
  constexpr size_t kVictim = 4;
  if (fails) others[kVictim]->signal(SIGKILL);
  const Spans during = spans_of(s.board, then, reach(then + kLooked));
  const uint64_t those = crowd[kRounds];
  if (!crowd.reaches(kRounds, those + others.size(), kPatience)) {
    throw std::runtime_error("the others do not go on");
  }
  client.finish();
  for (size_t i = 0; i < others.size(); ++i) {
    if (!fails || i != kVictim) working[i].finish();
  }
  if (fails) others[kVictim]->kill();
  CHECK(noticed(crowd) == "nothing");
  return {during.median / usual.median, noticed(s.board), "", during.worst / usual.worst};
}

}  // namespace

const std::vector<Kind>& kinds() {
  static const char* const kUnflushed =
      "the segment; stores that were not flushed, named by STORE_FAILURE";
  constexpr Bound kKnownDead{.worst = 100};  // ms
  constexpr Bound kUndisturbed{.median = 2};
  static const std::vector<Kind> all{
      {"home-killed", "a home in use is killed", "the exception", kUnflushed, "SINVAL", 1,
       home_killed, nullptr, kKnownDead},
      {"idle-home-killed", "a home that nobody accesses is killed", "the event", "the segment",
       "HCTXT_DOWN", 1, idle_home_killed, nullptr, kKnownDead},
      {"importer-killed", "an importer is killed", "the event at home",
       "what the importer had not flushed", "RCTXT_DOWN", 1, importer_killed, nullptr, kKnownDead},
      {"home-stopped", "a home is stopped (SIGSTOP) for 3 s",
       "after SIGCONT, a round that succeeds", "nothing", "TRANSIENT", 4, home_stopped_for_a_while},
      {"home-stopped-for-good", "a home is stopped for good", "the event", kUnflushed, "HCTXT_DOWN",
       8, home_stopped_for_good},
      {"importer-stopped", "an importer is stopped for 0.8 s",
       "after SIGCONT, a flush that waited for it", "nothing", "", 4, importer_stopped_for_a_while},
      {"importer-stopped-for-good", "an importer is stopped for good", "the event at home",
       "what the importer had not flushed", "RCTXT_DOWN", 8, importer_stopped_for_good},
      {"cut-healed", "the network is cut for 3 s", "after it heals, a round that succeeds",
       "nothing", "TRANSIENT", 4, cut_healed},
      {"one-way-loss", "packets from home to importer are lost for 3 s",
       "after it heals, a round that succeeds", "nothing", "TRANSIENT", 4, one_way_loss},
      {"cut-not-healed", "the network is cut for good", "the event", kUnflushed, "HCTXT_DOWN", 8,
       cut_not_healed},
      {"token-revoked", "a token is revoked", "the exception",
       "stores that were not flushed, named by STORE_FAILURE", "TOKEN", 1, token_revoked},
      {"home-ends", "a home ends in good order (fini)", "the exception", kUnflushed, "SINVAL", 1,
       home_ends},
      {"segment-removed", "a segment is removed at home", "the exception", "the segment", "", 1,
       segment_removed},
      {"memory-full", "the home has no memory for a segment", "the error", "nothing",
       "CMI_ERR_NOMEM", 1, memory_full},
      {"no-descriptors", "the home has no descriptors left", "the newcomer's error", "nothing",
       "seg_imp fails", 1, descriptors_exhausted},
      {"broken-memory", "a page of the home's memory is broken", "the exception", "the page", "UE",
       1, memory_broken},
      {"importer-dies-unflushed", "an importer dies with a store that it has not flushed",
       "the exception at home", "what it had not flushed; its pages until they are recovered",
       "CONSIST", 1, importer_dies_unflushed},
      {"importer-ends", "an importer ends in good order (fini)", "the event at home", "nothing",
       "RCTXT_DOWN", 1, importer_ends},
      {"importer-exits", "an importer ends by exit()", "the event at home", "nothing", "RCTXT_DOWN",
       1, importer_exits},
      {"neighbour-killed", "the process that imported for a neighbour is killed",
       "the longest round of the neighbour",
       "what the dead process had not flushed; nobody attaches the import any more", "nothing", 1,
       neighbour_that_imported_killed},
      {"importer-loss", "packets from importer to home are lost for 3 s",
       "after it heals, a round that succeeds", "nothing", "TRANSIENT", 4, importer_unheard},
      {"importer-no-descriptors", "an importer has no descriptors left", "the importer's error",
       "nothing", "seg_imp fails", 1, importer_without_descriptors},
      {"link-not-rebuilt", "a home is silent, and its importer has no descriptors left",
       "the event", "stores that were not flushed, named by HW or STORE_FAILURE", "HCTXT_DOWN", 8,
       link_not_rebuilt},
      {"small-tmpfs", "the home's runtime folder is full", "the error", "nothing", "CMI_ERR_NOMEM",
       1, small_tmpfs_full},
      {"lying-importer", "an importer lies to its home", "the longest round of another importer",
       "nothing", "nothing", 1, importer_lies},
      {"lying-home", "a home lies to an importer", "the longest round with another home", "nothing",
       "", 1, lying_home},
      {"one-of-ten", "one of ten peers is killed: the others",
       "the median round, in times of the usual one (no ms)", "nothing", "nothing", 1,
       [] { return one_of_ten(true); }, "the longest round, in times of the usual longest (no ms)",
       kUndisturbed, kUndisturbed},
      {"none-of-ten", "none of ten peers is killed (to compare with)",
       "the median round, in times of the usual one (no ms)", "nothing", "nothing", 1,
       [] { return one_of_ten(false); },
       "the longest round, in times of the usual longest (no ms)"},
  };
  return all;
}

}  // namespace cmi::reliability
