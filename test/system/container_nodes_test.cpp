// In a container: what Docker's default profile leaves, what has to be allowed, and who says so.
#include <doctest/doctest.h>

#include <fstream>
#include <iterator>

#include "support/skip.hpp"
#include "system/calls.hpp"
#include "system/cmiadm.hpp"
#include "system/container.hpp"

namespace cmi::test::container_nodes_test {

namespace {

// Two nodes share, revoke and end as anywhere.
void share_memory(Cluster& cluster) {
  Process& home = cluster.spawn("home");
  Process& peer = cluster.spawn("peer");
  const Export exported = export_segment(home);
  const Import import = import_segment(peer, exported);
  CHECK(publish(peer, import.at, 5));
  CHECK(load(home, exported.at).value == 5);
  CHECK(publish(home, exported.at, 6));
  CHECK(load(peer, import.at).value == 6);
  CHECK(atm_cas(peer, import.at, 6, 7).swapped);
  CHECK(load(home, exported.at).value == 7);
  CHECK(tok_del(home, exported.token).ok());
  CHECK(load(peer, import.at).cause() == CMI_ERROR_TOKEN);
}

std::string health_of(const Cluster& cluster, const std::string& what,
                      std::string* mend = nullptr) {
  const Ran ran = cmiadm(cluster, {"doctor", "--json"});
  const Value report = parse_json(ran.out);
  const Value* finding = report["findings"].find("what", what);
  REQUIRE_MESSAGE(finding != nullptr, ran.out);
  if (mend != nullptr) *mend = (*finding)["mend"].text;
  return (*finding)["health"].text;
}

TEST_SUITE("container") {
  TEST_CASE("under_dockers_default_profile_cmi_ini_says_what_to_allow_and_so_does_the_doctor") {
    Container container(Allowed::kNothing);
    if (!container.here()) return skip(container.reason());
    Cluster cluster;
    const std::string log = cluster.scratch() + "/log";
    Process& process =
        cluster.spawn_bare("node", {{"CMI_TRACE", "ini:error"}, {"CMI_TRACE_FILE", log}});
    CHECK(ini(process).failed(CMI_ERR_NOTSUPP));
    std::ifstream file(log);
    const std::string said{std::istreambuf_iterator<char>(file), {}};
    CHECK_MESSAGE(said.find("seccomp profile") != said.npos, said);
    CHECK_MESSAGE(said.find("/dev/userfaultfd") != said.npos, said);
    std::string mend;
    CHECK(health_of(cluster, "userfaultfd", &mend) == "BROKEN");
    CHECK_MESSAGE(mend.find("--device /dev/userfaultfd") != mend.npos, mend);
    CHECK_MESSAGE(mend.find("--security-opt seccomp=") != mend.npos, mend);
    for (const char* what : {"environment", "kernel", "provider", "transfer"}) {
      CHECK_MESSAGE(health_of(cluster, what) == "ok", what);
    }
  }

  TEST_CASE("in_a_container_that_may_call_userfaultfd_nodes_share_memory_without_privileges") {
    Container container(Allowed::kUserfaultCall);
    if (!container.here()) return skip(container.reason());
    Cluster cluster;
    CHECK(health_of(cluster, "userfaultfd") == "ok");
    share_memory(cluster);
  }

  TEST_CASE("in_a_container_that_is_given_dev_userfaultfd_nodes_share_memory") {
    Container container(Allowed::kUserfaultDevice);
    if (!container.here()) return skip(container.reason());
    Cluster cluster;
    CHECK(health_of(cluster, "userfaultfd") == "ok");
    share_memory(cluster);
  }

  TEST_CASE("a_containers_dev_shm_bounds_its_segments_and_the_doctor_says_so") {
    Container container(Allowed::kUserfaultCall);
    if (!container.here()) return skip(container.reason());
    Cluster cluster;
    Process& home = cluster.spawn("home");
    CHECK(seg_get(home, Container::kSharedMemory + (1u << 20)).failed(CMI_ERR_NOMEM));
    const Answer half = seg_get(home, Container::kSharedMemory / 2);
    REQUIRE(half.ok());
    CHECK(seg_get(home, Container::kSharedMemory / 2 + (1u << 20)).failed(CMI_ERR_NOMEM));
    CHECK(seg_rm(home, half.seg()).ok());
    CHECK(health_of(cluster, "shared memory") == "limited");
  }
}

}  // namespace

}  // namespace cmi::test::container_nodes_test
