// cmiadm doctor on machines that lack something: it says what cmi_ini() will come to, in which of
// its stages, and what mends that. And machines that lack what libcmi can do without. Each case
// takes namespaces or limits for its process that cannot be left again.
#include <doctest/doctest.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>

#include "fabric/own_network.hpp"
#include "support/sanitized.hpp"
#include "support/skip.hpp"
#include "system/calls.hpp"
#include "system/cmiadm.hpp"

namespace cmi::test::doctor_nodes_test {
namespace {

constexpr const char* kWrongAdvice[] = {"libfabric1", "boot Linux"};

struct Seen {
  Ran ran;
  std::string found, mend;  // of cmi_ini
  bool good = false;
};

Seen doctor(Cluster& cluster, const Env& env) {
  Seen seen;
  seen.ran = cmiadm(cluster, {"doctor", "--json"}, env);
  const Value report = parse_json(seen.ran.out);
  const Value* finding = report["findings"].find("what", std::string("cmi_ini"));
  REQUIRE_MESSAGE(finding != nullptr, seen.ran.out);
  seen.found = (*finding)["found"].text;
  seen.mend = (*finding)["mend"].text;
  seen.good = (*finding)["health"].text == "ok";
  CHECK_MESSAGE((seen.ran.status == 0) == seen.good, seen.ran.out);
  for (const char* words : kWrongAdvice) {
    const bool wrong = seen.ran.says(words);
    CHECK_MESSAGE(!wrong, seen.ran.out);
  }
  return seen;
}

// Runs the doctor, and beside it what it speaks of: the two must agree.
Seen doctor_and_cmi_ini(Cluster& cluster, const Env& env = {}) {
  const Seen seen = doctor(cluster, env);
  Process& process = cluster.spawn_bare("node", env);
  CHECK_MESSAGE(ini(process).ok() == seen.good, seen.ran.out);
  return seen;
}

// An empty folder in the place of this one, in a mount namespace of our own. Null, or why not.
const char* hide_folder(const char* folder) {
  if (geteuid() != 0) return "mounting takes root";
  if (unshare(CLONE_NEWNS) != 0 ||
      mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("tmpfs", folder, "tmpfs", 0, "mode=0755") != 0) {
    return "no mounts of our own here";
  }
  return nullptr;
}

void share_a_word(Cluster& cluster, const Env& env = {}) {
  Process& home = cluster.spawn("home", env);
  Process& peer = cluster.spawn("peer", env);
  const Export exported = export_segment(home);
  const Import import = import_segment(peer, exported);
  CHECK(publish(peer, import.at, 5));
  CHECK(load(home, exported.at).value == 5);
}

TEST_SUITE("doctor") {
  TEST_CASE("the_doctor_names_the_interface_where_lo_is_down") {
    if (const char* why = enter_own_network()) return skip(why);
    if (!run_ip("link set lo down")) return skip("no network of our own here");
    Cluster cluster;
    const Seen seen = doctor_and_cmi_ini(cluster);
    CHECK_FALSE(seen.good);
    CHECK_MESSAGE(seen.found.find("opening the network") != std::string::npos, seen.found);
    CHECK_MESSAGE(seen.ran.says("ip link set lo up"), seen.ran.out);
  }

  TEST_CASE("with_ipv6_alone_nodes_of_one_machine_find_each_other_by_default") {
    if (const char* why = enter_own_network()) return skip(why);
    if (!run_ip("-6 addr show dev lo | grep -q ::1 && ip addr del 127.0.0.1/8 dev lo")) {
      return skip("no IPv6 on this machine");
    }
    Cluster cluster;
    CHECK(doctor_and_cmi_ini(cluster).good);
    share_a_word(cluster);
  }

  TEST_CASE("auto_says_nothing_where_some_addresses_cannot_be_used") {
    if (const char* why = enter_own_network()) return skip(why);
    if (!add_interface("lan0", "2001:db8::5/64 nodad") || !run_ip("addr del 127.0.0.1/8 dev lo")) {
      return skip("no IPv6 on this machine");
    }
    Cluster cluster;
    const std::string log = cluster.scratch() + "/log";
    const Env env{{"CMI_ADDRESS", "auto"}, {"CMI_TRACE", "ini:error"}, {"CMI_TRACE_FILE", log}};
    CHECK(doctor_and_cmi_ini(cluster, env).good);
    std::ifstream file(log);
    const std::string said{std::istreambuf_iterator<char>(file), {}};
    CHECK_MESSAGE(said.empty(), said);
  }

  TEST_CASE("the_doctor_says_whether_pages_of_homes_on_this_machine_are_mapped") {
    Cluster cluster;
    const auto found = [&](const Env& env) {
      const Ran ran = cmiadm(cluster, {"doctor", "--json"}, env);
      const Value report = parse_json(ran.out);
      const Value* const finding =
          report["findings"].find("what", std::string("homes of this machine"));
      REQUIRE_MESSAGE(finding != nullptr, ran.out);
      return (*finding)["found"].text;
    };
    CHECK(found({{"CMI_LOCAL", "on"}}) == "their pages are mapped");
    CHECK(found({{"CMI_LOCAL", "off"}}).find("CMI_LOCAL") != std::string::npos);
    CHECK(found({{"CMI_LOCAL", "on"}, {"CMI_KERNEL", "6.1"}}).find("6.4") != std::string::npos);
  }

  TEST_CASE("the_doctor_names_the_limit_where_descriptors_are_out") {
    if (kSanitized) return skip("a sanitizer needs descriptors of its own");
    Cluster cluster;
    rlimit files{};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &files) == 0);
    files.rlim_cur = 28;
    REQUIRE(setrlimit(RLIMIT_NOFILE, &files) == 0);
    const Seen seen = doctor_and_cmi_ini(cluster);
    CHECK_FALSE(seen.good);
    CHECK_MESSAGE(seen.mend.find("ulimit -n") != std::string::npos, seen.ran.out);
  }

  TEST_CASE("the_doctor_says_where_proc_is_not_mounted") {
    if (kSanitized) return skip("a sanitizer needs /proc");
    Cluster cluster;
    Process& process = cluster.spawn_bare("node");  // which is started by way of /proc
    if (const char* why = hide_folder("/proc")) return skip(why);
    const Seen seen = doctor(cluster, {});
    umount2("/proc", MNT_DETACH);
    CHECK(process.run([] { return hide_folder("/proc") == nullptr; }));
    CHECK(ini(process).failed(CMI_ERR_NOTSUPP));
    CHECK_FALSE(seen.good);
    CHECK_MESSAGE(seen.found.find("joining the node") != std::string::npos, seen.found);
    CHECK_MESSAGE(seen.found.find("/proc is not mounted") != std::string::npos, seen.found);
    CHECK_MESSAGE(seen.ran.says("mount -t proc proc /proc"), seen.ran.out);
  }

  TEST_CASE("without_sysfs_nothing_is_written_to_standard_error") {
    Cluster cluster;
    if (const char* why = hide_folder("/sys")) return skip(why);
    const Seen seen = doctor_and_cmi_ini(cluster);
    CHECK(seen.good);
    CHECK_MESSAGE(seen.ran.err.empty(), seen.ran.err);
  }
}

}  // namespace
}  // namespace cmi::test::doctor_nodes_test
