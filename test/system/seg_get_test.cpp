// seg_get: sizes, flags, limits, and what a new segment holds.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "system/one_process.hpp"

namespace cmi::one_process::seg_get_test {

TEST_SUITE_BEGIN("segment");

TEST_CASE_FIXTURE(Process, "seg_get_of_whole_protection_units_succeeds") {
  ini();
  for (const size_t units : {1, 2, 513}) {
    CAPTURE(units);
    CHECK(CALL(seg_get, units * unit(), 0) > 0);
  }
}

TEST_CASE_FIXTURE(Process, "seg_get_of_zero_bytes_is_inval") {
  ini();
  CHECK_FAILS(CALL(seg_get, 0, 0), CMI_SEG_INVALID, CMI_ERR_INVAL);
  CHECK_FAILS(CALL(seg_get, 0, CMI_SEG_NORESERVE), CMI_SEG_INVALID, CMI_ERR_INVAL);
}

TEST_CASE_FIXTURE(Process, "seg_get_of_a_broken_protection_unit_is_inval") {
  ini();
  for (const size_t size : {size_t{1}, unit() - 1, unit() + 1, 7 * unit() / 2}) {
    CAPTURE(size);
    CHECK_FAILS(CALL(seg_get, size, 0), CMI_SEG_INVALID, CMI_ERR_INVAL);
  }
}

TEST_CASE_FIXTURE(Process, "seg_get_with_an_unknown_flag_is_notsupp") {
  constexpr uint32_t kKnown = CMI_SEG_NORESERVE | CMI_SEG_LOCK | CMI_SEG_LARGE_PAGES |
                              CMI_SEG_EXTENSIBLE | CMI_SEG_CLIENT_CONSIST |
                              CMI_SEG_CLIENT_INCONSIST;
  ini();
  for (unsigned bit = 0; bit < 32; ++bit) {
    const uint32_t flag = uint32_t{1} << bit;
    if ((flag & kKnown) != 0) continue;
    CAPTURE(flag);
    CHECK_FAILS(CALL(seg_get, unit(), static_cast<int32_t>(flag)), CMI_SEG_INVALID,
                CMI_ERR_NOTSUPP);
    CHECK_FAILS(CALL(seg_get, unit(), static_cast<int32_t>(flag | CMI_SEG_NORESERVE)),
                CMI_SEG_INVALID, CMI_ERR_NOTSUPP);
  }
}

TEST_CASE_FIXTURE(Process, "seg_get_with_flags_that_exclude_each_other_is_inval") {
  ini();
  const int32_t both = CMI_SEG_CLIENT_CONSIST | CMI_SEG_CLIENT_INCONSIST;
  CHECK_FAILS(CALL(seg_get, unit(), both), CMI_SEG_INVALID, CMI_ERR_INVAL);
  CHECK_FAILS(CALL(seg_get, unit(), both | CMI_SEG_NORESERVE), CMI_SEG_INVALID, CMI_ERR_INVAL);
}

// The specification names the limit, but no error for a segment beyond it.
TEST_CASE_FIXTURE(Process, "seg_get_of_more_than_the_largest_size_is_nomem") {
  ::setenv("CMI_MEM_MAX", "1M", 1);
  ini();
  CHECK(info().max_mem_cfg == 1 << 20);
  const size_t largest = info().max_seg_sz;
  CHECK(largest <= 1 << 20);
  CHECK_FAILS(CALL(seg_get, largest + unit(), 0), CMI_SEG_INVALID, CMI_ERR_NOMEM);
  CHECK_FAILS(CALL(seg_get, largest + unit(), CMI_SEG_NORESERVE), CMI_SEG_INVALID, CMI_ERR_NOMEM);
  CHECK_FAILS(CALL(seg_get, SIZE_MAX / unit() * unit(), 0), CMI_SEG_INVALID, CMI_ERR_NOMEM);

  const cmi_seg seg = CALL(seg_get, largest, 0);
  REQUIRE(seg > 0);
  std::byte* view = attach(seg);
  view[0] = view[largest - 1] = std::byte{1};
  end();
  ::unsetenv("CMI_MEM_MAX");
}

TEST_CASE_FIXTURE(Process, "one_process_makes_many_segments") {
  constexpr int kSegments = 100;
  ini();
  std::set<cmi_seg> ids;
  std::vector<std::byte*> views;
  for (int i = 0; i < kSegments; ++i) {
    const cmi_seg seg = segment();
    ids.insert(seg);
    views.push_back(attach(seg));
    std::memset(views.back(), i + 1, unit());
  }
  CHECK(ids.size() == kSegments);
  for (int i = 0; i < kSegments; ++i) {
    CAPTURE(i);
    const auto* view = views[static_cast<size_t>(i)];
    CHECK(std::all_of(view, view + unit(), [&](std::byte b) { return b == std::byte(i + 1); }));
  }
}

TEST_CASE_FIXTURE(Process, "a_new_segment_reads_as_zero_and_keeps_what_is_stored") {
  ini();
  // The second one takes the memory that the first one gave back.
  for (int round = 0; round < 2; ++round) {
    const size_t size = 64 * unit();
    const cmi_seg seg = segment(64);
    std::byte* view = attach(seg);
    CHECK(std::all_of(view, view + size, [](std::byte b) { return b == std::byte{0}; }));
    for (size_t i = 0; i < size; ++i) view[i] = std::byte(i * 31 % 251);
    size_t wrong = 0;
    for (size_t i = 0; i < size; ++i) wrong += view[i] != std::byte(i * 31 % 251);
    CHECK(wrong == 0);
    CHECK(CALL(seg_dt, seg, view) == 0);

    // A detached segment is not a removed one.
    const std::byte* again = attach(seg, CMI_SEG_READ);
    for (size_t i = 0; i < size; ++i) wrong += again[i] != std::byte(i * 31 % 251);
    CHECK(wrong == 0);
    CHECK(CALL(seg_dt, seg, const_cast<std::byte*>(again)) == 0);
    CHECK(CALL(seg_ctl, seg, CMI_SEG_RM, nullptr) == 0);
  }
}

TEST_CASE_FIXTURE(Process, "threads_allocate_segments_concurrently") {
  constexpr int kThreads = 8;
  constexpr int kEach = 50;
  ini();
  const size_t size = unit();
  std::vector<std::vector<cmi_seg>> made(kThreads);
  std::vector<std::thread> threads;
  for (auto& mine : made) {
    threads.emplace_back([&] {
      CHECK(CALL(ini_th) == 0);
      for (int i = 0; i < kEach; ++i) mine.push_back(CALL(seg_get, size, 0));
      CHECK(CALL(fini) == 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<cmi_seg> ids;
  for (const auto& some : made) ids.insert(some.begin(), some.end());
  CHECK(ids.size() == kThreads * kEach);
  CHECK(*ids.begin() > 0);
}

TEST_CASE_FIXTURE(Process, "an_extensible_segment_without_the_capability_is_notsupp") {
  ini();
  const cmi_seg seg = CALL(seg_get, unit(), CMI_SEG_EXTENSIBLE);
  if ((ctxt->caps & CMI_CAP_EXTENSIBLE_SEGMENTS) != 0) {
    CHECK(seg > 0);
  } else {
    CHECK(seg == CMI_SEG_INVALID);
    CHECK(error() == CMI_ERR_NOTSUPP);
  }
}

TEST_SUITE_END();

}  // namespace cmi::one_process::seg_get_test
