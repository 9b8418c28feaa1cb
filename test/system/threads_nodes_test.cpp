// Many threads of several nodes on few pages: what each stores it reads back at once, and no word
// that anybody else stores ever goes back for a reader.
#include <doctest/doctest.h>

#include <array>
#include <random>
#include <thread>
#include <vector>

#include "system/calls.hpp"

namespace cmi::test::threads_nodes_test {

namespace {

constexpr uint32_t kProcesses = 3;
constexpr uint32_t kThreads = 3;  // of each process
constexpr uint32_t kPages = 4;
constexpr uint32_t kWriters = kProcesses * kThreads;  // each has a word in each page
constexpr uint64_t kRounds = 1500;

using Counts = std::array<uint64_t, kPages * kThreads>;
struct Result {
  Counts stored;       // the last value of each word of this process, page by page
  uint64_t not_own;    // loads of an own word that gave another value than was stored last
  uint64_t went_back;  // loads of another's word that gave less than a load before
  uint64_t failed;     // calls
};

uint64_t word_at(uint64_t view, uint32_t page, uint32_t writer) {
  return view + page * kPage + writer * 8;
}
uint64_t get(uint64_t at) { return *reinterpret_cast<volatile uint64_t*>(at); }
void put(uint64_t at, uint64_t value) { *reinterpret_cast<volatile uint64_t*>(at) = value; }

// One thread's work; `stored` is its word in each page.
void work(uint64_t view, uint32_t me, uint64_t* stored, Result* result) {
  result->failed += CMIFN(ctxt(), 10, ini_th)(ctxt()) != 0;
  result->failed += CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 1) != 0;
  std::mt19937 random(me + 1);
  std::array<uint64_t, kPages * kWriters> seen{};
  for (uint64_t round = 0; round < kRounds; ++round) {
    const auto page = static_cast<uint32_t>(random() % kPages);
    put(word_at(view, page, me), ++stored[page]);
    if (random() % 8 == 0) result->failed += CMIFN(ctxt(), 10, wmb_fn)(ctxt()) != 0;
    result->not_own += get(word_at(view, page, me)) != stored[page];
    const auto other = static_cast<uint32_t>(random() % (kPages * kWriters));
    const uint64_t value = get(word_at(view, other / kWriters, other % kWriters));
    result->went_back += value < seen[other];
    seen[other] = value;
  }
  result->failed += CMIFN(ctxt(), 10, wmb_fn)(ctxt()) != 0;
  result->failed += CMIFN(ctxt(), 10, fini)(ctxt()) != 0;
}

Pending<Result> start_threads(Process& process, uint64_t at, uint32_t number) {
  return process.start(
      [](uint64_t view, uint32_t mine) {
        std::array<Result, kThreads> results{};
        std::array<std::array<uint64_t, kPages>, kThreads> stored{};
        std::vector<std::thread> threads;
        for (uint32_t i = 0; i < kThreads; ++i) {
          threads.emplace_back(
              [&, i] { work(view, mine * kThreads + i, stored[i].data(), &results[i]); });
        }
        Result all{};
        for (uint32_t i = 0; i < kThreads; ++i) {
          threads[i].join();
          all.not_own += results[i].not_own;
          all.went_back += results[i].went_back;
          all.failed += results[i].failed;
          for (uint32_t page = 0; page < kPages; ++page) {
            all.stored[page * kThreads + i] = stored[i][page];
          }
        }
        return all;
      },
      at, number);
}

TEST_SUITE("torture") {
  TEST_CASE("words_of_many_threads_on_three_nodes_never_go_back") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    const Export exported = export_segment(home);
    std::vector<Process*> processes{&home};
    std::vector<uint64_t> views{exported.at};
    for (const char* name : {"first", "second"}) {
      processes.push_back(&cluster.spawn(name));
      views.push_back(import_segment(*processes.back(), exported).at);
    }
    std::vector<Pending<Result>> running;
    for (uint32_t i = 0; i < kProcesses; ++i) {
      running.push_back(start_threads(*processes[i], views[i], i));
    }
    std::vector<Result> results;
    for (auto& pending : running) {
      results.push_back(pending.get(100));
      CHECK(results.back().failed == 0);
      CHECK(results.back().not_own == 0);
      CHECK(results.back().went_back == 0);
    }
    for (uint32_t reader = 0; reader < kProcesses; ++reader) {
      for (uint32_t page = 0; page < kPages; ++page) {
        for (uint32_t writer = 0; writer < kWriters; ++writer) {
          const uint64_t expected =
              results[writer / kThreads].stored[page * kThreads + writer % kThreads];
          CHECK(load(*processes[reader], word_at(views[reader], page, writer)).value == expected);
        }
      }
    }
  }
}

}  // namespace

}  // namespace cmi::test::threads_nodes_test
