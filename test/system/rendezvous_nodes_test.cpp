// Processes of two nodes that find each other's segments in a folder.
#include <filesystem>

#include "system/rendezvous.hpp"

namespace cmi::test::rendezvous_nodes_test {

TEST_SUITE("api") {
  TEST_CASE("a_segment_that_is_offered_in_a_folder_is_found_imported_and_read") {
    Meeting meeting;
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Found none = find(peer, meeting.path, 0);
    CHECK(none.seg == CMI_SEG_INVALID);
    CHECK(none.error == CMI_ERR_RECONFIG);
    REQUIRE(offer(home, meeting.path, 71).ok());
    const Found found = find(peer, meeting.path, 0);
    CHECK(found.seg > 0);
    CHECK(found.word == 71);
  }

  TEST_CASE("who_comes_first_waits_for_the_offer") {
    Meeting meeting;
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    auto waiting = peer.start(
        [](Text path) {
          const cmi_seg seg = cmi_ofi_find(ctxt(), path.data(), "table", 30000);
          return uint64_t{seg != CMI_SEG_INVALID};
        },
        meeting.path);
    REQUIRE(offer(home, meeting.path, 72).ok());
    CHECK(waiting.get() == 1);
  }

  TEST_CASE("an_offer_whose_home_is_gone_is_passed_over_until_another_replaces_it") {
    Meeting meeting;
    Cluster cluster;
    Process& first = cluster.spawn("first");
    Process& second = cluster.spawn("second");
    Process& peer = cluster.spawn("peer");
    REQUIRE(offer(first, meeting.path, 73).ok());
    first.kill();
    const Found gone = find(peer, meeting.path, 1);
    CHECK(gone.seg == CMI_SEG_INVALID);
    CHECK((gone.error == CMI_ERR_RECONFIG || gone.error == CMI_ERR_INVAL));
    REQUIRE(offer(second, meeting.path, 74).ok());
    CHECK(find(peer, meeting.path, 30000).word == 74);
  }

  TEST_CASE("an_offer_is_taken_away_and_bad_arguments_are_named") {
    Meeting meeting;
    Cluster cluster;
    Process& home = cluster.spawn("home");
    REQUIRE(offer(home, meeting.path, 75).ok());
    const uint64_t bad = home.run(
        [](Text path) {
          cmi_ctxt* const c = ctxt();
          uint64_t wrong = 0;
          const auto fails = [&](int rc, cmi_error error) {
            wrong += rc != -1 || cmi_get_error(c) != error;
          };
          fails(cmi_ofi_offer(c, nullptr, "a", nullptr, nullptr), CMI_ERR_INVAL);
          fails(cmi_ofi_offer(c, path.data(), nullptr, nullptr, nullptr), CMI_ERR_INVAL);
          fails(cmi_ofi_offer(c, path.data(), "../a", nullptr, nullptr), CMI_ERR_INVAL);
          fails(cmi_ofi_offer(c, "http://host:1", "a", nullptr, nullptr), CMI_ERR_INVAL);
          fails(cmi_ofi_offer(c, "tcp://host", "a", nullptr, nullptr), CMI_ERR_INVAL);
          fails(cmi_ofi_find(c, "", "a", 0), CMI_ERR_INVAL);
          fails(cmi_ofi_find(c, "tcp://host:0", "a", 0), CMI_ERR_INVAL);
          fails(cmi_ofi_find(c, path.data(), std::string(201, 'n').c_str(), 0), CMI_ERR_INVAL);
          fails(cmi_ofi_find(c, path.data(), "a/b", 0), CMI_ERR_INVAL);
          fails(cmi_ofi_find(nullptr, path.data(), "a", 0), CMI_ERR_INVAL);
          const uint64_t zeros[96] = {};
          const auto* const rseg = reinterpret_cast<const cmi_rseg*>(zeros);
          const auto* const tok = reinterpret_cast<const cmi_token*>(zeros);
          fails(cmi_ofi_offer(c, path.data(), "a", rseg, tok), CMI_ERR_INVAL);
          fails(cmi_ofi_offer(c, path.data(), "a", rseg, nullptr), CMI_ERR_INVAL);
          wrong += cmi_ofi_offer(c, path.data(), "table", nullptr, nullptr) != 0;
          fails(cmi_ofi_find(c, path.data(), "table", 0), CMI_ERR_RECONFIG);
          return wrong;
        },
        meeting.path);
    CHECK(bad == 0);
    CHECK(std::filesystem::is_empty(meeting.path.data()));
  }
}

}  // namespace cmi::test::rendezvous_nodes_test
