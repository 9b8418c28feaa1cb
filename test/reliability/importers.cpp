// See importers.hpp.
#include "reliability/importers.hpp"

#include <csignal>
#include <cstdlib>

#include "fault/liar.hpp"
#include "reliability/scene.hpp"
#include "system/small_tmpfs.hpp"

namespace cmi::reliability {

namespace {

// A client at home works while the other importer ends of itself: `deed` notes when, and ends it.
template <class Deed>
Seen third_ends(Scene& s, Deed deed, bool in_flux) {
  auto client = s.use_at(*s.home, s.exported.at);
  if (!s.board.reaches(kRounds, 20, kPatience)) throw std::runtime_error("no rounds");
  Board end(s.cluster);
  s.third->start(deed, end.name(), s.other.at);
  const uint64_t told = s.must_tell(CMI_EVENT_RCTXT_DOWN);
  if (in_flux) s.must_reach(kCauseAt);
  client.finish();
  s.third->kill();
  const uint64_t seen = in_flux ? s.board[kCauseAt].load() : told;
  return {ms_between(static_cast<Nanos>(end[0].load()), seen), noticed(s.board), ""};
}

}  // namespace

// Its page is dirty at that moment: neither the timer nor what the client at home publishes, of the
// same page and all the time, has it written back between the store and the end.
Seen importer_dies_unflushed() {
  Scene s(false, {{"CMI_FAULT_POINT", "no_aging=fail;invalidate_before_zap=delay:30000"}}, 0);
  const auto dies = [](Board::Name name, uint64_t at) {
    Board::Word* words = Board::open(name);
    store64(at + 8, 1);
    words[0].store(static_cast<uint64_t>(now()));
    ::raise(SIGKILL);
  };
  return third_ends(s, dies, true);
}

Seen importer_ends() {
  Scene s;
  const auto ends = [](Board::Name name, uint64_t /*at*/) {
    Board::open(name)[0].store(static_cast<uint64_t>(now()));
    finish_context();
  };
  return third_ends(s, ends, false);
}

Seen importer_exits() {
  Scene s;
  const auto exits = [](Board::Name name, uint64_t /*at*/) {
    Board::open(name)[0].store(static_cast<uint64_t>(now()));
    std::exit(0);
  };
  return third_ends(s, exits, false);
}

Seen importer_unheard() {
  Scene s(true);
  if (!s.here()) return s.skipped();
  return silent_for_a_while(
      s, [&] { s.network->drop("peer", "home"); }, [&] { s.network->heal(); });
}

// The longest round of an honest importer while another one sends its home requests whose fields
// lie.
Seen importer_lies() {
  Scene s;
  Process& liar = s.cluster.spawn_bare("liar");
  const Export readable = export_segment(*s.home, kSize, CMI_ACC_READ);
  const Export writable = export_segment(*s.home, kSize), closed = export_segment(*s.home, kSize);
  Order order;
  order.lie = Lie::kRequests;
  order.count = 300;
  order.seed = 7;
  order.readable = readable.handle;
  order.readable_token = readable.token;
  order.writable = writable.handle;
  order.writable_token = writable.token;
  order.closed = closed.handle;
  order.other = export_segment(*s.third, kPage).handle;
  auto client = s.begin();
  const Report report = liar.start([](Order o) { return tell_lies(o); }, order).get(2 * kPatience);
  client.finish();
  CHECK(report.entered);
  CHECK(report.sent > 0);
  return {longest_round(s.board), noticed(s.board), ""};
}

// What it has goes on; it gets nothing new.
Seen importer_without_descriptors() {
  Scene s;
  Process& second = s.cluster.spawn("second");
  const Export more = export_segment(second);
  auto client = s.begin();
  REQUIRE(limit_descriptors(*s.third, true));
  const Nanos fault = now();
  const Answer refused = seg_imp(*s.third, more.handle);
  const auto told = static_cast<uint64_t>(now());
  CHECK(publish(*s.third, s.other.at + kPage, 3));
  REQUIRE(limit_descriptors(*s.third, false));
  client.finish();
  CHECK(noticed(s.board) == "nothing");
  return {ms_between(fault, told), refused.ok() ? "imported" : "seg_imp fails", ""};
}

// The connection is lost and there is no descriptor for another: the stores are lost by a fault of
// this side.
Seen link_not_rebuilt() {
  Scene s(false, verdict());
  auto client = s.begin();
  REQUIRE(limit_descriptors(*s.peer, true));
  const Nanos fault = now();
  s.home->stop();
  const uint64_t told =
      s.must_tell(CMI_EVENT_HCTXT_DOWN);  // HW before, where something was unflushed
  REQUIRE(limit_descriptors(*s.peer, false));
  client.finish();
  s.home->kill();
  return {ms_between(fault, told), noticed(s.board), ""};
}

// A client beside it works on what the other process of its node has imported, and goes on.
Seen neighbour_that_imported_killed() {
  Scene s;
  Process& beside = s.cluster.spawn("peer");
  REQUIRE(cmi_enb(beside, 1).ok());
  const Answer view = seg_at(beside, s.import.seg);
  REQUIRE(view.ok());
  auto client = s.use_at(beside, view.at());
  if (!s.board.reaches(kRounds, 20, kPatience)) throw std::runtime_error("no rounds");
  s.peer->kill();
  const Deadline deadline = Deadline::in(kPatience * kSecond);
  Process& late = s.cluster.spawn("peer");
  while (seg_at(late, s.import.seg).ok()) {
    if (deadline.passed()) throw std::runtime_error("the import stays");
  }
  const uint64_t then = s.board[kRounds];
  if (!s.board.reaches(kRounds, then + 20, kPatience)) throw std::runtime_error("it stays");
  client.finish();
  return {longest_round(s.board), noticed(s.board), ""};
}

// Who has memory there goes on; there is no more.
Seen small_tmpfs_full() {
  Scene s;
  SmallTmpfs small(s.cluster.scratch() + "/small", 8u << 20);
  if (!small.mounted()) return {0, "", small.reason()};
  Process& crowded = s.cluster.spawn("crowded", {{"CMI_RUNTIME_DIR", small.folder()}});
  const Import import = import_segment(*s.peer, export_segment(crowded, kSize));
  auto client = s.use_at(*s.peer, import.at);
  if (!s.board.reaches(kRounds, 20, kPatience)) throw std::runtime_error("no rounds");
  const Nanos fault = now();
  const Answer refused = seg_get(crowded, 32u << 20);
  const auto told = static_cast<uint64_t>(now());
  client.finish();
  CHECK(noticed(s.board) == "nothing");
  crowded.end();
  return {ms_between(fault, told),
          refused.failed(CMI_ERR_NOMEM) ? "CMI_ERR_NOMEM" : std::to_string(refused.error), ""};
}

}  // namespace cmi::reliability
