// What belongs to the interface and not yet to this build: it fails with CMI_ERR_NOTSUPP and
// changes nothing. The lists shrink as the library grows.
#include "system/one_process.hpp"

using cmi::one_process::Process;

TEST_SUITE_BEGIN("context");

TEST_CASE_FIXTURE(Process, "calls_that_this_build_lacks_are_notsupp") {
  ini();
  const cmi_seg seg = segment();
  std::byte* view = attach(seg);
  view[0] = std::byte{0x17};
  const cmi_cfg_info before = info();

  CHECK_FAILS(CALL(seg_get, before.seg_lrgpg_alignment, CMI_SEG_LARGE_PAGES), CMI_SEG_INVALID,
              CMI_ERR_NOTSUPP);

  CHECK(view[0] == std::byte{0x17});
  CHECK(info().max_mem_avail == before.max_mem_avail);
  CHECK(info().cur_exp_segs == 0);
  CHECK(status_flags(seg) == 0);
}

TEST_SUITE_END();
