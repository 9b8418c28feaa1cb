// What the table of examples/02-wordcount costs its nodes, counted on simulated nodes: one exchange
// for each leaf that is linked, and each page that others have made is fetched once. Stores that
// several nodes make to the same pages, or barriers beside the swaps, would show here.
#include <doctest/doctest.h>

#include <stdexcept>
#include <string>

#include "examples/02-wordcount/table.hpp"
#include "system/calls.hpp"

// In place of the example's own: the test attaches the segment, and a failure is its own.
namespace wordcount {

// A barrier shows among the stores, which a table has fewer of.
constexpr uint64_t kBarrier = uint64_t{1} << 32;

void give_up(std::string_view what) { throw std::runtime_error(std::string(what)); }
void give_up_for_loss(std::string_view what) { give_up(what); }

// `where`: the address of the process's view.
SharedMemory SharedMemory::find(const std::string& where, size_t size) {
  SharedMemory memory;
  memory.context_ = cmi::test::ctxt();
  memory.view_ = reinterpret_cast<char*>(std::stoull(where));
  memory.size_ = size;
  return memory;
}
void SharedMemory::close() {}
void SharedMemory::check(bool worked, const char* call) const {
  if (!worked) fail("{} failed with error {}", call, static_cast<int>(cmi_get_error(context_)));
}
bool SharedMemory::compare_and_swap(Offset at, uint64_t& expected, uint64_t desired) {
  uint64_t found = 0;
  check(CMIFN(context_, 10, atm_cas)(context_, place<uint64_t>(at, 1), expected, desired, &found) ==
            0,
        "atm_cas");
  swaps_++;
  if (found == expected) return true;
  expected = found;
  return false;
}
void SharedMemory::publish() {
  check(CMIFN(context_, 10, wmb_fn)(context_) == 0, "cmi_wmb");
  stores_ += kBarrier;
}

}  // namespace wordcount

namespace cmi::test::wordcount_test {

namespace {

using wordcount::Batch;
using wordcount::SharedMemory;
using wordcount::SharedTable;

constexpr unsigned kNodes = 4, kBatches = 2;
constexpr size_t kWords = 4000;  // of a batch; all nodes have the first half of them
constexpr size_t kBuckets = 64;

// Each word as often as its number says.
Batch batch_of(unsigned node, unsigned number) {
  Batch batch;
  for (size_t i = 0; i < kWords; ++i) {
    const bool common = i < kWords / 2;
    const std::string word = common ? "common_" + std::to_string(number) + "_" + std::to_string(i)
                                    : "own_" + std::to_string(node) + "_" + std::to_string(number) +
                                          "_" + std::to_string(i);
    batch.emplace(word, static_cast<uint32_t>(1 + i % 7));
  }
  return batch;
}

wordcount::Plan plan() {
  wordcount::Plan plan;
  plan.chunks.push_back({{"text", 0, 1}});
  plan.bytes = 4 * 1024 * 1024;
  return plan;
}

struct Counts {
  uint64_t publications, barriers, swaps, misses, notifications;
};

// One node merges its batches. What its process has counted meanwhile.
Counts merge_all(uint64_t view, uint64_t size, unsigned node) {
  SharedMemory memory = SharedMemory::find(std::to_string(view), size);
  SharedTable table(memory, node);
  const cmi_ofi_stats before = stats();
  for (unsigned number = 0; number < kBatches; ++number) {
    table.merge(batch_of(node, number), [] {});
    memory.publish();
  }
  const cmi_ofi_stats now = stats();
  return {now.publications - before.publications, memory.stores() / wordcount::kBarrier,
          memory.swaps(),
          now.load_misses + now.store_misses - before.load_misses - before.store_misses,
          now.invalidations_received - before.invalidations_received};
}

// Words whose count is not what it has to be, and those that are missing.
size_t wrong_counts(uint64_t view, uint64_t size) {
  SharedMemory memory = SharedMemory::find(std::to_string(view), size);
  SharedTable table(memory, 1);
  std::unordered_map<std::string, uint64_t> right;
  for (unsigned node = 1; node <= kNodes; ++node) {
    for (unsigned number = 0; number < kBatches; ++number) {
      for (const auto& [word, count] : batch_of(node, number)) right[word] += count;
    }
  }
  size_t wrong = 0;
  table.for_each([&](std::string_view word, uint64_t count) {
    const auto at = right.find(std::string(word));
    wrong += at != right.end() && at->second == count ? 0 : 1;
    if (at != right.end()) right.erase(at);
  });
  return wrong + right.size();
}

}  // namespace

TEST_SUITE("wordcount") {
  TEST_CASE("nodes_that_share_a_table_of_words_pay_one_exchange_for_each_leaf_that_they_link") {
    const size_t size = SharedTable::segment_size(plan(), kNodes);
    Cluster cluster;
    Process& home = cluster.spawn("home");
    const Export exported = export_segment(home, size);
    home.run(
        [](uint64_t view, uint64_t bytes) {
          SharedMemory memory = SharedMemory::find(std::to_string(view), bytes);
          SharedTable::create(memory, plan(), kNodes);
        },
        exported.at, size);
    std::vector<Process*> nodes{&home};
    std::vector<uint64_t> views{exported.at};
    for (unsigned node = 2; node <= kNodes; ++node) {
      nodes.push_back(&cluster.spawn("node" + std::to_string(node)));
      views.push_back(import_segment(*nodes.back(), exported).at);
    }
    std::vector<Pending<Counts>> merging;
    for (unsigned node = 1; node <= kNodes; ++node) {
      merging.push_back(nodes[node - 1]->start(
          [](uint64_t view, uint64_t bytes, unsigned n) { return merge_all(view, bytes, n); },
          views[node - 1], size, node));
    }
    Counts sum{};
    for (Pending<Counts>& pending : merging) {
      const Counts counts = pending.get();
      CHECK(counts.barriers == kBatches);
      if (counts.publications == 0) continue;  // the home
      sum.publications += counts.publications;
      sum.swaps += counts.swaps;
      sum.misses += counts.misses;
      sum.notifications += counts.notifications;
    }
    constexpr uint64_t kImporters = kNodes - 1, kLinks = kImporters * kBatches * kBuckets;
    CAPTURE(sum.misses);
    CAPTURE(sum.notifications);
    CHECK(sum.swaps >= kLinks);
    CHECK(sum.swaps <= kLinks * 5 / 4);
    // The swap takes the leaf along; a batch's counts go at its end.
    CHECK(sum.publications <= sum.swaps + kImporters * kBatches);
    // One for the bucket, and pages of leaves that others have linked, which are read ahead.
    CHECK(sum.misses <= kLinks * 3 / 2);
    // Of the others' leaves and swaps.
    CHECK(sum.notifications <= kLinks * kImporters);
    const size_t wrong = home.run(
        [](uint64_t view, uint64_t bytes) { return wrong_counts(view, bytes); }, exported.at, size);
    CHECK(wrong == 0);
  }
}

}  // namespace cmi::test::wordcount_test
