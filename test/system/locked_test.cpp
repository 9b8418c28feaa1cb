// CMI_SEG_LOCK: what is locked, and what the process's limit forbids.
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <fstream>

#include "support/sanitized.hpp"
#include "support/skip.hpp"
#include "system/one_process.hpp"

namespace cmi::one_process::locked_test {

namespace {

// Bytes that this process has locked.
size_t locked() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    size_t kib = 0;
    if (word == "VmLck:" && status >> kib) return kib << 10;
  }
  return 0;
}

// Takes away from this thread that it may lock what it likes.
void obey_limits() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  REQUIRE(::syscall(SYS_capget, &header, data) == 0);
  data[0].effective &= ~(1u << CAP_IPC_LOCK);
  REQUIRE(::syscall(SYS_capset, &header, data) == 0);
}

void limit(rlim_t bytes) {
  const rlimit limits{bytes, RLIM_INFINITY};
  if (::setrlimit(RLIMIT_MEMLOCK, &limits) == 0) return;
  const rlimit soft{bytes, bytes};
  REQUIRE(::setrlimit(RLIMIT_MEMLOCK, &soft) == 0);
}

}  // namespace

TEST_SUITE_BEGIN("segment");

TEST_CASE_FIXTURE(Process, "a_locked_segment_stays_in_memory_as_long_as_it_lives") {
  if (cmi::test::kSanitized) return cmi::test::skip("mlock does nothing under the sanitizer");
  ini();
  const size_t before = locked(), size = 16 * unit();
  const cmi_seg seg = CALL(seg_get, size, CMI_SEG_LOCK);
  REQUIRE(seg > 0);
  CHECK(locked() == before + size);
  std::byte* view = attach(seg);
  view[size - 1] = std::byte{1};
  CHECK(locked() == before + size);  // once
  CHECK(CALL(seg_dt, seg, view) == 0);
  CHECK(CALL(seg_ctl, seg, CMI_SEG_RM, nullptr) == 0);
  CHECK(locked() == before);
}

TEST_CASE_FIXTURE(Process, "a_locked_segment_that_reserves_nothing_locks_what_is_touched") {
  if (cmi::test::kSanitized) return cmi::test::skip("mlock does nothing under the sanitizer");
  ini();
  const size_t before = locked(), size = 16 * unit();
  const cmi_seg seg = CALL(seg_get, size, CMI_SEG_LOCK | CMI_SEG_NORESERVE);
  REQUIRE(seg > 0);
  std::byte* view = attach(seg);
  CHECK(locked() == before + size);
  view[0] = std::byte{1};
  CHECK(CALL(seg_dt, seg, view) == 0);
  CHECK(locked() == before);
}

TEST_CASE_FIXTURE(Process, "a_locked_extensible_segment_locks_what_it_grows_to") {
  if (cmi::test::kSanitized) return cmi::test::skip("mlock does nothing under the sanitizer");
  ini();
  const size_t before = locked();
  const cmi_seg seg = CALL(seg_get, 16 * unit(), CMI_SEG_LOCK | CMI_SEG_EXTENSIBLE);
  REQUIRE(seg > 0);
  CHECK(locked() == before);
  cmi_ds ds{};
  ds.brk.seg_brksz = 4 * unit();
  REQUIRE(CALL(seg_ctl, seg, CMI_SEG_BRK, &ds) == 0);
  CHECK(locked() == before + 4 * unit());
}

TEST_CASE_FIXTURE(Process, "what_the_limit_forbids_to_lock_is_nomem_or_perm") {
  if (cmi::test::kSanitized) return cmi::test::skip("mlock does nothing under the sanitizer");
  ini();
  obey_limits();
  limit(8 * unit());
  const cmi_seg small = CALL(seg_get, 4 * unit(), CMI_SEG_LOCK);
  CHECK(small > 0);
  CHECK_FAILS(CALL(seg_get, 16 * unit(), CMI_SEG_LOCK), CMI_SEG_INVALID, CMI_ERR_NOMEM);
  CHECK(CALL(seg_get, 16 * unit(), 0) > 0);
  limit(0);
  CHECK_FAILS(CALL(seg_get, unit(), CMI_SEG_LOCK), CMI_SEG_INVALID, CMI_ERR_PERM);
}

TEST_SUITE_END();

}  // namespace cmi::one_process::locked_test
