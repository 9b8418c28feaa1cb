// Several users on one machine: what they share is what the runtime folder lets them.
#include <doctest/doctest.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "support/sanitized.hpp"
#include "support/skip.hpp"
#include "system/calls.hpp"

namespace cmi::test {

namespace {

constexpr uid_t kSomebody = 65534;
constexpr size_t kMiB = 1u << 20;

struct Reserved {
  Answer answer;
  uint64_t key;
};
Reserved ask(Process& process, int32_t command, uint64_t size, uint64_t key) {
  return process.run(
      [](int32_t c, uint64_t s, uint64_t k) {
        cmi_ctl_cfg cfg{};
        cfg.mreq.mem_reserve = s;
        cfg.mreq.rsv_key = k;
        const int result = CMIFN(ctxt(), 10, cmi_ctl)(ctxt(), c, &cfg);
        return Reserved{answer(result, result != 0), cfg.mreq.rsv_key};
      },
      command, size, key);
}

// The process acts as that user from now on, and its files in /proc are that user's.
bool become(Process& process, uid_t user) {
  return process.run([](uid_t u) { return ::seteuid(u) == 0 && ::prctl(PR_SET_DUMPABLE, 1) == 0; },
                     user);
}

// A folder that everybody may use, outside of the cluster's.
struct Shared {
  std::array<char, 64> path{"/dev/shm/cmi-users-XXXXXX"};
  Shared() {
    REQUIRE(::mkdtemp(path.data()) != nullptr);
    REQUIRE(::chmod(path.data(), 01777) == 0);
  }
  ~Shared() { std::filesystem::remove_all(path.data()); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
};

TEST_SUITE("users") {
  TEST_CASE("a_reservation_is_refused_to_another_user") {
    if (::geteuid() != 0) return skip("only root can become somebody else");
    Cluster cluster;
    Process& owner = cluster.spawn("node", {{"CMI_MEM_MAX", "8M"}});
    const Reserved made = ask(owner, CMI_CTL_MEM_RESERVE, 4 * kMiB, 0);
    REQUIRE(made.answer.ok());
    Process& other = cluster.spawn("node", {{"CMI_MEM_MAX", "8M"}});
    REQUIRE(become(other, kSomebody));
    CHECK(ask(other, CMI_CTL_MEM_RESERVE_SET, 0, made.key).answer.failed(CMI_ERR_PERM));
    CHECK(ask(other, CMI_CTL_MEM_RESERVE, kMiB, 0).answer.failed(CMI_ERR_PERM));
    // Nor does it keep one that it had before.
    REQUIRE(become(other, 0));
    REQUIRE(ask(other, CMI_CTL_MEM_RESERVE_SET, 0, made.key).answer.ok());
    const Answer growing = seg_get(other, 4 * kMiB, CMI_SEG_EXTENSIBLE);
    REQUIRE(growing.ok());
    REQUIRE(become(other, kSomebody));
    CHECK(seg_brk(other, growing.seg(), kMiB).failed(CMI_ERR_PERM));
    CHECK(ask(other, CMI_CTL_MEM_RESERVE, 2 * kMiB, 0).answer.failed(CMI_ERR_PERM));
    CHECK(ask(other, CMI_CTL_MEM_RESERVE_DEL, 0, 0).answer.failed(CMI_ERR_PERM));
    REQUIRE(become(other, 0));
    CHECK(seg_brk(other, growing.seg(), kMiB).ok());
    CHECK(seg_rm(other, growing.seg()).ok());
    CHECK(ctl_info(owner).info.max_mem_avail == 4 * kMiB);
    CHECK(ask(owner, CMI_CTL_MEM_RESERVE_DEL, 0, 0).answer.ok());
  }

  TEST_CASE("users_have_nodes_of_their_own_and_enter_no_others") {
    if (::geteuid() != 0) return skip("only root can become somebody else");
    if (kSanitized) return skip("the leak checker may not look at who has become somebody else");
    const Shared shared;
    const auto folder = [&](const char* name) {
      return std::string(shared.path.data()) + "/" + name;
    };
    Cluster cluster;
    Process& owner = cluster.spawn("node", {{"CMI_RUNTIME_DIR", folder("owner")}});
    const Reserved made = ask(owner, CMI_CTL_MEM_RESERVE, 4 * kMiB, 0);
    REQUIRE(made.answer.ok());
    const Export exported = export_segment(owner);

    // The same node's name and folder: nothing of it is there for another user.
    Process& stranger = cluster.spawn_bare("node", {{"CMI_RUNTIME_DIR", folder("owner")}});
    REQUIRE(become(stranger, kSomebody));
    CHECK(ini(stranger).failed(CMI_ERR_PERM));
    // In a folder of its own the node is another one: no reservation, no segment of the other's.
    REQUIRE(stranger.run(
        [](std::array<char, 64> to) {
          return ::setenv("CMI_RUNTIME_DIR", (std::string(to.data()) + "/stranger").c_str(), 1) ==
                 0;
        },
        shared.path));
    REQUIRE(ini(stranger).ok());
    CHECK(ask(stranger, CMI_CTL_MEM_RESERVE_SET, 0, made.key).answer.failed(CMI_ERR_INVAL));
    CHECK(seg_at(stranger, exported.seg).failed(CMI_ERR_INVAL));
    // What its owner hands on by handle and token crosses over, as to any other node.
    const Import import = import_segment(stranger, exported);
    REQUIRE(publish(owner, exported.at, 5));
    CHECK(load(stranger, import.at).value == 5);
    CHECK(ask(owner, CMI_CTL_MEM_RESERVE_DEL, 0, 0).answer.ok());
    CHECK(stranger.end() == 0);
    CHECK(owner.end() == 0);
  }

  TEST_CASE("a_runtime_folder_that_others_may_enter_is_used_by_nobody") {
    Cluster cluster;
    REQUIRE(::chmod(cluster.runtime_folder().c_str(), 0770) == 0);
    CHECK(ini(cluster.spawn_bare("node")).failed(CMI_ERR_PERM));
    REQUIRE(::chmod(cluster.runtime_folder().c_str(), 0700) == 0);
    CHECK(ini(cluster.spawn_bare("node")).ok());
  }
}

}  // namespace

}  // namespace cmi::test
