// Memory reservations: what they hold is there when nothing else is, they outlive their makers, are
// shared by key, and get back what segments give back.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "core/base/clock.hpp"
#include "support/skip.hpp"
#include "system/calls.hpp"
#include "system/cmiadm.hpp"
#include "system/small_tmpfs.hpp"
#include "system/stopped.hpp"

namespace cmi::test::reservations_nodes_test {

namespace {

constexpr size_t kMiB = 1u << 20;

struct Reserved {
  Answer answer;
  uint64_t used, key;
};
Reserved ask(Process& process, int32_t command, uint64_t size, uint64_t key) {
  return process.run(
      [](int32_t c, uint64_t s, uint64_t k) {
        cmi_ctl_cfg cfg{};
        cfg.mreq.mem_reserve = s;
        cfg.mreq.mem_allocd = 12345;
        cfg.mreq.rsv_key = k;
        const int result = CMIFN(ctxt(), 10, cmi_ctl)(ctxt(), c, &cfg);
        return Reserved{answer(result, result != 0), cfg.mreq.mem_allocd, cfg.mreq.rsv_key};
      },
      command, size, key);
}
Reserved reserve(Process& process, uint64_t size) {
  return ask(process, CMI_CTL_MEM_RESERVE, size, 0);
}
Answer use(Process& process, uint64_t key) {
  return ask(process, CMI_CTL_MEM_RESERVE_SET, 0, key).answer;
}
Answer give_up(Process& process) { return ask(process, CMI_CTL_MEM_RESERVE_DEL, 0, 0).answer; }

// Takes what is left of the file system, and leaves it taken as long as the file is there.
void fill(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  REQUIRE(fd);
  off_t at = 0;
  for (off_t step = kMiB; step >= static_cast<off_t>(kPage);) {
    if (::fallocate(fd.get(), 0, at, step) == 0) {
      at += step;
    } else {
      step /= 2;
    }
  }
}

TEST_SUITE("reservations") {
  PROCESS_CASE("seg_get_within_a_reservation_succeeds_when_everything_else_is_exhausted") {
    Cluster cluster;
    SmallTmpfs small(cluster.scratch() + "/small", 24u << 20);
    if (!small.mounted()) return skip(small.reason());
    Process& process = cluster.spawn("node", {{"CMI_RUNTIME_DIR", small.folder()}});
    const Reserved made = reserve(process, 12 * kMiB);
    REQUIRE(made.answer.ok());
    CHECK(made.key != 0);
    CHECK(made.used == 0);
    fill(small.folder() + "/ballast");
    Process& stranger = cluster.spawn_bare("other", {{"CMI_RUNTIME_DIR", small.folder()}});
    CHECK_FALSE(ini(stranger).ok());  // not even the registry of another node
    for (int round = 0; round < 2; ++round) {
      const Answer one = seg_get(process, 8 * kMiB);
      REQUIRE(one.ok());
      const Answer two = seg_get(process, 4 * kMiB);
      REQUIRE(two.ok());
      CHECK(seg_get(process, kPage).failed(CMI_ERR_NOMEM));  // beyond it nothing is promised
      CHECK(reserve(process, 12 * kMiB).used == 12 * kMiB);
      const Answer view = seg_at(process, one.seg());
      REQUIRE(view.ok());
      CHECK(store(process, view.at() + 8 * kMiB - 8, 1).cause() == Fault::kNone);
      REQUIRE(seg_dt(process, one.seg(), view.at()).ok());
      // Back to the reservation, not to everybody.
      REQUIRE(seg_rm(process, one.seg()).ok());
      REQUIRE(seg_rm(process, two.seg()).ok());
      CHECK(reserve(process, 12 * kMiB).used == 0);
    }
    // An extensible segment grows within it, and gives back what it shrinks.
    const Answer grows = seg_get(process, 12 * kMiB, CMI_SEG_EXTENSIBLE);
    REQUIRE(grows.ok());
    CHECK(reserve(process, 12 * kMiB).used == 0);
    for (const size_t size : {12 * kMiB, 2 * kMiB, 12 * kMiB, size_t{0}}) {
      CHECK(seg_brk(process, grows.seg(), size).ok());
      CHECK(reserve(process, 12 * kMiB).used == size);
    }
    REQUIRE(give_up(process).ok());
    CHECK(seg_get(process, 8 * kMiB).ok());  // free for everybody now
    process.end();
  }

  TEST_CASE("memory_on_its_way_from_a_reservation_into_a_segment_is_for_nobody_else") {
    Cluster cluster;
    SmallTmpfs small(cluster.scratch() + "/small", 24u << 20);
    if (!small.mounted()) return skip(small.reason());
    Process& process = cluster.spawn("node", {{"CMI_RUNTIME_DIR", small.folder()},
                                              {"CMI_FAULT_POINT", "node.create.file_made=stop"}});
    const Reserved made = reserve(process, 12 * kMiB);
    REQUIRE(made.answer.ok());
    auto taking = process.start([] { return CMIFN(ctxt(), 10, seg_get)(ctxt(), 12 * kMiB, 0); });
    REQUIRE(await_stopped(process));
    // Joining looks at what each reservation should hold.
    Process& second = cluster.spawn("node", {{"CMI_RUNTIME_DIR", small.folder()}});
    fill(small.folder() + "/ballast");
    process.signal(SIGCONT);
    CHECK(taking.get() > 0);
    CHECK(reserve(process, 12 * kMiB).used == 12 * kMiB);
    REQUIRE(give_up(process).ok());
    CHECK(second.end() == 0);
    process.end();
  }

  TEST_CASE("a_reservation_outlives_its_maker_and_is_shared_by_its_key") {
    Cluster cluster;
    Process& maker = cluster.spawn("node", {{"CMI_MEM_MAX", "8M"}});
    const Reserved made = reserve(maker, 4 * kMiB);
    REQUIRE(made.answer.ok());
    const Answer first = seg_get(maker, kMiB);
    REQUIRE(first.ok());
    CHECK(ctl_info(maker).info.max_mem_avail == 4 * kMiB);
    Process& other = cluster.spawn("node", {{"CMI_MEM_MAX", "8M"}});
    CHECK(seg_get(other, 5 * kMiB).failed(CMI_ERR_NOMEM));
    REQUIRE(use(other, made.key).ok());
    CHECK(reserve(other, 4 * kMiB).used == kMiB);
    bool killed = false;
    SUBCASE("which_ends") {}
    SUBCASE("which_is_killed") { killed = true; }
    if (killed) {
      maker.kill();
    } else {
      CHECK(maker.end() == 0);
    }
    // What was in its segments is counted back.
    const Answer second = seg_get(other, 4 * kMiB);
    REQUIRE(second.ok());
    CHECK(reserve(other, 4 * kMiB).used == 4 * kMiB);
    CHECK(other.end() == 0);
    // Nobody is there, and the reservation still is.
    Process& late = cluster.spawn("node", {{"CMI_MEM_MAX", "8M"}});
    CHECK(seg_get(late, 5 * kMiB).failed(CMI_ERR_NOMEM));
    REQUIRE(use(late, made.key).ok());
    CHECK(seg_get(late, 4 * kMiB).ok());
    REQUIRE(give_up(late).ok());
    CHECK(use(late, made.key).failed(CMI_ERR_INVAL));
  }

  TEST_CASE("a_reservation_grows_shrinks_and_refuses_what_cannot_be") {
    Cluster cluster;
    Process& process = cluster.spawn("node", {{"CMI_MEM_MAX", "8M"}});
    CHECK(give_up(process).failed(CMI_ERR_INVAL));
    const Reserved none = reserve(process, 9 * kMiB);
    CHECK(none.answer.failed(CMI_ERR_NOMEM));
    CHECK(none.used == 0);
    CHECK(reserve(process, UINT64_MAX).answer.failed(CMI_ERR_NOMEM));
    const Reserved made = reserve(process, 4 * kMiB);
    REQUIRE(made.answer.ok());
    const Answer seg = seg_get(process, 3 * kMiB);
    REQUIRE(seg.ok());
    const Reserved less = reserve(process, 2 * kMiB);
    CHECK(less.answer.failed(CMI_ERR_INVAL));
    CHECK(less.used == 3 * kMiB);  // told on failure, too
    const Reserved more = reserve(process, 9 * kMiB);
    CHECK(more.answer.failed(CMI_ERR_NOMEM));
    CHECK(more.used == 3 * kMiB);
    CHECK(reserve(process, 8 * kMiB).answer.ok());
    CHECK(ctl_info(process).info.max_mem_avail == 0);
    CHECK(reserve(process, 3 * kMiB).answer.ok());
    CHECK(ctl_info(process).info.max_mem_avail == 5 * kMiB);
    // More than was reserved may be had, as long as there is any.
    const Answer beyond = seg_get(process, 2 * kMiB);
    CHECK(beyond.ok());
    CHECK(reserve(process, 3 * kMiB).used == 5 * kMiB);
    REQUIRE(give_up(process).ok());
  }

  TEST_CASE("a_context_has_one_reservation_at_most_and_key_0_ends_the_tie") {
    Cluster cluster;
    Process& process = cluster.spawn("node");
    Process& other = cluster.spawn("node");
    const Reserved one = reserve(process, kMiB);
    const Reserved two = reserve(other, kMiB);
    REQUIRE(one.key != two.key);
    REQUIRE(use(process, two.key).ok());  // instead of its own
    REQUIRE(seg_get(process, kMiB).ok());
    CHECK(reserve(other, kMiB).used == kMiB);
    CHECK(use(process, one.key ^ 1).failed(CMI_ERR_INVAL));
    CHECK(reserve(process, kMiB).used == kMiB);  // the tie has not changed
    REQUIRE(use(process, 0).ok());
    CHECK(give_up(process).failed(CMI_ERR_INVAL));
    REQUIRE(seg_get(process, kMiB).ok());
    CHECK(reserve(other, kMiB).used == kMiB);
    REQUIRE(give_up(other).ok());
    REQUIRE(use(process, one.key).ok());
    CHECK(reserve(process, kMiB).used == 0);
    REQUIRE(give_up(process).ok());
  }

  TEST_CASE("growth_counts_against_the_reservation_in_use_and_goes_back_where_it_came_from") {
    Cluster cluster;
    const Env limit{{"CMI_MEM_MAX", "8M"}};
    Process& process = cluster.spawn("node", limit);
    Process& first = cluster.spawn("node", limit);
    Process& second = cluster.spawn("node", limit);
    const Answer seg = seg_get(process, 8 * kMiB, CMI_SEG_EXTENSIBLE);
    REQUIRE(seg.ok());
    REQUIRE(seg_brk(process, seg.seg(), kMiB).ok());  // from what is free
    const Reserved one = reserve(first, 2 * kMiB);
    const Reserved two = reserve(second, 2 * kMiB);
    REQUIRE(seg_get(process, 3 * kMiB).ok());  // all that is left
    CHECK(seg_brk(process, seg.seg(), 2 * kMiB).failed(CMI_ERR_NOMEM));
    const auto used = [&](uint64_t of_one, uint64_t of_two) {
      CHECK(reserve(first, 2 * kMiB).used == of_one);
      CHECK(reserve(second, 2 * kMiB).used == of_two);
    };
    // Made before there was a reservation, it grows within it all the same.
    REQUIRE(use(process, one.key).ok());
    REQUIRE(seg_brk(process, seg.seg(), 2 * kMiB).ok());
    used(kMiB, 0);
    REQUIRE(use(process, two.key).ok());
    REQUIRE(seg_brk(process, seg.seg(), 4 * kMiB).ok());
    used(kMiB, 2 * kMiB);
    CHECK(seg_brk(process, seg.seg(), 5 * kMiB).failed(CMI_ERR_NOMEM));
    used(kMiB, 2 * kMiB);
    REQUIRE(use(process, one.key).ok());
    REQUIRE(seg_brk(process, seg.seg(), 5 * kMiB).ok());
    used(2 * kMiB, 2 * kMiB);
    // What it shrinks by goes back to who gave it last.
    REQUIRE(use(process, 0).ok());
    REQUIRE(seg_brk(process, seg.seg(), 3 * kMiB).ok());
    used(kMiB, kMiB);
    REQUIRE(seg_brk(process, seg.seg(), kMiB).ok());
    used(0, 0);
    CHECK(seg_brk(process, seg.seg(), 2 * kMiB).failed(CMI_ERR_NOMEM));
    REQUIRE(give_up(first).ok());
    CHECK(seg_brk(process, seg.seg(), 3 * kMiB).ok());
    REQUIRE(give_up(second).ok());
  }

  TEST_CASE("a_deleted_reservation_leaves_its_segments_and_serves_no_more") {
    Cluster cluster;
    Process& process = cluster.spawn("node");
    Process& other = cluster.spawn("node");
    const Reserved made = reserve(process, 2 * kMiB);
    REQUIRE(use(other, made.key).ok());
    const Answer seg = seg_get(other, kMiB);
    const Answer view = seg_at(other, seg.seg());
    REQUIRE(store(other, view.at(), 5).cause() == Fault::kNone);
    REQUIRE(give_up(process).ok());
    CHECK(load(other, view.at()).value == 5);
    CHECK(load(process, seg_at(process, seg.seg()).at()).value == 5);
    CHECK(use(process, made.key).failed(CMI_ERR_INVAL));
    // Its segment lives, and yet nothing is in use of what is no more.
    const Reserved refused = reserve(other, kMiB);
    CHECK(refused.answer.failed(CMI_ERR_INVAL));
    CHECK(refused.used == 0);
    CHECK(give_up(other).failed(CMI_ERR_INVAL));
    CHECK(seg_get(other, kMiB).ok());  // from what is free
    REQUIRE(use(other, 0).ok());
    const Reserved fresh = reserve(other, kMiB);
    CHECK(fresh.answer.ok());
    CHECK(fresh.used == 0);
    CHECK(fresh.key != made.key);
    REQUIRE(give_up(other).ok());
  }

  PROCESS_CASE("cmiadm_lists_reservations_and_deletes_them_also_when_nobody_is_there") {
    Cluster cluster;
    Process& process = cluster.spawn("node");
    const Reserved made = reserve(process, 2 * kMiB);
    REQUIRE(seg_get(process, kMiB).ok());
    char key[20];
    std::snprintf(key, sizeof key, "%016llx", static_cast<unsigned long long>(made.key));
    const Value all = parse_json(cmiadm(cluster, {"list", "--json"}).out);
    const Value& listed = all["nodes"].items.at(0)["reservations"];
    REQUIRE(listed.items.size() == 1);
    CHECK(listed.items[0]["key"].text == key);
    CHECK(listed.items[0]["size"].number == 2 * kMiB);
    CHECK(listed.items[0]["used"].number == kMiB);
    CHECK(listed.items[0]["maker"].number == static_cast<uint64_t>(process.pid()));
    CHECK(cmiadm(cluster, {"list"}).says(key));
    CHECK(cmiadm(cluster, {"reservation", "delete", "12"}).status == 1);
    CHECK(cmiadm(cluster, {"reservation", "delete", "nonsense"}).status == 2);
    CHECK(cmiadm(cluster, {"reservation", "keep", key}).status == 2);
    CHECK(process.end() == 0);
    const Ran gone = cmiadm(cluster, {"reservation", "delete", key});
    CHECK(gone.status == 0);
    CHECK(gone.says(key));
    CHECK(cmiadm(cluster, {"reservation", "delete", key}).status == 1);
    CHECK(cluster.files().empty());
  }
}

}  // namespace

}  // namespace cmi::test::reservations_nodes_test
