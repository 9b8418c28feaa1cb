// Tokens across nodes: made, set, replaced, refused.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "core/access/handles.hpp"
#include "core/base/clock.hpp"
#include "system/calls.hpp"

namespace cmi::test::tokens_nodes_test {

namespace {

// The errors of seg_ctl(CMI_SEG_TOKEN) for every token that differs from a good one in one bit.
struct Flips {
  int accepted;
  int first_accepted;
  int other_errors;
};
Flips set_flipped_tokens(Process& process, cmi_seg seg, const Flat& token) {
  return process.run(
      [](cmi_seg s, Flat good) {
        Flips seen{0, -1, 0};
        for (uint32_t bit = 0; bit < good.size * 8; ++bit) {
          Flat bad = good;
          bad.bytes[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
          cmi_ds ds{};
          ds.token.tok = bad.as<cmi_token>();
          if (CMIFN(ctxt(), 10, seg_ctl)(ctxt(), s, CMI_SEG_TOKEN, &ds) == 0) {
            if (seen.accepted++ == 0) seen.first_accepted = static_cast<int>(bit);
          } else if (cmi_get_error(ctxt()) != CMI_ERR_INVAL) {
            ++seen.other_errors;
          }
        }
        return seen;
      },
      seg, token);
}

TEST_SUITE("tokens") {
  TEST_CASE("an_import_without_a_token_raises_token_error") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Import import = import_bare(peer, export_segment(home));
    REQUIRE(cmi_enb(peer, 1).ok());
    CHECK(load(peer, import.at).cause() == CMI_ERROR_TOKEN);
    CHECK(store(peer, import.at + kPage, 1).cause() == CMI_ERROR_TOKEN);
  }

  TEST_CASE("a_token_opens_an_import") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_bare(peer, exported);
    REQUIRE(cmi_enb(peer, 1).ok());
    REQUIRE(load(peer, import.at).cause() == CMI_ERROR_TOKEN);
    REQUIRE(publish(home, exported.at, 51));
    REQUIRE(set_token(peer, import.seg, exported.token).ok());
    CHECK(load(peer, import.at).value == 51);
    CHECK(publish(peer, import.at + kPage, 52));
    CHECK(load(home, exported.at + kPage).value == 52);
  }

  TEST_CASE("a_token_set_again_replaces_the_former") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    const Flat read_only = tok_new(home, exported.seg, CMI_ACC_READ);
    REQUIRE(read_only.ok());
    REQUIRE(publish(peer, import.at, 1));
    REQUIRE(set_token(peer, import.seg, read_only).ok());
    CHECK(store(peer, import.at, 2).cause() == CMI_ERROR_ACCESS);
    CHECK(store(peer, import.at + kPage, 2).cause() == CMI_ERROR_ACCESS);
    CHECK(load(peer, import.at).value == 1);
    REQUIRE(set_token(peer, import.seg, exported.token).ok());
    CHECK(publish(peer, import.at, 3));
    CHECK(load(home, exported.at).value == 3);
  }

  TEST_CASE("a_token_set_by_a_process_that_did_not_import_is_perm") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& importer = cluster.spawn("peer");
    Process& other = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_bare(importer, exported);
    CHECK(set_token(other, import.seg, exported.token).failed(CMI_ERR_PERM));
    CHECK((seg_status(importer, import.seg).status.st_flags & CMI_SEG_ST_TOKEN_SET) == 0);
  }

  TEST_CASE("a_token_of_another_segment_is_inval") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Import import = import_bare(peer, export_segment(home));
    const Export other = export_segment(home);
    CHECK(set_token(peer, import.seg, other.token).failed(CMI_ERR_INVAL));
    REQUIRE(cmi_enb(peer, 1).ok());
    CHECK(load(peer, import.at).cause() == CMI_ERROR_TOKEN);
  }

  TEST_CASE("a_malformed_token_is_inval") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_bare(peer, exported);
    const Flips flips = set_flipped_tokens(peer, import.seg, exported.token);
    CHECK(flips.accepted == 0);
    CHECK(flips.first_accepted == -1);
    CHECK(flips.other_errors == 0);
    Flat foreign = exported.token;
    foreign.as<cmi_base>()->vendor = 0x1234;
    CHECK(set_token(peer, import.seg, foreign).failed(CMI_ERR_INVAL));
    foreign = exported.token;
    foreign.as<cmi_base>()->device = 2;
    CHECK(set_token(peer, import.seg, foreign).failed(CMI_ERR_INVAL));
    foreign = exported.token;
    foreign.as<cmi_base>()->verno = 20;
    CHECK(set_token(peer, import.seg, foreign).failed(CMI_ERR_INVAL));
    foreign = exported.token;  // truncated: the rest of it is zeros
    std::fill(foreign.bytes.begin() + 24, foreign.bytes.end(), static_cast<unsigned char>(0));
    CHECK(set_token(peer, import.seg, foreign).failed(CMI_ERR_INVAL));
    CHECK(set_token(peer, import.seg, exported.handle).failed(CMI_ERR_INVAL));
    const Answer null = peer.run(
        [](cmi_seg seg) {
          cmi_ds ds{};
          const int result = CMIFN(ctxt(), 10, seg_ctl)(ctxt(), seg, CMI_SEG_TOKEN, &ds);
          return answer(result, result != 0);
        },
        import.seg);
    CHECK(null.failed(CMI_ERR_INVAL));
    CHECK(set_token(peer, import.seg, exported.token).ok());
  }

  // Well made, and with the name of a token that is in force, or its secret: known is neither
  // enough.
  TEST_CASE("a_token_that_was_guessed_opens_nothing") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    Flat forged = exported.token;
    const access::TokenInfo given = access::decode_token(forged.as<cmi_token>()).take();
    access::TokenInfo guesses[] = {given, given};
    guesses[0].secret ^= 1;
    guesses[1].id ^= 1;
    for (const access::TokenInfo& guess : guesses) {
      const auto bytes = std::as_writable_bytes(std::span(forged.bytes)).first(forged.size);
      REQUIRE(ok(access::encode_token(guess, bytes, CMI_VERNO)));
      const Import import = import_bare(peer, exported);
      REQUIRE(set_token(peer, import.seg, forged).ok());
      REQUIRE(cmi_enb(peer, 1).ok());
      CHECK(load(peer, import.at).cause() == CMI_ERROR_TOKEN);
      CHECK(store(peer, import.at, 7).cause() == CMI_ERROR_TOKEN);
      REQUIRE(set_token(peer, import.seg, exported.token).ok());
      CHECK(load(peer, import.at).cause() == Fault::kNone);
    }
  }

  TEST_CASE("a_token_for_another_node_is_perm") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& right = cluster.spawn("right");
    Process& wrong = cluster.spawn("wrong");
    Export exported = export_segment(home);
    exported.token = tok_new_for(home, exported.seg, node_address(right), kAllRights);
    REQUIRE(exported.token.ok());
    const Import refused = import_bare(wrong, exported);
    CHECK(set_token(wrong, refused.seg, exported.token).failed(CMI_ERR_PERM));
    REQUIRE(publish(home, exported.at, 61));
    CHECK(load(right, import_segment(right, exported).at).value == 61);
  }

  TEST_CASE("a_token_revoked_before_it_is_set_raises_token_error") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_bare(peer, exported);
    REQUIRE(tok_del(home, exported.token).ok());
    CHECK(set_token(peer, import.seg, exported.token).ok());
    REQUIRE(cmi_enb(peer, 1).ok());
    CHECK(load(peer, import.at).cause() == CMI_ERROR_TOKEN);
    CHECK(store(peer, import.at, 1).cause() == CMI_ERROR_TOKEN);
  }

  TEST_CASE("every_process_of_the_node_uses_the_importers_token") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& importer = cluster.spawn("peer");
    Process& other = cluster.spawn("peer");
    const Export exported = export_segment(home);
    REQUIRE(publish(home, exported.at, 62));
    const Answer imported = seg_imp(importer, exported.handle);
    REQUIRE(imported.ok());
    const Answer view = seg_at(other, imported.seg());
    REQUIRE(view.ok());
    REQUIRE(cmi_enb(other, 1).ok());
    CHECK(load(other, view.at()).cause() == CMI_ERROR_TOKEN);
    REQUIRE(set_token(importer, imported.seg(), exported.token).ok());
    CHECK(load(other, view.at()).value == 62);
    CHECK(publish(other, view.at() + 8, 63));
    CHECK(load(home, exported.at + 8).value == 63);
  }

  TEST_CASE("another_token_of_the_importer_holds_for_every_process_of_the_node_at_once") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& importer = cluster.spawn("peer");
    Process& other = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Flat read_only = tok_new(home, exported.seg, CMI_ACC_READ);
    REQUIRE(read_only.ok());
    const Import import = import_segment(importer, exported);
    const Answer view = seg_at(other, import.seg);
    REQUIRE(view.ok());
    REQUIRE(cmi_enb(other, 1).ok());
    for (uint64_t round = 1; round <= 10; ++round) {
      CAPTURE(round);
      // Both pages are there and may be stored to; one has been, and nobody has flushed it.
      REQUIRE(load(other, view.at() + kPage).cause() == Fault::kNone);
      REQUIRE(store(other, view.at(), round).cause() == Fault::kNone);
      REQUIRE(set_token(importer, import.seg, read_only).ok());
      CHECK(store(other, view.at(), 77).cause() == CMI_ERROR_ACCESS);
      CHECK(store(other, view.at() + kPage, 77).cause() == CMI_ERROR_ACCESS);
      CHECK(atm_cas(other, view.at(), round, 77).fault.cause() == CMI_ERROR_ACCESS);
      CHECK(load(other, view.at()).value == round);
      CHECK(load_until(home, exported.at, round) == round);  // what was stored before is not lost
      // And more rights as soon as fewer.
      REQUIRE(set_token(importer, import.seg, exported.token).ok());
      CHECK(publish(other, view.at() + kPage, round));
      CHECK(load(home, exported.at + kPage).value == round);
    }
  }

  TEST_CASE("a_token_for_swaps_alone_allows_nothing_else") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home, 4 * kPage, CMI_ACC_ATOMIC);
    REQUIRE(publish(home, exported.at, 5));
    const Import import = import_segment(peer, exported);
    CHECK(load(peer, import.at).cause() == CMI_ERROR_ACCESS);
    CHECK(store(peer, import.at, 1).cause() == CMI_ERROR_ACCESS);
    CHECK(atm_cas(peer, import.at, 5, 6).swapped);
    CHECK(load(home, exported.at).value == 6);
    CHECK(load(peer, import.at).cause() == CMI_ERROR_ACCESS);
  }

  TEST_CASE("nodes_have_the_rights_of_their_own_tokens_each") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Export exported = export_segment(home);
    struct {
      const char* name;
      cmi_acc rights;
    } const nodes[] = {{"reads", CMI_ACC_READ},
                       {"writes", CMI_ACC_READ | CMI_ACC_WRITE},
                       {"swaps", CMI_ACC_ATOMIC},
                       {"reads_and_swaps", CMI_ACC_READ | CMI_ACC_ATOMIC},
                       {"all", kAllRights}};
    std::vector<std::pair<Process*, Import>> peers;
    for (const auto& n : nodes) {
      Process& peer = cluster.spawn(n.name);
      exported.token = tok_new_for(home, exported.seg, node_address(peer), n.rights);
      REQUIRE(exported.token.ok());
      peers.emplace_back(&peer, import_segment(peer, exported));
    }
    // All at a time, and still so after each has used its own.
    for (int round = 0; round < 2; ++round) {
      for (size_t i = 0; i < peers.size(); ++i) {
        CAPTURE(std::string(nodes[i].name));
        auto& [peer, import] = peers[i];
        const cmi_acc rights = nodes[i].rights;
        const uint64_t word = 8 * i;
        REQUIRE(publish(home, exported.at + word, 10));
        const auto expected = [](bool allowed) {
          return allowed ? Fault::kNone : CMI_ERROR_ACCESS;
        };
        CHECK(load(*peer, import.at + word).cause() == expected((rights & CMI_ACC_READ) != 0));
        CHECK(store(*peer, import.at + word, 11).cause() ==
              expected((rights & CMI_ACC_WRITE) != 0));
        REQUIRE(wmb(*peer).ok());
        const uint64_t now = (rights & CMI_ACC_WRITE) != 0 ? 11 : 10;
        CHECK(load(home, exported.at + word).value == now);
        const Swap swap = atm_cas(*peer, import.at + word, now, 12);
        CHECK(swap.fault.cause() == expected((rights & CMI_ACC_ATOMIC) != 0));
        CHECK(swap.swapped == ((rights & CMI_ACC_ATOMIC) != 0));
      }
    }
  }

  TEST_CASE("the_last_of_ten_thousand_tokens_serves_like_the_first") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    Export exported = export_segment(home);
    REQUIRE(publish(home, exported.at, 9));
    const Flat first = exported.token;
    const int made = home.run(
        [](cmi_seg seg) {
          int n = 0;
          while (n < 10000 &&
                 CMIFN(ctxt(), 10, tok_new)(ctxt(), seg, CMI_NADDR_ANY, CMI_ACC_READ) != nullptr) {
            ++n;
          }
          return n;
        },
        exported.seg);
    REQUIRE(made == 10000);
    exported.token = tok_new(home, exported.seg, kAllRights);
    const Import import = import_segment(peer, exported);
    CHECK(load(peer, import.at).value == 9);
    REQUIRE(set_token(peer, import.seg, first).ok());
    CHECK(load(peer, import.at).value == 9);
    REQUIRE(tok_del(home, first).ok());
    CHECK(load(peer, import.at).cause() == CMI_ERROR_TOKEN);
    REQUIRE(set_token(peer, import.seg, exported.token).ok());
    CHECK(publish(peer, import.at, 10));
    CHECK(load(home, exported.at).value == 10);
  }

  TEST_CASE("a_token_replaced_while_a_thread_uses_the_import_loses_no_store") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Flat second = tok_new(home, exported.seg, kAllRights);
    REQUIRE(second.ok());
    const Import import = import_segment(peer, exported);
    struct Result {
      uint64_t refused, failed, stored;
    };
    const Result result = peer.run(
        [](Import imported, Flat one, Flat two) {
          Result r{};
          std::atomic<bool> over{false};
          std::atomic<uint64_t> done{0};
          std::thread other([&] {
            CMIFN(ctxt(), 10, ini_th)(ctxt());
            CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 1);
            for (uint64_t n = 1; !over.load(); ++n) {
              for (uint64_t page = 0; page < 4; ++page) {
                const uint64_t at = imported.at + page * kPage;
                if (store64(at, n).cause() != Fault::kNone || load64(at).value != n) ++r.failed;
              }
              done.store(n);
            }
            if (CMIFN(ctxt(), 10, wmb_fn)(ctxt()) != 0) ++r.failed;
            CMIFN(ctxt(), 10, fini)(ctxt());
          });
          for (int i = 0; i < 40; ++i) {
            const uint64_t seen = done.load();
            cmi_ds ds{};
            ds.token.tok = (i % 2 == 0 ? two : one).as<cmi_token>();
            if (CMIFN(ctxt(), 10, seg_ctl)(ctxt(), imported.seg, CMI_SEG_TOKEN, &ds) != 0)
              ++r.refused;
            const Deadline deadline = Deadline::in(10 * kSecond);
            while (done.load() == seen && !deadline.passed()) std::this_thread::yield();
          }
          over.store(true);
          other.join();
          r.stored = done.load();
          return r;
        },
        import, exported.token, second);
    CHECK(result.refused == 0);
    CHECK(result.failed == 0);
    CHECK(result.stored > 40);
    for (uint64_t page = 0; page < 4; ++page) {
      CHECK(load(home, exported.at + page * kPage).value == result.stored);
    }
  }

  TEST_CASE("a_token_revoked_while_threads_use_the_import_stops_them_all_and_lets_no_store_in") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    auto users = peer.start(
        [](uint64_t at) {
          constexpr uint64_t kThreads = 3;
          std::atomic<uint64_t> stopped{0};
          std::vector<std::thread> all;
          for (uint64_t t = 0; t < kThreads; ++t) {
            all.emplace_back([&, t] {
              CMIFN(ctxt(), 10, ini_th)(ctxt());
              CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 1);
              Access last;
              for (uint64_t n = 1; last.cause() == Fault::kNone; ++n) {
                last = store64(at + n % 4 * kPage + t * 8, n);
                if (n % 64 == t) (void)cmi_wmb();
              }
              stopped += last.cause() == CMI_ERROR_TOKEN;
              (void)cmi_wmb();  // for what cannot come home any more
              CMIFN(ctxt(), 10, fini)(ctxt());
            });
          }
          for (std::thread& t : all) t.join();
          return stopped == kThreads;
        },
        import.at);
    const auto words = [&] {
      return home.run(
          [](uint64_t at) {
            std::array<uint64_t, 12> found{};
            for (uint64_t i = 0; i < found.size(); ++i) {
              found[i] = load64(at + i % 4 * kPage + i / 4 * 8).value;
            }
            return found;
          },
          exported.at);
    };
    const std::array<uint64_t, 12> none{};
    for (const Deadline d = Deadline::in(10 * kSecond); words() == none && !d.passed();) {
    }
    REQUIRE(words() != none);
    REQUIRE(tok_del(home, exported.token).ok());
    const auto after = words();
    CHECK(users.get());
    CHECK(words() == after);
  }

  TEST_CASE("a_token_for_any_node_serves_every_node") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    const Export exported = export_segment(home);
    REQUIRE(publish(home, exported.at, 64));
    for (const char* name : {"first", "second"}) {
      Process& peer = cluster.spawn(name);
      CHECK(load(peer, import_segment(peer, exported).at).value == 64);
    }
  }

  TEST_CASE("a_token_for_a_node_serves_that_node") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    Export exported = export_segment(home);
    exported.token = tok_new_for(home, exported.seg, node_address(peer), kAllRights);
    REQUIRE(exported.token.ok());
    REQUIRE(publish(home, exported.at, 65));
    CHECK(load(peer, import_segment(peer, exported).at).value == 65);
    // The address names the node: another process of it, with its own import, may use it too.
    Process& second = cluster.spawn("peer");
    CHECK(load(second, import_segment(second, exported).at).value == 65);
  }

  TEST_CASE("a_second_token_for_one_node_is_bound") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    const Flat peer = node_address(cluster.spawn("peer"));
    const Flat other = node_address(cluster.spawn("other"));
    const Export exported = export_segment(home);
    REQUIRE(tok_new_for(home, exported.seg, peer, CMI_ACC_READ).ok());
    const Flat second = tok_new_for(home, exported.seg, peer, CMI_ACC_READ | CMI_ACC_WRITE);
    CHECK_FALSE(second.ok());
    CHECK(second.error == CMI_ERR_BOUND);
    CHECK(tok_new_for(home, exported.seg, other, CMI_ACC_READ).ok());
    CHECK(tok_new_for(home, export_segment(home).seg, peer, CMI_ACC_READ).ok());
  }

  TEST_CASE("a_node_gets_a_new_token_after_tok_del") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Flat address = node_address(peer);
    Export exported = export_segment(home);
    const Flat first = tok_new_for(home, exported.seg, address, kAllRights);
    REQUIRE(first.ok());
    REQUIRE(tok_del(home, first).ok());
    exported.token = tok_new_for(home, exported.seg, address, kAllRights);
    REQUIRE(exported.token.ok());
    REQUIRE(publish(home, exported.at, 66));
    CHECK(load(peer, import_segment(peer, exported).at).value == 66);
  }

  TEST_CASE("tok_new_by_another_process_is_perm") {
    Cluster cluster;
    Process& maker = cluster.spawn("node");
    Process& other = cluster.spawn("node");
    const Answer seg = seg_get(maker, kPage);
    const Flat token = tok_new(other, seg.seg(), CMI_ACC_READ);
    CHECK_FALSE(token.ok());
    CHECK(token.error == CMI_ERR_PERM);
  }

  TEST_CASE("tok_del_by_another_process_is_perm") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& second = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    CHECK(tok_del(second, exported.token).failed(CMI_ERR_PERM));
    CHECK(tok_del(peer, exported.token).failed(CMI_ERR_PERM));
    CHECK(load(peer, import_segment(peer, exported).at).cause() == Fault::kNone);
  }

  TEST_CASE("tok_new_before_seg_exp_succeeds") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    Export exported;
    exported.seg = seg_get(home, kPage).seg();
    exported.token = tok_new(home, exported.seg, kAllRights);
    REQUIRE(exported.token.ok());
    exported.handle = seg_exp(home, exported.seg);
    REQUIRE(exported.handle.ok());
    CHECK(load(peer, import_segment(peer, exported).at).cause() == Fault::kNone);
  }
}

}  // namespace

}  // namespace cmi::test::tokens_nodes_test
