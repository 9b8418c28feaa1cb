// What every random program must be, so that the checker can judge what it does.
#include "checker/program.hpp"

#include <doctest/doctest.h>

#include <map>
#include <set>

namespace cmi::checker::program_test {

namespace {

constexpr uint64_t kSeeds = 40;

const Cell* cell_at(const Program& program, uint32_t at) {
  for (const Cell& cell : program.cells) {
    if (cell.at == at) return &cell;
  }
  return nullptr;
}

TEST_SUITE("program") {
  TEST_CASE("a_seed_makes_one_program_and_another_seed_another") {
    const Program once = make_program({7, 0, 0, 0, 0, 0});
    const Program again = make_program({7, 0, 0, 0, 0, 0});
    const Program other = make_program({8, 0, 0, 0, 0, 0});
    const auto same = [](const Program& a, const Program& b) {
      if (a.threads.size() != b.threads.size() || a.homes != b.homes) return false;
      for (size_t t = 0; t < a.threads.size(); ++t) {
        if (a.threads[t].size() != b.threads[t].size()) return false;
        for (size_t i = 0; i < a.threads[t].size(); ++i) {
          const Op &x = a.threads[t][i], &y = b.threads[t][i];
          if (x.kind != y.kind || x.width != y.width || x.at != y.at || x.value != y.value) {
            return false;
          }
        }
      }
      return true;
    };
    const Program next = make_program({7, 0, 0, 0, 0, 1});
    CHECK(same(once, again));
    CHECK_FALSE(same(once, other));
    CHECK_FALSE(same(once, next));
  }

  TEST_CASE("all_rounds_of_a_seed_have_as_many_nodes") {
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      CAPTURE(seed);
      const uint32_t nodes = make_program({seed, 0, 0, 0, 0, 0}).shape.nodes;
      for (uint32_t round = 1; round < 5; ++round) {
        CHECK(make_program({seed, 0, 0, 0, 0, round}).shape.nodes == nodes);
      }
    }
  }

  TEST_CASE("in_some_seeds_nodes_have_two_processes_the_same_in_all_rounds") {
    uint64_t sharing = 0;
    for (uint64_t seed = 0; seed < 2 * kSeeds; ++seed) {
      CAPTURE(seed);
      const Program program = make_program({seed, 0, 4, 0, 10, 0});
      const uint32_t nodes = program.shape.nodes;
      CHECK(program.processes == make_program({seed, 0, 0, 0, 10, 3}).processes);
      CHECK((program.processes.size() > nodes) == (program.shape.sharing == 2));
      sharing += program.shape.sharing == 2;
      std::set<uint32_t> used;
      for (uint32_t t = 0; t < program.threads.size(); ++t) {
        const uint32_t process = program.process_of(t);
        CHECK(program.processes[process] == t / program.shape.threads);
        used.insert(process);
      }
      CHECK(used.size() == program.processes.size());
      CHECK(make_program({seed, 0, 4, 0, 10, 0, 1}).processes.size() == nodes);
      CHECK(make_program({seed, 0, 4, 0, 10, 0, 2}).processes.size() > nodes);
    }
    CHECK(sharing > kSeeds / 4);
    CHECK(sharing < kSeeds);
  }

  TEST_CASE("what_the_caller_asks_for_is_not_left_to_the_seed") {
    const Program program = make_program({3, 4, 3, 2, 50, 0});
    CHECK(program.shape.nodes == 4);
    CHECK(program.threads.size() == 12);
    CHECK(program.homes.size() == 2);
    for (const auto& ops : program.threads) {
      CHECK(ops.size() >= 50);
      CHECK(ops.size() <= 51);  // the end of an epoch
    }
  }

  TEST_CASE("cells_are_aligned_and_do_not_overlap") {
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      CAPTURE(seed);
      const Program program = make_program({seed, 0, 0, 0, 0, 0});
      uint32_t free_from = 0;
      for (const Cell& cell : program.cells) {
        CHECK(cell.at >= free_from);
        CHECK(cell.at % cell.width == 0);
        CHECK(cell.at % kSegmentSpan + cell.width <= program.segment_bytes());
        CHECK(cell.at / kSegmentSpan < program.shape.segments);
        free_from = cell.at + cell.width;
      }
    }
  }

  TEST_CASE("every_byte_of_a_stored_value_names_its_store") {
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      CAPTURE(seed);
      const Program program = make_program({seed, 0, 0, 0, 0, 0});
      std::map<uint32_t, std::set<uint8_t>> used;  // by byte
      uint64_t doubles = 0, misplaced = 0;
      for (const auto& ops : program.threads) {
        for (const Op& op : ops) {
          if (op.kind != OpKind::kStore && op.kind != OpKind::kSwap) continue;
          const Cell* cell = cell_at(program, op.at);
          misplaced += cell == nullptr || cell->width != op.width;
          for (uint32_t k = 0; k < op.width; ++k) {
            const auto byte = static_cast<uint8_t>(op.value >> 8 * k);
            doubles += byte == 0 || !used[op.at + k].insert(byte).second;
          }
        }
      }
      CHECK(doubles == 0);
      CHECK(misplaced == 0);
    }
  }

  TEST_CASE("each_program_makes_conflicting_accesses_across_nodes") {
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      CAPTURE(seed);
      const Program program = make_program({seed, 0, 0, 0, 0, 0});
      std::map<uint32_t, std::set<uint32_t>> writers;  // nodes, by byte
      const auto node_of = [&](size_t t) {
        return static_cast<uint32_t>(t) / program.shape.threads;
      };
      for (size_t t = 0; t < program.threads.size(); ++t) {
        for (const Op& op : program.threads[t]) {
          if (op.kind != OpKind::kStore && op.kind != OpKind::kSwap) continue;
          for (uint32_t k = 0; k < op.width; ++k) writers[op.at + k].insert(node_of(t));
        }
      }
      uint64_t conflicts = 0;  // accesses to a byte that another node stores to
      for (size_t t = 0; t < program.threads.size(); ++t) {
        for (const Op& op : program.threads[t]) {
          bool conflict = false;
          for (uint32_t k = 0; k < op.width; ++k) {
            const auto found = writers.find(op.at + k);
            conflict = conflict || (found != writers.end() &&
                                    found->second.size() > found->second.count(node_of(t)));
          }
          conflicts += conflict;
        }
      }
      CHECK(conflicts >= 100);
    }
  }

  TEST_CASE("epochs_are_opened_before_they_are_flushed_and_closed") {
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      CAPTURE(seed);
      uint64_t wrong = 0;
      for (const auto& ops : make_program({seed, 0, 0, 0, 0, 0}).threads) {
        bool open = false;
        for (const Op& op : ops) {
          wrong += op.kind == OpKind::kOpen && open;
          wrong += (op.kind == OpKind::kFlush || op.kind == OpKind::kClose) && !open;
          if (op.kind == OpKind::kOpen) open = true;
          if (op.kind == OpKind::kClose) open = false;
        }
        wrong += open;
      }
      CHECK(wrong == 0);
    }
  }
}

}  // namespace

}  // namespace cmi::checker::program_test
