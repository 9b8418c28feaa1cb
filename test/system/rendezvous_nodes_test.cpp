// Processes of two nodes that find each other's segments in a folder.
#include <doctest/doctest.h>
#include <stdlib.h>

#include <array>
#include <filesystem>
#include <string>

#include "core/base/clock.hpp"
#include "system/calls.hpp"

namespace cmi::test {

namespace {

// A folder for offers, which goes away with the case.
struct Meeting {
  Meeting() {
    std::string pattern = "/tmp/cmi-meet-XXXXXX";
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    REQUIRE(pattern.size() < path.size());
    std::copy(pattern.begin(), pattern.end(), path.begin());
  }
  ~Meeting() { std::filesystem::remove_all(path.data()); }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  std::array<char, 64> path{};
};

using Path = std::array<char, 64>;

// Makes and attaches a segment of a page, stores `word`, and offers it as "table".
Answer offer(Process& home, const Meeting& meeting, uint64_t word) {
  return home.run(
      [](Path path, uint64_t value) {
        cmi_ctxt* const c = ctxt();
        const cmi_seg seg = CMIFN(c, 10, seg_get)(c, kPage, 0);
        auto* const at = static_cast<uint64_t*>(CMIFN(c, 10, seg_at)(c, seg, nullptr, 0));
        cmi_rseg* const rseg = CMIFN(c, 10, seg_exp)(c, seg, 0);
        cmi_token* const tok = CMIFN(c, 10, tok_new)(c, seg, CMI_NADDR_ANY, CMI_ACC_READ);
        if (at == nullptr || rseg == nullptr || tok == nullptr) return answer(-1, true);
        *at = value;
        const int rc = cmi_ofi_offer(c, path.data(), "table", rseg, tok);
        return answer(rc, rc != 0);
      },
      meeting.path, word);
}

struct Found {
  int32_t seg;
  cmi_error error;
  uint64_t word;
};

Found find(Process& peer, const Meeting& meeting, uint32_t timeout_ms) {
  return peer.run(
      [](Path path, uint32_t timeout) {
        cmi_ctxt* const c = ctxt();
        const cmi_seg seg = cmi_ofi_find(c, path.data(), "table", timeout);
        Found found{seg, cmi_get_error(c), 0};
        if (seg == CMI_SEG_INVALID) return found;
        const void* const at = CMIFN(c, 10, seg_at)(c, seg, nullptr, CMI_SEG_READ);
        CMIFN(c, 10, cmi_enb)(c, 1);
        found.word = load64(reinterpret_cast<uint64_t>(at)).value;
        return found;
      },
      meeting.path, timeout_ms);
}

}  // namespace

TEST_SUITE("api") {
  TEST_CASE("a_segment_that_is_offered_in_a_folder_is_found_imported_and_read") {
    Meeting meeting;
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Found none = find(peer, meeting, 0);
    CHECK(none.seg == CMI_SEG_INVALID);
    CHECK(none.error == CMI_ERR_RECONFIG);
    REQUIRE(offer(home, meeting, 71).ok());
    const Found found = find(peer, meeting, 0);
    CHECK(found.seg > 0);
    CHECK(found.word == 71);
  }

  TEST_CASE("who_comes_first_waits_for_the_offer") {
    Meeting meeting;
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    auto waiting = peer.start(
        [](Path path) {
          const cmi_seg seg = cmi_ofi_find(ctxt(), path.data(), "table", 30000);
          return uint64_t{seg != CMI_SEG_INVALID};
        },
        meeting.path);
    REQUIRE(offer(home, meeting, 72).ok());
    CHECK(waiting.get() == 1);
  }

  TEST_CASE("an_offer_whose_home_is_gone_is_passed_over_until_another_replaces_it") {
    Meeting meeting;
    Cluster cluster;
    Process& first = cluster.spawn("first");
    Process& second = cluster.spawn("second");
    Process& peer = cluster.spawn("peer");
    REQUIRE(offer(first, meeting, 73).ok());
    first.kill();
    const Found gone = find(peer, meeting, 1);
    CHECK(gone.seg == CMI_SEG_INVALID);
    CHECK((gone.error == CMI_ERR_RECONFIG || gone.error == CMI_ERR_INVAL));
    REQUIRE(offer(second, meeting, 74).ok());
    CHECK(find(peer, meeting, 30000).word == 74);
  }

  TEST_CASE("an_offer_is_taken_away_and_bad_arguments_are_named") {
    Meeting meeting;
    Cluster cluster;
    Process& home = cluster.spawn("home");
    REQUIRE(offer(home, meeting, 75).ok());
    const uint64_t bad = home.run(
        [](Path path) {
          cmi_ctxt* const c = ctxt();
          uint64_t wrong = 0;
          const auto fails = [&](int rc, cmi_error error) {
            wrong += rc != -1 || cmi_get_error(c) != error;
          };
          fails(cmi_ofi_offer(c, nullptr, "a", nullptr, nullptr), CMI_ERR_INVAL);
          fails(cmi_ofi_offer(c, path.data(), nullptr, nullptr, nullptr), CMI_ERR_INVAL);
          fails(cmi_ofi_offer(c, path.data(), "../a", nullptr, nullptr), CMI_ERR_INVAL);
          fails(cmi_ofi_offer(c, "tcp://host:1", "a", nullptr, nullptr), CMI_ERR_INVAL);
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

}  // namespace cmi::test
