// seg_at: addresses, flags, several views; segments attached on their home node, and imported
// there.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "system/one_process.hpp"

namespace cmi::one_process::attach_test {

namespace {

// An address where `size` bytes are free, multiple of `alignment`, and far from where the kernel
// puts what other threads map meanwhile.
std::byte* free_range(size_t size, size_t alignment) {
  for (uintptr_t at = uintptr_t{1} << 45; at < uintptr_t{1} << 46; at += uintptr_t{1} << 40) {
    at = (at + alignment - 1) / alignment * alignment;
    auto* wanted = reinterpret_cast<std::byte*>(at);
    void* p = ::mmap(wanted, size, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (p == MAP_FAILED) continue;
    ::munmap(p, size);
    if (p == wanted) return wanted;
  }
  FAIL("no free range");
  return nullptr;
}

}  // namespace

TEST_SUITE_BEGIN("segment");

TEST_CASE_FIXTURE(Process, "seg_at_picks_a_free_address_for_null") {
  ini();
  const size_t alignment = info().seg_alignment;
  const cmi_seg home = segment(3);
  for (const cmi_seg seg : {home, import_own(home)}) {
    std::byte* view = attach(seg);
    CHECK(reinterpret_cast<uintptr_t>(view) % alignment == 0);
    std::byte* other = attach(seg);
    CHECK(std::max(view, other) - std::min(view, other) >= static_cast<ptrdiff_t>(3 * unit()));
  }
}

TEST_CASE_FIXTURE(Process, "seg_at_maps_at_the_address_asked_for") {
  ini();
  const cmi_seg home = segment(4);
  std::byte* range = free_range(4 * unit(), info().seg_alignment);
  CHECK(CALL(seg_at, home, range, 0) == range);
  range[4 * unit() - 1] = std::byte{1};
  CHECK(CALL(seg_dt, home, range) == 0);

  const cmi_seg import = import_own(home);
  CHECK(CALL(seg_at, import, range, 0) == range);
  CHECK(CALL(cmi_enb, 1) == 0);
  CHECK(range[4 * unit() - 1] == std::byte{1});
}

TEST_CASE_FIXTURE(Process, "seg_at_of_a_misaligned_address_is_inval") {
  ini();
  const size_t alignment = info().seg_alignment;
  const cmi_seg home = segment();
  std::byte* range = free_range(unit(), alignment);
  for (const cmi_seg seg : {home, import_own(home)}) {
    for (const size_t off : {size_t{1}, size_t{8}, alignment / 2, alignment - 1}) {
      CAPTURE(off);
      CHECK_FAILS(CALL(seg_at, seg, range + off, 0), nullptr, CMI_ERR_INVAL);
    }
  }
}

TEST_CASE_FIXTURE(Process, "seg_at_of_an_unknown_segment_is_inval") {
  ini();
  const cmi_seg freed = segment();
  CHECK(CALL(seg_ctl, freed, CMI_SEG_RM, nullptr) == 0);
  for (const cmi_seg seg :
       {0, CMI_SEG_INVALID, CMI_SEG_ALL, freed + 1, INT32_MAX, INT32_MIN, freed}) {
    CAPTURE(seg);
    CHECK_FAILS(CALL(seg_at, seg, nullptr, 0), nullptr, CMI_ERR_INVAL);
  }
}

TEST_CASE_FIXTURE(Process, "seg_at_with_an_unknown_flag_is_notsupp") {
  ini();
  const cmi_seg seg = segment();
  for (unsigned bit = 0; bit < 32; ++bit) {
    const uint32_t flag = uint32_t{1} << bit;
    if (flag == CMI_SEG_READ) continue;
    CAPTURE(flag);
    CHECK_FAILS(CALL(seg_at, seg, nullptr, static_cast<int32_t>(flag)), nullptr, CMI_ERR_NOTSUPP);
    CHECK_FAILS(CALL(seg_at, seg, nullptr, static_cast<int32_t>(flag | CMI_SEG_READ)), nullptr,
                CMI_ERR_NOTSUPP);
  }
}

TEST_CASE_FIXTURE(Process, "seg_at_over_a_mapping_in_use_is_nomem") {
  ini();
  const cmi_seg home = segment(4);
  std::byte* range = free_range(4 * unit(), info().seg_alignment);
  // One page in the middle is in use.
  std::byte* middle = range + 2 * unit();
  void* used = ::mmap(middle, 4096, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  REQUIRE(used == middle);
  std::memset(used, 0x77, 4096);
  for (const cmi_seg seg : {home, import_own(home)}) {
    CHECK_FAILS(CALL(seg_at, seg, range, 0), nullptr, CMI_ERR_NOMEM);
    CHECK(std::all_of(middle, middle + 4096, [](std::byte b) { return b == std::byte{0x77}; }));
    CHECK(load_fault(range).caught);  // nothing was mapped beside it
  }
  ::munmap(used, 4096);
  CHECK(CALL(seg_at, home, range, 0) == range);
  CHECK_FAILS(CALL(seg_at, home, range, 0), nullptr, CMI_ERR_NOMEM);  // a view is in use too
}

TEST_CASE_FIXTURE(Process, "several_segments_attach_in_one_process") {
  constexpr int kSegments = 8;
  ini();
  CHECK(CALL(cmi_enb, 1) == 0);
  std::vector<std::byte*> homes;
  std::vector<std::byte*> remotes;
  for (int i = 0; i < kSegments; ++i) {
    const cmi_seg seg = segment();
    homes.push_back(attach(seg));
    homes.back()[5] = std::byte(i + 1);
    remotes.push_back(attach(import_own(seg)));
  }
  for (int i = 0; i < kSegments; ++i) {
    const auto n = static_cast<size_t>(i);
    CHECK(homes[n][5] == std::byte(i + 1));
    CHECK(remotes[n][5] == std::byte(i + 1));
  }
}

TEST_CASE_FIXTURE(Process, "one_segment_attaches_at_several_addresses") {
  ini();
  CHECK(CALL(cmi_enb, 1) == 0);
  const cmi_seg home = segment(2);
  for (const cmi_seg seg : {home, import_own(home)}) {
    std::byte* writer = attach(seg);
    const std::byte* reader = attach(seg, CMI_SEG_READ);
    const std::byte* third = attach(seg);
    CHECK(writer != reader);
    for (const size_t at : {size_t{0}, unit() - 1, unit(), 2 * unit() - 1}) {
      const std::byte next = reader[at] ^ std::byte{0x35};
      writer[at] = next;
      CHECK(reader[at] == next);
      CHECK(third[at] == next);
    }
  }
}

TEST_CASE_FIXTURE(Process, "any_thread_may_attach_and_all_threads_see_the_view") {
  ini();
  const cmi_seg seg = segment();
  std::byte* view = nullptr;
  in_thread([&] {
    CHECK(CALL(ini_th) == 0);
    view = static_cast<std::byte*>(CALL(seg_at, seg, nullptr, 0));
    CHECK(view != nullptr);
    CHECK(CALL(fini) == 0);
  });
  REQUIRE(view != nullptr);
  view[0] = std::byte{3};  // the thread that attached it is gone
  in_thread([&] { CHECK(view[0] == std::byte{3}); });
  CHECK(CALL(seg_dt, seg, view) == 0);
}

TEST_CASE_FIXTURE(Process, "threads_attach_and_detach_concurrently") {
  constexpr int kThreads = 8;
  constexpr int kRounds = 100;
  ini();
  const cmi_seg shared = segment();
  const size_t size = unit();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      CHECK(CALL(ini_th) == 0);
      const cmi_seg own = CALL(seg_get, size, 0);
      int wrong = 0;
      for (int round = 0; round < kRounds; ++round) {
        auto* mine = static_cast<volatile int*>(CALL(seg_at, own, nullptr, 0));
        auto* common = static_cast<volatile int*>(CALL(seg_at, shared, nullptr, 0));
        if (mine == nullptr || common == nullptr) {
          ++wrong;
          break;
        }
        wrong += mine[0] != round;  // what the last view left there
        wrong += common[t] != round;
        mine[0] = round + 1;
        common[t] = round + 1;
        wrong += CALL(seg_dt, own, const_cast<int*>(mine)) != 0;
        wrong += CALL(seg_dt, shared, const_cast<int*>(common)) != 0;
      }
      CHECK(wrong == 0);
      CHECK(CALL(fini) == 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_SUITE_END();

}  // namespace cmi::one_process::attach_test
