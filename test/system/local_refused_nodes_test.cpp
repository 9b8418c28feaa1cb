// Imports of the same machine whose pages are not mapped: because somebody does not want it, or
// lacks what it takes. The trace says why.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "system/local_imports.hpp"

namespace cmi::test::local_refused_nodes_test {
using namespace local_imports;

namespace {
std::atomic<int> g_enabled{0};  // in the child

std::string text_of(const std::string& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Why the pages of an import are cached, by its own trace; an empty text: they are mapped.
struct Reason {
  explicit Reason(const Cluster& cluster) : file(cluster.scratch() + "/trace") {}
  Env env() const { return with(kLocal, {{"CMI_TRACE", "seg:info"}, {"CMI_TRACE_FILE", file}}); }
  bool says(const std::string& words) const {
    return text_of(file).find("pages are cached from here on: " + words) != std::string::npos;
  }
  const std::string file;
};
}  // namespace

TEST_SUITE("local") {
  TEST_CASE("pages_are_cached_and_the_trace_says_why_where_they_cannot_be_mapped") {
    Cluster cluster;
    const Reason reason(cluster);
    Process& home = cluster.spawn("home", kLocal);
    Process& silent = cluster.spawn("silent", kNetwork);
    Process& peer = cluster.spawn("peer", reason.env());
    SUBCASE("the home does not offer it") {
      const Export exported = export_segment(silent);
      const Import import = import_segment(peer, exported);
      CHECK(publish(peer, import.at, 1));
      CHECK(load(silent, exported.at).value == 1);
      CHECK(reason.says("the home does not offer its pages"));
      CHECK_FALSE(maps(peer));
    }
    SUBCASE("the home is short of what it takes") {
      Process& poor =
          cluster.spawn("poor", with(kLocal, {{"CMI_FAULT_POINT", "local_grant_lacks=fail"}}));
      const Export exported = export_segment(poor);
      const Import import = import_segment(peer, exported);
      CHECK(publish(peer, import.at, 1));
      CHECK(load(poor, exported.at).value == 1);
      CHECK(reason.says("the home is short of memory or descriptors"));
      CHECK_FALSE(maps(peer));
    }
    SUBCASE("the home has few descriptors left") {
      const Export exported = export_segment(home);
      const Import first = import_segment(peer, exported);
      CHECK(publish(peer, first.at, 1));
      CHECK(maps(peer));
      REQUIRE(home.run([] {
        namespace fs = std::filesystem;
        const auto open = std::distance(fs::directory_iterator("/proc/self/fd"), {});
        const rlimit few{static_cast<rlim_t>(open) + 24, static_cast<rlim_t>(open) + 24};
        return setrlimit(RLIMIT_NOFILE, &few) == 0;
      }));
      for (uint64_t i = 2; i < 20; ++i) {
        const Import more = import_segment(peer, exported);
        REQUIRE(publish(peer, more.at, i));
      }
      CHECK(reason.says("the home is short of memory or descriptors"));
      // And others still come in.
      Process& late = cluster.spawn("late", kNetwork);
      CHECK(load(late, import_segment(late, exported).at).value == 19);
    }
    SUBCASE("the home's runtime folder is not to be used from here") {
      const Export exported = export_segment(home);
      const Import import = import_segment(peer, exported);
      namespace fs = std::filesystem;
      const auto open_to_others = [&](fs::perm_options how) {
        for (const std::string& file : cluster.files()) {
          if (fs::is_directory(file)) fs::permissions(file, fs::perms::others_read, how);
        }
      };
      open_to_others(fs::perm_options::add);
      CHECK(publish(peer, import.at, 1));
      open_to_others(fs::perm_options::remove);
      CHECK(load(home, exported.at).value == 1);
      CHECK(reason.says("the home's runtime folder is not the user's here, or not to be seen"));
      CHECK_FALSE(maps(peer));
    }
    SUBCASE("the token is for a part") {
      Export exported = export_segment(home);
      exported.token = tok_newva(home, exported.seg, exported.at, kPage, kAllRights);
      const Import import = import_segment(peer, exported);
      CHECK(publish(peer, import.at, 2));
      CHECK(load(home, exported.at).value == 2);
      CHECK(load(peer, import.at + kPage).cause() == CMI_ERROR_ACCESS);
      CHECK(reason.says("the token is for a part of the segment"));
    }
    SUBCASE("another thread has access") {
      const Export exported = export_segment(home);
      const Import import = import_bare(peer, exported);
      REQUIRE(set_token(peer, import.seg, exported.token).ok());
      REQUIRE(cmi_enb(peer, 1).ok());
      const bool enabled = peer.run([] {
        static std::thread other([] {
          if (start_context(CMI_VERNO).ok() && CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 1) == 0) {
            g_enabled.store(1);
          } else {
            g_enabled.store(-1);
          }
          while (g_enabled.load() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          (void)finish_context();
        });
        other.detach();
        while (g_enabled.load() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return g_enabled.load() == 1;
      });
      REQUIRE(enabled);
      CHECK(publish(peer, import.at, 3));
      CHECK(load(home, exported.at).value == 3);
      CHECK(reason.says("other threads have access"));
      peer.run([] { g_enabled.store(0); });
    }
  }

  // The file of such a cache has no memory set aside. A page without any is not filled: the copy
  // would raise SIGBUS where the library serves one, and end the process.
  TEST_CASE("an_access_is_transient_where_there_is_no_memory_for_a_cache_that_was_not_set_aside") {
    Cluster cluster;
    // Without a timeout of its own an access waits as long as its home gives signs of life; but the
    // home has no part in this.
    const Env poor{{"CMI_FAULT_POINT", "cache_no_memory=fail"},
                   {"CMI_TEST_DEFAULT_TIMEOUT", "1"},
                   {"CMI_DEAD_AFTER", "1000"}};
    Process& home = cluster.spawn("home", kLocal);
    SUBCASE("pages that turn out not to be mapped") {
      Process& peer = cluster.spawn("peer", with(kLocal, poor));
      Export exported = export_segment(home);
      exported.token = tok_newva(home, exported.seg, exported.at, kPage, kAllRights);
      const Import import = import_segment(peer, exported);
      CHECK(load(peer, import.at).cause() == CMI_ERROR_TRANSIENT);
    }
    SUBCASE("a segment that takes memory when it is touched") {
      Process& peer = cluster.spawn("peer", with(kNetwork, poor));
      const Export exported = export_segment(home, kPage, kAllRights, CMI_SEG_NORESERVE);
      const Import import = import_segment(peer, exported);
      CHECK(store(peer, import.at, 1).cause() == CMI_ERROR_TRANSIENT);
    }
  }

  TEST_CASE("an_access_is_transient_where_the_home_has_no_memory_for_a_mapped_page") {
    Cluster cluster;
    Process& home = cluster.spawn("home", kLocal);
    Process& peer = cluster.spawn("peer", with(kLocal, {{"CMI_FAULT_POINT", "local_no_memory=fail"},
                                                        {"CMI_TEST_DEFAULT_TIMEOUT", "1"},
                                                        {"CMI_DEAD_AFTER", "1000"}}));
    for (const int32_t flags : {0, CMI_SEG_EXTENSIBLE}) {
      const Export exported =
          export_segment(home, 2 * kPage, kAllRights, flags | CMI_SEG_NORESERVE);
      if (flags != 0) REQUIRE(seg_brk(home, exported.seg, 2 * kPage).ok());
      const Import import = import_segment(peer, exported);
      CHECK(load(peer, import.at).cause() == CMI_ERROR_TRANSIENT);
      CHECK(store(peer, import.at + kPage, 1).cause() == CMI_ERROR_TRANSIENT);
    }
    CHECK(maps(peer));
  }

  TEST_CASE("CMI_LOCAL_is_on_or_off") {
    Cluster cluster;
    Process& process = cluster.spawn_bare("node", {{"CMI_LOCAL", "maybe"}});
    CHECK(ini(process).failed(CMI_ERR_INVAL));
    // A name that says that pages are mapped, and a variable that says they are not.
    Process& both = cluster.spawn_bare("both", {{"CMI_PROVIDER", "shm"}, {"CMI_LOCAL", "off"}});
    CHECK(ini(both).failed(CMI_ERR_INVAL));
  }

  TEST_CASE("pages_are_mapped_unless_a_provider_of_a_network_is_named_alone") {
    Cluster cluster;
    Process& home = cluster.spawn("home", kLocal);
    const Export exported = export_segment(home);
    REQUIRE(publish(home, exported.at, 181));
    struct Row {
      const char *provider, *node;  // empty: not set
      bool mapped;
    };
    for (const Row& row : {Row{"", "e", true}, Row{"local", "a", true}, Row{"shm", "b", true},
                           Row{"shm,tcp", "c", true}, Row{"tcp", "d", false}}) {
      CAPTURE(row.provider);
      Process& peer = cluster.spawn_bare(row.node, {{"CMI_PROVIDER", row.provider}});
      peer.run([] {
        ::unsetenv("CMI_LOCAL");  // which the cluster sets for all other tests
        const char* const provider = std::getenv("CMI_PROVIDER");
        if (provider != nullptr && *provider == 0) ::unsetenv("CMI_PROVIDER");
      });
      REQUIRE(ini(peer).ok());
      const Import import = import_segment(peer, exported);
      CHECK(load(peer, import.at).value == 181);
      CHECK(maps(peer) == row.mapped);
    }
  }
}

}  // namespace cmi::test::local_refused_nodes_test
