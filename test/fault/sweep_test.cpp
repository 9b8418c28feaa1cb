// The fault sweep: a workload that comes past every fault point of the library, played once for
// each of them with a process killed there, or with the point failing where it can fail. Each time
// those that live on end with the right answer or with an error that says why, nobody hangs or
// crashes, nothing is left behind, and the nodes share memory again with the processes that come
// after. A point that no process of the workload comes past fails the sweep: one is killed there,
// or its count of passages says that it was made to fail (core/base/fault_count.hpp). A play
// before, in which nothing fails, shows who comes past which point, and how often.
//
// With mapped pages (CMI_TEST_LOCAL=on) nobody comes past the points of caches: there it is enough
// that each share has points which somebody comes past.
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
#include <functional>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.hpp"
#include "support/passages.hpp"
#include "system/calls.hpp"

namespace cmi::test::sweep_test {

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
constexpr int kShares = 12;

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

// What a point that fails takes away, as calls and accesses say it. All else is as ever.
struct Lack {
  std::string_view points;  // how their names begin
  cmi_error error = CMI_ERR_NONE;
  int cause = Fault::kNone;
};
constexpr Lack kLacks[] = {
    {"emulate_", CMI_ERR_INVAL},
    {"adopted_", CMI_ERR_NOMEM},
    {"enable_no_memory", CMI_ERR_NOMEM},
    {"kernel_has_larger_pages", CMI_ERR_NOTSUPP},
    {"sharers_full", CMI_ERR_NOMEM},  // at the home; its importer is told
    {"local_no_memory", CMI_ERR_NONE, CMI_ERROR_TRANSIENT},
    // All of the segment is in flux, until it is recovered.
    {"cover_no_memory", CMI_ERR_NONE, CMI_ERROR_CONSIST},
    // Who waits for the answer is told that its stores may be lost, and needs the token anew.
    {"round_never_over", CMI_ERR_STORE, CMI_ERROR_TOKEN},
};
Lack lack_of(const Point& point) {
  for (const Lack& lack : kLacks) {
    if (point.fails && point.name.starts_with(lack.points)) return lack;
  }
  return {};
}

uint64_t times(const Passages& passages, std::string_view point) {
  const auto found = passages.find(std::string(point));
  return found == passages.end() ? 0 : found->second;
}

// Who comes past a point. A name stands for all points that begin with it.
constexpr std::string_view kPassedAtHome[] = {"node.",
                                              "home_",
                                              "server_",
                                              "present_",
                                              "swap_fetch_",
                                              "adopt",
                                              "give_back_",
                                              "write_through_",
                                              "sharers_full",
                                              "break_notified",
                                              "cover_no_memory",
                                              "round_never_over",
                                              "break_before_shrink",
                                              "publish_before_page",
                                              "publish_notified",
                                              "revoke_notified",
                                              "revoke_before_close",
                                              "local_grant_"};
// Passed only where importers map the pages of a home on their machine.
constexpr std::string_view kOfMapped[] = {"local_", "ring_"};
constexpr std::string_view kOfTokens = "node.token.", kOfAttachments = "node.retire.attachment",
                           kOfBulkWrites = "bulk_write_", kOfFlux = "in_flux_";

// What a play does beside the common workload, for the sake of its point.
struct Circumstances {
  bool unanswered = false;  // the one fault with which a home lives on and owes an answer for ever
  bool pauses = false;  // passed only while the home is silent for longer than its importers' lease
  bool floods = false;  // passed only when more is to be written back than the home answers in time
  // Passed only by many stores in order, or the barrier behind them: beside load, or where faults
  // are slow, they take longer than the timer waits before it takes the first of them.
  bool in_order = false;
  bool mapped = false;  // passed only where importers map the pages of homes on their machine

  explicit Circumstances(std::string_view point)
      : unanswered(point == "round_never_over"),
        pauses(point.starts_with("lease_") || point == "listener_out_of_reach"),
        floods(point == "collector_never_full" || point == "few_twins"),
        in_order(point.starts_with(kOfBulkWrites) || point.ends_with("_write_behind")),
        mapped(std::any_of(std::begin(kOfMapped), std::end(kOfMapped),
                           [&](std::string_view begin) { return point.starts_with(begin); })) {}
  auto operator<=>(const Circumstances&) const = default;
};

class Play {
 public:
  // The victim comes past the point for the nth time; kRoles: nobody does, all count only.
  Play(const Point& point, Role victim, uint64_t nth)
      : point_(point),
        has_(point.name),
        faulty_(victim),
        nth_(nth),
        victim_(victim),
        lack_(lack_of(point)) {
    for (Role role : {kHome, kSecond, kPeer, kThird}) {
      actors_[role].process = &cluster_.spawn_bare(kNodes[role], environment(role));
    }
    begin();
    share();
    work();
    if (has_.pauses) pause();
    if (has_.floods) flood();
    resize();
    adopt();
    go_through();
    withdraw();
    end();
  }

  // The fault took place: the victim was killed where it should be, or failed there.
  bool reached() const { return point_.fails ? passed(faulty_) >= nth_ : died_; }
  // How often the process came past each point.
  Passages passages(Role role) const { return read_passages(counts(role)); }

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
  std::string counts(Role role) const {
    return cluster_.scratch() + "/passages" + std::to_string(role);
  }
  uint64_t passed(Role role, std::string_view name) const { return times(passages(role), name); }
  uint64_t passed(Role role) const { return passed(role, point_.name); }

  Env environment(Role role) const {
    Env env{{"CMI_FAULT_COUNT", counts(role)}};
    std::string points;
    if (role == faulty_) {
      points = std::string(point_.name) + "#" + std::to_string(nth_) +
               (point_.fails ? "=fail" : "=kill");
      // Only kernels before 6.4 need what this one stands in.
      if (point_.name == "map_before_protect") env.emplace_back("CMI_KERNEL", "6.1");
    }
    // Soon, and not before the others could be heard of.
    if (has_.unanswered || (has_.pauses && role == kHome))
      env.emplace_back("CMI_DEAD_AFTER", "2000");
    // The barrier finds everything still to be sent, to a home that is slow to answer.
    if (has_.floods && role == kHome) points += ";server_before_reply=delay:5000";
    if ((has_.floods || has_.in_order) && role == kPeer) points += ";no_aging=fail";
    env.emplace_back("CMI_FAULT_POINT", points);
    if (has_.mapped) env.emplace_back("CMI_LOCAL", "on");
    return env;
  }

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
    if (victim.process != nullptr && !victim.gone) {
      try {
        const int status = victim.process->wait_end(1);
        victim.gone = true;
        died_ = died_by(status, SIGKILL) && !point_.fails;
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
    if (lack_.error != CMI_ERR_NONE && answer.failed(lack_.error)) return false;
    const bool says_why = answer.error == CMI_ERR_INVAL || answer.error == CMI_ERR_STORE ||
                          answer.error == CMI_ERR_RECONFIG || answer.error == CMI_ERR_HW;
    CHECK_MESSAGE((dying() && says_why), std::string(what), ": ", answer);
    return false;
  }
  // An access likewise; what it loads is one of the values, whoever died.
  bool good(const Access& access, const char* what, const std::set<uint64_t>& values = {}) {
    if (access.cause() == Fault::kNone) {
      const bool known = values.empty() || values.contains(access.value);
      CHECK_MESSAGE(known, std::string(what), ": ", access.value);
      return known;
    }
    const int cause = access.cause();
    if (lack_.cause != Fault::kNone && cause == lack_.cause) return false;
    const bool excused = dying();
    const bool says_why = cause == CMI_ERROR_SINVAL || cause == CMI_ERROR_TRANSIENT ||
                          cause == CMI_ERROR_TOKEN || cause == CMI_ERROR_CONSIST;
    CHECK_MESSAGE((excused && says_why), std::string(what), ": cause ", cause);
    return false;
  }

  void begin() {
    std::map<Role, Pending<Answer>> starting;
    for (Role role : {kHome, kSecond, kPeer, kThird}) {
      starting.emplace(role, process(role).start([] { return start_context(CMI_VERNO); }));
    }
    for (auto& [role, pending] : starting) {
      bool refused = false;
      if (let(role,
              [&, &answer = pending](Process& p) {
                const Answer started = answer.get();
                refused = lack_.error != CMI_ERR_NONE && started.failed(lack_.error);
                CHECK_MESSAGE((started.ok() || refused), "cmi_ini on ", p.name(), ": ", started);
              }) &&
          !refused) {
        continue;
      }
      // Killed while it came up, or refused: the next one on its node takes its place, and nobody
      // is excused.
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
        // What there was no memory for is done once there is.
        if (!good(cmi_enb(p, 1), "cmi_enb") && !good(cmi_enb(p, 1), "cmi_enb again")) return;
        if (!good(set_token(p, imported.seg(), token(role)), "CMI_SEG_TOKEN")) return;
        const Answer attached = seg_at(p, imported.seg());
        if (good(attached, "seg_at of an import")) views_[role] = attached.at();
        segments_[role] = imported.seg();
      });
    }
    views_[kHome] = exported_.at;
    views_[kSecond] = second_;
  }

  const Flat& token(Role role) const { return role == kPeer ? second_token_ : exported_.token; }

  // Stores a word and publishes it, and has everybody look. What may be seen from then on: the new
  // value, and also the one before where the publisher died over it.
  void put_and_see(Role role, uint64_t page, uint64_t value, const char* what) {
    std::set<uint64_t>& may_be = words_[page];
    let(role, [&](Process& p) {
      if (views_[role] == 0) return;
      may_be.insert(value);
      if (good(store(p, views_[role] + page * kPage, value), what) && good(wmb(p), what)) {
        may_be = {value};
      } else if (has_.unanswered && segments_[role] != 0) {
        // The home lives: its importer sets its token again and goes on.
        good(set_token(p, segments_[role], token(role)), "CMI_SEG_TOKEN again");
        if (good(store(p, views_[role] + page * kPage, value), what) && good(wmb(p), what)) {
          may_be = {value};
        }
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
    const auto swap = [&](Role role, uint64_t expected) {
      if (views_[role] == 0) return;
      let(role, [&](Process& p) {
        ++tried;
        const Swap made = atm_cas(p, views_[role] + kSwapped * kPage, expected, expected + 1);
        if (good(Access{0, made.fault}, "a swap") && good(made.answer, "a swap"))
          counted += made.swapped;
      });
    };
    for (Role role : {kPeer, kThird, kPeer, kThird}) {
      if (views_[role] == 0) continue;
      Access seen;
      if (!let(role, [&](Process& p) { seen = load(p, views_[role] + kSwapped * kPage); }))
        continue;
      if (good(seen, "the counter")) swap(role, seen.value);
    }
    // The page has gone since the last swap there, after which it was missed: the answer brings it.
    swap(kPeer, counted);
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
  // its stores, unless it is the victim, and the next invalidation round finds it dead: what it
  // stored to is in flux, the rest is as it was.
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
    // A mapped page that was stored to again just before may be in flux all the same (local.md).
    if (!has_.mapped && !mapped()) see(kByThird, words_[kByThird], "what the dead had flushed");
    // Whatever is in flux is given back, and is as good as the rest.
    if (views_[kHome] == 0) return;
    let(kHome, [&](Process& p) {
      const Recovery lost = seg_check(p, exported_.seg, views_[kHome], kPages * kPage);
      if (!good(lost.answer, "CMI_SEG_CHECK") || lost.size == 0) return;
      good(seg_reco(p, exported_.seg, views_[kHome], kPages * kPage), "CMI_SEG_RECO");
    });
    lack_.cause = has_.unanswered ? lack_.cause : Fault::kNone;
    put_and_see(kHome, kByHome, 33, "the home's stores after a recovery");
  }

  // The home is silent for longer than the peer may use what it has cached, and a map is asked for
  // meanwhile; then it is back before anybody has declared it dead.
  void pause() {
    if (!here(kHome) || !here(kPeer) || views_[kPeer] == 0) return;
    process(kHome).stop();
    let(kPeer, [&](Process& p) {
      const Answer asked = p.run([] {
        cmi_ctl_cfg cfg{};
        cfg.ctl_cfg_cmap_reqid = 1;
        const int result = CMIFN(ctxt(), 10, cmi_ctl)(ctxt(), CMI_CTL_NODE_CMAP_GET, &cfg);
        return answer(result, result != 0);
      });
      good(asked, "CMI_CTL_NODE_CMAP_GET");
      const Deadline soon = Deadline::in(10 * cmi::kSecond);
      while (next_event(p) != CMI_EVENT_CMAP && !soon.passed()) ::usleep(1000);
      CHECK_FALSE(soon.passed());
      while (passed(kPeer, "lease_expired") == 0 && !soon.passed()) ::usleep(1000);
      CHECK_FALSE(soon.passed());
    });
    process(kHome).signal(SIGCONT);
    // Nothing is lost by it. An access that came too soon would be told to try again.
    let(kPeer, [&](Process& p) {
      const Deadline soon = Deadline::in(10 * cmi::kSecond);
      Access seen;
      do seen = load(p, views_[kPeer] + kByPeer * kPage);
      while (seen.cause() == CMI_ERROR_TRANSIENT && !soon.passed());
      good(seen, "a load after the home was silent", words_[kByPeer]);
    });
    put_and_see(kPeer, kByPeer, 22, "the peer's stores after the home was silent");
    put_and_see(kHome, kByHome, 34, "the home's stores after it was silent");
  }

  // The peer changes every other byte of many pages, which travel in messages, and the home is
  // slow.
  void flood() {
    constexpr uint64_t kMany = 1536;
    constexpr uint64_t kStripes = 0x0001000100010001;
    Export many;
    let(kHome, [&](Process& p) {
      many = export_segment(p, kMany * kPage, kAllRights, CMI_SEG_CLIENT_CONSIST);
    });
    let(kPeer, [&](Process& p) {
      const Import import = import_segment(p, many);
      const Answer flushed = p.run(
          [](uint64_t at) {
            auto* words = reinterpret_cast<volatile uint64_t*>(at);
            // Cached first: the stores do not wait for the home then.
            for (uint64_t i = 0; i < kMany; ++i) (void)words[i * kPage / 8];
            for (uint64_t i = 0; i < kMany * kPage / 8; ++i) words[i] = kStripes;
            const int result = CMIFN(ctxt(), 10, wmb_fn)(ctxt());
            return answer(result, result != 0);
          },
          import.at);
      good(flushed, "the barrier after a flood");
    });
    let(kHome, [&](Process& p) {
      const uint64_t wrong = p.run(
          [](uint64_t at) {
            auto* words = reinterpret_cast<volatile uint64_t*>(at);
            uint64_t count = 0;
            for (uint64_t i = 0; i < kMany * kPage / 8; ++i) count += words[i] != kStripes;
            return count;
          },
          many.at);
      CHECK(wrong == 0);
      good(seg_rm(p, many.seg), "seg_rm of what was flooded");
    });
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

// Who comes past a point is tried in this order.
std::vector<Role> candidates(std::string_view name) {
  if (name.starts_with(kOfTokens)) return {kPeer, kHome};
  if (name.starts_with(kOfAttachments)) return {kHome, kThird, kSecond};
  if (std::any_of(std::begin(kPassedAtHome), std::end(kPassedAtHome),
                  [&](std::string_view begin) { return name.starts_with(begin); })) {
    return {kHome, kPeer, kSecond};
  }
  if (name.starts_with(kOfBulkWrites)) return {kPeer};
  // The third may be killed just when none of its stores is under way.
  if (name.starts_with(kOfFlux)) return {kPeer, kHome, kPeer, kHome, kPeer, kHome};
  return {kPeer, kThird, kHome};
}

// Who comes past which point, and how often, in a play where nothing fails: one for all points of
// the same circumstances.
class Pilots {
 public:
  uint64_t passed(const Point& point, Role role) {
    auto known = plays_.find(Circumstances(point.name));
    if (known == plays_.end()) {
      const Play play(point, kRoles, 0);
      known = plays_.emplace(Circumstances(point.name), std::map<Role, Passages>{}).first;
      for (Role each : {kHome, kSecond, kPeer, kThird}) known->second[each] = play.passages(each);
    }
    return times(known->second[role], point.name);
  }
  // The timer, or the moment of a death, may have taken a passage away: the next one plays afresh.
  void forget() { plays_.clear(); }

 private:
  std::map<Circumstances, std::map<Role, Passages>> plays_;
};

// Whether the point was reached: whoever is there is killed, first one that the pilot shows there.
bool die_once_at(const Point& point, Pilots* pilots) {
  std::vector<Role> roles = candidates(point.name);
  const auto passed = [&](Role role) { return pilots->passed(point, role) > 0; };
  if (mapped()) std::erase_if(roles, std::not_fn(passed));
  std::stable_partition(roles.begin(), roles.end(), passed);
  for (Role role : roles) {
    CAPTURE(role);
    Play play(point, role, 1);
    if (!play.reached()) continue;
    play.again();
    return true;
  }
  return false;
}

// Some points are passed only by who is quick, or late.
bool die_at(const Point& point, Pilots* pilots) {
  constexpr int kTries = 3;
  for (int tries = 0; tries < kTries; ++tries) {
    if (die_once_at(point, pilots)) return true;
  }
  return false;
}

// Whether the point was reached: whoever comes past it fails there. Failing for good would be a
// machine that is out of order: once is the fault, the second time where there is one.
bool fail_once_at(const Point& point, Pilots* pilots) {
  for (Role role : candidates(point.name)) {
    const uint64_t passed = pilots->passed(point, role);
    if (passed == 0) continue;
    const uint64_t nth = passed > 1 ? 2 : 1;
    CAPTURE(role);
    CAPTURE(nth);
    Play play(point, role, nth);
    if (!play.reached()) continue;
    play.again();
    return true;
  }
  return false;
}

bool fail_at(const Point& point, Pilots* pilots) {
  const int tries_at_most = mapped() ? 1 : 4;
  for (int tries = 0; tries < tries_at_most; ++tries) {
    if (fail_once_at(point, pilots)) return true;
    pilots->forget();
  }
  return false;
}

void sweep(int share) {
  const char* const only = std::getenv("CMI_SWEEP_POINT");
  Pilots pilots;
  bool reached_one = false;
  for (size_t i = static_cast<size_t>(share); i < std::size(kPoints); i += kShares) {
    const Point& point = kPoints[i];
    const std::string name(point.name);
    if (only != nullptr && name != only) continue;
    CAPTURE(name);
    const bool reached = point.fails ? fail_at(point, &pilots) : die_at(point, &pilots);
    reached_one = reached_one || reached;
    CHECK_MESSAGE((reached || mapped()), "nobody comes past ", name);
  }
  CHECK_MESSAGE((reached_one || only != nullptr), "nobody comes past any point");
}

TEST_SUITE("sweep") {
  // A point that is renamed would be played without what its play needs.
  TEST_CASE("each_name_in_the_tables_of_the_sweep_begins_that_of_a_fault_point") {
    std::vector<std::string_view> names(std::begin(kPassedAtHome), std::end(kPassedAtHome));
    names.insert(names.end(), std::begin(kOfMapped), std::end(kOfMapped));
    names.insert(names.end(), {kOfTokens, kOfAttachments, kOfBulkWrites, kOfFlux});
    for (const Lack& lack : kLacks) names.push_back(lack.points);
    for (const std::string_view name : names) {
      CHECK_MESSAGE(std::any_of(std::begin(kPoints), std::end(kPoints),
                                [&](const Point& point) { return point.name.starts_with(name); }),
                    name);
    }
  }
  TEST_CASE("each_fault_point_ends_with_the_right_answer_or_error_first_part") { sweep(0); }
  TEST_CASE("each_fault_point_ends_with_the_right_answer_or_error_second_part") { sweep(1); }
  TEST_CASE("each_fault_point_ends_with_the_right_answer_or_error_third_part") { sweep(2); }
  TEST_CASE("each_fault_point_ends_with_the_right_answer_or_error_fourth_part") { sweep(3); }
  TEST_CASE("each_fault_point_ends_with_the_right_answer_or_error_fifth_part") { sweep(4); }
  TEST_CASE("each_fault_point_ends_with_the_right_answer_or_error_sixth_part") { sweep(5); }
  TEST_CASE("each_fault_point_ends_with_the_right_answer_or_error_seventh_part") { sweep(6); }
  TEST_CASE("each_fault_point_ends_with_the_right_answer_or_error_eighth_part") { sweep(7); }
  TEST_CASE("each_fault_point_ends_with_the_right_answer_or_error_ninth_part") { sweep(8); }
  TEST_CASE("each_fault_point_ends_with_the_right_answer_or_error_tenth_part") { sweep(9); }
  TEST_CASE("each_fault_point_ends_with_the_right_answer_or_error_eleventh_part") { sweep(10); }
  TEST_CASE("each_fault_point_ends_with_the_right_answer_or_error_twelfth_part") { sweep(11); }
}

}  // namespace

}  // namespace cmi::test::sweep_test
