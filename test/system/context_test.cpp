// cmi_ini: versions, the context that it gives, its callbacks for memory.
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "system/counting_heap.hpp"
#include "system/one_process.hpp"

namespace cmi::one_process::context_test {

namespace {

// The callbacks get the heap as their argument, and it is the first member.
struct Client {
  CountingHeap heap;
  unsigned lines = 0;
};

}  // namespace

TEST_SUITE_BEGIN("context");

TEST_CASE_FIXTURE(Process, "cmi_ini_gives_the_smaller_of_both_versions") {
  static_assert(CMI_VERNO == 11);
  const struct { uint16_t asked, given; } cases[] = {{10, 10}, {11, 11}, {15, 11}, {19, 11}};
  for (const auto& c : cases) {
    CAPTURE(c.asked);
    ini(c.asked);
    CHECK(ctxt->base.verno == c.given);
    end();
  }
}

TEST_CASE_FIXTURE(Process, "cmi_ini_of_another_major_version_is_notsupp") {
  for (const uint16_t verno : {0, 9, 20, 1100, 65535}) {
    CAPTURE(verno);
    CHECK_FAILS(cmi_ini(verno, nullptr), nullptr, CMI_ERR_NOTSUPP);
  }
  ini();
}

// As with a kernel of arm64 that has pages of 16 or 64 KiB.
TEST_CASE_FIXTURE(Process, "cmi_ini_where_the_kernel_has_larger_pages_is_notsupp_and_says_so") {
  std::string said;
  cmi_cbs cbs{};
  cbs.arg = &said;
  cbs.trace_facilities = CMI_TRACE_FAC_INI;
  cbs.trace_level = CMI_TRACE_LVL_ERROR;
  cbs.log = [](void* /*arg*/, const char* /*line*/) {};
  cbs.alert = [](void* arg, const char* line) { *static_cast<std::string*>(arg) += line; };
  ::setenv("CMI_FAULT_POINT", "kernel_has_larger_pages=fail", 1);
  CHECK_FAILS(cmi_ini(CMI_VERNO, &cbs), nullptr, CMI_ERR_NOTSUPP);
  ::unsetenv("CMI_FAULT_POINT");
  CHECK(said.find("needs a kernel with pages of 4096") != std::string::npos);
  CHECK(std::string(cmi_ofi_error_text(nullptr)).find("pages are larger") != std::string::npos);
  ini();
}

TEST_CASE_FIXTURE(Process, "cmi_ini_registers_the_calling_thread") {
  ini();
  CHECK(segment() > 0);
  CHECK_FAILS(CALL(ini_th), -1, CMI_ERR_BOUND);
}

TEST_CASE_FIXTURE(Process, "cmi_ini_twice_on_one_thread_is_bound") {
  ini();
  const cmi_seg seg = segment();
  CHECK_FAILS(cmi_ini(CMI_VERNO, nullptr), nullptr, CMI_ERR_BOUND);
  CHECK_FAILS(cmi_ini(10, nullptr), nullptr, CMI_ERR_BOUND);
  *attach(seg) = std::byte{7};
  // Had the second call counted, one fini would not end the context.
  end();
  ini();
}

TEST_CASE_FIXTURE(Process, "cmi_ini_on_a_second_thread_gives_the_same_context") {
  ini();
  const cmi_seg seg = segment();
  in_thread([&] {
    CHECK(cmi_ini(10, nullptr) == ctxt);
    CHECK_FAILS(CALL(ini_th), -1, CMI_ERR_BOUND);
    CHECK(CALL(seg_get, 4096, 0) > 0);
    CHECK(CALL(fini) == 0);
  });
  CHECK(ctxt->base.verno == CMI_VERNO);
  *attach(seg) = std::byte{1};

  in_thread([&] {
    CHECK(cmi_ini(CMI_VERNO, nullptr) == ctxt);
    in_thread([&] { CHECK(cmi_ini(CMI_VERNO, nullptr) == ctxt); });
    CHECK(CALL(seg_at, seg, nullptr, 0) != nullptr);
    CHECK(CALL(fini) == 0);
  });
  CHECK(CALL(seg_at, seg, nullptr, 0) != nullptr);
}

TEST_CASE_FIXTURE(ProcessWith<CountingHeap[2]>, "cmi_ini_starts_afresh_after_the_last_fini") {
  CountingHeap& first = client[0];
  CountingHeap& second = client[1];
  cmi_cbs cbs = first.callbacks();
  ini(11, &cbs);
  const cmi_seg seg = segment();
  end();
  CHECK(first.blocks() == 0);
  const unsigned before = first.allocations();

  cbs = second.callbacks();
  ini(10, &cbs);
  CHECK(ctxt->base.verno == 10);
  CHECK(second.holds(ctxt));
  CHECK_FAILS(CALL(seg_at, seg, nullptr, 0), nullptr, CMI_ERR_INVAL);
  *attach(segment()) = std::byte{3};
  CHECK(first.allocations() == before);
  end();
  CHECK(second.blocks() == 0);
}

TEST_CASE_FIXTURE(Process, "cmi_ini_with_half_the_allocation_callbacks_is_inval") {
  CountingHeap heap;
  cmi_cbs cbs = heap.callbacks();
  cbs.free = nullptr;
  CHECK_FAILS(cmi_ini(CMI_VERNO, &cbs), nullptr, CMI_ERR_INVAL);
  cbs = heap.callbacks();
  cbs.alloc = nullptr;
  CHECK_FAILS(cmi_ini(CMI_VERNO, &cbs), nullptr, CMI_ERR_INVAL);
  CHECK(heap.allocations() == 0);
}

TEST_CASE_FIXTURE(ProcessWith<Client>, "the_callback_structure_is_copied_by_cmi_ini") {
  cmi_cbs cbs = client.heap.callbacks();
  cbs.alert = cbs.log = [](void* arg, const char* msg) {
    if (std::strstr(msg, "seg_get") != nullptr) ++static_cast<Client*>(arg)->lines;
  };
  cbs.trace_facilities = CMI_TRACE_FAC_SEG;
  cbs.trace_level = CMI_TRACE_LVL_HIGHEST;
  ini(CMI_VERNO, &cbs);
  std::memset(static_cast<void*>(&cbs), 0x5a, sizeof cbs);

  const cmi_seg seg = segment();
  CHECK(client.lines > 0);
  CHECK(client.heap.holds(token(seg)));
  end();
  CHECK(client.heap.blocks() == 0);
}

TEST_CASE_FIXTURE(Process, "cmi_ini_without_callbacks_allocates_by_itself") {
  cmi_cbs quiet{};
  quiet.alert = quiet.log = [](void* /*arg*/, const char* /*msg*/) {};
  for (cmi_cbs* cbs : {static_cast<cmi_cbs*>(nullptr), &quiet}) {
    ini(CMI_VERNO, cbs);
    const cmi_seg seg = segment();
    *attach(seg) = std::byte{9};
    cmi_rseg* rseg = CALL(seg_exp, seg, 0);
    REQUIRE(rseg != nullptr);
    CHECK(CALL(tok_del, token(seg)) == 0);
    CHECK(CALL(rseg_del, rseg) == 0);
    end();
  }
}

TEST_CASE_FIXTURE(ProcessWith<CountingHeap>, "objects_come_from_the_allocation_callbacks") {
  CountingHeap& heap = client;
  cmi_cbs cbs = heap.callbacks();
  ini(CMI_VERNO, &cbs);
  CHECK(heap.holds(ctxt));
  CHECK(heap.holds(ctxt->naddr));
  const cmi_seg seg = segment();

  cmi_rseg* rseg = CALL(seg_exp, seg, 0);
  REQUIRE(rseg != nullptr);
  CHECK(heap.holds(rseg));
  CHECK(CALL(rseg_del, rseg) == 0);
  CHECK_FALSE(heap.holds(rseg));

  cmi_token* tok = token(seg);
  CHECK(heap.holds(tok));
  CHECK(CALL(tok_del, tok) == 0);
  CHECK_FALSE(heap.holds(tok));

  const cmi_fb epoch = CALL(open_fb);
  REQUIRE(epoch != nullptr);
  CHECK(heap.holds(epoch));
  CHECK(CALL(close_fb, epoch) == 0);
  end();
  CHECK(heap.blocks() == 0);
  CHECK(heap.strays() == 0);
}

TEST_CASE_FIXTURE(Process, "the_context_names_version_vendor_and_device") {
  for (const uint16_t verno : {10, 11}) {
    ini(verno);
    CHECK(ctxt->base.verno == verno);
    CHECK(ctxt->base.vendor == CMI_VENDOR_OFI);
    CHECK(ctxt->base.device == CMI_DEVICE_SOFT);

    REQUIRE(ctxt->naddr != nullptr);
    const Flat naddr = copy_of(ctxt->naddr);
    const unsigned char base[] = {static_cast<unsigned char>(verno), 0, 0x46, 0x4f, 1, 0, 0, 0};
    CHECK(std::memcmp(naddr.data(), base, sizeof base) == 0);
    end();
  }
}

TEST_SUITE_END();

}  // namespace cmi::one_process::context_test
