// The fault sweep: a workload that comes past every fault point of the library, played once for
// each of them with a process killed there, or with the point failing where it can fail. Each time
// those that live on end with the right answer or with an error that says why, nobody hangs or
// crashes, nothing is left behind, and the nodes share memory again with the processes that come
// after. A point that no process of the workload comes past fails the sweep.
//
// The list of points is made from the library's sources when this is built
// (cmake/fault_points.cmake), so that a new point is swept without a word here. The cases are equal
// shares of the list, for ctest to run side by side. CMI_SWEEP_POINT names one to be played alone.
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.hpp"
#include "system/calls.hpp"

namespace cmi::test {

namespace {

struct Point {
  std::string_view name;
  bool fails;  // takes an error path; else a place to die at
};
constexpr Point kPoints[] = {
#define FAULT_POINT(name, fails) {name, fails},
#include "fault_points.inc"
#undef FAULT_POINT
};
constexpr int kShares = 6;

constexpr uint64_t kPages = 160;  // of the segment; what follows lies in it, page by page
constexpr uint64_t kByPeer = 1;   // stored to by the peer alone
constexpr uint64_t kByThird = 2;  // by the third
constexpr uint64_t kByHome = 3;   // by the home, in turns by its two processes
constexpr uint64_t kSwapped = 4;  // a counter
constexpr uint64_t kInFlux = 6;   // the third is killed while it stores there
constexpr uint64_t kRun = 32;     // the first of many that the peer writes whole
constexpr uint64_t kRunPages = 64;

enum Role { kHome, kSecond, kPeer, kThird, kRoles };  // kSecond: on the home's node, too
constexpr const char* kNodes[] = {"home", "home", "peer", "third"};

struct Actor {
  Process* process = nullptr;
  bool gone = false;  // it was killed where it should be, or has ended
};

class Play {
 public:
  Play(const Point& point, Role victim, const std::string& nth)
      : victim_(victim),
        lacks_(point.name.starts_with("emulate_") || point.name.starts_with("adopted_")) {
    Env faulty{
        {"CMI_FAULT_POINT", std::string(point.name) + nth + (point.fails ? "=fail" : "=kill")}};
    // Only kernels before 6.4 need what this one stands in.
    if (point.name == "map_before_protect") faulty.emplace_back("CMI_KERNEL", "6.1");
    for (Role role : {kHome, kSecond, kPeer, kThird}) {
      actors_[role].process = &cluster_.spawn_bare(kNodes[role], role == victim ? faulty : Env{});
    }
    begin();
    share();
    work();
    resize();
    adopt();
    go_through();
    withdraw();
    end();
  }

  // The victim was killed where it should be.
  bool reached() const { return died_; }

  // New processes come up on the same nodes at once, and share again.
  void again() {
    Process& home = cluster_.spawn_bare("home");
    Process& peer = cluster_.spawn_bare("peer");
    auto starting = home.start([] { return start_context(CMI_VERNO); });
    REQUIRE(ini(peer).ok());
    REQUIRE(starting.get().ok());
    // A reservation outlives its maker, however that ends: until somebody deletes it.
    for (uint64_t key : reservations()) {
      CHECK(reserve(home, CMI_CTL_MEM_RESERVE_SET, 0, key).ok());
      CHECK(reserve(home, CMI_CTL_MEM_RESERVE_DEL, 0, 0).ok());
    }
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    CHECK(publish(peer, import.at, 5));
    CHECK(load(home, exported.at).value == 5);
    CHECK(publish(home, exported.at, 6));
    CHECK(load(peer, import.at).value == 6);
  }

 private:
  static Answer reserve(Process& process, int32_t command, uint64_t size, uint64_t key) {
    return process.run(
        [](int32_t c, uint64_t s, uint64_t k) {
          cmi_ctl_cfg cfg{};
          cfg.mreq.mem_reserve = s;
          cfg.mreq.rsv_key = k;
          const int result = CMIFN(ctxt(), 10, cmi_ctl)(ctxt(), c, &cfg);
          return answer(result, result != 0);
        },
        command, size, key);
  }
  // Keys that stand in the registries; see doc/design/registry.md.
  std::vector<uint64_t> reservations() const {
    constexpr std::streamoff kReservations = 794752, kEach = 32;
    std::vector<uint64_t> keys;
    for (const std::string& path : cluster_.files()) {
      if (!path.ends_with("/registry")) continue;
      std::ifstream registry(path, std::ios::binary);
      for (int i = 0; i < 64; ++i) {
        uint64_t key = 0;
        registry.seekg(kReservations + i * kEach);
        registry.read(reinterpret_cast<char*>(&key), sizeof key);
        if (key != 0) keys.push_back(key);
      }
    }
    return keys;
  }

  bool here(Role role) const { return !actors_[role].gone; }
  Process& process(Role role) { return *actors_[role].process; }

  // Whether the victim is being killed, if it is not already: looked at when somebody had an error.
  bool dying() {
    Actor& victim = actors_[victim_];
    if (!victim.gone) {
      try {
        const int status = victim.process->wait_end(1);
        victim.gone = true;
        died_ = died_by(status, SIGKILL);
        CHECK_MESSAGE(died_, victim.process->name(), ": ", describe_status(status));
      } catch (const ChildFailed&) {
        return false;  // it lives
      }
    }
    return died_;
  }

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
  bool good(const Answer& answer, const char* what) {
    if (answer.ok()) return true;
    const bool excused = lacks_ || dying();
    const bool says_why = (lacks_ && answer.error == CMI_ERR_NOMEM) ||
                          answer.error == CMI_ERR_INVAL || answer.error == CMI_ERR_STORE ||
                          answer.error == CMI_ERR_RECONFIG || answer.error == CMI_ERR_HW;
    CHECK_MESSAGE((excused && says_why), what, ": ", answer);
    return false;
  }
  // An access likewise; what it loads is one of the values, whoever died.
  bool good(const Access& access, const char* what, const std::set<uint64_t>& values = {}) {
    if (access.cause() == Fault::kNone) {
      const bool known = values.empty() || values.contains(access.value);
      CHECK_MESSAGE(known, what, ": ", access.value);
      return known;
    }
    const int cause = access.cause();
    const bool excused = dying();
    const bool says_why = cause == CMI_ERROR_SINVAL || cause == CMI_ERROR_TRANSIENT ||
                          cause == CMI_ERROR_TOKEN || cause == CMI_ERROR_CONSIST;
    CHECK_MESSAGE((excused && says_why), what, ": cause ", cause);
    return false;
  }

  void begin() {
    std::map<Role, Pending<Answer>> starting;
    for (Role role : {kHome, kSecond, kPeer, kThird}) {
      starting.emplace(role, process(role).start([] { return start_context(CMI_VERNO); }));
    }
    for (auto& [role, pending] : starting) {
      if (let(role, [&, &answer = pending](Process& p) {
            const Answer started = answer.get();
            CHECK_MESSAGE(started.ok(), "cmi_ini on ", p.name(), ": ", started);
          })) {
        continue;
      }
      // Killed while it came up: the next one on its node takes its place, and nobody is excused.
      actors_[role] = {&cluster_.spawn(kNodes[role]), false};
      victim_ = kRoles;
    }
  }

  void share() {
    // A home that is killed while it makes and exports leaves nothing to share.
    let(kHome, [&](Process& p) {
      const Answer made = seg_get(p, kPages * kPage);
      if (!good(made, "seg_get")) return;
      exported_.seg = made.seg();
      const Answer attached = seg_at(p, exported_.seg);
      if (!good(attached, "seg_at")) return;
      exported_.at = attached.at();
      exported_.handle = seg_exp(p, exported_.seg);
      exported_.token = tok_new(p, exported_.seg, kAllRights);
      second_token_ = tok_new(p, exported_.seg, kAllRights);
      kept_ = export_segment(p, kPage);  // nobody takes it away before the end
    });
    if (exported_.token.ok() && here(kHome)) {
      let(kSecond, [&](Process& p) {
        const Answer attached = seg_at(p, exported_.seg);
        if (good(attached, "seg_at on the home's node")) second_ = attached.at();
        good(seg_at(p, kept_.seg), "seg_at of what is kept");
      });
    }
    if (!exported_.token.ok()) return;
    for (Role role : {kPeer, kThird}) {
      let(role, [&](Process& p) {
        const Answer imported = seg_imp(p, exported_.handle);
        if (!good(imported, "seg_imp")) return;
        if (!good(cmi_enb(p, 1), "cmi_enb")) return;
        const Flat& token = role == kPeer ? second_token_ : exported_.token;
        if (!good(set_token(p, imported.seg(), token), "CMI_SEG_TOKEN")) return;
        const Answer attached = seg_at(p, imported.seg());
        if (good(attached, "seg_at of an import")) views_[role] = attached.at();
        segments_[role] = imported.seg();
      });
    }
    views_[kHome] = exported_.at;
    views_[kSecond] = second_;
  }

  // Stores a word and publishes it, and has everybody look. What may be seen from then on: the new
  // value, and also the one before where the publisher died over it.
  void put_and_see(Role role, uint64_t page, uint64_t value, const char* what) {
    std::set<uint64_t>& may_be = words_[page];
    let(role, [&](Process& p) {
      if (views_[role] == 0) return;
      may_be.insert(value);
      if (good(store(p, views_[role] + page * kPage, value), what) && good(wmb(p), what)) {
        may_be = {value};
      }
    });
    see(page, may_be, what);
  }
  void see(uint64_t page, const std::set<uint64_t>& values, const char* what) {
    for (Role role : {kHome, kSecond, kPeer, kThird}) {
      if (views_[role] == 0) continue;
      let(role, [&](Process& p) {
        const uint64_t at = views_[role] + page * kPage;
        Access seen = load(p, at);
        // Nobody tells importers what the node of a dead home stores from then on. They have what
        // they cached for as long as it takes them to hear of that death, and then lose it.
        if (seen.cause() == Fault::kNone && !values.contains(seen.value) &&
            (role == kPeer || role == kThird) && victim_ == kHome && dying()) {
          const Deadline soon = Deadline::in(10 * cmi::kSecond);  // kSecond is a role
          while (seen.cause() != CMI_ERROR_SINVAL && !soon.passed()) seen = load(p, at);
          CHECK_MESSAGE(seen.cause() == CMI_ERROR_SINVAL, std::string(what), ": ", p.name(),
                        " goes on reading ", seen.value);
        }
        good(seen, what, values);
      });
    }
  }

  void work() {
    // Whole pages ahead of the reader, and every region held by both.
    for (Role role : {kPeer, kThird}) {
      if (views_[role] == 0) continue;
      let(role, [&](Process& p) {
        const Access read = p.run(
            [](uint64_t at) {
              Access access;
              for (uint64_t i = 0; i < kPages && access.cause() == Fault::kNone; ++i) {
                access = load64(at + i * kPage);
              }
              return access;
            },
            views_[role]);
        good(read, "loads in a row", {0});
      });
    }
    put_and_see(kThird, kByThird, 10, "the third's stores");
    put_and_see(kPeer, kByPeer, 20, "the peer's stores");
    put_and_see(kPeer, kByPeer, 21, "the peer's stores to what others have");
    // Pages that change in every byte.
    if (views_[kPeer] != 0) {
      let(kPeer, [&](Process& p) {
        const Access written = p.run(
            [](uint64_t at) {
              Access access;
              for (uint64_t i = 0; i < kRunPages * kPage && access.cause() == Fault::kNone;
                   i += 8) {
                access = store64(at + i, 0x5555555555555555);
              }
              return access;
            },
            views_[kPeer] + kRun * kPage);
        if (good(written, "a run")) good(wmb(p), "the barrier after a run");
      });
      see(kRun + kRunPages - 1, {0, 0x5555555555555555}, "what was written as a run");
    }
    uint64_t counted = 0, tried = 0;
    for (Role role : {kPeer, kThird, kPeer}) {
      if (views_[role] == 0) continue;
      let(role, [&](Process& p) {
        ++tried;
        const Access seen = load(p, views_[role] + kSwapped * kPage);
        if (!good(seen, "the counter")) return;
        const Swap swap = atm_cas(p, views_[role] + kSwapped * kPage, seen.value, seen.value + 1);
        if (good(Access{0, swap.fault}, "a swap") && good(swap.answer, "a swap")) {
          counted += swap.swapped;
        }
      });
    }
    for (Role role : {kHome, kThird}) {
      if (views_[role] == 0) continue;
      let(role, [&](Process& p) {
        const Access seen = load(p, views_[role] + kSwapped * kPage);
        if (!good(seen, "the counter")) return;
        CHECK(seen.value >= counted);
        CHECK(seen.value <= tried);
      });
    }
    put_and_see(kHome, kByHome, 30, "the home's stores");
    put_and_see(kSecond, kByHome, 31, "stores of the home's second process");
    die_untidily();
  }

  // Whoever lives is coherent with the others that live. Then the third is killed in the middle of
  // its stores, unless it is the victim, and the next publication finds it dead: what it stored to
  // is in flux, the rest is as it was.
  void die_untidily() {
    put_and_see(kThird, kByThird, 11, "the third's stores at the end");
    if (victim_ == kThird || views_[kThird] == 0 || !here(kThird)) return;
    process(kThird).start(
        [](uint64_t at) {
          for (uint64_t n = 0; !called_back(); ++n) store64(at + n % 16 * 8, n);
        },
        views_[kThird] + kInFlux * kPage);
    // It has begun as soon as its stores are seen at home.
    if (views_[kHome] != 0) {
      let(kHome, [&](Process& p) { load_until(p, views_[kHome] + kInFlux * kPage + 8, 1, 1); });
    }
    process(kThird).kill();
    actors_[kThird].gone = true;
    views_[kThird] = 0;
    put_and_see(kHome, kByHome, 32, "the home's stores after a death");
    see(kByThird, words_[kByThird], "what the dead had flushed");
  }

  // The break of a segment goes up and down while the peer has pages of it.
  void resize() {
    Export grows;
    let(kHome, [&](Process& p) {
      const Answer made = seg_get(p, 8 * kPage, CMI_SEG_EXTENSIBLE);
      if (!good(made, "seg_get of an extensible segment")) return;
      grows.seg = made.seg();
      grows.handle = seg_exp(p, grows.seg);
      good(seg_brk(p, grows.seg, 4 * kPage), "CMI_SEG_BRK up");
      grows.token = tok_new(p, grows.seg, kAllRights);
    });
    if (!grows.token.ok()) return;
    uint64_t view = 0;
    let(kPeer, [&](Process& p) {
      const Answer imported = seg_imp(p, grows.handle);
      if (!good(imported, "seg_imp") ||
          !good(set_token(p, imported.seg(), grows.token), "CMI_SEG_TOKEN")) {
        return;
      }
      const Answer attached = seg_at(p, imported.seg());
      if (!good(attached, "seg_at of an import")) return;
      view = attached.at();
      good(load(p, view + 3 * kPage), "a load before the break", {0});
    });
    bool shrunk = false;
    let(kHome,
        [&](Process& p) { shrunk = good(seg_brk(p, grows.seg, kPage), "CMI_SEG_BRK down"); });
    if (view != 0 && shrunk) {
      let(kPeer, [&](Process& p) {
        const Access past = load(p, view + 3 * kPage);
        if (past.cause() != CMI_ERROR_SEG_BRK) {
          good(past, "a load past the break", {});
          CHECK(dying());
        }
      });
    }
    let(kHome, [&](Process& p) { good(seg_rm(p, grows.seg), "seg_rm"); });
    let(kHome, [&](Process& p) {
      good(reserve(p, CMI_CTL_MEM_RESERVE, 4 * kPage, 0), "CMI_CTL_MEM_RESERVE");
      good(reserve(p, CMI_CTL_MEM_RESERVE, 8 * kPage, 0), "a larger CMI_CTL_MEM_RESERVE");
      const Answer made = seg_get(p, 6 * kPage);
      if (good(made, "seg_get in a reservation")) good(seg_rm(p, made.seg()), "seg_rm");
      good(reserve(p, CMI_CTL_MEM_RESERVE_DEL, 0, 0), "CMI_CTL_MEM_RESERVE_DEL");
    });
  }

  // Stores and loads that go home one by one.
  void go_through() {
    Export shared;
    let(kHome, [&](Process& p) {
      const Answer made = seg_get(p, kPage);
      if (!good(made, "seg_get of a write-through segment")) return;
      shared.seg = made.seg();
      shared.handle = seg_exp(p, shared.seg, CMI_SEG_WRITE_THROUGH);
      if (shared.handle.ok()) shared.token = tok_new(p, shared.seg, kAllRights);
    });
    if (!shared.token.ok()) return;  // where no instruction can be executed in its place
    let(kPeer, [&](Process& p) {
      const Answer imported = seg_imp(p, shared.handle);
      if (!good(imported, "seg_imp of a write-through segment") ||
          !good(set_token(p, imported.seg(), shared.token), "CMI_SEG_TOKEN")) {
        return;
      }
      const Answer attached = seg_at(p, imported.seg());
      if (!good(attached, "seg_at of a write-through import")) return;
      if (good(store(p, attached.at(), 5), "a store that goes through", {})) {
        good(load(p, attached.at()), "a load that goes through", {5});
      }
    });
    let(kHome, [&](Process& p) { good(seg_rm(p, shared.seg), "seg_rm of it"); });
  }

  // Memory that the home's client has becomes a segment, and is its own again.
  void adopt() {
    let(kHome, [&](Process& p) {
      const Answer mapped = p.run([] {
        void* at =
            ::mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) return answer(0, true);
        *static_cast<uint64_t*>(at) = 7;
        return answer(reinterpret_cast<int64_t>(at), false);
      });
      REQUIRE(mapped.ok());
      const Answer made = p.run(
          [](uint64_t at) {
            const cmi_seg seg = CMIFN(ctxt(), 11, seg_getva)(ctxt(), reinterpret_cast<void*>(at),
                                                             4 * kPage, CMI_SEG_CLIENT_CONSIST);
            return answer(seg, seg == CMI_SEG_INVALID);
          },
          mapped.at());
      if (!good(made, "seg_getva")) return;
      good(load(p, mapped.at()), "a load of adopted memory", {7});
      good(seg_rm(p, made.seg()), "seg_rm of adopted memory");
      good(seg_dt(p, made.seg(), mapped.at()), "seg_dt of adopted memory");
      good(load(p, mapped.at()), "a load of memory that was given back", {7});
    });
  }

  // What was granted and exported is taken away again.
  void withdraw() {
    if (!exported_.token.ok()) return;
    let(kHome, [&](Process& p) { good(tok_del(p, second_token_), "tok_del"); });
    if (here(kHome) && views_[kPeer] != 0) {
      let(kPeer, [&](Process& p) {
        const int cause = load(p, views_[kPeer]).cause();
        CHECK((cause == CMI_ERROR_TOKEN || dying()));
        good(seg_dt(p, segments_[kPeer], views_[kPeer]), "seg_dt of an import");
      });
    }
    if (second_ != 0) {
      let(kSecond, [&](Process& p) { good(seg_dt(p, exported_.seg, second_), "seg_dt"); });
    }
    let(kHome, [&](Process& p) {
      good(seg_rm(p, exported_.seg), "seg_rm");
      good(seg_dt(p, exported_.seg, exported_.at), "seg_dt of a removed segment");
    });
  }

  // All but one leave in good order: the second process of the home's node is killed with a view
  // attached, and others clean up after it.
  void end() {
    if (here(kSecond)) process(kSecond).kill();
    actors_[kSecond].gone = actors_[kSecond].gone || victim_ != kSecond;
    for (Role role : {kThird, kPeer, kSecond, kHome}) {
      Actor& actor = actors_[role];
      if (actor.gone) continue;
      const int status = actor.process->end();
      actor.gone = true;
      if (role == victim_ && died_by(status, SIGKILL)) {
        died_ = true;
      } else {
        CHECK_MESSAGE(status == 0, actor.process->name(), " ended: ", describe_status(status));
      }
    }
  }

  Cluster cluster_;
  Role victim_;
  bool lacks_;  // what the point takes away is told by errors of all that needs it
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

// Who comes past a point is tried in this order.
std::vector<Role> candidates(std::string_view name) {
  const auto begins = [&](std::string_view start) { return name.starts_with(start); };
  if (begins("node.token.")) return {kPeer, kHome};
  if (begins("node.retire.attachment")) return {kHome, kThird, kSecond};
  if (begins("node.") || begins("home_") || begins("server_") || begins("present_") ||
      begins("adopt") || begins("give_back_") || begins("through_") || name == "break_told" ||
      name == "break_before_shrink" || name == "publish_before_page" ||
      name == "publish_before_settle" || name == "revoke_told" || name == "revoke_before_close") {
    return {kHome, kPeer, kSecond};
  }
  // The timer may have brought part of the run home.
  if (begins("run_")) return {kPeer, kPeer, kPeer};
  // The third may be killed just when none of its stores is under way.
  if (begins("in_flux_")) return {kPeer, kHome, kPeer, kHome, kPeer, kHome};
  return {kPeer, kThird, kHome};
}

void sweep(int share) {
  const char* const only = std::getenv("CMI_SWEEP_POINT");
  for (size_t i = static_cast<size_t>(share); i < std::size(kPoints); i += kShares) {
    const Point& point = kPoints[i];
    const std::string name(point.name);
    if (only != nullptr && name != only) continue;
    CAPTURE(name);
    bool reached = false;
    for (Role role : candidates(point.name)) {
      CAPTURE(role);
      // Failing for good would be a machine that is out of order: once is the fault.
      Play play(point, role, point.fails ? "#2" : "#1");
      reached = play.reached() || point.fails;
      if (reached) {
        play.again();
        break;
      }
    }
    CHECK_MESSAGE(reached, "nobody comes past ", name);
  }
}

TEST_SUITE("sweep") {
  TEST_CASE("each_fault_point_ends_with_the_right_answer_or_error_first_share") { sweep(0); }
  TEST_CASE("each_fault_point_ends_with_the_right_answer_or_error_second_share") { sweep(1); }
  TEST_CASE("each_fault_point_ends_with_the_right_answer_or_error_third_share") { sweep(2); }
  TEST_CASE("each_fault_point_ends_with_the_right_answer_or_error_fourth_share") { sweep(3); }
  TEST_CASE("each_fault_point_ends_with_the_right_answer_or_error_fifth_share") { sweep(4); }
  TEST_CASE("each_fault_point_ends_with_the_right_answer_or_error_sixth_share") { sweep(5); }
}

}  // namespace

}  // namespace cmi::test
