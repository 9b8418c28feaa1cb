// What holds for every call: the checks that come before all others, failure values, and what this
// build of the library has and lacks.
#include <cmi/ofi/cmi_impl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "system/every_call.hpp"
#include "system/one_process.hpp"

namespace cmi::one_process::calls_test {

namespace {

// Bytes enough for a context of any version, at an address where nothing is mapped.
cmi_ctxt* unmapped() {
  void* p = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(p != MAP_FAILED);
  ::munmap(p, 4096);
  return static_cast<cmi_ctxt*>(p);
}

// Makes one of everything, so that the calls of kEveryCall would succeed.
Arguments make_one_of_each(Process& process) {
  cmi_ctxt* ctxt = process.ctxt;
  Arguments args;
  args.seg = process.segment();
  args.view = process.attach(args.seg);
  args.rseg = CALL(seg_exp, args.seg, 0);
  args.tok = process.token(args.seg);
  args.epoch = CALL(open_fb);
  REQUIRE(args.rseg != nullptr);
  REQUIRE(args.epoch != nullptr);
  return args;
}

}  // namespace

TEST_SUITE_BEGIN("context");

TEST_CASE_FIXTURE(Process, "every_function_table_entry_can_be_called") {
  for (const uint16_t verno : {10, 11}) {
    ini(verno);
    REQUIRE(ctxt->fns10 != nullptr);
    REQUIRE(ctxt->fns11 != nullptr);
    const auto is_null = [](void (*entry)()) { return entry == nullptr; };
    const auto* first = reinterpret_cast<void (*const*)()>(ctxt->fns11);
    CHECK(std::none_of(first, first + sizeof(cmi_fns_11) / sizeof *first, is_null));
    first = reinterpret_cast<void (*const*)()>(ctxt->fns10);
    CHECK(std::none_of(first, first + sizeof(cmi_fns_10) / sizeof *first, is_null));

    CHECK(CMIFN(ctxt, 10, wmb_fn)(ctxt) == 0);
    CHECK(CMIFN(ctxt, 10, rmb_fn)(ctxt) == 0);
    CHECK(CMIFN(ctxt, 10, mb_fn)(ctxt) == 0);
    CHECK(CMIFN(ctxt, 10, evt_get)(ctxt) == nullptr);
    CHECK(error() == CMI_ERR_NONE);
    CMIFN(ctxt, 10, evt_ret)(nullptr, CMI_EVENT_RET_DONE);
    end();
  }
}

TEST_CASE_FIXTURE(Process, "an_entry_newer_than_the_context_is_notsupp") {
  ini(10);
  const cmi_seg seg = segment();
  std::byte* view = attach(seg);
  void* own = ::mmap(nullptr, unit(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(own != MAP_FAILED);
  CHECK_FAILS(CALL(seg_getva, own, unit(), 0), CMI_SEG_INVALID, CMI_ERR_NOTSUPP);
  CHECK_FAILS(CALL(tok_newva, seg, view, unit(), CMI_NADDR_ANY, CMI_ACC_READ), nullptr,
              CMI_ERR_NOTSUPP);
  ::munmap(own, unit());
}

TEST_CASE_FIXTURE(Process, "every_call_from_an_unregistered_thread_is_init") {
  ini();
  const Arguments args = make_one_of_each(*this);
  in_thread([&] {
    for (const Entry& entry : kEveryCall) {
      CAPTURE(std::string(entry.name));
      if (std::strcmp(entry.name, "ini_th") == 0) continue;
      CHECK(entry.fails(*ctxt->fns11, ctxt, args));
      CHECK(cmi_get_error(ctxt) == CMI_ERR_INIT);
    }
    CHECK_FAILS(cmi_mb(), -1, CMI_ERR_INIT);
    CHECK_FAILS(cmi_wmb(), -1, CMI_ERR_INIT);
  });
  // Nothing was done: all that was made is still there to be taken back.
  CHECK(CALL(close_fb, args.epoch) == 0);
  CHECK(CALL(tok_del, args.tok) == 0);
  CHECK(CALL(rseg_del, args.rseg) == 0);
  CHECK(CALL(seg_dt, args.seg, args.view) == 0);
}

TEST_CASE_FIXTURE(Process, "every_call_with_a_wrong_context_is_inval") {
  ini();
  const Arguments args = make_one_of_each(*this);
  cmi_ctxt copy = *ctxt;
  cmi_ctxt* const wrong_ones[] = {nullptr, unmapped(), &copy};
  const auto check = [&] {
    for (cmi_ctxt* wrong : wrong_ones) {
      for (const Entry& entry : kEveryCall) {
        CAPTURE(std::string(entry.name));
        CAPTURE(wrong);
        CHECK(entry.fails(*ctxt->fns11, wrong, args));
        CHECK(cmi_get_error(wrong) == CMI_ERR_INVAL);
      }
    }
  };
  check();
  in_thread(check);  // unregistered: the context is looked at first
  CHECK(CALL(close_fb, args.epoch) == 0);
  CHECK(CALL(tok_del, args.tok) == 0);
  CHECK(CALL(rseg_del, args.rseg) == 0);
  CHECK(CALL(seg_dt, args.seg, args.view) == 0);
}

TEST_CASE_FIXTURE(Process, "every_failing_call_returns_its_failure_value_and_error") {
  ini();
  const cmi_seg seg = segment();
  std::byte* view = attach(seg);
  const cmi_seg none = seg + 1000;
  size_t value = 0;
  size_t length = sizeof value;
  auto* word = reinterpret_cast<uint64_t*>(view);
  auto* no_rseg = reinterpret_cast<cmi_rseg*>(view);  // zeros
  auto* no_token = reinterpret_cast<cmi_token*>(view);

  CHECK_FAILS(CALL(atm_cas, word, 0, 1, nullptr), -1, CMI_ERR_INVAL);
  CHECK_FAILS(CALL(attr_get, none, CMI_ATTR_RSEG_SIZE, &value, &length), -1, CMI_ERR_INVAL);
  CHECK_FAILS(CALL(cflush, nullptr, 1), -1, CMI_ERR_INVAL);
  CHECK_FAILS(CALL(close_fb, nullptr), -1, CMI_ERR_INVAL);
  CHECK_FAILS(CALL(cmi_ctl, CMI_CTL_INFO, nullptr), -1, CMI_ERR_INVAL);
  CHECK_FAILS(CALL(flush_fb, nullptr), -1, CMI_ERR_INVAL);
  CHECK_FAILS(CALL(ini_th), -1, CMI_ERR_BOUND);
  CHECK_FAILS(cmi_ini(20, nullptr), nullptr, CMI_ERR_NOTSUPP);
  CHECK_FAILS(CALL(rseg_del, no_rseg), -1, CMI_ERR_INVAL);
  CHECK_FAILS(CALL(seg_at, none, nullptr, 0), nullptr, CMI_ERR_INVAL);
  CHECK_FAILS(CALL(seg_ctl, none, CMI_SEG_RM, nullptr), -1, CMI_ERR_INVAL);
  CHECK_FAILS(CALL(seg_dt, seg, nullptr), -1, CMI_ERR_INVAL);
  CHECK_FAILS(CALL(seg_exp, none, 0), nullptr, CMI_ERR_INVAL);
  CHECK_FAILS(CALL(seg_get, 0, 0), CMI_SEG_INVALID, CMI_ERR_INVAL);
  CHECK_FAILS(CALL(seg_imp, no_rseg), CMI_SEG_INVALID, CMI_ERR_INVAL);
  CHECK_FAILS(CALL(tok_del, no_token), -1, CMI_ERR_INVAL);
  CHECK_FAILS(CALL(tok_new, seg, CMI_NADDR_ANY, 0), nullptr, CMI_ERR_INVAL);
  const cmi_fb epoch = CALL(open_fb);
  CHECK(epoch != nullptr);
  CHECK_FAILS(CALL(open_fb), nullptr, CMI_ERR_BOUND);
  CHECK(CALL(close_fb, epoch) == 0);

  // cmi_enb, the barriers, evt_get and fini fail for the thread or the context alone.
  in_thread([&] {
    CHECK_FAILS(CALL(cmi_enb, 1), -1, CMI_ERR_INIT);
    CHECK_FAILS(CALL(mb_fn), -1, CMI_ERR_INIT);
    CHECK_FAILS(CALL(wmb_fn), -1, CMI_ERR_INIT);
    CHECK_FAILS(CALL(rmb_fn), -1, CMI_ERR_INIT);
    CHECK_FAILS(CALL(evt_get), nullptr, CMI_ERR_INIT);
    CHECK_FAILS(CALL(fini), -1, CMI_ERR_INIT);
  });
}

TEST_CASE_FIXTURE(Process, "capabilities_are_set_only_for_what_works") {
  ini();
  const cmi_seg seg = segment();
  const auto has = [&](uint64_t capability) { return (ctxt->caps & capability) != 0; };
  const auto works_or_notsupp = [&](bool wanted, bool worked) {
    CHECK(worked == wanted);
    if (!worked) CHECK(error() == CMI_ERR_NOTSUPP);
  };
  constexpr uint64_t kKnown = CMI_CAP_EXTENSIBLE_SEGMENTS | CMI_CAP_NODE_SPECIFIC_TOKEN |
                              CMI_CAP_WRITE_THROUGH | CMI_CAP_THREAD_ENABLE | CMI_CAP_MIXED_CONSIST;
  CHECK((ctxt->caps & ~kKnown) == 0);

  works_or_notsupp(has(CMI_CAP_EXTENSIBLE_SEGMENTS), CALL(seg_get, unit(), CMI_SEG_EXTENSIBLE) > 0);
  works_or_notsupp(has(CMI_CAP_NODE_SPECIFIC_TOKEN),
                   CALL(tok_new, seg, ctxt->naddr, CMI_ACC_READ) != nullptr);
  works_or_notsupp(has(CMI_CAP_WRITE_THROUGH),
                   CALL(seg_exp, seg, CMI_SEG_WRITE_THROUGH) != nullptr);
  CHECK((info().max_write_through_segs > 0) == has(CMI_CAP_WRITE_THROUGH));

  // The default is inconsistent, so that the other mode is what a platform of one mode lacks.
  CHECK(CALL(seg_get, unit(), CMI_SEG_CLIENT_INCONSIST) > 0);
  works_or_notsupp(has(CMI_CAP_MIXED_CONSIST), CALL(seg_get, unit(), CMI_SEG_CLIENT_CONSIST) > 0);

  // Access is open to each thread by itself: one that enabled it opens nothing for another.
  if (has(CMI_CAP_THREAD_ENABLE)) {
    const cmi_seg import = import_own(seg);
    const std::byte* remote = attach(import);
    CHECK(CALL(cmi_enb, 1) == 0);
    CHECK_FALSE(load_fault(remote).caught);
    in_thread([&] {
      CHECK(CALL(ini_th) == 0);
      CHECK(load_fault(remote).is_cmi(CMI_ERROR_ENABLE));
      CHECK(CALL(fini) == 0);
    });
    CHECK(CALL(seg_dt, import, const_cast<std::byte*>(remote)) == 0);
  }
}

TEST_SUITE_END();

}  // namespace cmi::one_process::calls_test
