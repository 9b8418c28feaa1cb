// One play of the fault sweep: four processes go through a workload that comes past every fault
// point of the library, while one of them is killed at a point, or fails there. The calls that each
// scene makes are checked by what may be said of them once somebody has died.
#pragma once

#include <doctest/doctest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "fault/sweep_points.hpp"
#include "support/passages.hpp"

namespace cmi::test::sweep {

inline constexpr uint64_t kPages = 160;  // of the segment; what follows lies in it, page by page
inline constexpr uint64_t kByPeer = 1;   // stored to by the peer alone
inline constexpr uint64_t kByThird = 2;  // by the third
inline constexpr uint64_t kByHome = 3;   // by the home, in turns by its two processes
inline constexpr uint64_t kSwapped = 4;  // a counter
inline constexpr uint64_t kInFlux = 6;   // the third is killed while it stores there
inline constexpr uint64_t kRun = 32;     // the first of many that the peer writes whole
inline constexpr uint64_t kRunPages = 64;

struct Actor {
  Process* process = nullptr;
  bool gone = false;  // it was killed where it should be, or has ended
};

// How often the point was passed.
uint64_t times(const Passages& passages, std::string_view point);

class Play {
 public:
  // The victim comes past the point for the nth time; kRoles: nobody does, all count only.
  Play(const Point& point, Role victim, uint64_t nth);

  // The fault took place: the victim was killed where it should be, or failed there.
  bool reached() const { return point_.fails ? passed(faulty_) >= nth_ : died_; }
  // How often the process came past each point.
  Passages passages(Role role) const { return read_passages(counts(role)); }

  // New processes come up on the same nodes at once, and share again.
  void again();

 private:
  std::string counts(Role role) const {
    return cluster_.scratch() + "/passages" + std::to_string(role);
  }
  uint64_t passed(Role role, std::string_view name) const { return times(passages(role), name); }
  uint64_t passed(Role role) const { return passed(role, point_.name); }
  Env environment(Role role) const;
  static Answer reserve(Process& process, int32_t command, uint64_t size, uint64_t key);
  // Keys that stand in the registries; see doc/design/registry.md.
  std::vector<uint64_t> reservations() const;

  bool here(Role role) const { return !actors_[role].gone; }
  Process& process(Role role) { return *actors_[role].process; }

  // Whether the victim is being killed, if it is not already: looked at when somebody had an error.
  bool dying();
  // Has the actor do something, if it is there. False when it was not, or died over it.
  template <class F>
  bool let(Role role, F act) {
    if (!here(role)) return false;
    try {
      act(process(role));
      return true;
    } catch (const ChildFailed& failure) {
      actors_[role].gone = role != victim_ || dying();
      CHECK_MESSAGE((role == victim_ && died_), failure.what());
      actors_[role].gone = true;
      return false;
    }
  }
  // A call that must succeed while all live, and may say that something is lost once one has died.
  bool good(const Answer& answer, const char* what);
  // An access likewise; what it loads is one of the values, whoever died.
  bool good(const Access& access, const char* what, const std::set<uint64_t>& values = {});

  // The scenes, in their order.
  void begin();
  void share();
  void work();
  // Whoever lives is coherent with the others that live. Then the third is killed in the middle of
  // its stores, unless it is the victim, and the next invalidation round finds it dead: what it
  // stored to is in flux, the rest is as it was.
  void die_untidily();
  // The home is silent for longer than the peer may use what it has cached, and a map is asked for
  // meanwhile; then it is back before anybody has declared it dead.
  void pause();
  // The peer changes every other byte of many pages, which travel in messages, and the home is
  // slow.
  void flood();
  // The break of a segment goes up and down while the peer has pages of it.
  void resize();
  // Memory that the home's client has becomes a segment, and is its own again.
  void adopt();
  // Stores and loads that go home one by one.
  void go_through();
  // What was granted and exported is taken away again.
  void withdraw();
  // All but one leave in good order: the second process of the home's node is killed with a view
  // attached, and others clean up after it.
  void end();

  const Flat& token(Role role) const { return role == kPeer ? second_token_ : exported_.token; }
  // Stores a word and publishes it, and has everybody look. What may be seen from then on: the new
  // value, and also the one before where the publisher died over it.
  void put_and_see(Role role, uint64_t page, uint64_t value, const char* what);
  void see(uint64_t page, const std::set<uint64_t>& values, const char* what);

  Cluster cluster_;
  const Point point_;
  const Circumstances has_;
  const Role faulty_;  // whose environment names the point
  const uint64_t nth_;
  Role victim_;  // who may be gone for it from now on
  Lack lack_;
  bool died_ = false;
  Actor actors_[kRoles + 1];
  Export exported_, kept_;
  Flat second_token_;
  uint64_t second_ = 0;
  // What the words that are published may hold.
  std::map<uint64_t, std::set<uint64_t>> words_{{kByPeer, {0}}, {kByThird, {0}}, {kByHome, {0}}};
  uint64_t views_[kRoles + 1] = {};
  cmi_seg segments_[kRoles + 1] = {};
};

}  // namespace cmi::test::sweep
