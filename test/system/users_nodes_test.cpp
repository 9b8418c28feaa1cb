// Several users on one machine: what they share is what the runtime folder lets them.
#include <doctest/doctest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "support/sanitized.hpp"
#include "support/skip.hpp"
#include "system/calls.hpp"

namespace cmi::test::users_nodes_test {

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

// In a mount namespace of this process, where the device is one that everybody may open, or that
// root alone may. False: that cannot be.
bool device_for_all_or_for_root_alone(const std::array<char, 64>& folder, bool for_all) {
  constexpr const char* kDevice = "/dev/userfaultfd";
  struct stat device;
  if (::stat(kDevice, &device) != 0) return true;  // an older kernel's, or hidden: nobody may
  const std::string own = std::string(folder.data()) + "/device";
  ::mkdir(own.c_str(), 0700);
  const std::string node = own + "/userfaultfd";
  return ::unshare(CLONE_NEWNS) == 0 &&
         ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("own", own.c_str(), "tmpfs", 0, nullptr) == 0 &&
         ::mknod(node.c_str(), S_IFCHR | 0600, device.st_rdev) == 0 &&
         ::chmod(node.c_str(), for_all ? 0666 : 0600) == 0 &&
         ::mount(node.c_str(), kDevice, nullptr, MS_BIND, nullptr) == 0;
}

bool everybody_may_call_userfaultfd() {
  std::ifstream setting("/proc/sys/vm/unprivileged_userfaultfd");
  return setting.get() == '1';
}

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

  // As for a container that is given the device, or after `chmod 666`.
  TEST_CASE("an_ordinary_user_has_fault_threads_where_he_may_open_the_device") {
    if (::geteuid() != 0) return skip("only root can become somebody else");
    if (kSanitized) return skip("the leak checker may not look at who has become somebody else");
    const Shared shared;
    Cluster cluster;
    Process& home = cluster.spawn("home");
    const Export exported = export_segment(home);
    REQUIRE(publish(home, exported.at, 7));
    const auto somebody = [&](const char* name, bool allowed) -> Process& {
      const std::string folder = std::string(shared.path.data()) + "/" + name;
      Process& process =
          cluster.spawn_bare(name, {{"CMI_RUNTIME_DIR", folder}, {"CMI_FAULT", "thread"}});
      REQUIRE(
          process.run([](std::array<char, 64> at,
                         bool for_all) { return device_for_all_or_for_root_alone(at, for_all); },
                      shared.path, allowed));
      REQUIRE(become(process, kSomebody));
      return process;
    };
    Process& may_not = somebody("may-not", false);
    Process& may = somebody("may", true);
    const Answer started = ini(may);
    if (started.failed(CMI_ERR_NOTSUPP)) return skip("no /dev/userfaultfd, or a kernel before 6.6");
    REQUIRE(started.ok());
    if (!everybody_may_call_userfaultfd()) CHECK(ini(may_not).failed(CMI_ERR_NOTSUPP));
    const Import import = import_segment(may, exported);
    const auto written_by_the_kernel = [](uint64_t at) {
      const Fd file(static_cast<int>(::memfd_create("copy", MFD_CLOEXEC)));
      uint64_t value = 0;
      const bool good = ::write(file.get(), reinterpret_cast<void*>(at), 8) == 8 &&
                        ::pread(file.get(), &value, 8, 0) == 8;
      return good ? value : 0;
    };
    CHECK(may.run(written_by_the_kernel, import.at) == 7);
    CHECK(store(may, import.at, 8).cause() == Fault::kNone);
    REQUIRE(wmb(may).ok());
    CHECK(load(home, exported.at).value == 8);
    CHECK(may.end() == 0);
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

}  // namespace cmi::test::users_nodes_test
