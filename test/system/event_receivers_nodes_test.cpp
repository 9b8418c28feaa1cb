// Who is told what: for each type of event all that comes to the home, to the importer and to
// contexts that are not concerned, in order and with its contents.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/clock.hpp"
#include "system/calls.hpp"
#include "system/happenings.hpp"

namespace cmi::test::event_receivers_nodes_test {

namespace {

// In the words of a test: "RCTXT_DOWN of victim: 1 2".
struct Told : std::vector<std::string> {
  using std::vector<std::string>::vector;
  friend std::ostream& operator<<(std::ostream& out, const Told& told) {
    for (const std::string& one : told) out << '[' << one << ']';
    return out;
  }
};

// No node that is silent can be reached, as far as these can tell; and silence is soon a death.
const Env kCut{{"CMI_FAULT_POINT", "listener_out_of_reach=fail"}};
const Env kParted{{"CMI_FAULT_POINT", "listener_out_of_reach=fail"}, {"CMI_DEAD_AFTER", "2000"}};

template <class T>
std::string list(const std::vector<T>& items) {
  std::ostringstream out;
  for (const T& item : items) out << ' ' << item;
  return out.str();
}
std::string down(const std::string& what, const std::string& who, std::vector<cmi_seg> segments) {
  std::sort(segments.begin(), segments.end());
  return what + " of " + who + ":" + list(segments);
}
std::string lost(const std::string& what, cmi_seg seg, const std::vector<uint64_t>& lines) {
  return what + " in " + std::to_string(seg) + ":" + list(lines);
}
std::string map(uint64_t request, const std::vector<std::string>& nodes) {
  return "CMAP " + std::to_string(request) + ":" + list(nodes);
}

// A cluster that knows the addresses of its contexts.
class Stage {
 public:
  Process& spawn(const std::string& node, const Env& env = {}) { return spawn(node, node, env); }
  Process& spawn(const std::string& name, const std::string& node, const Env& env) {
    Process& process = cluster_.spawn(node, env);
    names_.emplace_back(node_address(process), name);
    return process;
  }

  // The next `count` events, and whatever else waits once a map that is asked for then has come.
  // Waits for as many as should come, and a map is made from all peers: so nothing is overlooked.
  Told told(Process& process, size_t count = 0) {
    Told told;
    while (told.size() < count) {
      const Happening h = await_happening(process);
      told.push_back(describe(h));
      if (h.type == 0) return told;
    }
    ask_for_map(process, kLast);
    for (bool asked = true;;) {
      const Happening h = asked ? await_happening(process) : next_happening(process);
      if (h.type == CMI_EVENT_CMAP && h.request == kLast) {
        asked = false;
      } else if (h.type == 0) {
        if (asked) told.emplace_back("no map came");
        return told;
      } else {
        told.push_back(describe(h));
      }
    }
  }

  void ask_for_map(Process& process, uint64_t id) {
    REQUIRE(process
                .run(
                    [](uint64_t request) {
                      cmi_ctl_cfg cfg{};
                      cfg.ctl_cfg_cmap_reqid = request;
                      const int result =
                          CMIFN(ctxt(), 10, cmi_ctl)(ctxt(), CMI_CTL_NODE_CMAP_GET, &cfg);
                      return answer(result, result != 0);
                    },
                    id)
                .ok());
  }

  std::string describe(const Happening& h) const {
    switch (h.type) {
      case CMI_EVENT_RCTXT_DOWN:
        return down("RCTXT_DOWN", name(h, 0), h.segments());
      case CMI_EVENT_HCTXT_DOWN:
        return down("HCTXT_DOWN", name(h, 0), h.segments());
      case CMI_EVENT_STORE_FAILURE:
        return lost("STORE_FAILURE", h.seg, h.lines());
      case CMI_EVENT_HW:
        return lost("HW", h.seg, h.lines());
      case CMI_EVENT_CMAP: {
        std::vector<std::string> nodes;
        for (size_t i = 0; i < h.n; ++i) nodes.push_back(name(h, i));
        return map(h.request, nodes);
      }
      default:
        return "event " + std::to_string(h.type) + " in " + std::to_string(h.seg);
    }
  }

 private:
  static constexpr uint64_t kLast = 0x1a57;
  std::string name(const Happening& h, size_t i) const {
    for (const auto& [address, name] : names_) {
      if (h.names(i, address)) return name;
    }
    return "a stranger";
  }

  Cluster cluster_;
  std::vector<std::pair<Flat, std::string>> names_;
};

// A segment whose importers store without asking the home first.
Export export_consistent(Process& home, size_t size = 16 * kPage) {
  return export_segment(home, size, kAllRights, CMI_SEG_CLIENT_CONSIST);
}

// Stores that stay where they are: the page is had before, and the home is stopped.
void cache(Process& process, uint64_t at, std::initializer_list<uint64_t> pages) {
  for (uint64_t page : pages) REQUIRE(load(process, at + page * kPage).cause() == Fault::kNone);
}
void store_all(Process& process, uint64_t at, std::initializer_list<uint64_t> pages) {
  for (uint64_t page : pages) {
    REQUIRE(store(process, at + page * kPage, page + 100).cause() == Fault::kNone);
  }
}

// exit() while the context is open.
void exit_with_context(Process& process) {
  process.start([] { std::exit(3); });
  const int status = process.wait_end();
  CHECK_MESSAGE((!WIFSIGNALED(status) && WEXITSTATUS(status) == 3), describe_status(status));
}

TEST_SUITE("events") {
  // Also that no map comes of it: the contexts are gone, and nothing is said about the way there.
  PROCESS_CASE("the_end_of_an_importer_is_told_to_its_homes_and_to_nobody_else") {
    Stage stage;
    Process& home = stage.spawn("home", kCut);
    Process& other_home = stage.spawn("other", kCut);
    Process& victim = stage.spawn("victim");
    Process& peer = stage.spawn("peer", kCut);
    Process& bystander = stage.spawn("bystander", kCut);
    const Export first = export_segment(home);
    const Export second = export_segment(home);
    const Export unshared = export_segment(home);
    const Export doomed = export_segment(home);
    const Export elsewhere = export_segment(other_home);
    const Export own = export_segment(peer);
    const Import held = import_segment(victim, first);
    import_bare(victim, second);
    import_segment(victim, doomed);
    import_segment(victim, elsewhere);
    import_segment(peer, first);
    import_segment(peer, unshared);
    import_segment(bystander, own);
    REQUIRE(load(victim, held.at).cause() == Fault::kNone);
    REQUIRE(seg_rm(home, doomed.seg).ok());
    SUBCASE("killed") { victim.kill(); }
    SUBCASE("in_good_order") { REQUIRE(fini(victim).ok()); }
    SUBCASE("by_exit") { exit_with_context(victim); }
    CHECK(stage.told(home, 1) == Told{down("RCTXT_DOWN", "victim", {first.seg, second.seg})});
    CHECK(stage.told(other_home, 1) == Told{down("RCTXT_DOWN", "victim", {elsewhere.seg})});
    CHECK(stage.told(peer) == Told{});
    CHECK(stage.told(bystander) == Told{});
  }

  PROCESS_CASE("the_end_of_a_home_is_told_to_its_importers_and_to_nobody_else") {
    Stage stage;
    Process& home = stage.spawn("home");
    Process& kept = stage.spawn("kept", kCut);
    Process& peer = stage.spawn("peer", kCut);
    Process& beside = stage.spawn("beside", "peer", kCut);  // attaches what its neighbour imported
    Process& second = stage.spawn("second", kCut);
    Process& bystander = stage.spawn("bystander", kCut);
    const Export one = export_segment(home);
    const Export two = export_segment(home);
    const Export doomed = export_segment(home);
    const Export doomed_bare = export_segment(home);
    const Export other = export_segment(kept);
    const Import here = import_segment(peer, one);
    const Import bare = import_bare(peer, two);
    import_segment(peer, doomed);
    import_bare(peer, doomed_bare);
    import_segment(peer, other);
    const Import there = import_segment(second, one);
    import_segment(bystander, other);
    REQUIRE(cmi_enb(beside, 1).ok());
    REQUIRE(load(beside, seg_at(beside, here.seg).at()).cause() == Fault::kNone);
    // Marked for deletion at home, and still attached there: named no more, whether their importer
    // had a token or not.
    REQUIRE(seg_rm(home, doomed.seg).ok());
    REQUIRE(seg_rm(home, doomed_bare.seg).ok());
    SUBCASE("killed") { home.kill(); }
    SUBCASE("in_good_order") { REQUIRE(fini(home).ok()); }
    SUBCASE("by_exit") { exit_with_context(home); }
    CHECK(stage.told(peer, 1) == Told{down("HCTXT_DOWN", "home", {here.seg, bare.seg})});
    CHECK(stage.told(second, 1) == Told{down("HCTXT_DOWN", "home", {there.seg})});
    CHECK(stage.told(beside) == Told{});
    CHECK(stage.told(kept) == Told{});
    CHECK(stage.told(bystander) == Told{});
  }

  TEST_CASE("stores_lost_with_their_home_are_told_to_who_stored_and_to_nobody_else") {
    Stage stage;
    Process& home = stage.spawn("home");
    Process& peer = stage.spawn("peer");
    Process& reader = stage.spawn("reader");
    Process& bystander = stage.spawn("bystander");
    const Export one = export_consistent(home);
    const Export two = export_consistent(home);
    const Export own = export_segment(bystander);
    const Import first = import_segment(peer, one);
    const Import second = import_segment(peer, two);
    const Import read = import_segment(reader, one);
    import_segment(reader, own);
    cache(peer, first.at, {3, 5, 15});
    cache(peer, second.at, {0});
    cache(reader, read.at, {3, 5});
    home.stop();
    store_all(peer, first.at, {3, 5, 15});
    store_all(peer, first.at, {5});  // again: it is named once
    store_all(peer, second.at, {0});
    home.kill();
    Told told = stage.told(peer, 3);
    REQUIRE(told.size() == 3);
    std::sort(told.begin(), told.begin() + 2);  // of two segments either may be told first
    Told expected{
        lost("STORE_FAILURE", first.seg,
             {first.at + 3 * kPage, first.at + 5 * kPage, first.at + 15 * kPage}),
        lost("STORE_FAILURE", second.seg, {second.at}),
    };
    std::sort(expected.begin(), expected.end());
    expected.push_back(down("HCTXT_DOWN", "home", {first.seg, second.seg}));
    CHECK(told == expected);
    CHECK(stage.told(reader, 1) == Told{down("HCTXT_DOWN", "home", {read.seg})});
    CHECK(stage.told(bystander) == Told{});
  }

  TEST_CASE("stores_that_a_living_home_lost_are_told_to_who_stored_and_to_nobody_else") {
    Stage stage;
    Process& home = stage.spawn("home", {{"CMI_FAULT_POINT", "round_never_over#1=fail"}});
    Process& peer = stage.spawn("peer", {{"CMI_DEAD_AFTER", "2000"}});
    Process& reader = stage.spawn("reader");
    Process& bystander = stage.spawn("bystander");
    const Export exported = export_consistent(home);
    const Export own = export_segment(bystander);
    const Import import = import_segment(peer, exported);
    const Import read = import_segment(reader, exported);
    import_segment(reader, own);
    cache(peer, import.at, {2, 5});
    cache(reader, read.at, {2});
    store_all(peer, import.at, {2, 5});
    CHECK(wmb(peer).failed(CMI_ERR_STORE));
    // Before the barrier has returned, and nothing more until there is a new token.
    Told told = stage.told(peer);
    REQUIRE(told.size() == 1);
    CHECK(told[0].starts_with(lost("STORE_FAILURE", import.seg, {import.at + 2 * kPage})));
    CHECK(load(peer, import.at + 2 * kPage).cause() == CMI_ERROR_TOKEN);
    CHECK(stage.told(peer) == Told{});
    CHECK(stage.told(home) == Told{});
    CHECK(stage.told(reader) == Told{});
    CHECK(stage.told(bystander) == Told{});
    CHECK(load(reader, read.at + 5 * kPage).cause() == Fault::kNone);
  }

  TEST_CASE("a_fault_of_this_side_is_told_here_and_its_home_hears_of_an_end") {
    Stage stage;
    Process& home = stage.spawn("home", {{"CMI_DEAD_AFTER", "3600000"}});
    Process& peer = stage.spawn(
        "peer", {{"CMI_FAULT_POINT", "link_no_endpoint#2+=fail"}, {"CMI_DEAD_AFTER", "2000"}});
    Process& reader = stage.spawn("reader", {{"CMI_DEAD_AFTER", "3600000"}});
    Process& bystander = stage.spawn("bystander");
    const Export exported = export_consistent(home);
    const Export own = export_segment(bystander);
    const Import import = import_segment(peer, exported);
    const Import read = import_segment(reader, exported);
    import_segment(reader, own);
    cache(peer, import.at, {2, 9});
    cache(reader, read.at, {2});
    REQUIRE(open_fb(peer).ok());
    home.stop();
    store_all(peer, import.at, {2, 9});
    // The connection stalls, and no other can be made: there is no endpoint to make it from.
    CHECK(flush_fb(peer).failed(CMI_ERR_HW));
    CHECK(stage.told(peer, 2) ==
          Told{lost("HW", import.seg, {import.at + 2 * kPage, import.at + 9 * kPage}),
               down("HCTXT_DOWN", "home", {import.seg})});
    home.signal(SIGCONT);
    CHECK(stage.told(home, 1) == Told{down("RCTXT_DOWN", "peer", {exported.seg})});
    CHECK(stage.told(reader) == Told{});
    CHECK(stage.told(bystander) == Told{});
  }

  TEST_CASE("a_fault_here_a_cut_and_the_ends_that_follow_are_told_in_this_order") {
    Stage stage;
    Process& faulty = stage.spawn("faulty");
    Process& cut = stage.spawn("cut");
    Process& good = stage.spawn("good");
    // An endpoint for each home, and none to replace one.
    Process& peer = stage.spawn(
        "peer", {{"CMI_FAULT_POINT", "link_no_endpoint#4+=fail;listener_out_of_reach=fail"},
                 {"CMI_DEAD_AFTER", "2000"}});
    const Export one = export_consistent(faulty);
    const Export two = export_segment(cut);
    const Export three = export_segment(good);
    const Import first = import_segment(peer, one);
    const Import second = import_segment(peer, two);
    const Import third = import_segment(peer, three);
    cache(peer, first.at, {4});
    cache(peer, second.at, {0});
    REQUIRE(open_fb(peer).ok());
    cut.stop();
    faulty.stop();
    store_all(peer, first.at, {4});
    CHECK(flush_fb(peer).failed(CMI_ERR_HW));
    // Taken when all have come: an effect never hides its cause.
    for (const auto& [at, seg] : {std::pair{first.at, first.seg}, {second.at, second.seg}}) {
      CAPTURE(seg);
      CHECK(peer.run(
                [](uint64_t a) {
                  const Deadline deadline = Deadline::in(20 * kSecond);
                  int cause;
                  do cause = load64(a).cause();
                  while (cause != CMI_ERROR_SINVAL && !deadline.passed());
                  return cause;
                },
                at) == CMI_ERROR_SINVAL);
    }
    Told told = stage.told(peer, 4);
    REQUIRE(told.size() == 4);
    std::sort(told.begin() + 2, told.end());
    Told ends{down("HCTXT_DOWN", "faulty", {first.seg}), down("HCTXT_DOWN", "cut", {second.seg})};
    std::sort(ends.begin(), ends.end());
    CHECK(told ==
          Told{lost("HW", first.seg, {first.at + 4 * kPage}), map(0, {"cut"}), ends[0], ends[1]});
    CHECK(load(peer, third.at).cause() == Fault::kNone);
    CHECK(stage.told(good) == Told{});
    cut.signal(SIGCONT);
    faulty.signal(SIGCONT);
  }

  TEST_CASE("a_map_names_whom_the_asking_context_shares_with_and_nobody_else") {
    Stage stage;
    Process& silent = stage.spawn("silent");
    Process& home = stage.spawn("home", kCut);              // the silent one imports from it
    Process& peer = stage.spawn("peer", kCut);              // imports from the silent one
    Process& beside = stage.spawn("beside", "peer", kCut);  // attaches that
    Process& former = stage.spawn("former", kCut);  // has marked for deletion what it imported
    Process& bystander = stage.spawn("bystander", kCut);
    const Export exported = export_segment(home);
    const Export back = export_segment(silent);
    const Export own = export_segment(bystander);
    import_segment(silent, exported);
    const Import import = import_segment(peer, back);
    import_segment(peer, own);
    const Import dropped = import_segment(former, back);
    REQUIRE(cmi_enb(beside, 1).ok());
    REQUIRE(load(beside, seg_at(beside, import.seg).at()).cause() == Fault::kNone);
    REQUIRE(seg_rm(former, dropped.seg).ok());
    silent.stop();
    for (Process* p : {&home, &peer, &beside, &former, &bystander}) {
      stage.ask_for_map(*p, 5);
      stage.ask_for_map(*p, 6);
    }
    for (Process* p : {&home, &peer}) {
      CHECK(stage.told(*p, 2) == Told{map(5, {"silent"}), map(6, {"silent"})});
    }
    for (Process* p : {&beside, &former, &bystander}) {
      CAPTURE(p->name());
      CHECK(stage.told(*p, 2) == Told{map(5, {}), map(6, {})});
    }
    silent.signal(SIGCONT);
  }

  TEST_CASE("a_cut_is_told_to_whom_it_parts_and_to_nobody_else") {
    Stage stage;
    Process& far = stage.spawn("far");
    Process& home = stage.spawn("home", kParted);
    Process& peer = stage.spawn("peer", kParted);
    Process& beside = stage.spawn("beside", "peer", kParted);
    Process& former = stage.spawn("former", kParted);
    Process& bystander = stage.spawn("bystander", kParted);
    const Export exported = export_segment(home);
    const Export back = export_segment(far);
    const Export own = export_segment(bystander);
    const Import held = import_segment(far, exported);
    const Import import = import_segment(peer, back);
    import_segment(peer, own);
    const Import dropped = import_segment(former, back);
    REQUIRE(cmi_enb(beside, 1).ok());
    const Answer view = seg_at(beside, import.seg);
    REQUIRE(load(beside, view.at()).cause() == Fault::kNone);
    REQUIRE(seg_rm(former, dropped.seg).ok());
    far.stop();
    CHECK(stage.told(home, 2) == Told{map(0, {"far"}), down("RCTXT_DOWN", "far", {exported.seg})});
    // What is asked for while that waits is answered as well.
    CHECK(peer.run(
              [](uint64_t a) {
                const Deadline deadline = Deadline::in(20 * kSecond);
                int cause;
                do cause = load64(a).cause();
                while (cause != CMI_ERROR_SINVAL && !deadline.passed());
                return cause;
              },
              import.at) == CMI_ERROR_SINVAL);
    stage.ask_for_map(peer, 9);
    Told at_peer = stage.told(peer, 3);
    REQUIRE(at_peer.size() == 3);
    std::sort(at_peer.begin() + 1, at_peer.end());  // the end may be taken before the map is made
    CHECK(at_peer ==
          Told{map(0, {"far"}), map(9, {"far"}), down("HCTXT_DOWN", "far", {import.seg})});
    for (Process* p : {&beside, &former, &bystander}) {
      CAPTURE(p->name());
      CHECK(stage.told(*p) == Told{});
    }
    // Who comes back learns that it has been cut off, and has nothing to say of the way.
    far.signal(SIGCONT);
    Told told = stage.told(far, 2);
    const Told certain{down("HCTXT_DOWN", "home", {held.seg}),
                       down("RCTXT_DOWN", "peer", {back.seg})};
    // Whoever has only accessed its segment may have ended for it too, if it came to ask them.
    const Told possible{down("RCTXT_DOWN", "beside", {back.seg}),
                        down("RCTXT_DOWN", "former", {back.seg})};
    const auto count = [&](const std::string& what) {
      return std::count(told.begin(), told.end(), what);
    };
    for (int more = 0; more < 2 && !(count(certain[0]) == 1 && count(certain[1]) == 1); ++more) {
      const Told next = stage.told(far, 1);
      told.insert(told.end(), next.begin(), next.end());
    }
    CAPTURE(told);
    for (const std::string& what : certain) CHECK(count(what) == 1);
    for (const std::string& what : possible) CHECK(count(what) <= 1);
    CHECK(std::count_if(told.begin(), told.end(), [&](const std::string& what) {
            return std::find(certain.begin(), certain.end(), what) == certain.end() &&
                   std::find(possible.begin(), possible.end(), what) == possible.end();
          }) == 0);
  }
}

}  // namespace

}  // namespace cmi::test::event_receivers_nodes_test
