// What is measured. Each case is one function of a cases_*.cpp file: it makes what it needs,
// measures its rows in blocks that alternate with raw libfabric, checks that it measured what it
// says, and leaves nothing behind. All run in the measuring process.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "node.hpp"
#include "raw.hpp"
#include "relay.hpp"
#include "report.hpp"
#include "trap.hpp"

namespace bench {

struct Bench {
  Control& control;
  Node& node;
  const Raw& raw;
  Report& report;
  bool quick;
  bool longest;  // what shows only after a while gets its time, which not each sitting does
  std::vector<int> cpus;  // for threads of the measuring process; empty: the kernel's choice
  int home_cpu;           // -1: the kernel's choice

  size_t scaled(size_t full, size_t short_run) const { return quick ? short_run : full; }
};

struct Case {
  const char* name;
  void (*run)(Bench&);
  std::vector<const char*> rows;
  bool mapped = false;  // in processes that map the pages of homes on their machine
};
const std::vector<Case>& all_cases();
inline constexpr size_t kReadSeqBytes = size_t{256} << 20, kReadSeqBytesQuick = size_t{32} << 20;

// A segment at the home, imported by this process and, if asked for, by others. `flags` of seg_get:
// without any it is client-inconsistent.
class Shared {
 public:
  // Its pages are `stride` pages of the segment apart; what lies between is not touched.
  Shared(Bench& bench, size_t pages, int others = 0, int32_t flags = 0, size_t stride = 1);
  ~Shared();
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  std::byte* page(uint64_t index) const { return import_->page(index * stride_); }
  size_t pages() const { return pages_; }
  // The home stores to each page: whatever is cached is dropped, and pages are as at(version).
  void renew();
  uint64_t version() const { return version_; }
  void load_all() const;  // whatever is absent is fetched
  // Fails unless the home has these stores.
  void check_home(size_t count, int pattern, uint64_t stored_version, size_t first = 0) const;

 private:
  Bench& bench_;
  const size_t pages_;
  const int others_;
  const size_t stride_;
  uint64_t version_ = 0;
  std::unique_ptr<Imported> import_;
};

// Another importer's thread that loads a page again and again while it lives: the page and its
// region stay cached there.
class Spinner {
 public:
  explicit Spinner(Bench& bench, int role = kOther1) : bench_(bench), role_(role) {}
  ~Spinner();
  Spinner(const Spinner&) = delete;
  Spinner& operator=(const Spinner&) = delete;
  void start();
  void stop();
  void await_value(uint64_t value) const;

 private:
  Bench& bench_;
  const int role_;  // which importer looks
  bool runs_ = false;
};

// Pages in an order without two neighbours one after the other, which the library would take for
// the beginning of a sequence.
std::vector<uint32_t> random_order(size_t pages, unsigned seed);

// One side of a row. once() does it and returns the time it took, or a negative number when
// something came in between; the first `warm` of each block do not count.
struct Side {
  std::function<double()> once;
  std::function<void()> begin = [] {}, end = [] {};
  size_t warm = 4;
};
// A floor of a row, or a part of it: what else is measured in turn with both sides.
struct FloorSide {
  Side side;
  RawMode mode = RawMode::kPoll;
};
struct Measured {
  std::vector<double> ours, raw;
  std::vector<std::vector<double>> floors;  // as they were given
  size_t discarded = 0;
};
// Blocks of all sides in turn until each has `count` samples, or fewer after 40 s.
Measured alternate(Bench& bench, const Side& ours, const Side& raw, size_t count, size_t block,
                   RawMode mode = RawMode::kPoll, const std::vector<FloorSide>& floors = {});

// cases_read.cpp
void load_hit(Bench& b);
void load_miss(Bench& b);
void load_miss_idle(Bench& b);
void load_miss_asleep(Bench& b);
void load_miss_busy(Bench& b);
void read_seq(Bench& b);
// cases_store.cpp
void store_hit(Bench& b);
void store_first_case(Bench& b);
void store_miss(Bench& b);
void home_store(Bench& b);
void home_wmb(Bench& b);
// cases_rewrite.cpp
void write_seq(Bench& b);
// cases_hot.cpp
void hot_store(Bench& b);
void hot_store_read(Bench& b);
void publish_hot(Bench& b);
// cases_flush.cpp
void flush_sparse(Bench& b);
void flush_scattered(Bench& b);
void flush_dense(Bench& b);
void flush_striped(Bench& b);
void barriers(Bench& b);
// cases_apps.cpp
void ycsb(Bench& b);
std::vector<const char*> ycsb_rows();
void graph(Bench& b);
std::vector<const char*> graph_rows();
// cases_publish.cpp
void publish_1(Bench& b);
void publish_shared(Bench& b);
void wakeup(Bench& b);
void cas(Bench& b);
// cases_threads.cpp
void threads(Bench& b);
// cases_idle.cpp
void idle_cpu(Bench& b);
// cases_floor.cpp
// Null where the kernel cannot: rows have no floor.
std::unique_ptr<Trap> make_trap(size_t pages, size_t window = 1, bool twins = true);
// SIGBUS is the trap's during the blocks of this side.
FloorSide trapped(Trap& trap, std::function<double()> once, RawMode mode = RawMode::kPoll);
std::optional<Spread> floor_of(const Measured& m);  // the first of m.floors
void floors(Bench& b);
// cases_crew.cpp
void kv(Bench& b);
void scatter(Bench& b);
void crowd(Bench& b);
std::vector<const char*> crowd_rows();
void local_kv(Bench& b);
// cases_local.cpp
void local_load_first(Bench& b);
void local_store_first(Bench& b);
void local_hit(Bench& b);
void local_cas(Bench& b);
void local_wmb_empty(Bench& b);
void local_publish(Bench& b);
void local_wakeup(Bench& b);
void local_copy(Bench& b);
void local_import(Bench& b);
// cases_windows.cpp
void windows(Bench& b);
std::vector<const char*> window_rows();
void local_wordcount(Bench& b);
// cases_peers.cpp
void peers(Bench& b);

}  // namespace bench
