// The tables of a home: segments by id and uid, sharers of a segment, its tokens, and ends that
// wait for importers.
#include <doctest/doctest.h>

#include "core/memory/home/segment_table.hpp"
#include "core/memory/home/unfinished_ends.hpp"

namespace cmi::test::home_tables_test {
using namespace cmi::memory;

namespace {
SegmentFacts facts(int32_t id, uint64_t uid) {
  SegmentFacts f;
  f.id = id;
  f.uid = uid;
  f.size = 4 * kPageSize;
  f.owned = uid != 0;
  return f;
}
SharerId importer(uint64_t client, uint32_t instance) {
  return {ContextId{client, client}, NodeId{}, instance, false};
}
Token token(uint64_t id, uint64_t secret, bool any_node, NodeId node = {}) {
  Token t;
  t.info.id = id;
  t.info.secret = secret;
  t.info.any_node = any_node;
  t.info.node = node;
  return t;
}
}  // namespace

TEST_CASE("segments_are_found_by_id_and_those_of_this_process_by_uid") {
  SegmentTable table;
  const SegmentPtr own = table.add(facts(1, 100));
  const SegmentPtr attached = table.add(facts(2, 0));
  CHECK(table.find(1) == own);
  CHECK(table.find_uid(100) == own);
  CHECK(table.find_owned(1) == own);
  CHECK(table.find(2) == attached);
  CHECK(table.find_owned(2) == nullptr);
  CHECK(table.find_uid(0) == nullptr);
  CHECK(table.find(3) == nullptr);
  CHECK(table.find_uid(101) == nullptr);
}

TEST_CASE("a_segment_that_takes_the_id_of_another_is_not_found_under_its_uid") {
  SegmentTable table;
  table.add(facts(1, 100))->exported.any = true;
  CHECK(table.exports() == 1);
  const SegmentPtr next = table.add(facts(1, 200));
  CHECK(table.find_uid(100) == nullptr);
  CHECK(table.find_uid(200) == next);
  CHECK(table.exports() == 0);
  table.erase(1);
  table.erase(1);
  CHECK(table.find(1) == nullptr);
  CHECK(table.find_uid(200) == nullptr);
}

TEST_CASE("exports_and_tokens_are_counted_over_all_segments") {
  SegmentTable table;
  table.add(facts(1, 100))->exported.any = true;
  const SegmentPtr removed = table.add(facts(2, 200));
  removed->exported.any = removed->removed = true;
  table.find(1)->tokens.add(token(1, 1, true));
  table.find(2)->tokens.add(token(2, 2, true));
  CHECK(table.exports() == 1);
  CHECK(table.tokens() == 2);
}

TEST_CASE("sharers_are_found_by_client_and_instance_also_after_others_have_gone") {
  SharerTable table;
  for (uint32_t i = 1; i <= 10; ++i) REQUIRE(table.add(importer(i % 3, i)) != nullptr);
  CHECK(table.size() == 10);
  REQUIRE(table.find(ContextId{1, 1}, 4) != nullptr);
  CHECK(table.find(ContextId{1, 1}, 4)->instance == 4);
  CHECK(table.find(ContextId{1, 1}, 5) == nullptr);
  table.erase_if([](const Sharer& h) { return h.client == ContextId{1, 1}; });
  CHECK(table.find(ContextId{1, 1}, 4) == nullptr);
  for (uint32_t i = 1; i <= 10; ++i) {
    const Sharer* const h = table.find(ContextId{i % 3, i % 3}, i);
    CHECK((h != nullptr) == (i % 3 != 1));
    if (h != nullptr) CHECK(h->instance == i);
  }
  uint32_t last = 0;
  for (const Sharer& h : table) {  // in the order in which they came
    CHECK(h.instance > last);
    last = h.instance;
  }
  table.clear();
  CHECK(table.size() == 0);
  CHECK(table.find(ContextId{2, 2}, 2) == nullptr);
}

TEST_CASE("a_segment_has_so_many_sharers_and_no_more") {
  SharerTable table;
  for (uint32_t i = 1; i <= kMaxSharers; ++i) REQUIRE(table.add(importer(7, i)) != nullptr);
  CHECK(table.add(importer(7, kMaxSharers + 1)) == nullptr);
  CHECK(table.find(ContextId{7, 7}, kMaxSharers + 1) == nullptr);
  table.erase_if([](const Sharer& h) { return h.instance == 1; });
  CHECK(table.add(importer(7, kMaxSharers + 1)) != nullptr);
}

TEST_CASE("a_sharer_loads_until_it_has_heard_that_its_token_is_revoked") {
  Segment s;
  Sharer* const h = s.sharers.add(importer(1, 1));
  REQUIRE(h != nullptr);
  CHECK(!s.shared());
  h->token = 5;
  CHECK(s.shared());
  h->token = 0;
  h->unacknowledged_revocations = 1;
  CHECK(s.shared());
  h->unacknowledged_revocations = 0;
  CHECK(!s.shared());
  h->token = 5;
  h->write_through = true;
  CHECK(!s.shared());
  h->write_through = false;
  s.removed = true;
  CHECK(!s.shared());
}

TEST_CASE("a_token_is_in_force_with_its_secret_until_it_is_revoked") {
  TokenTable table;
  CHECK(!table.ever());
  table.add(token(1, 11, true));
  CHECK(table.in_force(1, 11) != nullptr);
  CHECK(table.in_force(1, 12) == nullptr);
  CHECK(table.in_force(2, 11) == nullptr);
  table.in_force(1, 11)->revoked = true;
  CHECK(table.in_force(1, 11) == nullptr);
  CHECK(table.size() == 1);  // its key is open still
  table.erase(1);
  CHECK(table.size() == 0);
  CHECK(table.ever());
}

TEST_CASE("a_node_has_a_token_of_its_own_beside_those_for_any_node") {
  TokenTable table;
  const NodeId node{3, 3};
  table.add(token(1, 1, true, node));
  CHECK(!table.has_for(node));
  table.add(token(2, 2, false, node));
  CHECK(table.has_for(node));
  CHECK(!table.has_for(NodeId{4, 4}));
  CHECK(!table.full());
}

TEST_CASE("an_end_is_waited_for_once_more_until_its_round_is_over") {
  UnfinishedEnds ends;
  const RoundPtr first = begin_round(), second = begin_round();
  ends.add(1, first);
  ends.add(2, second);
  CHECK(ends.find(1) == first);
  CHECK(ends.find(2) == second);
  CHECK(ends.find(3) == nullptr);
  first->done.complete(fabric::Cause::kOk);
  ends.add(3, begin_round());  // what is over makes room
  CHECK(ends.find(1) == nullptr);
  CHECK(ends.find(2) == second);
  CHECK(ends.find(3) != nullptr);
}

}  // namespace cmi::test::home_tables_test
