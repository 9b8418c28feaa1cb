// Home and importer on one machine in namespaces of their own: pages are mapped where the home's
// runtime folder is seen under its path, whatever the network and the processes' numbers; else they
// are cached, and the trace says why.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "core/base/fd.hpp"
#include "fault/network.hpp"
#include "support/skip.hpp"
#include "system/calls.hpp"

namespace cmi::test::namespaces_test {

namespace {
constexpr const char* kMapped = "";

// What the importer's trace says of its pages.
class Trace {
 public:
  explicit Trace(const Cluster& cluster) : file_(cluster.scratch() + "/trace") {}
  Env env() const {
    return {{"CMI_LOCAL", "on"}, {"CMI_TRACE", "seg:info"}, {"CMI_TRACE_FILE", file_}};
  }
  // Why they are cached; empty: nothing was said.
  std::string reason() const {
    std::ifstream in(file_);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const std::string before = "pages are cached from here on: ";
    const size_t at = text.find(before);
    if (at == std::string::npos) return {};
    const size_t from = at + before.size();
    return text.substr(from, text.find('\n', from) - from);
  }

 private:
  const std::string file_;
};

// The two share a page, and the importer has mapped it, or says why it has not.
void share(Process& home, Process& peer, const Trace& trace, const char* reason) {
  const Export exported = export_segment(home, 4 * kPage);
  const Import import = import_segment(peer, exported);
  REQUIRE(publish(home, exported.at, 1));
  CHECK(load(peer, import.at).value == 1);
  REQUIRE(publish(peer, import.at, 2));
  CHECK(load(home, exported.at).value == 2);
  CHECK(atm_cas(peer, import.at, 2, 3).swapped);
  CHECK(load(home, exported.at).value == 3);
  CHECK(trace.reason().find(reason) != std::string::npos);
  const cmi_ofi_stats counts = peer.run([] { return stats(); });
  const bool mapped = counts.pages_fetched == 0 && counts.load_misses == 0;
  CHECK(mapped == (reason == kMapped));
  if (reason == kMapped) CHECK(trace.reason().empty());
}

// A mount namespace for this process and the children that it starts from now on.
class Mounts {
 public:
  Mounts() {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
      reason_ = std::string("no mount namespace: ") + std::strerror(errno);
    }
  }
  ~Mounts() {
    for (; mounted_ > 0; --mounted_) ::umount2(folder_.c_str(), MNT_DETACH);
  }
  Mounts(const Mounts&) = delete;
  Mounts& operator=(const Mounts&) = delete;

  const char* reason() const { return reason_.empty() ? nullptr : reason_.c_str(); }
  // An empty folder in the place of this one.
  bool hide(const std::string& folder) {
    return noted(folder, ::mount("none", folder.c_str(), "tmpfs", 0, "mode=0700"));
  }
  // What the descriptor of a folder stands for, in the place of the one that was hidden.
  bool bind(const Fd& from, const std::string& folder) {
    const std::string path = "/proc/self/fd/" + std::to_string(from.get());
    return noted(folder, ::mount(path.c_str(), folder.c_str(), nullptr, MS_BIND, nullptr));
  }

 private:
  bool noted(const std::string& folder, int result) {
    folder_ = folder;
    mounted_ += result == 0 ? 1 : 0;
    return result == 0;
  }

  std::string reason_, folder_;
  int mounted_ = 0;
};
}  // namespace

TEST_SUITE("local") {
  TEST_CASE("pages_are_mapped_across_network_namespaces_where_the_runtime_folder_is_shared") {
    Cluster cluster;
    Network net(cluster);
    if (!net.here()) return skip(net.reason());
    net.join("home");
    net.join("peer");
    const Trace trace(cluster);
    Process& home = cluster.spawn("home", {{"CMI_LOCAL", "on"}});
    share(home, cluster.spawn("peer", trace.env()), trace, kMapped);
  }

  // What listens on loopback is another namespace's loopback all the same.
  TEST_CASE("a_home_on_the_loopback_of_another_network_namespace_is_not_imported_from") {
    Cluster cluster;
    Network net(cluster);
    if (!net.here()) return skip(net.reason());
    net.join("home");
    net.join("peer");
    const Env on_loopback{{"CMI_LOCAL", "on"}, {"CMI_ADDRESS", "127.0.0.1"}};
    Process& home = cluster.spawn("home", on_loopback);
    Process& peer = cluster.spawn("peer", on_loopback);
    CHECK_FALSE(seg_imp(peer, export_segment(home).handle).ok());
  }

  TEST_CASE("pages_are_cached_across_network_namespaces_where_the_runtime_folder_is_not_seen") {
    Cluster cluster;
    Network net(cluster);
    if (!net.here()) return skip(net.reason());
    net.join("home");
    net.join("peer");
    const Trace trace(cluster);
    Process& home = cluster.spawn("home", {{"CMI_LOCAL", "on"}});
    Mounts mounts;
    if (mounts.reason() != nullptr) return skip(mounts.reason());
    REQUIRE(mounts.hide(cluster.runtime_folder()));
    share(home, cluster.spawn("peer", trace.env()), trace, "not to be seen");
  }

  TEST_CASE("pages_are_mapped_across_pid_namespaces") {
    Cluster cluster;
    const Trace trace(cluster);
    Process& home = cluster.spawn("home", {{"CMI_LOCAL", "on"}});
    const Fd own(::open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC));
    if (::unshare(CLONE_NEWPID) != 0) return skip("no pid namespace can be made");
    Process& peer = cluster.spawn("peer", trace.env());
    // What this process starts later is in its own again.
    REQUIRE(::setns(own.get(), CLONE_NEWPID) == 0);
    CHECK(peer.run([] { return ::getpid(); }) == 1);
    share(home, peer, trace, kMapped);
  }

  TEST_CASE("pages_are_mapped_in_a_mount_namespace_that_binds_the_homes_runtime_folder") {
    Cluster cluster;
    const Trace trace(cluster);
    Process& home = cluster.spawn("home", {{"CMI_LOCAL", "on"}});
    const std::string folder = cluster.runtime_folder();
    Mounts mounts;
    if (mounts.reason() != nullptr) return skip(mounts.reason());
    // A container of its own below the same path, into which the host's folder is mounted.
    const Fd shared(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    REQUIRE(mounts.hide(folder));
    REQUIRE(mounts.bind(shared, folder));
    share(home, cluster.spawn("peer", trace.env()), trace, kMapped);
  }

  // As in containers that have the host's network and a /dev/shm each: the paths are the same.
  TEST_CASE("another_context_in_the_place_of_the_home_below_the_same_path_is_not_taken_for_it") {
    Cluster cluster;
    const Trace trace(cluster);
    Process& home = cluster.spawn("home", {{"CMI_LOCAL", "on"}});
    Mounts mounts;
    if (mounts.reason() != nullptr) return skip(mounts.reason());
    REQUIRE(mounts.hide(cluster.runtime_folder()));
    cluster.spawn("home", {{"CMI_LOCAL", "on"}});
    share(home, cluster.spawn("peer", trace.env()), trace, "another context is in the place");
  }
}

}  // namespace cmi::test::namespaces_test
