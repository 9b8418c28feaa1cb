// Flush epochs and cflush: arguments, and what they are at home.
#include "system/counting_heap.hpp"
#include "system/one_process.hpp"

namespace cmi::one_process::epoch_test {

namespace {

const cmi_fb kGarbage = reinterpret_cast<cmi_fb>(uintptr_t{0x1230});

// Epochs that the calling thread may not flush or close. `close`: with close_fb, else flush_fb.
void check_wrong_epochs(Process& process, bool close) {
  cmi_ctxt* ctxt = process.ctxt;
  const auto call = [&](cmi_fb epoch) {
    return close ? CALL(close_fb, epoch) : CALL(flush_fb, epoch);
  };
  int local = 0;
  CHECK_FAILS(call(nullptr), -1, CMI_ERR_INVAL);  // none is open
  CHECK_FAILS(call(kGarbage), -1, CMI_ERR_INVAL);
  const cmi_fb mine = CALL(open_fb);
  REQUIRE(mine != nullptr);
  CHECK_FAILS(call(nullptr), -1, CMI_ERR_INVAL);
  CHECK_FAILS(call(kGarbage), -1, CMI_ERR_INVAL);
  CHECK_FAILS(call(reinterpret_cast<cmi_fb>(&local)), -1, CMI_ERR_INVAL);
  in_thread([&] {
    CHECK(CALL(ini_th) == 0);
    CHECK_FAILS(call(mine), -1, CMI_ERR_INVAL);
    const cmi_fb theirs = CALL(open_fb);
    CHECK_FAILS(call(mine), -1, CMI_ERR_INVAL);
    CHECK(CALL(close_fb, theirs) == 0);
    CHECK(CALL(fini) == 0);
  });
  CHECK(CALL(flush_fb, mine) == 0);  // still open
  CHECK(CALL(close_fb, mine) == 0);
  CHECK_FAILS(call(mine), -1, CMI_ERR_INVAL);
}

}  // namespace

TEST_SUITE_BEGIN("memory");

TEST_CASE_FIXTURE(Process, "open_fb_twice_on_one_thread_is_bound") {
  ini();
  const cmi_fb epoch = CALL(open_fb);
  REQUIRE(epoch != nullptr);
  CHECK_FAILS(CALL(open_fb), nullptr, CMI_ERR_BOUND);
  in_thread([&] {  // another thread has its own
    CHECK(CALL(ini_th) == 0);
    const cmi_fb theirs = CALL(open_fb);
    CHECK(theirs != nullptr);
    CHECK(theirs != epoch);
    CHECK(CALL(close_fb, theirs) == 0);
    CHECK(CALL(fini) == 0);
  });
  CHECK(CALL(flush_fb, epoch) == 0);
  CHECK(CALL(close_fb, epoch) == 0);
}

TEST_CASE_FIXTURE(ProcessWith<CountingHeap>, "open_fb_without_memory_is_nomem") {
  CountingHeap& heap = client;
  cmi_cbs cbs = heap.callbacks();
  ini(CMI_VERNO, &cbs);
  heap.fail_all(true);
  CHECK_FAILS(CALL(open_fb), nullptr, CMI_ERR_NOMEM);
  CHECK_FAILS(CALL(open_fb), nullptr, CMI_ERR_NOMEM);
  heap.fail_all(false);
  const cmi_fb epoch = CALL(open_fb);
  REQUIRE(epoch != nullptr);
  CHECK(CALL(close_fb, epoch) == 0);
}

TEST_CASE_FIXTURE(Process, "flush_fb_of_a_wrong_epoch_is_inval") {
  ini();
  check_wrong_epochs(*this, false);
}

TEST_CASE_FIXTURE(Process, "close_fb_of_a_wrong_epoch_is_inval") {
  ini();
  check_wrong_epochs(*this, true);
}

TEST_CASE_FIXTURE(Process, "a_thread_opens_a_new_epoch_after_close_fb") {
  ini();
  for (int round = 0; round < 3; ++round) {
    const cmi_fb epoch = CALL(open_fb);
    REQUIRE(epoch != nullptr);
    CHECK(CALL(flush_fb, epoch) == 0);
    CHECK(CALL(close_fb, epoch) == 0);
  }
}

TEST_CASE_FIXTURE(Process, "an_epoch_on_the_home_node_succeeds") {
  ini();
  const cmi_seg seg = segment();
  std::byte* view = attach(seg);
  const cmi_fb epoch = CALL(open_fb);
  REQUIRE(epoch != nullptr);
  view[0] = std::byte{1};
  CHECK(CALL(flush_fb, epoch) == 0);
  view[0] = std::byte{2};
  CHECK(CALL(close_fb, epoch) == 0);
  CHECK(view[0] == std::byte{2});
}

TEST_CASE_FIXTURE(Process, "cflush_with_bad_arguments_is_inval") {
  ini();
  const cmi_seg seg = segment();
  std::byte* view = attach(seg);
  int local = 0;
  void* good[] = {view, view + 5};
  CHECK(CALL(cflush, good, 2) == 0);
  CHECK(CALL(cflush, good, 0) == 0);
  CHECK(CALL(cflush, nullptr, 0) == 0);
  CHECK_FAILS(CALL(cflush, good, -1), -1, CMI_ERR_INVAL);
  CHECK_FAILS(CALL(cflush, good, INT32_MIN), -1, CMI_ERR_INVAL);
  CHECK_FAILS(CALL(cflush, nullptr, 1), -1, CMI_ERR_INVAL);
  for (void* wrong : {static_cast<void*>(nullptr), static_cast<void*>(&local),
                      static_cast<void*>(view + unit())}) {
    CAPTURE(wrong);
    void* addresses[] = {view, wrong};
    CHECK_FAILS(CALL(cflush, addresses, 2), -1, CMI_ERR_INVAL);
  }
}

TEST_SUITE_END();

}  // namespace cmi::one_process::epoch_test
