// Imports whose home is on the same machine: they map its pages (CMI_LOCAL=on). What clients see is
// the same as over the network, and the existing cases say it once more under the label local; here
// stands what is about the mapping itself.
#include <cmi/ofi/cmi_sync.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <thread>

#include "core/base/clock.hpp"
#include "support/passages.hpp"
#include "system/calls.hpp"
#include "system/stopped.hpp"

namespace cmi::test::local_nodes_test {

namespace {
const Env kLocal{{"CMI_LOCAL", "on"}};
std::atomic<int> g_enabled{0};  // in the child
const Env kNetwork{{"CMI_LOCAL", "off"}};

Env with(Env env, const Env& more) {
  env.insert(env.end(), more.begin(), more.end());
  return env;
}

// A home, an importer that maps its pages, and one that has a cache.
struct Three {
  Cluster cluster;
  Process& home;
  Process& mapper;
  Process& cacher;
  Export exported;
  Import mapped, cached;
  explicit Three(const Env& of_mapper = {}, int32_t flags = 0)
      : home(cluster.spawn("home", with(kLocal, {{"CMI_DEAD_AFTER", "2000"}}))),
        mapper(cluster.spawn("mapper", with(kLocal, of_mapper))),
        cacher(cluster.spawn("cacher", kNetwork)),
        exported(export_segment(home, 16 * kPage, kAllRights, flags)),
        mapped(import_segment(mapper, exported)),
        cached(import_segment(cacher, exported)) {}
};

cmi_ofi_stats stats_of(Process& process) {
  return process.run([] { return stats(); });
}

// Nothing of the segment was cached here.
bool maps(Process& process) {
  const cmi_ofi_stats s = stats_of(process);
  return s.pages_fetched == 0 && s.load_misses == 0 && s.store_misses == 0;
}

std::string text_of(const std::string& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Writes anything into the files of that name that the process shares with others of the machine:
// those of marks, or the rings.
size_t lie_in_shared_memory(uint64_t seed, const char* name = "cmi-local") {
  std::ifstream maps("/proc/self/maps");
  // Not by stores: a ring that the library finds broken is unmapped meanwhile.
  const Fd memory(::open("/proc/self/mem", O_RDWR | O_CLOEXEC));
  size_t found = 0;
  for (std::string line; std::getline(maps, line);) {
    uint64_t from = 0, to = 0;
    if (line.find(name) == std::string::npos ||
        std::sscanf(line.c_str(), "%lx-%lx", &from, &to) != 2) {
      continue;
    }
    ++found;
    for (uint64_t at = from; at < to; at += sizeof(uint32_t)) {
      seed = seed * 6364136223846793005 + 1442695040888963407;
      const auto word = static_cast<uint32_t>(seed >> 33);
      if (::pwrite(memory.get(), &word, sizeof word, static_cast<off_t>(at)) != sizeof word) break;
    }
  }
  return found;
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
// A second mapping of the same file, as a process that means harm would keep one: nobody watches
// it.
uint64_t keep_mapping(Process& process, uint64_t at, uint64_t size) {
  // The import maps its pages with its first access.
  REQUIRE(load(process, at).cause() == Fault::kNone);
  const uint64_t kept = process.run(
      [](uint64_t from, uint64_t bytes) {
        void* const again = ::mremap(reinterpret_cast<void*>(from), 0, bytes, MREMAP_MAYMOVE);
        return again != MAP_FAILED ? reinterpret_cast<uint64_t>(again) : 0;
      },
      at, size);
  REQUIRE(kept != 0);
  return kept;
}

// What the kernel finds at an address, without a fault of the process.
struct Peeked {
  int error = 0;
  uint64_t value = 0;
};
Peeked peek(Process& process, uint64_t at) {
  return process.run(
      [](uint64_t from) {
        int ends[2];
        Peeked found;
        if (::pipe2(ends, O_CLOEXEC) != 0) return Peeked{errno};
        const bool there = ::write(ends[1], reinterpret_cast<const void*>(from),
                                   sizeof found.value) == static_cast<ssize_t>(sizeof found.value);
        found.error = there ? 0 : errno;
        if (there && ::read(ends[0], &found.value, sizeof found.value) < 0) found.error = errno;
        ::close(ends[0]);
        ::close(ends[1]);
        return found;
      },
      at);
}

// Pages of the file that is mapped at that address which any mapping of the process has.
uint64_t resident(const Process& process, uint64_t at) {
  std::ifstream maps("/proc/" + std::to_string(process.pid()) + "/smaps");
  std::map<std::string, uint64_t> pages;  // by device and inode
  std::string file, of_address;
  for (std::string line; std::getline(maps, line);) {
    uint64_t from = 0, to = 0, kib = 0;
    char rights[8], device[16];
    unsigned long long offset = 0, inode = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %7s %llx %15s %llu", &from, &to, rights, &offset, device,
                    &inode) == 6) {
      file = device + (" " + std::to_string(inode));
      if (at >= from && at < to) of_address = file;
    } else if (std::sscanf(line.c_str(), "Rss: %lu kB", &kib) == 1) {
      pages[file] += kib * 1024 / kPage;
    }
  }
  REQUIRE(!of_address.empty());
  return pages[of_address];
}

// In the child: loads one word until an access is refused. Begun, it says so in the word behind.
struct Loads {
  int cause = Fault::kNone;
  uint64_t others = 0;   // loads that brought another value than the first
  Nanos last_begun = 0;  // of those that were not refused
};
constexpr uint64_t kBegun = 77;
constexpr auto load_until_refused = [](uint64_t at) {
  Loads done;
  const uint64_t first = load64(at).value;
  done.cause = store64(at + 8, kBegun).cause();
  while (done.cause == Fault::kNone) {
    const Nanos begun = now();
    const Access one = load64(at);
    done.cause = one.cause();
    if (one.cause() != Fault::kNone) break;
    if (one.value != first) ++done.others;
    done.last_begun = begun;
  }
  return done;
};
}  // namespace

TEST_SUITE("local") {
  TEST_CASE("a_home_of_the_same_machine_is_mapped_and_nothing_is_cached") {
    Three t;
    REQUIRE(publish(t.home, t.exported.at, 41));
    CHECK(load(t.mapper, t.mapped.at).value == 41);
    CHECK(store(t.mapper, t.mapped.at + kPage, 42).cause() == Fault::kNone);
    CHECK(load(t.home, t.exported.at + kPage).value == 42);  // no barrier comes between
    CHECK(store(t.home, t.exported.at + kPage, 43).cause() == Fault::kNone);
    CHECK(load(t.mapper, t.mapped.at + kPage).value == 43);
    CHECK(maps(t.mapper));
    CHECK(load(t.cacher, t.cached.at).value == 41);
    CHECK_FALSE(maps(t.cacher));
  }

  TEST_CASE("a_third_node_hears_of_stores_to_mapped_pages_by_the_barrier") {
    Three t;
    for (uint64_t round = 1; round < 50; ++round) {
      REQUIRE(load(t.cacher, t.cached.at).cause() == Fault::kNone);
      REQUIRE(publish(t.mapper, t.mapped.at, round));
      CHECK(load(t.cacher, t.cached.at).value == round);
    }
    CHECK(maps(t.mapper));
  }

  TEST_CASE("a_third_node_misses_stores_to_mapped_pages_that_are_not_announced") {
    Three t(Env{{"CMI_FAULT_POINT", "mutate_mapped_stores_unannounced=fail"}});
    REQUIRE(load(t.cacher, t.cached.at).value == 0);
    REQUIRE(publish(t.mapper, t.mapped.at, 51));
    CHECK(load(t.home, t.exported.at).value == 51);
    CHECK(load(t.cacher, t.cached.at).value == 0);
  }

  TEST_CASE("a_third_node_hears_of_stores_to_mapped_pages_by_the_timer") {
    Three t;
    REQUIRE(load(t.cacher, t.cached.at).value == 0);
    REQUIRE(store(t.mapper, t.mapped.at, 51).cause() == Fault::kNone);
    CHECK(load_until(t.cacher, t.cached.at, 51) == 51);
    // Stored to again, it is found again.
    REQUIRE(store(t.mapper, t.mapped.at, 52).cause() == Fault::kNone);
    CHECK(load_until(t.cacher, t.cached.at, 52) == 52);
  }

  TEST_CASE("stores_of_a_third_node_are_seen_in_mapped_pages") {
    Three t;
    REQUIRE(load(t.mapper, t.mapped.at).value == 0);
    REQUIRE(publish(t.cacher, t.cached.at, 61));
    CHECK(load(t.mapper, t.mapped.at).value == 61);
    // Both have stored to the page: neither loses its bytes.
    REQUIRE(store(t.mapper, t.mapped.at + 8, 62).cause() == Fault::kNone);
    REQUIRE(publish(t.cacher, t.cached.at + 16, 63));
    REQUIRE(wmb(t.mapper).ok());
    for (Process* p : {&t.mapper, &t.cacher}) {
      const uint64_t at = p == &t.mapper ? t.mapped.at : t.cached.at;
      CHECK(load(*p, at + 8).value == 62);
      CHECK(load(*p, at + 16).value == 63);
    }
  }

  TEST_CASE("swaps_of_all_three_on_one_word_of_a_mapped_page_are_one_order") {
    Three t;
    constexpr uint64_t kRounds = 30;
    struct One {
      Process& process;
      uint64_t at;
    };
    for (uint64_t round = 0; round < kRounds; ++round) {
      for (const One& one :
           {One{t.mapper, t.mapped.at}, One{t.cacher, t.cached.at}, One{t.home, t.exported.at}}) {
        const uint64_t before = load(one.process, one.at).value;
        CHECK(atm_cas(one.process, one.at, before, before + 1).swapped);
      }
    }
    CHECK(load(t.mapper, t.mapped.at).value == 3 * kRounds);
    CHECK(load(t.cacher, t.cached.at).value == 3 * kRounds);
  }

  TEST_CASE("a_third_node_hears_of_a_swap_in_a_mapped_page_before_atm_cas_returns") {
    Three t(Env{{"CMI_FAULT_POINT", "no_aging=fail"}});
    for (uint64_t round = 0; round < 20; ++round) {
      REQUIRE(load(t.cacher, t.cached.at).value == round);
      CHECK(atm_cas(t.mapper, t.mapped.at, round, round + 1).swapped);
      CHECK(load(t.cacher, t.cached.at).value == round + 1);
    }
    // What is lost changes nothing, and nobody is told.
    const auto told = stats_of(t.mapper).publications;
    CHECK_FALSE(atm_cas(t.mapper, t.mapped.at, 7, 8).swapped);
    CHECK(stats_of(t.mapper).publications == told);
    CHECK(maps(t.mapper));
  }

  // The page of the swaps stays writable, so the barrier before them looks at counts.
  TEST_CASE("swaps_in_a_page_that_nobody_caches_publish_what_was_stored_elsewhere_before_them") {
    Three t(Env{{"CMI_FAULT_POINT", "no_aging=fail"}});
    Process& other = t.cluster.spawn("other", kLocal);
    const Export locks = export_segment(other, 4 * kPage);
    const Import lock = import_segment(t.mapper, locks);
    for (uint64_t round = 0; round < 20; ++round) {
      REQUIRE(load(t.cacher, t.cached.at).value == round);
      for (uint64_t k = 0; k < 3; ++k) {
        CHECK(atm_cas(t.mapper, lock.at, 4 * round + k, 4 * round + k + 1).swapped);
      }
      REQUIRE(store(t.mapper, t.mapped.at, round + 1).cause() == Fault::kNone);
      CHECK(atm_cas(t.mapper, lock.at, 4 * round + 3, 4 * round + 4).swapped);
      CHECK(load(t.cacher, t.cached.at).value == round + 1);
    }
    CHECK(load(other, locks.at).value == 80);
    CHECK(maps(t.mapper));
  }

  // As over the network: the swap goes on when the handler returns. Made twice, it would find what
  // the handler has put there.
  TEST_CASE("a_swap_in_a_mapped_page_is_over_when_a_third_node_has_heard_of_it_and_made_once") {
    Three t(Env{{"CMI_FAULT_POINT", "no_aging=fail"}});
    REQUIRE(load(t.cacher, t.cached.at).value == 0);
    REQUIRE(load(t.mapper, t.mapped.at).value == 0);
    t.home.stop();
    auto swap = t.mapper.start(
        [](uint64_t at, int stopped) {
          static uint64_t word;
          static int pid;
          word = at;
          pid = stopped;
          set_on_fault([](const Fault& fault) {
            if (fault.error != CMI_ERROR_TRANSIENT) return false;
            ::kill(pid, SIGCONT);
            const Deadline end = Deadline::in(10 * kSecond);
            for (uint64_t found = 0; found != 1 && !end.passed();) {
              (void)CMIFN(ctxt(), 10, atm_cas)(ctxt(), reinterpret_cast<uint64_t*>(word), 1, 0,
                                               &found);
            }
            return true;
          });
          uint64_t found = 7;
          int result = -1;
          auto body = [&] {
            result =
                CMIFN(ctxt(), 10, atm_cas)(ctxt(), reinterpret_cast<uint64_t*>(at), 0, 1, &found);
          };
          const Fault fault = guarded(body);
          set_on_fault(nullptr);
          return fault.cause() == CMI_ERROR_TRANSIENT && result == 0 && found == 0;
        },
        t.mapped.at, static_cast<int>(t.home.pid()));
    CHECK(swap.finish());
    CHECK(load(t.home, t.exported.at).value == 0);
    CHECK(load(t.cacher, t.cached.at).value == 0);
    CHECK(maps(t.mapper));
  }

  TEST_CASE("a_third_node_misses_a_swap_in_a_mapped_page_that_is_not_announced") {
    Three t(Env{{"CMI_FAULT_POINT", "no_aging=fail;mutate_mapped_swap_unannounced=fail"}});
    REQUIRE(load(t.cacher, t.cached.at).value == 0);
    CHECK(atm_cas(t.mapper, t.mapped.at, 0, 1).swapped);
    CHECK(load(t.home, t.exported.at).value == 1);
    CHECK(load(t.cacher, t.cached.at).value == 0);
  }

  TEST_CASE("nobody_is_told_of_stores_and_swaps_while_all_who_use_the_segment_map_it") {
    Cluster cluster;
    Process& home = cluster.spawn("home", kLocal);
    Process& mapper = cluster.spawn("mapper", kLocal);
    Process& other = cluster.spawn("other", kLocal);
    const Export exported = export_segment(home, 4 * kPage);
    const Import mapped = import_segment(mapper, exported), too = import_segment(other, exported);
    REQUIRE(load(other, too.at).value == 0);
    REQUIRE(load(mapper, mapped.at).value == 0);
    uint64_t value = 0;
    for (uint64_t round = 0; round < 20; ++round, value += 2) {
      REQUIRE(publish(mapper, mapped.at, value + 1));
      CHECK(load(other, too.at).value == value + 1);
      CHECK(atm_cas(mapper, mapped.at, value + 1, value + 2).swapped);
      CHECK(load(other, too.at).value == value + 2);
    }
    CHECK(stats_of(mapper).publications == 0);
    // Somebody comes who caches pages.
    Process& cacher = cluster.spawn("cacher", kNetwork);
    const Import cached = import_segment(cacher, exported);
    for (uint64_t round = 0; round < 20; ++round, value += 2) {
      CHECK(load(cacher, cached.at).value == value);
      REQUIRE(publish(mapper, mapped.at, value + 1));
      CHECK(load(cacher, cached.at).value == value + 1);
      CHECK(atm_cas(mapper, mapped.at, value + 1, value + 2).swapped);
    }
    CHECK(stats_of(mapper).publications >= 40);
    // And goes.
    REQUIRE(cacher.end() == 0);
    const auto silent = [&] {
      const auto told = stats_of(mapper).publications;
      REQUIRE(publish(mapper, mapped.at, ++value));
      return stats_of(mapper).publications == told;
    };
    for (const Deadline end = Deadline::in(10 * kSecond); !silent();) REQUIRE(!end.passed());
    CHECK(load(other, too.at).value == value);
    CHECK(maps(mapper));
  }

  TEST_CASE("who_comes_to_cache_pages_misses_stores_when_the_home_does_not_say_so") {
    Cluster cluster;
    const Env mutated{{"CMI_FAULT_POINT", "mutate_mapped_alone_for_ever=fail"}};
    Process& home = cluster.spawn("home", with(kLocal, mutated));
    Process& mapper = cluster.spawn("mapper", kLocal);
    const Export exported = export_segment(home, 4 * kPage);
    const Import mapped = import_segment(mapper, exported);
    REQUIRE(publish(mapper, mapped.at, 1));
    Process& cacher = cluster.spawn("cacher", kNetwork);
    const Import cached = import_segment(cacher, exported);
    REQUIRE(load(cacher, cached.at).value == 1);
    REQUIRE(publish(mapper, mapped.at, 2));
    CHECK(load(home, exported.at).value == 2);
    CHECK(load(cacher, cached.at).value == 1);
  }

  TEST_CASE("a_read_token_maps_for_reading_and_raises_access_at_once") {
    Cluster cluster;
    Process& home = cluster.spawn("home", kLocal);
    Process& peer = cluster.spawn("peer", kLocal);
    const Export exported = export_segment(home, 4 * kPage, CMI_ACC_READ);
    REQUIRE(publish(home, exported.at, 71));
    const Import import = import_segment(peer, exported);
    // Before and after the page is there, with what the home stores meanwhile.
    CHECK(store(peer, import.at, 72).cause() == CMI_ERROR_ACCESS);
    CHECK(load(peer, import.at).value == 71);
    CHECK(store(peer, import.at, 72).cause() == CMI_ERROR_ACCESS);
    REQUIRE(store(home, exported.at, 73).cause() == Fault::kNone);
    CHECK(load(peer, import.at).value == 73);
    CHECK(load(home, exported.at).value == 73);
    CHECK(maps(peer));
  }

  TEST_CASE("views_of_a_mapped_import_show_the_same_and_keep_their_rights") {
    Three t;
    REQUIRE(store(t.mapper, t.mapped.at, 81).cause() == Fault::kNone);
    const Answer reading = seg_at(t.mapper, t.mapped.seg, 0, CMI_SEG_READ);
    REQUIRE(reading.ok());
    CHECK(load(t.mapper, reading.at()).value == 81);
    CHECK(store(t.mapper, reading.at(), 82).cause() == CMI_ERROR_ACCESS);
    CHECK(store(t.mapper, t.mapped.at, 83).cause() == Fault::kNone);
    CHECK(load(t.mapper, reading.at()).value == 83);
    CHECK(store(t.mapper, reading.at(), 84).cause() == CMI_ERROR_ACCESS);
    REQUIRE(seg_dt(t.mapper, t.mapped.seg, reading.at()).ok());
    CHECK(load(t.mapper, t.mapped.at).value == 83);
    CHECK(maps(t.mapper));
  }

  TEST_CASE("a_revoked_token_takes_mapped_pages_and_a_new_one_brings_them_back") {
    Three t;
    REQUIRE(load(t.cacher, t.cached.at).value == 0);
    REQUIRE(store(t.mapper, t.mapped.at, 91).cause() == Fault::kNone);
    const Flat fresh = tok_new(t.home, t.exported.seg, kAllRights);
    REQUIRE(fresh.ok());
    REQUIRE(tok_del(t.home, t.exported.token).ok());
    CHECK(load(t.mapper, t.mapped.at).cause() == CMI_ERROR_TOKEN);
    CHECK(store(t.mapper, t.mapped.at, 92).cause() == CMI_ERROR_TOKEN);
    REQUIRE(set_token(t.cacher, t.cached.seg, fresh).ok());
    CHECK(load(t.cacher, t.cached.at).value == 91);
    REQUIRE(set_token(t.mapper, t.mapped.seg, fresh).ok());
    CHECK(load(t.mapper, t.mapped.at).value == 91);
    CHECK(publish(t.mapper, t.mapped.at, 93));
    CHECK(load(t.cacher, t.cached.at).value == 93);
    CHECK(maps(t.mapper));
  }

  // Its pages are protected by the home while it cannot answer, and the word is in force when it
  // can.
  TEST_CASE("a_stopped_importer_stores_to_no_mapped_page_once_its_token_is_revoked") {
    Three t(Env{}, CMI_SEG_CLIENT_CONSIST);
    REQUIRE(store(t.mapper, t.mapped.at, 101).cause() == Fault::kNone);
    REQUIRE(load(t.mapper, t.mapped.at + kPage).value == 0);
    // It stores all the time, so that it is stopped with pages that are writable.
    auto stores = t.mapper.start(
        [](uint64_t at) {
          uint64_t stored = 0;
          Fault f{};
          while (f.cause() == Fault::kNone) {
            auto body = [&] { reinterpret_cast<volatile uint64_t*>(at)[1] = ++stored; };
            f = guarded(body);
          }
          return f.cause();
        },
        t.mapped.at);
    CHECK(load_until(t.home, t.exported.at, 101) == 101);
    for (const Deadline end = Deadline::in(20 * kSecond);
         load(t.home, t.exported.at + 8).value == 0;) {
      REQUIRE(!end.passed());
    }
    t.mapper.stop();
    const Answer revoked = tok_del(t.home, t.exported.token);
    const Access last = load(t.home, t.exported.at + 8);
    REQUIRE(last.cause() == Fault::kNone);
    REQUIRE(last.value > 0);
    t.mapper.signal(SIGCONT);
    const int cause = stores.get();
    CHECK((cause == CMI_ERROR_TOKEN || cause == CMI_ERROR_SINVAL));
    CHECK(load(t.home, t.exported.at + 8).value == last.value);
    CHECK((revoked.ok() || revoked.failed(CMI_ERR_RECONFIG)));
  }

  TEST_CASE("what_a_killed_importer_stored_to_mapped_pages_is_in_flux") {
    Three t(Env{{"CMI_FAULT_POINT", "no_aging=fail"}});
    REQUIRE(publish(t.mapper, t.mapped.at, 111));
    REQUIRE(store(t.mapper, t.mapped.at + kPage, 112).cause() == Fault::kNone);
    REQUIRE(load(t.cacher, t.cached.at).value == 111);
    t.mapper.kill();
    for (const Deadline end = Deadline::in(10 * kSecond);
         load(t.cacher, t.cached.at + kPage).cause() != CMI_ERROR_CONSIST;) {
      REQUIRE(!end.passed());
    }
    CHECK(load(t.cacher, t.cached.at).value == 111);
    CHECK(load(t.home, t.exported.at).value == 111);
    CHECK(load(t.home, t.exported.at + kPage).cause() == CMI_ERROR_CONSIST);
    REQUIRE(seg_reco(t.home, t.exported.seg, t.exported.at + kPage, kPage).ok());
    CHECK(load(t.home, t.exported.at + kPage).value == 112);
    CHECK(load(t.cacher, t.cached.at + kPage).value == 112);
  }

  TEST_CASE("a_mapped_page_in_flux_raises_consist_until_it_is_recovered") {
    Three t;
    Process& other = t.cluster.spawn("other", with(kLocal, {{"CMI_FAULT_POINT", "no_aging=fail"}}));
    const Import import = import_segment(other, t.exported);
    REQUIRE(load(t.mapper, t.mapped.at).value == 0);
    REQUIRE(load(t.mapper, t.mapped.at + kPage).value == 0);
    REQUIRE(store(other, import.at + kPage, 121).cause() == Fault::kNone);
    REQUIRE(load(t.mapper, t.mapped.at + kPage).value == 121);
    other.kill();
    for (const Deadline end = Deadline::in(10 * kSecond);
         load(t.mapper, t.mapped.at + kPage).cause() != CMI_ERROR_CONSIST;) {
      REQUIRE(!end.passed());
    }
    CHECK(load(t.mapper, t.mapped.at).value == 0);
    REQUIRE(seg_reco(t.home, t.exported.seg, t.exported.at + kPage, kPage).ok());
    CHECK(load(t.mapper, t.mapped.at + kPage).value == 121);
    CHECK(publish(t.mapper, t.mapped.at + kPage, 122));
    CHECK(load(t.home, t.exported.at + kPage).value == 122);
    CHECK(maps(t.mapper));
  }

  TEST_CASE("nothing_of_a_client_consistent_segment_that_is_mapped_is_in_flux") {
    Three t(Env{{"CMI_FAULT_POINT", "no_aging=fail"}}, CMI_SEG_CLIENT_CONSIST);
    REQUIRE(load(t.cacher, t.cached.at).value == 0);
    REQUIRE(store(t.mapper, t.mapped.at, 131).cause() == Fault::kNone);
    t.mapper.kill();
    CHECK(load_until(t.cacher, t.cached.at, 131) == 131);
    CHECK(load(t.home, t.exported.at).value == 131);
  }

  TEST_CASE("mapped_pages_end_with_their_home_when_it_is_killed") {
    Three t;
    REQUIRE(publish(t.mapper, t.mapped.at, 141));
    REQUIRE(load(t.mapper, t.mapped.at).value == 141);
    t.home.kill();
    for (const Deadline end = Deadline::in(10 * kSecond);
         load(t.mapper, t.mapped.at).cause() != CMI_ERROR_SINVAL;) {
      REQUIRE(!end.passed());
    }
    CHECK(store(t.mapper, t.mapped.at, 1).cause() == CMI_ERROR_SINVAL);
  }

  TEST_CASE("a_removed_segment_takes_mapped_pages") {
    Three t;
    REQUIRE(load(t.mapper, t.mapped.at).value == 0);
    REQUIRE(seg_rm(t.home, t.exported.seg).ok());
    CHECK(load(t.mapper, t.mapped.at).cause() == CMI_ERROR_TOKEN);
  }

  // Whoever keeps a mapping of its own has nothing of it either: the file is empty.
  TEST_CASE("of_a_removed_segment_nothing_is_left_to_who_has_mapped_it_and_is_stopped") {
    bool detached_first = false;
    SUBCASE("it is removed while the home has it attached") {}
    SUBCASE("it is removed when nobody at home has it attached") { detached_first = true; }
    Cluster cluster;
    Process& home = cluster.spawn("home", with(kLocal, {{"CMI_DEAD_AFTER", "1000"}}));
    Process& peer = cluster.spawn("peer", kLocal);
    const Export exported = export_segment(home, 4 * kPage);
    const Import import = import_segment(peer, exported);
    REQUIRE(publish(home, exported.at, 201));
    const uint64_t kept = keep_mapping(peer, import.at, 4 * kPage);
    REQUIRE(load(peer, import.at).value == 201);
    REQUIRE(peek(peer, kept).value == 201);
    auto loads = peer.start(load_until_refused, import.at);
    REQUIRE(load_until(home, exported.at + 8, kBegun) == kBegun);
    peer.stop();
    REQUIRE(resident(peer, import.at) > 0);
    const auto detach = [&] { CHECK(seg_dt(home, exported.seg, exported.at).ok()); };
    if (detached_first) detach();
    (void)seg_rm(home, exported.seg);  // RECONFIG: it did not answer
    if (!detached_first) detach();
    const Nanos over = now();
    // The next segment's memory is none that the peer can read.
    const Export next = export_segment(home, 4 * kPage);
    REQUIRE(publish(home, next.at, 202));
    CHECK(resident(peer, import.at) == 0);
    peer.signal(SIGCONT);
    const Loads loaded = loads.get();
    CHECK((loaded.cause == CMI_ERROR_SINVAL || loaded.cause == CMI_ERROR_TOKEN));
    CHECK(loaded.others == 0);
    CHECK(loaded.last_begun < over);
    CHECK(peek(peer, kept).error == EFAULT);
  }

  TEST_CASE("a_removed_segment_is_read_on_when_its_file_is_not_emptied") {
    Cluster cluster;
    Process& home = cluster.spawn(
        "home", with(kLocal, {{"CMI_FAULT_POINT", "mutate_removed_memory_stays_mapped=fail"}}));
    Process& peer = cluster.spawn("peer", kLocal);
    const Export exported = export_segment(home, 4 * kPage);
    const Import import = import_segment(peer, exported);
    REQUIRE(publish(home, exported.at, 201));
    const uint64_t kept = keep_mapping(peer, import.at, 4 * kPage);
    REQUIRE(load(peer, import.at).value == 201);
    REQUIRE(seg_rm(home, exported.seg).ok());
    REQUIRE(seg_dt(home, exported.seg, exported.at).ok());
    CHECK(peek(peer, kept).value == 201);
  }

  TEST_CASE("past_a_break_that_comes_down_nothing_is_left_to_who_has_mapped_it_and_is_stopped") {
    Cluster cluster;
    Process& home = cluster.spawn("home", with(kLocal, {{"CMI_DEAD_AFTER", "1000"}}));
    Process& peer = cluster.spawn("peer", kLocal);
    const Answer seg = seg_get(home, 64 * kPage, CMI_SEG_EXTENSIBLE);
    REQUIRE(seg.ok());
    REQUIRE(seg_brk(home, seg.seg(), 64 * kPage).ok());
    const Answer at = seg_at(home, seg.seg());
    REQUIRE(at.ok());
    const Export exported{seg.seg(), at.at(), 64 * kPage, seg_exp(home, seg.seg()),
                          tok_new(home, seg.seg(), kAllRights)};
    const Import import = import_segment(peer, exported);
    const uint64_t kept = keep_mapping(peer, import.at, 64 * kPage);
    for (uint64_t p = 0; p < 64; ++p) {
      REQUIRE(publish(home, exported.at + p * kPage, 211));
      REQUIRE(load(peer, import.at + p * kPage).value == 211);
      REQUIRE(peek(peer, kept + p * kPage).value == 211);
    }
    auto loads = peer.start(load_until_refused, import.at + 50 * kPage);
    REQUIRE(load_until(home, exported.at + 50 * kPage + 8, kBegun) == kBegun);
    peer.stop();
    REQUIRE(resident(peer, import.at) >= 2 * 64);
    const Answer moved = seg_brk(home, exported.seg, kPage);
    const Nanos over = now();
    CHECK((moved.ok() || moved.failed(CMI_ERR_RECONFIG)));
    // Of each of its mappings one page at most.
    CHECK(resident(peer, import.at) <= 4);
    peer.signal(SIGCONT);
    const Loads loaded = loads.get();
    CHECK((loaded.cause == CMI_ERROR_SEG_BRK || loaded.cause == CMI_ERROR_TOKEN ||
           loaded.cause == CMI_ERROR_SINVAL));
    CHECK(loaded.others == 0);
    CHECK(loaded.last_begun < over);
    CHECK(peek(peer, kept + 50 * kPage).error == EFAULT);
    // What comes there later is new.
    REQUIRE(seg_brk(home, exported.seg, 64 * kPage).ok());
    CHECK(peek(peer, kept + 50 * kPage).value == 0);
  }

  TEST_CASE("mapped_pages_end_at_the_break_and_come_with_it") {
    Cluster cluster;
    Process& home = cluster.spawn("home", kLocal);
    Process& peer = cluster.spawn("peer", kLocal);
    const Answer seg = seg_get(home, 8 * kPage, CMI_SEG_EXTENSIBLE);
    REQUIRE(seg.ok());
    REQUIRE(seg_brk(home, seg.seg(), 4 * kPage).ok());
    const Answer at = seg_at(home, seg.seg());
    REQUIRE(at.ok());
    Export exported{seg.seg(), at.at(), 8 * kPage, seg_exp(home, seg.seg()),
                    tok_new(home, seg.seg(), kAllRights)};
    const Import import = import_segment(peer, exported);
    REQUIRE(publish(peer, import.at + 3 * kPage, 151));
    CHECK(load(peer, import.at + 4 * kPage).cause() == CMI_ERROR_SEG_BRK);
    REQUIRE(seg_brk(home, seg.seg(), 6 * kPage).ok());
    CHECK(load(peer, import.at + 5 * kPage).value == 0);
    REQUIRE(store(peer, import.at + 5 * kPage, 152).cause() == Fault::kNone);
    REQUIRE(seg_brk(home, seg.seg(), 2 * kPage).ok());
    CHECK(load(peer, import.at + 3 * kPage).cause() == CMI_ERROR_SEG_BRK);
    CHECK(store(peer, import.at + 5 * kPage, 1).cause() == CMI_ERROR_SEG_BRK);
    CHECK(load(peer, import.at + kPage).value == 0);
    REQUIRE(seg_brk(home, seg.seg(), 4 * kPage).ok());
    CHECK(load(peer, import.at + 3 * kPage).value == 0);
    CHECK(maps(peer));
  }

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

  TEST_CASE("a_token_that_lets_stores_be_made_maps_views_anew_that_were_for_reading") {
    Cluster cluster;
    Process& home = cluster.spawn("home", kLocal);
    Process& peer = cluster.spawn("peer", kLocal);
    const Export exported = export_segment(home, 4 * kPage, CMI_ACC_READ);
    REQUIRE(publish(home, exported.at, 4));
    const Import import = import_segment(peer, exported);
    REQUIRE(load(peer, import.at).value == 4);
    CHECK(store(peer, import.at, 5).cause() == CMI_ERROR_ACCESS);
    const Flat stores = tok_new(home, exported.seg, kAllRights);
    REQUIRE(set_token(peer, import.seg, stores).ok());
    CHECK(load(peer, import.at).value == 4);
    CHECK(publish(peer, import.at, 5));
    CHECK(load(home, exported.at).value == 5);
    // And back.
    REQUIRE(set_token(peer, import.seg, exported.token).ok());
    CHECK(load(peer, import.at).value == 5);
    CHECK(store(peer, import.at, 6).cause() == CMI_ERROR_ACCESS);
    CHECK(maps(peer));
  }

  // Such pages stay writable over barriers while nobody caches the segment. What was stored there
  // is home, and no later barrier of the process may say that it is lost.
  TEST_CASE("who_leaves_a_mapped_segment_that_was_stored_to_again_and_again_has_lost_nothing") {
    Cluster cluster;
    Process& home = cluster.spawn("home", kLocal);
    Process& peer = cluster.spawn("peer", with(kLocal, {{"CMI_FAULT_POINT", "no_aging=fail"}}));
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    const Import other = import_segment(peer, export_segment(home));
    for (uint64_t round = 1; round < 5; ++round) REQUIRE(publish(peer, import.at, round));
    REQUIRE(store(peer, import.at, 5).cause() == Fault::kNone);
    REQUIRE(seg_rm(peer, import.seg).ok());
    REQUIRE(seg_dt(peer, import.seg, import.at).ok());
    CHECK(publish(peer, other.at, 1));
    CHECK(load(home, exported.at).value == 5);
    CHECK(maps(peer));
  }

  TEST_CASE("an_importer_that_lies_in_shared_memory_harms_nobody_else") {
    Three t;
    REQUIRE(store(t.mapper, t.mapped.at, 161).cause() == Fault::kNone);
    for (uint64_t seed = 1; seed < 20; ++seed) {
      CHECK(t.mapper.run([](uint64_t s) { return lie_in_shared_memory(s); }, seed) == 1);
      (void)store(t.mapper, t.mapped.at + kPage, seed);
      (void)wmb(t.mapper);
      REQUIRE(publish(t.cacher, t.cached.at + 2 * kPage, seed));
      CHECK(load(t.home, t.exported.at + 2 * kPage).value == seed);
    }
    // The last word: all pages are marked when it dies.
    REQUIRE(load(t.mapper, t.mapped.at).value == 161);
    CHECK(t.mapper.run([](uint64_t s) { return lie_in_shared_memory(s); }, uint64_t{99}) == 1);
    t.mapper.kill();
    // Whatever it has marked is in flux at most, and recovered.
    for (const Deadline end = Deadline::in(10 * kSecond);
         load(t.home, t.exported.at).cause() != CMI_ERROR_CONSIST;) {
      REQUIRE(!end.passed());
    }
    REQUIRE(seg_reco(t.home, t.exported.seg, t.exported.at, 16 * kPage).ok());
    CHECK(load(t.home, t.exported.at).value == 161);
    CHECK(publish(t.cacher, t.cached.at, 162));
    CHECK(load(t.home, t.exported.at).value == 162);
  }

  TEST_CASE("a_home_that_lies_in_shared_memory_crashes_no_importer") {
    Three t;
    REQUIRE(store(t.mapper, t.mapped.at, 171).cause() == Fault::kNone);
    for (uint64_t seed = 1; seed < 20; ++seed) {
      CHECK(t.home.run([](uint64_t s) { return lie_in_shared_memory(s); }, seed) == 1);
      (void)load(t.mapper, t.mapped.at);
      (void)store(t.mapper, t.mapped.at + kPage, seed);
      (void)atm_cas(t.mapper, t.mapped.at, 171, 171);
      (void)wmb(t.mapper);
    }
    CHECK(t.mapper.run([](int) { return 5; }, 0) == 5);
  }

  TEST_CASE("messages_of_a_mapped_import_go_by_memory_and_none_by_the_network") {
    Cluster cluster;
    const auto counting = [&](const char* name) {
      return with(kLocal, {{"CMI_FAULT_COUNT", cluster.scratch() + "/" + name}});
    };
    Process& home = cluster.spawn("home", counting("of_home"));
    Process& mapper = cluster.spawn("mapper", counting("of_mapper"));
    Process& cacher = cluster.spawn("cacher", kNetwork);
    const Export exported = export_segment(home, 4 * kPage);
    const Import mapped = import_segment(mapper, exported);
    const Import cached = import_segment(cacher, exported);
    const auto by_network = [&](const char* name) {
      return read_passages(cluster.scratch() + "/" + name)["port_before_send"];
    };
    const auto by_ring = [&](const char* name) {
      return read_passages(cluster.scratch() + "/" + name)["ring_before_send"];
    };
    uint64_t value = 0;
    const Deadline end = Deadline::in(10 * kSecond);
    while ((by_ring("of_mapper") == 0 || by_ring("of_home") == 0) && !end.passed()) {
      REQUIRE(load(cacher, cached.at).cause() == Fault::kNone);
      REQUIRE(publish(mapper, mapped.at, ++value));
    }
    const uint64_t network = by_network("of_mapper"), ring = by_ring("of_mapper"),
                   answers = by_ring("of_home");
    REQUIRE(ring > 0);
    constexpr uint64_t kRounds = 40;
    for (uint64_t round = 0; round < kRounds; ++round) {
      REQUIRE(load(cacher, cached.at).value == value);
      REQUIRE(publish(mapper, mapped.at, ++value));
      REQUIRE(load(cacher, cached.at).value == value);
      CHECK(atm_cas(mapper, mapped.at, value, value + 1).swapped);
      ++value;
    }
    CHECK(by_network("of_mapper") == network);
    CHECK(by_ring("of_mapper") >= ring + 2 * kRounds);
    CHECK(by_ring("of_home") >= answers + 2 * kRounds);
    CHECK(maps(mapper));
  }

  TEST_CASE("loads_in_order_map_more_and_more_pages_with_one_fault") {
    constexpr uint64_t kPages = 4096;
    Cluster cluster;
    Process& home = cluster.spawn("home", kLocal);
    const std::string counts = cluster.scratch() + "/counts";
    Process& mapper = cluster.spawn("mapper", with(kLocal, {{"CMI_FAULT_COUNT", counts}}));
    const Export exported = export_segment(home, kPages * kPage);
    for (uint64_t page = 0; page < kPages; page += 512) {
      REQUIRE(store(home, exported.at + page * kPage, page).cause() == Fault::kNone);
    }
    const Import mapped = import_segment(mapper, exported);
    const auto faults_of = [&](uint64_t step) {
      const uint64_t before = read_passages(counts)["local_no_memory"];  // one look for each fault
      mapper.run(
          [](uint64_t at, uint64_t every) {
            for (uint64_t page = 0; page < kPages; page += every) {
              (void)__atomic_load_n(reinterpret_cast<const uint64_t*>(at + page * kPage),
                                    __ATOMIC_RELAXED);
            }
          },
          mapped.at, step);
      return read_passages(counts)["local_no_memory"] - before;
    };
    CHECK(load(mapper, mapped.at + 512 * kPage).value == 512);
    const uint64_t faults = faults_of(1);
    CHECK(faults >= kPages / 256);
    CHECK(faults <= kPages / 256 + 8);
    CHECK(faults_of(1) == 0);
    CHECK(maps(mapper));
    // Who jumps about maps the pages around alone.
    const Import other = import_segment(mapper, exported);
    REQUIRE(load(mapper, other.at).cause() == Fault::kNone);
    const uint64_t there = resident(mapper, other.at);
    REQUIRE(load(mapper, other.at + 2048 * kPage).value == 2048);
    CHECK(resident(mapper, other.at) <= there + 16);
  }

  TEST_CASE("a_first_store_to_a_mapped_page_maps_nothing") {
    Cluster cluster;
    Process& home = cluster.spawn("home", kLocal);
    const std::string counts = cluster.scratch() + "/counts";
    Process& mapper = cluster.spawn("mapper", with(kLocal, {{"CMI_FAULT_COUNT", counts}}));
    const Export exported = export_segment(home, 32 * kPage);
    const Import mapped = import_segment(mapper, exported);
    const auto times_mapped = [&] { return read_passages(counts)["local_before_map"]; };
    REQUIRE(load(mapper, mapped.at).cause() == Fault::kNone);
    const uint64_t before = times_mapped();
    CHECK(before > 0);
    for (const uint64_t page : {3, 9, 5, 14}) {
      CHECK(store(mapper, mapped.at + page * kPage, page).cause() == Fault::kNone);
      CHECK(load(home, exported.at + page * kPage).value == page);
    }
    CHECK(times_mapped() == before);
    // One that is not there is mapped with the fault that lets the store go on.
    CHECK(store(mapper, mapped.at + 20 * kPage, 1).cause() == Fault::kNone);
    CHECK(times_mapped() == before + 1);
    CHECK(stats_of(mapper).store_faults == 5);
  }

  TEST_CASE("who_sleeps_at_a_lock_is_woken_by_whoever_changes_it_on_this_machine") {
    Cluster cluster;
    const auto sleeper = [&](const char* name) -> Process& {
      // Nothing but a wake-up ends its sleep in time.
      return cluster.spawn(name,
                           with(kLocal, {{"CMI_FAULT_POINT", "lock_naps_are_long=fail"},
                                         {"CMI_FAULT_COUNT", cluster.scratch() + "/" + name}}));
    };
    Process& home = sleeper("home");
    Process& first = sleeper("first");
    Process& second = sleeper("second");
    const Export exported = export_segment(home, kPage);
    const uint64_t at_first = import_segment(first, exported).at;
    const uint64_t at_second = import_segment(second, exported).at;
    const auto naps = [&](const char* name) {
      return read_passages(cluster.scratch() + "/" + name)["lock_naps_are_long"];
    };
    const auto wakes = [&](Process& waiter, const char* name, uint64_t at, Process& waker,
                           uint64_t there) {
      const uint64_t before = naps(name);
      const auto latch_is_made = [](uint64_t latch) {
        return cmi_ofi_latch_init(ctxt(), reinterpret_cast<cmi_ofi_latch*>(latch), 1);
      };
      REQUIRE(waker.run(latch_is_made, there) == 0);
      auto waiting = waiter.start(
          [](uint64_t latch) {
            return cmi_ofi_latch_wait(ctxt(), reinterpret_cast<cmi_ofi_latch*>(latch), 20000);
          },
          at);
      const Deadline end = Deadline::in(10 * kSecond);
      const auto slept = [&] { return naps(name) != before; };
      while (!slept() && !end.passed()) sched_yield();
      CHECK(slept());
      const auto open = [](uint64_t latch) {
        return cmi_ofi_latch_count_down(ctxt(), reinterpret_cast<cmi_ofi_latch*>(latch), 1);
      };
      CHECK(waker.run(open, there) == 0);
      CHECK(waiting.get() == 0);
    };
    wakes(first, "first", at_first, home, exported.at);
    wakes(second, "second", at_second + 64, first, at_first + 64);
    wakes(home, "home", exported.at + 128, first, at_first + 128);
    // The home makes the swap of one that caches.
    Process& cacher = cluster.spawn("cacher", kNetwork);
    const uint64_t at_cacher = import_segment(cacher, exported).at;
    wakes(first, "first", at_first + 192, cacher, at_cacher + 192);
  }

  TEST_CASE("an_importer_that_lies_in_a_ring_does_its_home_and_others_no_harm") {
    Three t;
    uint64_t lied_in = 0;
    for (uint64_t seed = 1; seed < 20; ++seed) {
      (void)store(t.mapper, t.mapped.at + kPage, seed);
      (void)wmb(t.mapper);
      lied_in += t.mapper.run([](uint64_t s) { return lie_in_shared_memory(s, "cmi-ring"); }, seed);
      REQUIRE(publish(t.cacher, t.cached.at + 2 * kPage, seed));
      CHECK(load(t.home, t.exported.at + 2 * kPage).value == seed);
    }
    CHECK(lied_in >= 2);
  }

  TEST_CASE("an_importer_goes_on_by_the_network_where_its_home_lies_in_a_ring") {
    Three t;
    REQUIRE(load(t.cacher, t.cached.at).value == 0);
    REQUIRE(publish(t.mapper, t.mapped.at, 1));
    uint64_t lied_in = 0;
    for (uint64_t seed = 1; seed < 10; ++seed) {
      lied_in += t.home.run([](uint64_t s) { return lie_in_shared_memory(s, "cmi-ring"); }, seed);
      REQUIRE(load(t.cacher, t.cached.at).cause() == Fault::kNone);
      REQUIRE(publish(t.mapper, t.mapped.at, 10 + seed));
      CHECK(load(t.cacher, t.cached.at).value == 10 + seed);
    }
    CHECK(lied_in >= 2);
    CHECK(maps(t.mapper));
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

}  // namespace cmi::test::local_nodes_test
