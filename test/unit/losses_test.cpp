// What is reported of stores and homes that are lost, and in which order.
#include "core/memory/importer/losses.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "fabric/fake/fake.hpp"
#include "node/node_support.hpp"

namespace cmi::test::losses_test {
using namespace cmi::memory;

namespace {

constexpr ContextId kSelf{1, 1}, kHome{2, 2};

// Writes down what it hears: "lost ID: PAGES", "down: IDS".
struct Scribe final : Observer {
  std::vector<std::string> heard;
  void importer_down(const access::NaddrInfo&, std::vector<int32_t>) override {}
  void home_down(const access::NaddrInfo& who, std::vector<int32_t> segments) override {
    CHECK(who.context == kHome);
    std::string line = "down:";
    for (const int32_t id : segments) line += " " + std::to_string(id);
    heard.push_back(line);
  }
  void stores_lost(int32_t segment, std::vector<uint32_t> pages, bool local) override {
    CHECK_FALSE(local);
    std::string line = "lost " + std::to_string(segment) + ":";
    for (const uint32_t page : pages) line += " " + std::to_string(page);
    heard.push_back(line);
  }
  void unreachable(const access::NaddrInfo&) override {}
  void quiesced(int32_t, std::function<void()>) override {}
  void resumed(int32_t) override {}
};

// The losses of an importer with one home. The node has no other member.
struct Scene {
  Scene() {
    auto joined = node::Node::join(folder.config(), kSelf);
    REQUIRE(joined);
    node = joined.take();
    losses.emplace(*node, scribe, imports, write_backs);
  }
  std::shared_ptr<Import> import(int32_t id, bool made = true) {
    ImportFacts facts;
    facts.id = id;
    facts.rseg.home = kHome;
    facts.pages = 16;
    facts.ours = true;
    facts.link = link;
    auto imp = std::make_shared<Import>(std::move(facts));
    imports.add(imp);
    if (made) CHECK(losses->confirm(*imp));
    return imp;
  }

  test::NodeFolder folder;
  std::unique_ptr<node::Node> node;
  std::unique_ptr<fabric::Fabric> fabric = fabric::FakeNet::make({})->open();
  std::shared_ptr<fabric::Link> link = std::make_shared<fabric::Link>(
      *fabric, fabric::Identity{kSelf, NodeId{}, 1, {}}, kHome, std::vector<std::byte>{});
  Scribe scribe;
  ImportTable imports;
  WriteBacks write_backs;
  std::optional<Losses> losses;
};

using Heard = std::vector<std::string>;

}  // namespace

TEST_SUITE("losses") {
  TEST_CASE("stores_are_reported_once_and_a_home_after_the_stores_that_it_took_along") {
    Scene s;
    const auto a = s.import(3), b = s.import(4);
    const LossMark before = s.losses->mark();
    s.losses->lose(s.link);
    s.losses->lose(a, {5, 6});
    CHECK(s.losses->mark().seen > before.seen);
    CHECK(s.scribe.heard.empty());
    s.losses->report();
    s.losses->report();
    CHECK(s.scribe.heard == Heard{"lost 3: 5 6", "down: 3 4"});
  }

  TEST_CASE("what_an_older_write_back_may_still_add_to_is_reported_when_that_has_ended") {
    Scene s;
    const auto imp = s.import(3);
    const WriteBackPtr open = s.write_backs.begin(imp);
    s.losses->lose(imp, {5});
    s.losses->report();
    CHECK(s.scribe.heard.empty());
    s.losses->lose(imp, {7});
    CHECK(s.write_backs.end_part(open));
    s.losses->report();
    CHECK(s.scribe.heard == Heard{"lost 3: 5 7"});
  }

  TEST_CASE("of_an_import_that_is_marked_for_deletion_nothing_is_reported") {
    Scene s;
    const auto imp = s.import(3);
    imp->events.marked.store(true);
    s.losses->lose(imp, {5});
    s.losses->lose(s.link);
    s.losses->report();
    CHECK(s.scribe.heard.empty());
  }

  // The end of a home is reported with the imports that have succeeded by then; one that comes
  // later fails instead.
  TEST_CASE("an_import_succeeds_before_its_home_is_lost_or_not_at_all") {
    Scene s;
    const auto before = s.import(3);
    const auto after = s.import(4, false);
    CHECK(s.link->condemn());
    s.losses->lose(s.link);
    s.losses->report();
    CHECK_FALSE(s.losses->confirm(*after));
    CHECK_FALSE(after->events.named());
    CHECK(s.scribe.heard == Heard{"down: 3"});
  }

  TEST_CASE("losses_of_an_import_that_another_process_made_wait_for_the_service_thread") {
    Scene s;
    ImportFacts facts;
    facts.id = 9;
    facts.pages = 16;
    facts.link = s.link;
    const auto theirs = std::make_shared<Import>(std::move(facts));
    s.imports.add(theirs);
    CHECK_FALSE(s.losses->neighbours_due());
    s.losses->lose(theirs, {1});
    s.losses->report();
    CHECK(s.scribe.heard.empty());
    CHECK(s.losses->neighbours_due());
    s.losses->notify_importing_processes();  // the node has no such segment, so nobody wants it
    CHECK_FALSE(s.losses->neighbours_due());
  }
}

}  // namespace cmi::test::losses_test
