// seg_dt: it takes exactly one view away.
#include "system/one_process.hpp"

namespace cmi::one_process::detach_test {

TEST_SUITE_BEGIN("segment");

TEST_CASE_FIXTURE(Process, "seg_dt_ends_the_view") {
  ini();
  CHECK(CALL(cmi_enb, 1) == 0);
  const cmi_seg home = segment(2);
  for (const cmi_seg seg : {home, import_own(home)}) {
    std::byte* view = attach(seg);
    view[0] = std::byte{1};
    CHECK(CALL(seg_dt, seg, view) == 0);
    for (std::byte* at : {view, view + unit(), view + 2 * unit() - 1}) {
      CHECK(load_fault(at).caught);
      const Fault fault = store_fault(at);
      CHECK(fault.caught);
      CHECK(fault.code != SEGV_CMI);
      CHECK(fault.address == at);
    }
  }
}

TEST_CASE_FIXTURE(Process, "seg_dt_by_another_thread_succeeds") {
  ini();
  const cmi_seg seg = segment();
  std::byte* view = attach(seg);
  in_thread([&] {
    CHECK(CALL(ini_th) == 0);
    CHECK(CALL(seg_dt, seg, view) == 0);
    CHECK(CALL(fini) == 0);
  });
  CHECK(load_fault(view).caught);
  CHECK_FAILS(CALL(seg_dt, seg, view), -1, CMI_ERR_INVAL);
}

TEST_CASE_FIXTURE(Process, "seg_dt_of_an_address_that_seg_at_did_not_return_is_inval") {
  ini();
  const cmi_seg seg = segment(2);
  const cmi_seg other = segment(2);
  std::byte* view = attach(seg);
  std::byte* others = attach(other);
  int local = 0;
  void* const wrong[] = {nullptr, view + 1, view + unit(), view + 2 * unit(), others, &local};
  for (void* at : wrong) {
    CAPTURE(at);
    CHECK_FAILS(CALL(seg_dt, seg, at), -1, CMI_ERR_INVAL);
  }
  view[0] = others[0] = std::byte{1};
  CHECK(CALL(seg_dt, seg, view) == 0);
  CHECK_FAILS(CALL(seg_dt, seg, view), -1, CMI_ERR_INVAL);
  others[1] = std::byte{1};
}

TEST_CASE_FIXTURE(Process, "seg_dt_of_an_unknown_segment_is_inval") {
  ini();
  const cmi_seg seg = segment();
  std::byte* view = attach(seg);
  for (const cmi_seg unknown : {0, CMI_SEG_INVALID, CMI_SEG_ALL, seg + 1, INT32_MAX, INT32_MIN}) {
    CAPTURE(unknown);
    CHECK_FAILS(CALL(seg_dt, unknown, view), -1, CMI_ERR_INVAL);
  }
  view[0] = std::byte{1};
}

TEST_CASE_FIXTURE(Process, "seg_dt_leaves_the_other_views") {
  ini();
  CHECK(CALL(cmi_enb, 1) == 0);
  const cmi_seg home = segment(2);
  for (const cmi_seg seg : {home, import_own(home)}) {
    std::byte* first = attach(seg);
    std::byte* second = attach(seg);
    const std::byte* third = attach(seg, CMI_SEG_READ);
    first[unit()] = std::byte{0x11};
    CHECK(CALL(seg_dt, seg, first) == 0);
    CHECK(second[unit()] == std::byte{0x11});
    CHECK(third[unit()] == std::byte{0x11});
    second[unit()] = std::byte{0x12};
    CHECK(third[unit()] == std::byte{0x12});
    CHECK(CALL(seg_dt, seg, second) == 0);
    CHECK(third[unit()] == std::byte{0x12});
  }
}

TEST_SUITE_END();

}  // namespace cmi::one_process::detach_test
