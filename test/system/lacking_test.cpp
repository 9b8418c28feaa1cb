// What belongs to the interface and not yet to this build: it fails with CMI_ERR_NOTSUPP and
// changes nothing. The lists shrink as the library grows.
#include <cstring>

#include "system/one_process.hpp"

using cmi::one_process::Process;

TEST_SUITE_BEGIN("context");

TEST_CASE_FIXTURE(Process, "calls_that_this_build_lacks_are_notsupp") {
  ini();
  const cmi_seg seg = segment();
  std::byte* view = attach(seg);
  view[0] = std::byte{0x17};
  const cmi_cfg_info before = info();

  for (const int32_t flag : {CMI_SEG_EXTENSIBLE, CMI_SEG_LARGE_PAGES, CMI_SEG_LOCK}) {
    CAPTURE(flag);
    CHECK_FAILS(CALL(seg_get, before.seg_lrgpg_alignment, flag), CMI_SEG_INVALID, CMI_ERR_NOTSUPP);
  }

  cmi_ds ds;
  std::memset(&ds, 0, sizeof ds);
  ds.brk.seg_brksz = unit();
  const cmi_ds asked = ds;
  CHECK_FAILS(CALL(seg_ctl, seg, CMI_SEG_BRK, &ds), -1, CMI_ERR_NOTSUPP);
  CHECK(std::memcmp(&ds, &asked, sizeof ds) == 0);

  cmi_naddr* address = ctxt->naddr;
  uint32_t index = 77;
  for (const int32_t command : {CMI_CTL_MEM_RESERVE, CMI_CTL_MEM_RESERVE_DEL,
                                CMI_CTL_MEM_RESERVE_SET, CMI_CTL_NODE_ADDR_CMP}) {
    CAPTURE(command);
    cmi_ctl_cfg cfg;
    std::memset(&cfg, 0, sizeof cfg);
    switch (command) {
      case CMI_CTL_MEM_RESERVE:
        cfg.mreq.mem_reserve = unit();
        break;
      case CMI_CTL_NODE_ADDR_CMP:
        cfg.ncmp = {address, &address, 1, &index};
        break;
      default:
        break;
    }
    CHECK_FAILS(CALL(cmi_ctl, command, &cfg), -1, CMI_ERR_NOTSUPP);
  }
  CHECK(index == 77);

  CHECK(view[0] == std::byte{0x17});
  CHECK(info().max_mem_avail == before.max_mem_avail);
  CHECK(info().cur_exp_segs == 0);
  CHECK(status_flags(seg) == 0);
}

TEST_SUITE_END();
