// Peers that die, and peers that send garbage.
#include <arpa/inet.h>
#include <dirent.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <string>

#include "core/base/clock.hpp"
#include "system/calls.hpp"

namespace cmi::test::peers_nodes_test {

namespace {

// Inodes of the sockets that a process has open.
std::set<std::string> sockets_of(pid_t pid) {
  std::set<std::string> inodes;
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  DIR* dir = ::opendir(folder.c_str());
  if (dir == nullptr) return inodes;
  while (const dirent* entry = ::readdir(dir)) {
    char target[64] = {};
    if (::readlink((folder + "/" + entry->d_name).c_str(), target, sizeof target - 1) <= 0)
      continue;
    const std::string link(target);
    if (link.starts_with("socket:[")) inodes.insert(link.substr(8, link.size() - 9));
  }
  ::closedir(dir);
  return inodes;
}

// Waits until the main thread of a process waits for a page: in ppoll, or, where another thread
// takes its faults, in none of its system calls.
bool waits_for_a_page(pid_t pid) {
  const Deadline deadline = Deadline::in(10 * kSecond);
  const long where = std::getenv("CMI_TEST_FAULT") != nullptr ? -1 : SYS_ppoll;
  while (!deadline.passed()) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/syscall");
    long number = 0;
    if (file >> number && number == where) return true;
    sched_yield();
  }
  return false;
}

// The addresses on which a process listens for TCP over IPv4.
std::vector<sockaddr_in> listening(pid_t pid) {
  std::vector<sockaddr_in> found;
  const std::set<std::string> inodes = sockets_of(pid);
  std::ifstream table("/proc/net/tcp");
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, skip, inode;
    fields >> slot >> local >> remote >> state >> skip >> skip >> skip >> skip >> skip >> inode;
    if (state != "0A" || !inodes.contains(inode)) continue;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = static_cast<in_addr_t>(std::stoul(local.substr(0, 8), nullptr, 16));
    address.sin_port = htons(static_cast<uint16_t>(std::stoul(local.substr(9), nullptr, 16)));
    found.push_back(address);
  }
  return found;
}

// Connects, writes so many random bytes if it can, and says whether it was let in.
bool send_garbage(const sockaddr_in& address, size_t bytes, uint32_t seed) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience{1, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return false;
  }
  std::mt19937 random(seed);
  std::vector<unsigned char> garbage(bytes);
  for (unsigned char& byte : garbage) {
    byte = static_cast<unsigned char>(seed % 3 == 0 ? 0 : seed % 3 == 1 ? 0xff : random());
  }
  static_cast<void>(::send(fd.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL));
  return true;
}

struct Traffic {
  uint64_t rounds;
  uint64_t failures;
};

// Stores, publishes and loads until it is called back.
Pending<Traffic> start_traffic(Process& process, uint64_t at) {
  return process.start(
      [](uint64_t view) {
        Traffic seen{0, 0};
        while (!called_back() || seen.rounds < 20) {
          ++seen.rounds;
          seen.failures += store64(view, seen.rounds).cause() != Fault::kNone;
          seen.failures += CMIFN(ctxt(), 10, wmb_fn)(ctxt()) != 0;
          seen.failures += load64(view).value != seen.rounds;
        }
        return seen;
      },
      at);
}

TEST_SUITE("peers") {
  PROCESS_CASE("a_load_from_a_killed_home_ends_with_an_exception") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    REQUIRE(load(peer, import.at).cause() == Fault::kNone);
    // A home that is stopped cannot answer, so the load waits when the home is killed.
    home.stop();
    auto pending = peer.start([](uint64_t at) { return load64(at); }, import.at + 8 * kPage);
    CHECK(waits_for_a_page(peer.pid()));  // commands are waited for in poll
    home.kill();
    const int cause = pending.get().cause();
    CHECK_MESSAGE((cause == CMI_ERROR_TRANSIENT || cause == CMI_ERROR_SINVAL), "cause ", cause);
    // The next ones end too, cached or not.
    const int again = load(peer, import.at + 4 * kPage).cause();
    CHECK_MESSAGE((again == CMI_ERROR_TRANSIENT || again == CMI_ERROR_SINVAL), "cause ", again);
  }

  TEST_CASE("loads_in_a_row_end_with_an_exception_when_their_home_is_killed") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& other = cluster.spawn("other");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home, 32u << 20);
    const Export kept = export_segment(other);
    REQUIRE(publish(other, kept.at, 17));
    const Import import = import_segment(peer, exported);
    const Import good = import_segment(peer, kept);
    struct Seen {
      int cause;
      uint64_t loads;
    };
    auto pending = peer.start(
        [](uint64_t at, size_t size, uint64_t told) {
          Seen seen{0, 0};
          std::mt19937 random(1);
          for (uint64_t i = 0; i < size / kPage && seen.cause == 0; ++i) {
            seen.cause = load64(at + random() % (size / kPage) * kPage).cause();
            if (++seen.loads != 200) continue;
            store64(told, 1);
            CMIFN(ctxt(), 10, wmb_fn)(ctxt());
          }
          return seen;
        },
        import.at, exported.size, good.at + 8);
    REQUIRE(load_until(other, kept.at + 8, 1) == 1);
    home.kill();
    const Seen seen = pending.get();
    CHECK_MESSAGE(
        (seen.cause == 0 || seen.cause == CMI_ERROR_TRANSIENT || seen.cause == CMI_ERROR_SINVAL),
        "cause ", seen.cause);
    CHECK(seen.loads > 0);
    // Other homes are not affected.
    CHECK(load(peer, good.at).value == 17);
    CHECK(publish(peer, good.at, 18));
    CHECK(load(other, kept.at).value == 18);
  }

  TEST_CASE("a_killed_importer_holds_up_nobody") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& victim = cluster.spawn("victim");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import cached = import_segment(victim, exported);
    const Import import = import_segment(peer, exported);
    REQUIRE(load(victim, cached.at).cause() == Fault::kNone);
    victim.kill();
    CHECK(publish(peer, import.at, 19));
    CHECK(load(home, exported.at).value == 19);
    CHECK(publish(home, exported.at, 20));
    CHECK(load(peer, import.at).value == 20);
  }

  TEST_CASE("an_importer_killed_in_the_middle_of_its_stores_holds_up_nobody") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& victim = cluster.spawn("victim");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import dying = import_segment(victim, exported);
    const Import import = import_segment(peer, exported);
    auto traffic = start_traffic(victim, dying.at + kPage);
    const Deadline soon = Deadline::in(10 * kSecond);
    while (load(home, exported.at + kPage).value < 3 && !soon.passed()) {
    }
    CHECK_FALSE(soon.passed());
    victim.kill();
    CHECK_THROWS_AS(traffic.get(), ChildFailed);
    CHECK(publish(peer, import.at, 19));
    CHECK(load(home, exported.at).value == 19);
    CHECK(publish(home, exported.at, 20));
    CHECK(load(peer, import.at).value == 20);
  }

  PROCESS_CASE("garbage_sent_to_the_listening_ports_does_no_harm") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    auto traffic = start_traffic(peer, import.at);
    int let_in = 0;
    const auto ports = listening(home.pid());
    CHECK_FALSE(ports.empty());
    uint32_t seed = 0;
    for (const sockaddr_in& address : ports) {
      for (size_t bytes : {0, 1, 7, 8, 16, 63, 100, 4096, 65536}) {
        for (int kind = 0; kind < 3; ++kind) let_in += send_garbage(address, bytes, ++seed);
      }
    }
    CHECK(let_in > 0);
    const Traffic seen = traffic.finish();
    CHECK(seen.failures == 0);
    CHECK(seen.rounds > 0);
    CHECK(load(home, exported.at).value == seen.rounds);
    // Newcomers are still let in, and so is who was there.
    Process& late = cluster.spawn("late");
    CHECK(load(late, import_segment(late, exported).at).value == seen.rounds);
    CHECK(load(peer, import_segment(peer, export_segment(home)).at).cause() == Fault::kNone);
  }
}

}  // namespace

}  // namespace cmi::test::peers_nodes_test
