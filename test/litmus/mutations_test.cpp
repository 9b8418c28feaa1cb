// The protocol broken on purpose, one rule at a time: a litmus test shows a forbidden outcome under
// each mutation, and none without it. doc/design/mutations.md lists them.
#include <doctest/doctest.h>

#include "litmus/lab.hpp"

namespace cmi::test::mutations_test {

namespace {

struct Experiment {
  std::string mutation;
  int nodes = 2;
  int home = 0;
  Program program;
  Predicate forbidden;
  std::string delays = "";  // fault points that make the race likely, in both runs
  int delayed = -1;         // at which node; -1: all
  uint32_t rounds = 7500;   // at most: on a busy machine races are rare
};

// Without the mutation the outcome is never seen, with it it is.
void check(const Experiment& e) {
  {
    Lab sound({e.nodes, {e.home}}, e.delays, e.delayed);
    const Histogram seen = sound.run(e.program, 100);
    CHECK_MESSAGE(seen.count(e.forbidden) == 0, e.mutation, ", without it:", seen);
  }
  const std::string faults = e.mutation + "=fail" + (e.delays.empty() ? "" : ";" + e.delays);
  Lab broken({e.nodes, {e.home}}, faults, e.delayed);
  const Histogram seen = broken.run(e.program, e.rounds, e.forbidden);
  CHECK_MESSAGE(seen.count(e.forbidden) > 0, e.mutation, ", not seen:", seen);
}

Program on_one_page(Program p) {
  p.one_page = true;
  return p;
}

// One page for all rounds, and no other is touched.
Program alone(Program p) {
  p.one_page = p.again = p.calm = true;
  return p;
}

// The same with a page for each variable.
Program apart(Program p) {
  p.again = p.calm = true;
  return p;
}

// Node 1 has lost its page and fetches it while node 0 stores to it again; it loads once more
// when the barrier is over.
const Program kFetchedMeanwhile =
    on_one_page(program({{0, {st(Y, 1), wmb(), post(), st(X, 1), wmb(), post()}},
                         {1, {wait(1), ld(X, 0), wait(2), ld(X, 1)}}}));
const Predicate kStillOld = [](const Outcome& o) { return o[1] == 0; };

TEST_SUITE("mutations") {
  // ---- Fetching ---------------------------------------------------------------------------

  TEST_CASE("a_stale_page_that_is_delivered_is_seen") {
    check({"mutate_stale_ignored", 2, 0, kFetchedMeanwhile, kStillOld,
           "fetch_before_deliver=delay:500"});
  }
  TEST_CASE("a_fetching_page_that_an_invalidation_forgets_is_seen") {
    check({"mutate_fetching_forgotten", 2, 0, kFetchedMeanwhile, kStillOld,
           "fetch_before_deliver=delay:500"});
  }
  TEST_CASE("a_page_that_is_mapped_outside_its_lock_is_seen") {
    check({"mutate_map_outside_lock", 2, 0, kFetchedMeanwhile, kStillOld,
           "mutation_window=delay:1000"});
  }
  TEST_CASE("a_page_that_is_mapped_before_it_is_known_not_to_be_stale_is_seen") {
    check({"mutate_stale_checked_late", 2, 0,
           on_one_page(program({{0, {st(Y, 1), wmb(), post(), st(X, 1), wmb(), post()}},
                                {1, {wait(1), ld(X, 0)}},
                                {1, {wait(2), ld(X, 1)}}})),
           kStillOld, "fetch_before_deliver=delay:100;mutation_window=delay:3000"});
  }

  // The second fetch comes over what has been stored since the first.
  TEST_CASE("a_page_that_two_threads_fetch_loses_a_store") {
    check({"mutate_fetched_twice", 2, 0,
           on_one_page(program({{0, {st(Z, 1), wmb(), post(), wait(3), ld(X, 0)}},
                                {1, {wait(1), st(X, 1), wmb(), ld(X, 1), post()}},
                                {1, {wait(1), ld(Y, 2), post()}}})),
           [](const Outcome& o) { return o[0] != 1 || o[1] != 1; }, "fetch_before_read=delay:300"});
  }

  // ---- Storing and writing back -----------------------------------------------------------

  TEST_CASE("a_twin_that_is_taken_too_late_loses_a_store") {
    check({"mutate_twin_late", 2, 0,
           on_one_page(program({{1, {st(X, 1), wmb(), post()}},
                                {1, {st(Y, 1), wmb(), post()}},
                                {0, {wait(2), ld(X, 0), ld(Y, 1)}}})),
           [](const Outcome& o) { return o[0] == 0 || o[1] == 0; }, "mutation_window=delay:200"});
  }
  TEST_CASE("a_write_back_without_protection_loses_a_store") {
    check({"mutate_protect_missing", 2, 0,
           program({{1, {st(X, 1), wmb(), st(X, 2), wmb(), post()}}, {0, {wait(1), ld(X, 0)}}}),
           [](const Outcome& o) { return o[0] != 2; }});
  }
  TEST_CASE("a_page_that_is_protected_after_its_diff_loses_a_store") {
    check({"mutate_protect_late", 2, 0,
           program(
               {{1, {st(X, 1), st(X, 2), wmb(), post()}}, {1, {wmb()}}, {0, {wait(1), ld(X, 0)}}}),
           [](const Outcome& o) { return o[0] != 2; }, "mutation_window=delay:300"});
  }
  // Where one thread alone has access, pages are protected when their changes have left. A page
  // whose twin is not what has left would go once more.
  TEST_CASE("a_twin_that_is_not_what_was_sent_undoes_the_stores_of_others") {
    check({"mutate_sent_twin_kept", 3, 0,
           program({{1, {st(X, 1), wmb(), post()}},
                    {2, {wait(1), st(X, 5), wmb(), post()}},
                    {0, {wait(2), pause(), ld(X, 0)}}}),
           [](const Outcome& o) { return o[0] != 5; }});
  }
  // Should anybody store meanwhile after all, that stays, with a delay between the two and another
  // thread that is not counted.
  TEST_CASE("a_store_between_sending_and_protecting_is_lost_when_nobody_looks_for_it") {
    check({"mutate_sent_not_compared", 2, 0,
           program({{1, {st(X, 1), post(), churn(X, 1), st(X, 5), wmb(), post()}},
                    {1, {wait(1), wmb(), wmb(), wmb(), wmb()}},
                    {0, {wait(2), ld(X, 0)}}}),
           [](const Outcome& o) { return o[0] != 5; },
           "mutate_taken_for_exclusive=fail;sent_before_protect=delay:200"});
  }
  TEST_CASE("a_store_between_comparing_and_renewing_the_twin_is_lost_when_the_page_is_read_again") {
    check({"mutate_sent_read_again", 2, 0,
           program({{1, {st(X, 1), post(), churn(X, 1), st(X, 5), wmb(), post()}},
                    {1, {wait(1), wmb(), wmb(), wmb(), wmb()}},
                    {0, {wait(2), ld(X, 0)}}}),
           [](const Outcome& o) { return o[0] != 5; },
           "mutate_taken_for_exclusive=fail;mutation_window=delay:200"});
  }
  // The third barrier finds a page that has stayed writable since the second store.
  TEST_CASE("a_hot_page_whose_twin_is_kept_undoes_the_stores_of_others") {
    check({"mutate_hot_twin_kept", 3, 0,
           program({{1, {st(X, 1), wmb(), st(X, 2), wmb(), st(X, 3), wmb(), post()}},
                    {2, {wait(1), st(X, 5), wmb(), post()}},
                    {0, {wait(2), pause(), ld(X, 0)}}}),
           [](const Outcome& o) { return o[0] != 5; }});
  }
  TEST_CASE("a_store_behind_the_comparison_of_a_hot_page_is_lost_when_the_page_is_read_again") {
    check(
        {"mutate_hot_twin_read_again", 2, 0,
         program(
             {{1, {st(X, 1), wmb(), st(X, 2), wmb(), post(), churn(X, 1), st(X, 5), wmb(), post()}},
              {1, {wait(1), wmb(), wmb(), wmb(), wmb()}},
              {0, {wait(2), ld(X, 0)}}}),
         [](const Outcome& o) { return o[0] != 5; }, "mutation_window=delay:200"});
  }
  // The second thread stores while the first one's comparison is on its way already.
  TEST_CASE("a_barrier_that_trusts_an_earlier_comparison_of_a_hot_page_loses_a_store") {
    check({"mutate_hot_earlier_trusted", 2, 0,
           on_one_page(program({{1, {st(X, 1), wmb(), st(X, 2), wmb(), st(X, 3), post(), wmb()}},
                                {1, {wait(1), pause(), st(Y, 1), wmb(), post()}},
                                {0, {wait(2), ld(Y, 0)}}})),
           [](const Outcome& o) { return o[0] != 1; }, "publish_before_send=delay:500"});
  }
  TEST_CASE("a_page_that_is_protected_before_it_is_locked_loses_a_store") {
    check({"mutate_protect_unlocked", 2, 0,
           program({{1, {st(X, 1), post(), churn(X, 1), st(X, 5), wmb(), post()}},
                    {1, {wait(1), wmb(), wmb(), wmb(), wmb()}},
                    {0, {wait(2), ld(X, 0)}}}),
           [](const Outcome& o) { return o[0] != 5; }, "mutation_window=delay:100"});
  }
  TEST_CASE("a_write_back_of_what_the_page_holds_by_then_loses_a_store") {
    check({"mutate_live_bytes", 2, 0,
           program({{1, {st(X, 1), post(), churn(X, 1), wmb(), post()}},
                    {1, {wait(1), wmb(), wmb(), wmb(), wmb()}},
                    {0, {wait(2), ld(X, 0)}}}),
           [](const Outcome& o) { return o[0] != 1; }, "publish_before_send=delay:400"});
  }
  // Nobody waits for what is on its way, so that an old page is fetched before it has arrived.
  TEST_CASE("a_page_that_is_clean_while_its_write_back_is_out_undoes_a_store") {
    check({"mutate_clean_when_sent", 2, 0,
           on_one_page(program({{0, {wait(1), st(X, 1), wmb()}},
                                {1, {st(Y, 1), post(), wmb()}},
                                {1, {wait(1), watch(Y, 1, 1)}}})),
           [](const Outcome& o) { return o[1] == 1; }, "publish_before_send=delay:300"});
  }
  TEST_CASE("a_store_to_a_page_whose_write_back_is_out_is_lost_when_it_stays_in_writing") {
    check({"mutate_writing_stored_to", 2, 0,
           program({{1, {st(X, 1), post(), churn(X, 1), st(X, 5), wmb(), post()}},
                    {1, {wait(1), wmb(), wmb(), wmb(), wmb()}},
                    {0, {wait(2), ld(X, 0)}}}),
           [](const Outcome& o) { return o[0] != 5; }, "publish_before_send=delay:400"});
  }
  TEST_CASE("bytes_that_did_not_change_undo_the_stores_of_others") {
    check({"mutate_gaps_merged", 3, 0,
           on_one_page(program({{1, {st(X, 1), wmb(), post()}},
                                {2, {st(Y, 1), wmb(), post()}},
                                {0, {wait(2), ld(X, 0), ld(Y, 1)}}})),
           [](const Outcome& o) { return o[0] == 0 || o[1] == 0; }});
  }
  TEST_CASE("a_barrier_that_leaves_another_threads_write_back_alone_is_seen") {
    check({"mutate_write_back_not_awaited", 3, 0,
           program({{1, {st(X, 1), wmb()}},
                    {1, {await(X, 1, 0), wmb(), post()}},
                    {2, {wait(1), ld(X, 1)}}}),
           kStillOld, "publish_before_send=delay:300;never_hot=fail"});
  }
  TEST_CASE("a_barrier_that_does_not_wait_for_the_answer_is_seen") {
    check({"mutate_answer_not_awaited", 3, 0,
           program({{1, {st(X, 1), wmb(), post()}}, {2, {wait(1), ld(X, 1)}}}), kStillOld});
  }

  // ---- The directory ----------------------------------------------------------------------

  // Node 1 has no page of the region, and has let go of it: told of Y = 1 it dropped the only one,
  // told of Y = 2 it had none.
  TEST_CASE("a_page_that_is_fetched_before_its_home_knows_is_seen") {
    check({"mutate_acquire_late", 2, 0,
           alone(program(
               {{0, {st(Y, 1), wmb(), st(Y, 2), wmb(), post(), pause(), st(X, 1), wmb(), post()}},
                {1, {wait(1), ld(X, 0), wait(2), ld(X, 1)}}})),
           kStillOld, "mutation_window=delay:1000"});
  }
  TEST_CASE("a_region_that_is_released_while_a_page_of_it_is_cached_is_seen") {
    check({"mutate_release_early", 2, 0,
           alone(program({{0, {wait(1), st(X, 1), wmb(), post()}},
                          {1, {ld(X, 0), post(), wait(2), ld(X, 1)}}})),
           kStillOld});
  }
  // Node 1 comes back to the region while the answer that lets go of it is on its way.
  TEST_CASE("a_region_that_is_released_by_an_old_answer_is_seen") {
    check({"mutate_release_any_epoch", 2, 0,
           alone(program({{0, {st(Y, 1), wmb(), post(), st(X, 1), wmb(), st(X, 2), wmb(), post()}},
                          {1, {wait(1), pause(), ld(X, 0), wait(2), ld(X, 1)}}})),
           [](const Outcome& o) { return o[1] != 2; }, "invalidate_before_ack=delay:3000"});
  }

  // Node 1 has other pages of the region, and releases that of X with the notification of X = 1.
  TEST_CASE("a_released_page_that_is_read_before_its_home_knows_is_seen") {
    check({"mutate_released_read", 2, 0,
           apart(program({{0, {wait(1), st(X, 1), wmb(), post(), wait(3), st(X, 2), wmb(), post()}},
                          {1, {post(), wait(2), ld(X, 0), post(), wait(4), ld(X, 1)}}})),
           [](const Outcome& o) { return o[0] != 1 || o[1] != 2; }, "never_subscribe=fail"});
  }
  // Node 1 fetches the page while the answer that releases it is on its way.
  TEST_CASE("a_page_that_is_released_by_an_old_answer_is_seen") {
    check({"mutate_release_any_number", 2, 0,
           apart(program({{0, {wait(1), st(X, 1), post(), wmb(), st(X, 2), wmb(), post()}},
                          {1, {post(), wait(2), pause(), ld(X, 0), wait(3), ld(X, 1)}}})),
           [](const Outcome& o) { return o[1] != 2; },
           "invalidate_before_ack=delay:3000;never_subscribe=fail"});
  }
  // Node 1 has stored to the page of X when the notification of X = 1 releases it.
  TEST_CASE("a_page_that_is_released_with_its_stores_and_read_unmarked_is_seen") {
    check({"mutate_zapped_not_released", 2, 0,
           on_one_page(
               program({{0, {wait(1), st(X, 1), wmb(), post(), wait(3), st(X, 2), wmb(), post()}},
                        {1, {st(Y, 1), post(), wait(2), ld(X, 0), post(), wait(4), ld(X, 1)}}})),
           [](const Outcome& o) { return o[0] != 1 || o[1] != 2; },
           "never_hot=fail;never_subscribe=fail;no_aging=fail"});
  }

  // ---- Invalidating -----------------------------------------------------------------------

  TEST_CASE("an_invalidated_dirty_page_that_is_kept_is_seen") {
    check({"mutate_dirty_kept", 2, 0,
           on_one_page(program({{0, {wait(1), st(X, 1), wmb(), post()}},
                                {1, {st(Y, 1), post(), wait(2), ld(X, 1)}}})),
           kStillOld});
  }
  TEST_CASE("an_invalidated_dirty_page_that_is_dropped_loses_a_store") {
    check({"mutate_dirty_dropped", 2, 0,
           on_one_page(program({{0, {wait(1), st(X, 1), wmb(), post(), wait(3), ld(Y, 1)}},
                                {1, {st(Y, 1), post(), wait(2), wmb(), post()}}})),
           kStillOld});
  }
  TEST_CASE("a_fault_that_does_not_wait_for_the_write_back_undoes_a_store") {
    check({"mutate_refetch_before_delivery", 2, 0,
           on_one_page(
               program({{0, {wait(1), st(X, 1), wmb()}}, {1, {st(Y, 1), post(), watch(Y, 1, 1)}}})),
           [](const Outcome& o) { return o[1] == 1; }, "publish_before_send=delay:300"});
  }
  TEST_CASE("an_invalidation_that_is_answered_before_the_page_is_gone_is_seen") {
    check({"mutate_answer_before_zap", 2, 0,
           program({{0, {st(X, 1), wmb(), post()}}, {1, {ld(X, 0), wait(1), ld(X, 1)}}}), kStillOld,
           "invalidate_before_zap=delay:1000"});
  }

  // ---- At home ----------------------------------------------------------------------------

  TEST_CASE("a_publication_before_its_data_is_seen") {
    check({"mutate_publish_before_data", 4, 0,
           program({{1, {st(X, 1), wmb(), post()}},
                    {2, {watch(X, 0, 0), wait(1), ld(X, 1)}},
                    {3, {watch(X, 0, 2)}}}),
           kStillOld});
  }
  // A sharer that takes its time over the notification, of a store of an importer and of one at
  // home.
  TEST_CASE("a_barrier_that_is_over_before_all_holders_have_answered_is_seen") {
    const std::string late = "invalidate_before_zap=delay:1000;update_before_apply=delay:1000";
    check({"mutate_acks_not_awaited", 3, 0,
           program({{1, {st(X, 1), wmb(), post()}}, {2, {ld(X, 0), wait(1), ld(X, 1)}}}), kStillOld,
           late});
    check({"mutate_acks_not_awaited", 2, 0,
           program({{0, {st(X, 1), wmb(), post()}}, {1, {ld(X, 0), wait(1), ld(X, 1)}}}), kStillOld,
           late});
  }
  // The scan does not find what comes through a service view.
  TEST_CASE("diffs_that_who_applies_them_does_not_publish_are_missed") {
    check({"mutate_diffs_unpublished", 3, 0,
           program({{1, {st(X, 1), wmb(), post()}}, {2, {ld(X, 0), wait(1), ld(X, 1)}}}),
           kStillOld});
  }
  TEST_CASE("a_scan_outside_the_lock_is_seen") {
    check({"mutate_scan_unlocked", 2, 0,
           program({{0, {st(X, 1), wmb(), post()}},
                    {0, {wmb(), wmb()}},
                    {1, {ld(X, 0), wait(1), ld(X, 1)}}}),
           kStillOld, "mutation_window=delay:1000"});
  }

  // ---- Swaps ------------------------------------------------------------------------------

  // What is stored before a swap travels in its request.
  TEST_CASE("a_swap_that_is_made_before_the_stores_in_its_message_are_published_is_seen") {
    check({"mutate_swap_before_complete", 3, 0,
           program({{1, {wait(1), st(X, 1), cas(Y, 0, 1)}},
                    {2, {ld(X, 2), post(), pause(), await(Y, 1, 0), ld(X, 1)}}}),
           [](const Outcome& o) { return o[0] == 1 && o[1] == 0; },
           "invalidate_before_zap=delay:3000"});
  }
  TEST_CASE("a_swap_that_is_not_published_is_seen") {
    check({"mutate_cas_unpublished", 3, 0,
           program({{1, {cas(X, 0, 1), post()}}, {2, {ld(X, 0), wait(1), ld(X, 1)}}}), kStillOld});
  }
  TEST_CASE("a_swap_at_home_that_is_not_published_is_seen") {
    check({"mutate_home_cas_unpublished", 2, 0,
           program({{0, {cas(X, 0, 1), post()}}, {1, {ld(X, 0), wait(1), ld(X, 1)}}}), kStillOld});
  }
  TEST_CASE("a_swap_that_its_own_cache_does_not_hear_of_is_seen") {
    check({"mutate_cas_unpatched", 2, 0, program({{1, {ld(X, 0), cas(X, 0, 1), ld(X, 1)}}}),
           kStillOld});
  }
  TEST_CASE("a_swap_that_the_twin_does_not_hear_of_undoes_a_later_one") {
    check({"mutate_cas_twin_kept", 2, 0,
           on_one_page(program({{1, {post(), cas(X, 0, 1), post()}},
                                {1, {wait(1), churn(Y, 1), wmb(), post()}},
                                {0, {await(X, 1, 1), cas(X, 1, 2), wait(3), ld(X, 0)}}})),
           // Where the first swap was not seen in time, the second did nothing.
           [](const Outcome& o) { return o[1] == 1 && o[0] != 2; }});
  }
  TEST_CASE("a_swap_that_is_patched_into_a_newer_page_undoes_a_later_one") {
    check({"mutate_cas_any_generation", 2, 0,
           program({{1, {ld(X, 2), cas(X, 0, 1), post()}},
                    {0, {await(X, 1, 3), cas(X, 1, 2)}},
                    {1, {await(X, 2, 0), wait(1), ld(X, 1)}}}),
           [](const Outcome& o) { return o[0] == 2 && o[1] != 2; }, "cas_before_patch=delay:3000",
           1});
  }
}

#ifndef CMI_TEST_SIMULATED
// What a context does itself, which simulated nodes do without.
TEST_SUITE("contexts") {
  // What a barrier must send, another node loads when it is over.
  TEST_CASE("a_flush_epoch_that_is_not_flushed_is_seen") {
    for (const Step flush : {flush_fb(), close_fb()}) {
      check({"mutate_epoch_not_flushed", 2, 0,
             program({{1, {st(X, 1), flush, post()}}, {0, {wait(1), ld(X, 1)}}}), kStillOld});
    }
  }
  TEST_CASE("a_cflush_that_sends_nothing_is_seen") {
    check({"mutate_cflush_sends_nothing", 2, 0,
           program({{1, {st(X, 1), cflush(X), post()}}, {0, {wait(1), ld(X, 1)}}}), kStillOld});
    check({"mutate_cflush_sends_nothing", 2, 0,
           program({{0, {st(X, 1), cflush(X), post()}}, {1, {ld(X, 0), wait(1), ld(X, 1)}}}),
           kStillOld});
  }

  // Message passing: who sees the swap, by a load or by a swap of his own, sees what was stored
  // before it.
  TEST_CASE("a_swap_that_overtakes_the_stores_before_it_is_seen") {
    const Predicate overtaken = [](const Outcome& o) { return o[0] == 1 && o[1] == 0; };
    const Thread released(1, {st(X, 1), cas(Y, 0, 1)});
    check({"mutate_swap_without_barrier", 2, 0,
           program({released, {0, {await(Y, 1, 0), ld(X, 1)}}}), overtaken});
    check({"mutate_swap_without_barrier", 3, 0,
           program({released, {2, {ld(X, 2), await(Y, 1, 0), ld(X, 1)}}}), overtaken});
    check({"mutate_swap_without_barrier", 3, 0,
           program({released, {2, {ld(X, 2), pause(), cas(Y, 1, 2, 0), ld(X, 1)}}}), overtaken});
    check({"mutate_swap_without_barrier", 2, 0,
           program({{0, {st(X, 1), cas(Y, 0, 1)}}, {1, {ld(X, 2), await(Y, 1, 0), ld(X, 1)}}}),
           overtaken});
  }
}
#endif

}  // namespace

}  // namespace cmi::test::mutations_test
