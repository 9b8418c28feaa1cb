// What waits for a home that lives, what a home without descriptors says to newcomers, and what it
// does with strangers. CMI_TEST_DEFAULT_TIMEOUT leaves the reconfiguration timeout as it is by
// default.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "core/base/clock.hpp"
#include "core/base/fd.hpp"
#include "support/long_run.hpp"
#include "support/sanitized.hpp"
#include "support/skip.hpp"
#include "system/calls.hpp"
#include "system/each_provider.hpp"

namespace cmi::test::waiting_nodes_test {

namespace {

const std::pair<std::string, std::string> kDefaults = {"CMI_TEST_DEFAULT_TIMEOUT", "1"};

// What all processes of the cluster that trace into one file have said.
Env tracing(const Cluster& cluster, Env env) {
  env.push_back({"CMI_TRACE", "all:error"});
  env.push_back({"CMI_TRACE_FILE", cluster.scratch() + "/trace"});
  return env;
}

bool said(const Cluster& cluster, const std::string& words) {
  std::ifstream file(cluster.scratch() + "/trace");
  for (std::string line; std::getline(file, line);) {
    if (line.find(words) != std::string::npos) return true;
  }
  return false;
}

size_t descriptors(const Process& process) {
  const std::filesystem::path folder = "/proc/" + std::to_string(process.pid()) + "/fd";
  size_t n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++n;
  return n;
}

std::set<unsigned long> sockets_of(const Process& process) {
  std::set<unsigned long> sockets;
  const std::filesystem::path folder = "/proc/" + std::to_string(process.pid()) + "/fd";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::error_code error;
    const std::string to = std::filesystem::read_symlink(entry.path(), error).string();
    if (to.starts_with("socket:[")) sockets.insert(std::stoul(to.substr(8)));
  }
  return sockets;
}

// Sockets of which the kernel has no connection, nor anything else, any more.
size_t sockets_that_are_over(const Process& process) {
  std::set<unsigned long> sockets = sockets_of(process);
  for (const char* table : {"tcp", "tcp6", "udp", "udp6", "unix", "netlink"}) {
    std::ifstream lines("/proc/" + std::to_string(process.pid()) + "/net/" + table);
    for (std::string word; lines >> word;) {
      if (word.find_first_not_of("0123456789") == word.npos) sockets.erase(std::stoul(word));
    }
  }
  return sockets.size();
}

// The process's sockets at 127.0.0.1, and connections to them that are not accepted yet, in this
// state, as /proc numbers them: their ports.
constexpr unsigned kCloseWait = 8, kListen = 10;
std::vector<uint16_t> ports_of(const Process& process, unsigned wanted) {
  std::set<unsigned long> sockets = sockets_of(process);
  sockets.insert(0);
  std::vector<uint16_t> ports;
  std::ifstream table("/proc/" + std::to_string(process.pid()) + "/net/tcp");
  for (std::string line; std::getline(table, line);) {
    unsigned address = 0, port = 0, state = 0;
    unsigned long inode = 0;
    if (std::sscanf(line.c_str(), " %*d: %x:%x %*x:%*x %x %*s %*s %*s %*s %*s %lu", &address, &port,
                    &state, &inode) == 4 &&
        state == wanted && sockets.contains(inode)) {
      ports.push_back(static_cast<uint16_t>(port));
    }
  }
  return ports;
}

Fd connect_to(uint16_t port) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(port);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) fd.reset();
  return fd;
}

void limit_descriptors(const Process& process, size_t most) {
  const rlimit limit{most, 1024};
  REQUIRE(::prlimit(process.pid(), RLIMIT_NOFILE, &limit, nullptr) == 0);
}

Pending<Answer> start_import(Process& process, const Export& exported) {
  return process.start(
      [](Flat handle) {
        const cmi_seg seg = CMIFN(ctxt(), 10, seg_imp)(ctxt(), handle.as<cmi_rseg>());
        return answer(seg, seg == CMI_SEG_INVALID);
      },
      exported.handle);
}

// What a process has done so far: how often its threads have gone to sleep, which is how often they
// were woken, and processor time.
struct Work {
  uint64_t wakes = 0, cpu_ms = 0;
};
Work work_of(const Process& process) {
  Work work;
  const std::string own = "/proc/" + std::to_string(process.pid());
  for (const auto& task : std::filesystem::directory_iterator(own + "/task")) {
    std::ifstream status(task.path() / "status");
    for (std::string word; status >> word;) {
      uint64_t n = 0;
      if (word == "voluntary_ctxt_switches:" && status >> n) work.wakes += n;
    }
  }
  std::ifstream stat(own + "/stat");
  std::string line;
  std::getline(stat, line);
  unsigned long user = 0, system = 0;
  const std::string rest = line.substr(line.rfind(')') + 2);
  REQUIRE(std::sscanf(rest.c_str(), "%*c %*d %*d %*d %*d %*d %*d %*d %*d %*d %*d %lu %lu", &user,
                      &system) == 2);
  work.cpu_ms = (user + system) * 1000 / static_cast<unsigned long>(::sysconf(_SC_CLK_TCK));
  return work;
}
// For three newcomers, which try for seconds. A home that spins takes most of that time.
constexpr uint64_t kMostWakes = 10000, kMostCpuMs = 1000;

// Nodes that import each other's segments, and what each of them met while it worked.
constexpr size_t kMostNodes = 6;
struct Neighbours {
  uint64_t n = 0;
  std::array<Flat, kMostNodes> handles{}, tokens{};
};
struct Met {
  uint64_t errors = 0, exceptions = 0;
  int first = 0;  // error, or negative: cause
  void error() {
    if (errors++ + exceptions == 0) first = cmi_get_error(ctxt());
  }
  bool ok(const Access& access) {
    if (access.cause() == Fault::kNone) return true;
    if (errors + exceptions++ == 0) first = -access.cause();
    return false;
  }
};

// In the child: imports all of them; views[i]: 0 where that failed.
std::array<uint64_t, kMostNodes> import_all(Neighbours& of, Met* met) {
  std::array<uint64_t, kMostNodes> views{};
  for (size_t i = 0; i < of.n; ++i) {
    cmi_ds ds{};
    ds.token.tok = of.tokens[i].as<cmi_token>();
    const cmi_seg seg = CMIFN(ctxt(), 10, seg_imp)(ctxt(), of.handles[i].as<cmi_rseg>());
    if (seg == CMI_SEG_INVALID ||
        CMIFN(ctxt(), 10, seg_ctl)(ctxt(), seg, CMI_SEG_TOKEN, &ds) != 0) {
      met->error();
      continue;
    }
    views[i] = reinterpret_cast<uint64_t>(CMIFN(ctxt(), 10, seg_at)(ctxt(), seg, nullptr, 0));
    if (views[i] == 0) met->error();
  }
  return views;
}

// In the child: counts the first word up by a swap, stores and loads the words beside it.
void count_up(uint64_t at, uint64_t me, uint64_t round, Met* met) {
  auto* const counter = reinterpret_cast<uint64_t*>(at);
  uint64_t was = 0, found = 0;
  int result = 0;
  auto swap = [&] { result = CMIFN(ctxt(), 10, atm_cas)(ctxt(), counter, was, was + 1, &found); };
  do {
    was = found;
    if (!met->ok(Access{0, guarded(swap)})) return;
    if (result != 0) return met->error();
  } while (found != was);
  (void)met->ok(store64(at + kPage + 64 * me, round));
  (void)met->ok(load64(at + 2 * kPage + 64 * me));
}

Pending<Met> start_working(Process& node, const Neighbours& others, uint64_t me, uint64_t rounds) {
  return node.start(
      [](Neighbours of, uint64_t number, uint64_t times) {
        Met met;
        CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 1);
        const auto views = import_all(of, &met);
        for (uint64_t round = 1; round <= times && met.errors == 0; ++round) {
          for (size_t i = 0; i < of.n; ++i) count_up(views[i], number, round, &met);
          if (CMIFN(ctxt(), 10, wmb_fn)(ctxt()) != 0) met.error();
        }
        return met;
      },
      others, me, rounds);
}

// Beside so many processes that never rest nobody is stopped, killed or cut off: what takes long
// is no failure.
void work_beside_spinning(size_t nodes, size_t spinners, uint64_t rounds) {
  with_each_provider([&](Cluster& cluster, Process&, Env env) {
    env.push_back(kDefaults);
    std::vector<Process*> at_work, spinning;
    std::vector<Export> exported;
    for (size_t i = 0; i < nodes; ++i) {
      at_work.push_back(&cluster.spawn("node" + std::to_string(i), env));
      exported.push_back(export_segment(*at_work.back(), 4 * kPage));
    }
    std::vector<Pending<void>> spins;
    for (size_t i = 0; i < spinners; ++i) {
      spinning.push_back(&cluster.spawn_bare("spin"));
      spins.push_back(spinning.back()->start([] {
        for (uint64_t n = 1; n % 1'000'000 != 0 || !called_back(); ++n) {
          asm volatile("" ::: "memory");
        }
      }));
    }
    std::vector<Pending<Met>> works;
    for (size_t i = 0; i < nodes; ++i) {
      Neighbours others;
      for (size_t k = 0; k < nodes; ++k) {
        if (k == i) continue;
        others.handles[others.n] = exported[k].handle;
        others.tokens[others.n++] = exported[k].token;
      }
      works.push_back(start_working(*at_work[i], others, i, rounds));
    }
    for (size_t i = 0; i < nodes; ++i) {
      CAPTURE(i);
      const Met met = works[i].get(300);
      CAPTURE(met.first);
      CHECK(met.errors == 0);
      CHECK(met.exceptions == 0);
    }
    for (auto& spin : spins) spin.finish();
    for (size_t i = 0; i < nodes; ++i) {
      CHECK(load(*at_work[i], exported[i].at).value == (nodes - 1) * rounds);
      for (size_t k = 0; k < nodes; ++k) {
        if (k == i) continue;
        CHECK(load(*at_work[i], exported[i].at + kPage + 64 * k).value == rounds);
      }
    }
  });
}

TEST_SUITE("waiting") {
  PROCESS_CASE("nodes_that_import_each_other_beside_spinning_processes_meet_no_error") {
    work_beside_spinning(3, 8, long_run() ? 10 : 4);
  }
  PROCESS_CASE("six_nodes_that_import_each_other_beside_spinning_processes_meet_no_error") {
    work_beside_spinning(6, 24, 5);
  }

  TEST_CASE("by_default_accesses_and_swaps_wait_for_a_home_that_is_silent_for_seconds") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer", {kDefaults});
    const Export exported = export_segment(home, 4 * kPage);
    const Import import = import_segment(peer, exported);
    REQUIRE(store(home, exported.at + kPage, 5).cause() == Fault::kNone);
    home.stop();
    auto loading = peer.start([](uint64_t at) { return load64(at); }, import.at + kPage);
    ::usleep(2'500'000);  // more than the least timeout there ever was
    home.signal(SIGCONT);
    const Access loaded = loading.get();
    CHECK(loaded.cause() == Fault::kNone);
    CHECK(loaded.value == 5);
    home.stop();
    auto swapping = peer.start(
        [](uint64_t at) {
          uint64_t old = 0;
          const int result =
              CMIFN(ctxt(), 10, atm_cas)(ctxt(), reinterpret_cast<uint64_t*>(at), 0, 9, &old);
          return answer(result, result == -1);
        },
        import.at);
    ::usleep(2'500'000);
    home.signal(SIGCONT);
    CHECK(swapping.get().ok());
    CHECK(load(home, exported.at).value == 9);
  }

  TEST_CASE("a_timeout_that_the_client_has_set_is_kept") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer", {kDefaults});
    const Export exported = export_segment(home, 4 * kPage);
    const Import import = import_segment(peer, exported);
    REQUIRE(peer.run([] {
      cmi_ctl_cfg cfg{};
      cfg.rcfg.rcfg_tout = 300;
      return CMIFN(ctxt(), 10, cmi_ctl)(ctxt(), CMI_CTL_RECONF_TOUT, &cfg) == 0;
    }));
    home.stop();
    CHECK(load(peer, import.at).cause() == CMI_ERROR_TRANSIENT);
    home.signal(SIGCONT);
  }

  TEST_CASE("by_default_an_access_to_a_home_that_stays_silent_ends_with_its_death") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer", {kDefaults, {"CMI_DEAD_AFTER", "2000"}});
    const Export exported = export_segment(home, 4 * kPage);
    const Import import = import_segment(peer, exported);
    home.stop();
    const int cause = load(peer, import.at).cause();
    const bool ended = cause == CMI_ERROR_TRANSIENT || cause == CMI_ERROR_SINVAL;
    CHECK(ended);
    home.signal(SIGCONT);
  }

  PROCESS_CASE("by_default_an_import_waits_its_turn_at_a_busy_home") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer", {kDefaults});
    const Export exported = export_segment(home);
    home.stop();
    auto importing = peer.start(
        [](Flat handle) {
          const cmi_seg seg = CMIFN(ctxt(), 10, seg_imp)(ctxt(), handle.as<cmi_rseg>());
          return answer(seg, seg == CMI_SEG_INVALID);
        },
        exported.handle);
    ::usleep(6'500'000);  // more than the first contact was ever given
    home.signal(SIGCONT);
    CHECK(importing.get().ok());
  }

  PROCESS_CASE("an_import_that_fails_says_what_was_seen_of_the_home") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    const Env env = {kDefaults, {"CMI_JOIN_TIMEOUT", "1500"}, {"CMI_DEAD_AFTER", "1000"}};
    Process& peer = cluster.spawn("peer", tracing(cluster, env));
    const Export exported = export_segment(home);
    home.stop();
    CHECK(seg_imp(peer, exported.handle).failed(CMI_ERR_INVAL));
    CHECK(said(cluster, "the home is busy"));
    CHECK_FALSE(said(cluster, "the home has ended"));
    home.kill();
    CHECK(seg_imp(peer, exported.handle).failed(CMI_ERR_INVAL));
    CHECK(said(cluster, "the home has ended"));
    CHECK_FALSE(said(cluster, "loopback"));
  }

  TEST_CASE("an_import_that_the_home_has_no_room_for_says_so") {
    Cluster cluster;
    Process& home = cluster.spawn("home", {{"CMI_FAULT_POINT", "sharers_full#1=fail"}});
    Process& peer = cluster.spawn("peer", tracing(cluster, {}));
    const Export exported = export_segment(home);
    CHECK(seg_imp(peer, exported.handle).failed(CMI_ERR_NOMEM));
    CHECK(said(cluster, "the home takes no more imports of this segment"));
    CHECK_FALSE(said(cluster, "no longer has the segment"));
    CHECK(seg_imp(peer, exported.handle).ok());
    const Export removed = export_segment(home);
    REQUIRE(seg_rm(home, removed.seg).ok());
    CHECK(seg_imp(peer, removed.handle).failed(CMI_ERR_INVAL));
    CHECK(said(cluster, "the home no longer has the segment"));
  }

  // Whatever is free at the home: who is there goes on, and a newcomer comes in whole or not at
  // all.
  PROCESS_CASE("a_newcomer_to_a_home_short_of_descriptors_harms_nobody_who_is_there") {
    for (const size_t free : {size_t{2}, size_t{4}, size_t{6}}) {
      CAPTURE(free);
      Cluster cluster;
      Process& home = cluster.spawn("home", tracing(cluster, {}));
      Process& peer = cluster.spawn("peer");
      Process& late = cluster.spawn("late", tracing(cluster, {}));
      const Export exported = export_segment(home, 4 * kPage, kAllRights, CMI_SEG_CLIENT_CONSIST);
      const Import import = import_segment(peer, exported);
      REQUIRE(load(peer, import.at).cause() == Fault::kNone);
      REQUIRE(publish(home, exported.at, 3));
      REQUIRE(publish(peer, import.at, 4));
      limit_descriptors(home, descriptors(home) + free);
      auto importing = start_import(late, exported);
      for (uint64_t round = 1; round <= 100; ++round) {
        CHECK(publish(peer, import.at, round));
        CHECK(load(home, exported.at).value == round);
        CHECK(publish(home, exported.at, round + 100));
        CHECK(load(peer, import.at).value == round + 100);
        ::usleep(10'000);
      }
      CHECK_FALSE(importing.get().ok());
      CHECK(said(cluster, "an importer is refused"));
      CHECK(said(cluster, "seg_imp: the home has no descriptors left"));
      limit_descriptors(home, 1024);
      CHECK(load(late, import_segment(late, exported).at).value == 200);
    }
  }

  // They try for two seconds, each again and again: what the home does for them is bounded, whether
  // it can accept them to say no or not even that.
  PROCESS_CASE("newcomers_that_are_refused_do_not_keep_a_home_busy") {
    if (kSanitized) return skip("the sanitizer itself needs descriptors for a look at memory");
    for (const size_t free : {size_t{0}, size_t{2}}) {
      CAPTURE(free);
      Cluster cluster;
      Process& home = cluster.spawn("home");
      const Env env = tracing(cluster, {kDefaults, {"CMI_JOIN_TIMEOUT", "2000"}});
      std::vector<Process*> newcomers;
      for (const char* name : {"one", "two", "three"}) {
        newcomers.push_back(&cluster.spawn(name, env));
      }
      const Export exported = export_segment(home);
      limit_descriptors(home, descriptors(home) + free);
      const Work before = work_of(home);
      std::vector<Pending<Answer>> importing;
      for (Process* newcomer : newcomers) importing.push_back(start_import(*newcomer, exported));
      for (auto& answer : importing) CHECK_FALSE(answer.get().ok());
      const Work work = work_of(home);
      CHECK(work.wakes - before.wakes < kMostWakes);
      CHECK(work.cpu_ms - before.cpu_ms < kMostCpuMs);
      if (free != 0) CHECK(said(cluster, "seg_imp: the home has no descriptors left"));
      limit_descriptors(home, 1024);
    }
  }

  // Each import is that of a context of its own, which ends in good order.
  PROCESS_CASE("imports_in_a_row_leave_no_socket_at_a_home") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& stays = cluster.spawn("stays");
    Process& comes = cluster.spawn_bare("comes");
    const Export exported = export_segment(home);
    const Import import = import_segment(stays, exported);
    REQUIRE(load(stays, import.at).cause() == Fault::kNone);
    const auto come = [&](uint64_t times) {
      for (uint64_t i = 0; i < times; ++i) {
        REQUIRE(ini(comes).ok());
        const Import own = import_segment(comes, exported);
        CHECK(load(comes, own.at).cause() == Fault::kNone);
        REQUIRE(fini(comes).ok());
      }
    };
    const auto settles_at = [&](size_t most) {
      const Deadline deadline = Deadline::in(30 * kSecond);
      while (sockets_of(home).size() > most && !deadline.passed()) ::usleep(50'000);
      return sockets_of(home).size();
    };
    const size_t before = sockets_of(home).size();
    come(long_run() ? 6000 : 60);
    CHECK(settles_at(before) <= before);
    const std::vector<uint16_t> listeners = ports_of(home, kListen);
    for (const uint16_t port : ports_of(home, kCloseWait)) {
      CHECK(std::find(listeners.begin(), listeners.end(), port) == listeners.end());
    }
    CHECK(publish(stays, import.at, 2));
    CHECK(load(home, exported.at).value == 2);
  }

  PROCESS_CASE("who_connects_and_says_nothing_leaves_nothing_at_a_home") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    REQUIRE(load(peer, import.at).cause() == Fault::kNone);
    REQUIRE(publish(home, exported.at, 1));
    const size_t before = descriptors(home);
    const std::vector<uint16_t> ports = ports_of(home, kListen);
    if (ports.empty()) return skip("the provider does not listen at 127.0.0.1");
    std::vector<Fd> open;
    for (const uint16_t port : ports) {
      for (int i = 0; i < 10; ++i) {
        CHECK(connect_to(port));
        open.push_back(connect_to(port));
      }
    }
    const Deadline deadline = Deadline::in(30 * kSecond);
    while (descriptors(home) > before && !deadline.passed()) ::usleep(100'000);
    CHECK(descriptors(home) <= before);
    CHECK(publish(peer, import.at, 2));
    CHECK(load(home, exported.at).value == 2);
  }

  PROCESS_CASE("a_newcomer_gets_in_after_seven_hundred_connections_that_were_closed") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer", {kDefaults});
    const Export exported = export_segment(home);
    const std::vector<uint16_t> ports = ports_of(home, kListen);
    if (ports.empty()) return skip("the provider does not listen at 127.0.0.1");
    limit_descriptors(home, 1024);
    for (size_t i = 0; i < 700; ++i) CHECK(connect_to(ports[i % ports.size()]));
    const Import import = import_segment(peer, exported);
    CHECK(load(peer, import.at).cause() == Fault::kNone);
    CHECK(publish(peer, import.at, 2));
    CHECK(load(home, exported.at).value == 2);
  }

  PROCESS_CASE("who_connects_says_anything_and_closes_leaves_nothing_at_a_home") {
    with_each_provider([](Cluster& cluster, Process& home, const Env& env) {
      Process& peer = cluster.spawn("peer", env);
      const Export exported = export_segment(home);
      const Import import = import_segment(peer, exported);
      REQUIRE(load(peer, import.at).cause() == Fault::kNone);
      REQUIRE(publish(home, exported.at, 1));
      const size_t before = sockets_that_are_over(home);
      const std::vector<uint16_t> ports = ports_of(home, kListen);
      for (const uint16_t port : ports) {
        for (const size_t bytes : {size_t{0}, size_t{1}, size_t{2}, size_t{16}, size_t{100}}) {
          const Fd fd = connect_to(port);
          REQUIRE(fd);
          const std::string words(bytes, 'x');
          CHECK(::send(fd.get(), words.data(), bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes));
        }
      }
      const Deadline deadline = Deadline::in(40 * kSecond);
      const auto found = [&] {
        const std::vector<uint16_t> at = ports_of(home, kCloseWait);
        return std::count_if(at.begin(), at.end(), [&](uint16_t port) {
          return std::find(ports.begin(), ports.end(), port) != ports.end();
        });
      };
      // The kernel's table leaves out lines while sockets of other tests come and go.
      const auto left = [&] { return std::max({found(), found(), found()}); };
      // The sockets provider keeps the number of a connection that is over, until its endpoint
      // ends.
      const bool keeps = env[0].second == "sockets";
      const auto kept = [&] { return !keeps && sockets_that_are_over(home) > before; };
      while ((left() != 0 || kept()) && !deadline.passed()) ::usleep(100'000);
      CHECK(left() == 0);
      CHECK_FALSE(kept());
      if (keeps) return;  // nobody reaches its endpoint for the first time any more (providers.md)
      CHECK(publish(peer, import.at, 2));
      CHECK(load(home, exported.at).value == 2);
    });
  }
}

}  // namespace

}  // namespace cmi::test::waiting_nodes_test
