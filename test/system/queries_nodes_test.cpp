// What seg_ctl, attr_get and cmi_ctl tell about exports and imports.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>

#include "system/calls.hpp"

namespace cmi::test::queries_nodes_test {

namespace {

TEST_SUITE("queries") {
  PROCESS_CASE("seg_status_tells_flags_attaches_and_owner") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& second = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    Process& fourth = cluster.spawn("peer");
    const Answer seg = seg_get(home, 4 * kPage);
    Status seen = seg_status(second, seg.seg());
    REQUIRE(seen.answer.ok());
    CHECK(seen.status.st_flags == 0);
    CHECK(seen.status.st_nattach == 0);
    CHECK(seen.status.st_owner == home.pid());

    REQUIRE(seg_at(home, seg.seg()).ok());
    REQUIRE(seg_at(second, seg.seg()).ok());
    const Answer third_view = seg_at(second, seg.seg(), 0, CMI_SEG_READ);
    REQUIRE(third_view.ok());
    const Flat handle = seg_exp(home, seg.seg());
    const Flat token = tok_new(home, seg.seg(), kAllRights);
    seen = seg_status(second, seg.seg());
    CHECK(seen.status.st_flags == CMI_SEG_ST_EXPORTED);
    CHECK(seen.status.st_nattach == 3);
    REQUIRE(seg_dt(second, seg.seg(), third_view.at()).ok());
    CHECK(seg_status(home, seg.seg()).status.st_nattach == 2);

    const Answer import = seg_imp(peer, handle);
    REQUIRE(import.ok());
    seen = seg_status(fourth, import.seg());
    CHECK(seen.status.st_flags == CMI_SEG_ST_IMPORTED);
    CHECK(seen.status.st_owner == peer.pid());
    REQUIRE(set_token(peer, import.seg(), token).ok());
    REQUIRE(seg_at(fourth, import.seg()).ok());
    seen = seg_status(peer, import.seg());
    CHECK(seen.status.st_flags == (CMI_SEG_ST_IMPORTED | CMI_SEG_ST_TOKEN_SET));
    CHECK(seen.status.st_nattach == 1);
    CHECK(seg_status(home, seg.seg()).status.st_nattach == 2);

    REQUIRE(seg_rm(home, seg.seg()).ok());
    CHECK((seg_status(second, seg.seg()).status.st_flags & CMI_SEG_ST_REMOVED) != 0);
  }

  TEST_CASE("seg_info_of_an_import_matches_its_export") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Answer seg = seg_get(home, 7 * kPage, CMI_SEG_NORESERVE);
    REQUIRE(seg.ok());
    const Answer import = seg_imp(peer, seg_exp(home, seg.seg()));
    REQUIRE(import.ok());
    const Info here = seg_info(home, seg.seg());
    const Info there = seg_info(peer, import.seg());
    REQUIRE(there.answer.ok());
    CHECK(there.info.seg_sz == 7 * kPage);
    CHECK(there.info.seg_align == here.info.seg_align);
    CHECK(there.info.seg_brk == here.info.seg_brk);
    CHECK(there.info.seg_flags == CMI_SEG_NORESERVE);
  }

  TEST_CASE("attr_get_of_an_import_gives_the_size_of_handle_and_token") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_bare(peer, exported);
    for (int32_t attribute : {CMI_ATTR_RSEG_SIZE, CMI_ATTR_TOKEN_SIZE, CMI_ATTR_NODEADDR_SIZE}) {
      const auto ask = [&](Process& process, cmi_seg seg) {
        return process.run(
            [](cmi_seg s, int32_t a) {
              size_t size = 0;
              size_t length = sizeof size;
              if (CMIFN(ctxt(), 10, attr_get)(ctxt(), s, a, &size, &length) != 0) return size_t{0};
              return length == sizeof size ? size : size_t{1};
            },
            seg, attribute);
      };
      const size_t size = ask(peer, import.seg);
      CHECK(size > sizeof(cmi_base));
      CHECK(size == ask(home, exported.seg));
    }
  }

  TEST_CASE("handles_and_tokens_are_never_longer_than_attr_get_says") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    for (const size_t size : {size_t{kPage}, size_t{64} << 20}) {
      Export exported = export_segment(home, size);
      REQUIRE(publish(home, exported.at + size - 8, size));
      // Whatever stands behind the bytes that attr_get told of is none of the library's.
      for (Flat* flat : {&exported.handle, &exported.token}) {
        std::fill(flat->bytes.begin() + flat->size, flat->bytes.end(),
                  static_cast<unsigned char>(0xee));
      }
      const Import import = import_segment(peer, exported);
      CHECK(load(peer, import.at + size - 8).value == size);
    }
  }

  TEST_CASE("node_addr_cmp_finds_the_addresses_of_one_node") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& second = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    struct Found {
      Answer answer;
      uint32_t matches;
      std::array<uint32_t, 4> indexes;
    };
    // Which of four addresses are of the node of the first: asked of whom does not matter.
    const auto compare = [](Flat wanted, Flat a, Flat b, Flat c, Flat d) {
      std::array<Flat, 4> given{a, b, c, d};
      std::array<cmi_naddr*, 4> list{};
      for (size_t i = 0; i < list.size(); ++i) {
        list[i] = reinterpret_cast<cmi_naddr*>(given[i].bytes.data());
      }
      Found found{};
      found.indexes.fill(77);
      cmi_ctl_cfg cfg{};
      cfg.ncmp = {reinterpret_cast<cmi_naddr*>(wanted.bytes.data()), list.data(), 4,
                  found.indexes.data()};
      const int result = CMIFN(ctxt(), 10, cmi_ctl)(ctxt(), CMI_CTL_NODE_ADDR_CMP, &cfg);
      found.answer = answer(result, result != 0);
      found.matches = cfg.ncmp.ncmp_addrs;
      return found;
    };
    const Flat h = node_address(home), s = node_address(second), p = node_address(peer);
    for (Process* asked : {&home, &peer}) {
      Found found = asked->run(compare, h, p, s, p, h);
      REQUIRE(found.answer.ok());
      CHECK(found.matches == 2);
      CHECK(found.indexes == std::array<uint32_t, 4>{1, 3, 77, 77});
      found = asked->run(compare, p, h, s, h, s);
      REQUIRE(found.answer.ok());
      CHECK(found.matches == 0);
      CHECK(found.indexes == std::array<uint32_t, 4>{77, 77, 77, 77});
    }
  }

  TEST_CASE("ctl_info_counts_exports_and_imports") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const uint32_t exports = ctl_info(home).info.cur_exp_segs;
    const uint32_t imports = ctl_info(peer).info.cur_imp_segs;
    CHECK(exports == 0);
    CHECK(imports == 0);
    const Export exported = export_segment(home);
    CHECK(ctl_info(home).info.cur_exp_segs == exports + 1);
    const Import first = import_segment(peer, exported);
    const Import second = import_segment(peer, exported);
    CHECK(ctl_info(peer).info.cur_imp_segs == imports + 2);
    for (const Import& import : {first, second}) {
      REQUIRE(seg_dt(peer, import.seg, import.at).ok());
      REQUIRE(seg_rm(peer, import.seg).ok());
    }
    CHECK(ctl_info(peer).info.cur_imp_segs == imports);
    REQUIRE(seg_dt(home, exported.seg, exported.at).ok());
    REQUIRE(seg_rm(home, exported.seg).ok());
    CHECK(ctl_info(home).info.cur_exp_segs == exports);
  }
}

}  // namespace

}  // namespace cmi::test::queries_nodes_test
