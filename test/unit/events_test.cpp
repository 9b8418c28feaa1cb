// The queue of events: order, what becomes one, what is never dropped, and what the client gets.
#include "events/events.hpp"

#include <doctest/doctest.h>
#include <poll.h>

#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/access/handles.hpp"

namespace cmi::test::events_test {
using access::NaddrInfo;

namespace {

NaddrInfo peer(uint64_t n) { return {NodeId{7, n}, ContextId{8, n}}; }

class Client : public events::Host {
 public:
  Client() {
    handle_.base.verno = 11;
    auto made = events::Events::open(*this);
    REQUIRE(made);
    events = made.take();
  }
  ~Client() override {
    events.reset();
    CHECK(blocks.empty());
  }
  cmi_ctxt* client_handle() override { return &handle_; }
  void* allocate(size_t bytes) override {
    if (memory_left == 0) return nullptr;
    --memory_left;
    void* p = std::malloc(bytes);
    blocks.insert(p);
    if (between != nullptr) std::exchange(between, nullptr)(*this);
    return p;
  }
  void release(void* p) override {
    CHECK(blocks.erase(p) == 1);
    std::free(p);
  }
  std::byte* lowest_view(int32_t segment) override {
    auto it = views.find(segment);
    return it == views.end() ? nullptr : it->second;
  }

  cmi_event* get() {
    auto event = events->get();
    REQUIRE(event);
    return *event;
  }
  void give(cmi_event* event) { CHECK(events->give_back(event, CMI_EVENT_RET_DONE)); }
  // Types of all that wait, which are taken and returned.
  std::string types() {
    std::string all;
    for (cmi_event* e = get(); e != nullptr; e = get()) {
      all += std::to_string(static_cast<int>(e->type));
      give(e);
    }
    return all;
  }
  bool readable() const {
    pollfd p{events->descriptor(), POLLIN, 0};
    return ::poll(&p, 1, 0) == 1;
  }

  std::unique_ptr<events::Events> events;
  std::map<int32_t, std::byte*> views;
  std::set<void*> blocks;
  int memory_left = 1 << 20;
  void (*between)(Client&) = nullptr;  // called once in the next allocation

 private:
  cmi_ctxt handle_{};
};

std::vector<cmi_seg> segments(const cmi_event* e) {
  return {e->down.einfo_segs, e->down.einfo_segs + e->down.einfo_nsegs};
}

std::vector<uint64_t> lines(const cmi_event* e, const std::byte* base) {
  std::vector<uint64_t> pages;
  for (uint32_t i = 0; i < e->serr.einfo_naddrs; ++i) {
    pages.push_back(static_cast<uint64_t>(static_cast<std::byte*>(e->serr.einfo_addr[i]) - base));
  }
  return pages;
}

std::byte* const kView = reinterpret_cast<std::byte*>(uintptr_t{1} << 40);

}  // namespace

TEST_SUITE_BEGIN("events");

TEST_CASE_FIXTURE(Client, "causes_are_taken_before_effects_whatever_came_first") {
  events->home_down(peer(1), {5});
  events->quiesced(9, {});
  events->stores_lost(6, {1}, false);
  events->unreachable(peer(1));
  events->stores_lost(5, {1}, true);
  events->importer_down(peer(2), {4});
  CHECK(types() == "674153");  // HW, CMAP, then as they came
}

TEST_CASE_FIXTURE(Client, "a_context_down_names_the_context_and_each_segment_once") {
  events->importer_down(peer(3), {9, 4});
  events->importer_down(peer(3), {4, 7});
  events->importer_down(peer(2), {4});
  events->home_down(peer(3), {1});
  cmi_event* e = get();
  CHECK(e->type == CMI_EVENT_RCTXT_DOWN);
  CHECK(e->ctxt == client_handle());
  CHECK(segments(e) == std::vector<cmi_seg>{4, 7, 9});
  auto who = access::decode_naddr(e->down.einfo_naddr);
  REQUIRE(who);
  CHECK(*who == peer(3));
  CHECK(e->down.einfo_naddr->base.verno == 11);
  give(e);
  e = get();
  CHECK(segments(e) == std::vector<cmi_seg>{4});
  give(e);
  CHECK(types() == "4");
}

TEST_CASE_FIXTURE(Client, "lost_stores_are_gathered_until_they_are_taken_and_then_until_mended") {
  views[5] = kView;
  events->stores_lost(5, {7, 2, 7}, false);
  events->stores_lost(5, {2, 9}, false);
  cmi_event* e = get();
  CHECK(e->serr.einfo_seg == 5);
  CHECK(lines(e, kView) == std::vector<uint64_t>{2 * 4096, 7 * 4096, 9 * 4096});
  events->stores_lost(5, {3}, false);
  events->stores_lost(5, {3}, true);
  CHECK(types() == "");
  give(e);
  CHECK(types() == "");
  events->recovered(5);
  events->stores_lost(5, {4}, true);
  e = get();
  CHECK(e->type == CMI_EVENT_HW);
  CHECK(lines(e, kView) == std::vector<uint64_t>{4 * 4096});
  give(e);
  views.clear();
  events->recovered(5);
  events->stores_lost(5, {4}, false);
  e = get();
  CHECK(e->serr.einfo_naddrs == 0);
  give(e);
}

TEST_CASE_FIXTURE(Client, "an_unasked_map_waits_once_and_names_a_peer_once_until_it_is_down") {
  events->unreachable(peer(1));
  events->unreachable(peer(2));
  events->unreachable(peer(1));
  events->map(77, {peer(2), peer(2)});
  cmi_event* e = get();
  CHECK(e->cmap.einfo_reqid == 0);
  REQUIRE(e->cmap.einfo_nnodes == 2);
  CHECK(*access::decode_naddr(e->cmap.einfo_nodes[1]) == peer(2));
  give(e);
  e = get();
  CHECK(e->cmap.einfo_reqid == 77);
  CHECK(e->cmap.einfo_nnodes == 1);
  give(e);
  events->unreachable(peer(1));
  CHECK(types() == "");
  events->importer_down(peer(1), {1});
  CHECK(types() != "");
  events->unreachable(peer(1));
  CHECK(types() == "7");
}

TEST_CASE_FIXTURE(Client, "quiesce_and_resume_of_a_segment_wait_once_each_at_most") {
  int answered = 0;
  const auto round = [&](int n) { return [&answered, n] { answered = n; }; };
  SUBCASE("a_quiesce_taken_late_answers_the_newest_round") {
    events->quiesced(5, round(1));
    events->resumed(5);
    events->quiesced(5, round(2));
    events->quiesced(6, round(9));
    cmi_event* e = get();
    CHECK(e->type == CMI_EVENT_QUIESCE);
    CHECK(e->seg.einfo_seg == 5);
    CHECK(answered == 0);
    give(e);
    CHECK(answered == 2);
    CHECK(types() == "1");  // of segment 6
  }
  SUBCASE("a_resume_is_told_whatever_is_left_out") {
    events->quiesced(5, {});
    CHECK(types() == "1");
    events->resumed(5);
    for (int i = 0; i < 100; ++i) {
      events->quiesced(5, {});
      events->resumed(5);
    }
    CHECK(types() == "2");
  }
  SUBCASE("both_are_told_in_order") {
    events->quiesced(5, {});
    events->resumed(5);
    CHECK(types() == "12");
  }
}

TEST_CASE_FIXTURE(Client, "nothing_is_told_of_a_segment_marked_for_deletion") {
  events->home_down(peer(1), {5, 6});
  events->home_down(peer(2), {5});
  events->stores_lost(5, {1}, false);
  events->quiesced(5, {});
  events->resumed(5);
  CHECK(readable());
  events->forget(5);
  cmi_event* e = get();
  CHECK(segments(e) == std::vector<cmi_seg>{6});
  give(e);
  CHECK(types() == "");
  events->stores_lost(7, {1}, false);
  events->forget(7);
  CHECK_FALSE(readable());
}

TEST_CASE_FIXTURE(Client, "without_memory_an_event_stays_for_the_next_call") {
  events->resumed(5);
  memory_left = 0;
  CHECK(events->get().status() == Status::kNoMem);
  CHECK(readable());
  memory_left = 1;
  CHECK(types() == "2");
}

TEST_CASE_FIXTURE(Client, "an_event_that_grows_while_its_memory_is_got_is_told_whole") {
  events->importer_down(peer(1), {1});
  between = [](Client& c) { c.events->importer_down(peer(1), {2, 3, 4}); };
  cmi_event* e = get();
  CHECK(segments(e) == std::vector<cmi_seg>{1, 2, 3, 4});
  give(e);
  // Or while a cause of it comes first.
  events->importer_down(peer(2), {1});
  between = [](Client& c) { c.events->unreachable(peer(2)); };
  CHECK(types() == "73");
}

TEST_CASE_FIXTURE(Client, "a_burst_is_told_whole") {
  constexpr int kMany = 3000;
  for (int i = 1; i <= kMany; ++i) {
    views[i] = kView;
    events->stores_lost(i, {static_cast<uint32_t>(i)}, false);
    events->importer_down(peer(static_cast<uint64_t>(i)), {i});
  }
  std::vector<int> told(kMany + 1, 0);
  for (cmi_event* e = get(); e != nullptr; e = get()) {
    if (e->type == CMI_EVENT_STORE_FAILURE) {
      CHECK(lines(e, kView) ==
            std::vector<uint64_t>{static_cast<uint64_t>(e->serr.einfo_seg) * 4096});
      told[static_cast<size_t>(e->serr.einfo_seg)] += 1;
    } else {
      told[static_cast<size_t>(segments(e).at(0))] += 100;
    }
    give(e);
  }
  for (int i = 1; i <= kMany; ++i) CHECK(told[static_cast<size_t>(i)] == 101);
}

TEST_CASE_FIXTURE(Client, "only_what_is_out_can_be_given_back") {
  events->resumed(5);
  cmi_event* e = get();
  cmi_event copy = *e;
  CHECK_FALSE(events->give_back(&copy, CMI_EVENT_RET_DONE));
  give(e);
  CHECK_FALSE(events->give_back(e, CMI_EVENT_RET_DONE));
  CHECK_FALSE(events->give_back(nullptr, CMI_EVENT_RET_FAILED));
  events->resumed(6);
  REQUIRE(get() != nullptr);  // what is kept goes with the events
}

TEST_SUITE_END();

}  // namespace cmi::test::events_test
