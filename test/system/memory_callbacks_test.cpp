// The client's allocation callbacks over whole sessions: every byte comes back, and every failing
// allocation is CMI_ERR_NOMEM from the call that met it.
#include <functional>

#include "system/counting_heap.hpp"
#include "system/one_process.hpp"

namespace cmi::one_process::memory_callbacks_test {

namespace {

// A session on this node alone, call by call. A call that fails is repeated once: only one
// allocation of a session is made to fail.
class Session : public Process {
 public:
  explicit Session(CountingHeap& heap) : heap_(heap) {}

  void run() {
    cmi_cbs cbs = heap_.callbacks();
    step("cmi_ini", [&] { return (ctxt = cmi_ini(CMI_VERNO, &cbs)) != nullptr; });
    if (ctxt == nullptr) return;
    in_thread([&] {
      step("ini_th", [&] { return CALL(ini_th) == 0; });
      step("fini", [&] { return CALL(fini) == 0; });
    });

    cmi_seg seg = CMI_SEG_INVALID;
    step("seg_get", [&] { return (seg = CALL(seg_get, 1 << 16, 0)) > 0; });
    void* view = nullptr;
    step("seg_at", [&] { return (view = CALL(seg_at, seg, nullptr, 0)) != nullptr; });
    cmi_rseg* rseg = nullptr;
    step("seg_exp", [&] { return (rseg = CALL(seg_exp, seg, 0)) != nullptr; });
    cmi_token* tok = nullptr;
    const cmi_acc rights = CMI_ACC_READ | CMI_ACC_WRITE | CMI_ACC_ATOMIC;
    step("tok_new", [&] { return (tok = CALL(tok_new, seg, CMI_NADDR_ANY, rights)) != nullptr; });
    if (view == nullptr || rseg == nullptr || tok == nullptr) return;
    Flat handle = copy_of(seg, rseg);

    cmi_seg import = CMI_SEG_INVALID;
    step("seg_imp",
         [&] { return (import = CALL(seg_imp, reinterpret_cast<cmi_rseg*>(handle.data()))) > 0; });
    cmi_ds ds;
    ds.token.tok = tok;
    step("seg_ctl", [&] { return CALL(seg_ctl, import, CMI_SEG_TOKEN, &ds) == 0; });
    void* remote = nullptr;
    step("seg_at", [&] { return (remote = CALL(seg_at, import, nullptr, 0)) != nullptr; });
    step("cmi_enb", [&] { return CALL(cmi_enb, 1) == 0; });
    cmi_fb epoch = nullptr;
    step("open_fb", [&] { return (epoch = CALL(open_fb)) != nullptr; });
    if (remote == nullptr || epoch == nullptr) return;

    *static_cast<volatile char*>(remote) = 42;
    step("wmb_fn", [&] { return CALL(wmb_fn) == 0; });
    CHECK(*static_cast<volatile char*>(view) == 42);
    step("flush_fb", [&] { return CALL(flush_fb, epoch) == 0; });
    uint64_t was = 0;
    auto* word = static_cast<uint64_t*>(remote) + 1;
    step("atm_cas", [&] { return CALL(atm_cas, word, 0, 5, &was) == 0; });
    CHECK(static_cast<volatile uint64_t*>(view)[1] == 5);
    step("close_fb", [&] { return CALL(close_fb, epoch) == 0; });
    step("seg_dt", [&] { return CALL(seg_dt, import, remote) == 0; });
    step("seg_ctl", [&] { return CALL(seg_ctl, import, CMI_SEG_RM, nullptr) == 0; });
    step("tok_del", [&] { return CALL(tok_del, tok) == 0; });
    step("rseg_del", [&] { return CALL(rseg_del, rseg) == 0; });
    step("seg_dt", [&] { return CALL(seg_dt, seg, view) == 0; });
    step("fini", [&] { return CALL(fini) == 0; });
    ctxt = nullptr;
  }

 private:
  void step(const char* name, const std::function<bool()>& call) {
    const bool before = heap_.has_failed_here();
    if (call()) {
      // An allocation that fails is never swallowed.
      CHECK_MESSAGE(heap_.has_failed_here() == before, name, " succeeded without its memory");
      return;
    }
    const cmi_error cause = error();
    CHECK_MESSAGE(cause == CMI_ERR_NOMEM, name, " failed with ", static_cast<int>(cause));
    CHECK_MESSAGE((heap_.has_failed_here() && !before), name, " failed, but not for its memory");
    CHECK_MESSAGE(call(), name, " cannot be repeated: ", static_cast<int>(error()));
  }

  CountingHeap& heap_;
};

}  // namespace

TEST_SUITE_BEGIN("context");

TEST_CASE("every_byte_given_by_the_callbacks_is_freed_at_the_end") {
  CountingHeap heap;
  Session(heap).run();
  CHECK(heap.allocations() > 0);
  CHECK(heap.blocks() == 0);
  CHECK(heap.bytes() == 0);
  CHECK(heap.strays() == 0);
}

TEST_CASE("failing_each_allocation_in_turn_gives_nomem") {
  constexpr unsigned kFarTooMany = 1000;
  unsigned n = 1;
  for (; n < kFarTooMany; ++n) {
    CAPTURE(n);
    CountingHeap heap;
    heap.fail_at(n);
    Session(heap).run();
    CHECK(heap.blocks() == 0);
    CHECK(heap.bytes() == 0);
    CHECK(heap.strays() == 0);
    if (!heap.has_failed()) break;
  }
  CHECK(n > 5);  // context, handle, token and epoch at least
  CHECK(n < kFarTooMany);
  MESSAGE("allocations of a session: ", n - 1);
}

TEST_SUITE_END();

}  // namespace cmi::one_process::memory_callbacks_test
