// Pages in flux of a segment at home: how they are covered in views, what becomes of the dirty
// intents of an importer that is cut off, and what another process of the node makes of the list.
#include "core/memory/home/flux_tracker.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "core/base/fd.hpp"
#include "fabric/fake/fake.hpp"
#include "node/node_support.hpp"
#include "unit/deaf_home.hpp"

namespace cmi::test::flux_tracker_test {
using namespace cmi::memory;

namespace {

constexpr uint32_t kPages = 16;
constexpr ContextId kDead{1, 1}, kOther{2, 2};

// A view of a file in memory whose bytes are the numbers of their pages.
struct FileView {
  FileView() : file(memfd_create("view", MFD_CLOEXEC)) {
    std::vector<std::byte> bytes(kPages * kPageSize);
    for (uint32_t page = 0; page < kPages; ++page) {
      std::memset(&bytes[page * kPageSize], static_cast<int>(page), kPageSize);
    }
    REQUIRE(write(file.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    addr = mmap(nullptr, bytes.size(), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    REQUIRE(addr != MAP_FAILED);
    mapping = Mapping(addr, bytes.size());
    REQUIRE(pipe(ends) == 0);
  }
  ~FileView() {
    close(ends[0]);
    close(ends[1]);
  }
  HomeView view() const {
    HomeView v;
    v.addr = static_cast<std::byte*>(addr);
    v.len = kPages * kPageSize;
    v.view = std::make_shared<View>();
    return v;
  }
  // The number of the page, as it is read through the view; -1: an access would get SIGBUS.
  int read_page(uint32_t page) const {
    std::byte b{};
    if (write(ends[1], static_cast<const std::byte*>(addr) + page * kPageSize, 1) != 1) return -1;
    REQUIRE(read(ends[0], &b, 1) == 1);
    return static_cast<int>(b);
  }
  // The pages that are covered.
  std::vector<uint32_t> covered() const {
    std::vector<uint32_t> pages;
    for (uint32_t page = 0; page < kPages; ++page) {
      const int number = read_page(page);
      if (number == -1) pages.push_back(page);
      if (number != -1) CHECK(number == static_cast<int>(page));
    }
    return pages;
  }

  Fd file;
  void* addr = nullptr;
  Mapping mapping;
  int ends[2] = {};
};

Fd list_of(const std::vector<PageRange>& ranges, size_t bytes) {
  Fd list(memfd_create("list", MFD_CLOEXEC));
  REQUIRE(pwrite(list.get(), ranges.data(), bytes, 0) == static_cast<ssize_t>(bytes));
  return list;
}

// A segment of this process with one view, and the parts that its pages in flux concern. The node
// has no other member, and no importer has a session.
struct Scene {
  explicit Scene(bool owned = true) {
    REQUIRE(ok(files.open()));
    auto joined = node::Node::join(folder.config(), ContextId{9, 9});
    REQUIRE(joined);
    node = joined.take();
    auto opened = fabric::Server::open(*fabric, ContextId{9, 9}, deaf);
    REQUIRE(opened);
    server = opened.take();
    rounds.emplace(segments, shared, *server, watch);
    channel.emplace(*node, *server);
    tracker.emplace(files, adopted, *node);
    covers.emplace(files, adopted, *tracker);
    flux.emplace(mu, *rounds, *covers, *channel);
    SegmentFacts facts;
    facts.id = 1;
    facts.uid = owned ? 7 : 0;
    facts.size = kPages * kPageSize;
    facts.owned = owned;
    segment = segments.add(facts);
    segment->file = Fd(dup(memory.file.get()));
    segment->views.push_back(memory.view());
  }
  Sharer& sharer(const ContextId& client, uint32_t instance) {
    Sharer* const h = segment->sharers.add({client, NodeId{}, instance, false});
    h->token = 1;
    return *h;
  }
  // The lists that this sharer has not acknowledged.
  size_t lists_to(const ContextId& client, uint32_t instance) {
    const auto to = [&](const Notification& n) {
      return n.type == NotificationType::kInFlux && n.to() == SharerKey{client, 7, instance};
    };
    return rounds->table().matching(to).size();
  }

  test::NodeFolder folder;
  test::Deaf deaf;
  test::NoWatch watch;
  FileView memory;
  KernelFiles files;
  ViewTable views;
  AdoptedViews adopted{files, views};
  std::unique_ptr<node::Node> node;
  std::unique_ptr<fabric::Fabric> fabric = fabric::FakeNet::make({})->open();
  std::unique_ptr<fabric::Server> server;
  SegmentTable segments;
  SharedSegments shared;
  Mutex mu;
  std::optional<InvalidationRounds> rounds;
  std::optional<NodeChannel> channel;
  std::optional<StoreTracker> tracker;
  std::optional<PageCovers> covers;
  std::optional<FluxTracker> flux;
  SegmentPtr segment;
};

using Pages = std::vector<uint32_t>;

}  // namespace

TEST_SUITE("page_covers") {
  TEST_CASE("a_covered_page_cannot_be_accessed_and_an_uncovered_one_has_its_bytes_again") {
    Scene s;
    CHECK(s.memory.covered().empty());
    REQUIRE(s.covers->cover(*s.segment, {{2, 3}, {9, 1}}));
    CHECK(s.memory.covered() == Pages{2, 3, 4, 9});
    const uint64_t before = s.covers->uncovered();
    REQUIRE(s.covers->uncover(*s.segment, {3, 1}));
    CHECK(s.memory.covered() == Pages{2, 4, 9});
    CHECK(s.covers->uncovered() == before + 1);
    REQUIRE(s.covers->uncover(*s.segment, {2, 8}));
    CHECK(s.memory.covered().empty());
  }

  TEST_CASE("a_view_that_is_being_given_back_is_left_alone") {
    Scene s;
    s.segment->views[0].leaving = true;
    CHECK(s.covers->cover(*s.segment, {{2, 3}}));
    CHECK(s.memory.covered().empty());
    s.segment->views[0].leaving = false;
    CHECK(s.covers->cover(*s.segment, {{2, 1}}));
    s.segment->views[0].leaving = true;
    CHECK(s.covers->uncover(*s.segment, {2, 1}));
    CHECK(s.memory.covered() == Pages{2});
  }

  // What the client has mapped where it had freed adopted memory is not the segment's.
  TEST_CASE("what_the_client_has_mapped_over_adopted_memory_is_left_alone") {
    Scene s;
    s.segment->views[0].adopted = true;
    std::byte* const at = s.segment->views[0].addr;
    REQUIRE(mmap(at + 4 * kPageSize, kPageSize, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                 -1, 0) != MAP_FAILED);
    CHECK(s.covers->cover(*s.segment, {{3, 3}}));
    CHECK(s.memory.read_page(3) == -1);
    CHECK(s.memory.read_page(4) == 0);
    CHECK(s.memory.read_page(5) == -1);
    CHECK(s.covers->uncover(*s.segment, {3, 3}));
    CHECK(s.memory.read_page(3) == 3);
    CHECK(s.memory.read_page(4) == 0);
  }
}

TEST_SUITE("flux_tracker") {
  TEST_CASE("the_dirty_intents_of_a_dead_importer_are_in_flux_and_the_others_are_notified") {
    Scene s;
    Sharer& dead = s.sharer(kDead, 1);
    (void)dead.intents.set(3, 1);
    (void)dead.intents.set(4, 1);
    (void)s.sharer(kDead, 2).intents.set(9, 1);
    (void)s.sharer(kOther, 1).intents.set(12, 1);
    s.flux->lose_intents(*s.segment, kDead, 0, begin_round());
    CHECK(s.memory.covered() == Pages{3, 4, 9});
    CHECK(s.segment->flux.pages.contains(4));
    CHECK_FALSE(s.segment->flux.pages.contains(12));
    CHECK(s.segment->sharers.find(kDead, 1)->intents.empty());
    CHECK(s.segment->sharers.find(kOther, 1)->intents.epoch(12) == 1);
    CHECK(s.lists_to(kOther, 1) == 1);
    CHECK(s.lists_to(kDead, 1) == 0);
  }

  TEST_CASE("of_a_client_that_lives_on_one_import_is_cut_off_and_its_others_are_notified") {
    Scene s;
    (void)s.sharer(kDead, 1).intents.set(3, 1);
    (void)s.sharer(kDead, 2).intents.set(9, 1);
    s.flux->lose_intents(*s.segment, kDead, 1, begin_round());
    CHECK(s.memory.covered() == Pages{3});
    CHECK(s.segment->sharers.find(kDead, 2)->intents.epoch(9) == 1);
    CHECK(s.lists_to(kDead, 2) == 1);
  }

  TEST_CASE("an_importer_without_dirty_intents_leaves_nothing_in_flux") {
    Scene s;
    s.sharer(kDead, 1);
    s.sharer(kOther, 1);
    s.flux->lose_intents(*s.segment, kDead, 0, begin_round());
    CHECK(s.memory.covered().empty());
    CHECK(s.segment->flux.pages.empty());
    CHECK(s.lists_to(kOther, 1) == 0);
  }

  TEST_CASE("another_process_covers_what_the_newest_list_names_and_uncovers_the_rest") {
    Scene s(false);
    s.flux->take_list(*s.segment, 2, list_of({{1, 2}, {7, 1}}, 2 * sizeof(PageRange)));
    CHECK(s.memory.covered() == Pages{1, 2, 7});
    s.flux->take_list(*s.segment, 1, list_of({{0, 16}}, sizeof(PageRange)));  // an older one
    CHECK(s.memory.covered() == Pages{1, 2, 7});
    s.flux->take_list(*s.segment, 3, list_of({{2, 2}}, sizeof(PageRange)));
    CHECK(s.memory.covered() == Pages{2, 3});
    CHECK(s.segment->flux.version == 3);
    s.flux->take_list(*s.segment, 4, list_of({}, 0));
    CHECK(s.memory.covered().empty());
  }

  TEST_CASE("a_list_that_no_honest_owner_sends_changes_nothing") {
    Scene s(false);
    s.flux->take_list(*s.segment, 2, list_of({{1, 1}}, sizeof(PageRange)));
    const std::vector<PageRange> beyond{{kPages - 1, 2}};
    s.flux->take_list(*s.segment, 3, list_of(beyond, sizeof(PageRange)));
    s.flux->take_list(*s.segment, 3, list_of({{4, 1}}, sizeof(PageRange) - 1));
    const std::vector<PageRange> too_many(kPages + 1, PageRange{0, 1});
    s.flux->take_list(*s.segment, 3, list_of(too_many, too_many.size() * sizeof(PageRange)));
    CHECK(s.memory.covered() == Pages{1});
    CHECK(s.segment->flux.version == 2);
  }
}

}  // namespace cmi::test::flux_tracker_test
