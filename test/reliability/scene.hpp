// What most injections begin with: a home and two importers, one of which is watched while it
// works. In the process of one injection.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "fault/network.hpp"
#include "reliability/client.hpp"
#include "reliability/faults.hpp"

namespace cmi::reliability {

using namespace cmi::test;

inline constexpr size_t kSize = 16 * kPage;
inline constexpr int kPatience = 40;            // seconds
inline constexpr useconds_t kMoment = 100'000;  // for things to run before the fault

inline double ms_between(Nanos from, uint64_t to) {
  return static_cast<double>(static_cast<Nanos>(to) - from) / 1e6;
}

// How long silence lasts until it is death, where a test is to be quick.
inline Env verdict() {
  const char* text = std::getenv("CMI_RELIABILITY_DEAD_AFTER");
  return text == nullptr ? Env{} : Env{{"CMI_DEAD_AFTER", text}};
}

// A home and an importer that uses its segment; a second importer holds it, too.
struct Scene {
  explicit Scene(bool on_network = false, const Env& env = {},
                 int32_t mode = CMI_SEG_CLIENT_CONSIST) {
    if (on_network) {
      network = std::make_unique<Network>(cluster);
      if (!network->here()) return;
      for (const char* node : {"home", "peer", "third"}) network->join(node);
    }
    home = &cluster.spawn("home", env);
    peer = &cluster.spawn("peer", env);
    third = &cluster.spawn("third", env);
    exported = export_segment(*home, kSize, kAllRights, mode);
    import = import_segment(*peer, exported);
    other = import_segment(*third, exported);
    REQUIRE(load(*third, other.at + kPage).cause() == Fault::kNone);
  }
  bool here() const { return network == nullptr || network->here(); }
  Seen skipped() const { return {0, "", network->reason()}; }

  // The importer works, and has for a moment.
  Pending<void> begin(Round round = Round::kStore) {
    auto using_it = use_at(*peer, import.at, round);
    if (!board.reaches(kRounds, 20, kPatience)) throw std::runtime_error("no rounds");
    ::usleep(kMoment);
    return using_it;
  }
  Pending<void> use_at(Process& process, uint64_t at, Round round = Round::kStore) {
    return process.start(
        [](Board::Name name, uint64_t address, Round what) { use(name, address, what); },
        board.name(), at, round);
  }
  void must_reach(size_t word) {
    if (!board.reaches(word, 1, kPatience)) throw std::runtime_error("the client notices nothing");
  }
  uint64_t must_tell(int type) {
    const Deadline deadline = Deadline::in(kPatience * kSecond);
    while (event_at(board, type) == 0) {
      if (deadline.passed()) throw std::runtime_error("no such event");
      ::usleep(500);
    }
    return event_at(board, type);
  }

  Cluster cluster;
  std::unique_ptr<Network> network;
  Board board{cluster};
  Process *home = nullptr, *peer = nullptr, *third = nullptr;
  Export exported;
  Import import, other;
};

// Whatever makes the home silent for three seconds: the client is told in between.
template <class Begin, class End>
Seen silent_for_a_while(Scene& s, Begin begin, End end) {
  auto client = s.begin(Round::kSwap);
  begin();
  s.must_reach(kCauseAt);
  ::sleep(2);
  const Nanos back = now();
  end();
  s.must_reach(kWellAt);
  client.finish();
  return {ms_between(back, s.board[kWellAt]), noticed(s.board), ""};
}

// Of those that the board has, in ms.
inline double longest_round(Board& board) {
  uint64_t longest = 0;
  for (size_t i = kSpans; i < kWords; ++i) longest = std::max<uint64_t>(longest, board[i]);
  return static_cast<double>(longest) / 1e6;
}

// From outside, so that the process may be at work.
inline bool limit_descriptors(Process& process, bool none) {
  rlimit limit{};
  if (::prlimit(process.pid(), RLIMIT_NOFILE, nullptr, &limit) != 0) return false;
  limit.rlim_cur = limit.rlim_max;
  if (none) {
    // Every number below the lowest free one is taken.
    const std::string folder = "/proc/" + std::to_string(process.pid()) + "/fd/";
    const auto taken = [&folder](rlim_t number) {
      return ::faccessat(AT_FDCWD, (folder + std::to_string(number)).c_str(), F_OK,
                         AT_SYMLINK_NOFOLLOW) == 0;
    };
    for (limit.rlim_cur = 0; taken(limit.rlim_cur);) ++limit.rlim_cur;
  }
  return ::prlimit(process.pid(), RLIMIT_NOFILE, &limit, nullptr) == 0;
}

}  // namespace cmi::reliability
