// seg_exp, rseg_del and seg_imp, as far as one process can see them; the bytes of what is exported.
#include <cstring>
#include <string>

#include "system/one_process.hpp"

namespace cmi::one_process::export_test {

namespace {

cmi_rseg* rseg_of(Flat& bytes) { return reinterpret_cast<cmi_rseg*>(bytes.data()); }

// The little-endian number of `bytes` bytes at `at`.
uint64_t number(const Flat& object, size_t at, size_t bytes) {
  REQUIRE(at + bytes <= object.size());
  uint64_t n = 0;
  for (size_t i = bytes; i-- > 0;) n = n << 8 | std::to_integer<uint64_t>(object[at + i]);
  return n;
}

// The head of every object: verno, vendor, device, kind, length.
void check_head(const Flat& object, const char* kind) {
  CHECK(number(object, 0, 2) == CMI_VERNO);
  CHECK(number(object, 2, 2) == 0x4f46);
  CHECK(number(object, 4, 4) == 1);
  CHECK(std::memcmp(object.data() + 8, kind, 4) == 0);
  CHECK(number(object, 12, 4) == object.size());
}

// A node address as another machine would send it.
constexpr unsigned char kGoldenNaddr[64] = {
    0x0a, 0x00, 0x46, 0x4f, 0x01, 0x00, 0x00, 0x00, 'n',  'a',  'd',  'r',  0x40, 0x00, 0x00, 0x00,
    0x42, 0x49, 0xe9, 0xeb, 0x42, 0x68, 0xb1, 0x31, 0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01,
    0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21,
    0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31, 0xc3, 0xc3, 0xc3, 0xc3, 0xc3, 0xc3, 0xc3, 0xc3};

}  // namespace

TEST_SUITE_BEGIN("access");

TEST_CASE_FIXTURE(Process, "seg_exp_of_an_unknown_segment_is_inval") {
  ini();
  for (const cmi_seg seg : {0, CMI_SEG_INVALID, CMI_SEG_ALL, 987654, INT32_MAX, INT32_MIN}) {
    CAPTURE(seg);
    CHECK_FAILS(CALL(seg_exp, seg, 0), nullptr, CMI_ERR_INVAL);
  }
  CHECK(info().cur_exp_segs == 0);
}

TEST_CASE_FIXTURE(Process, "seg_exp_of_a_removed_segment_is_inval") {
  ini();
  const cmi_seg seg = segment();
  CHECK(CALL(seg_exp, seg, 0) != nullptr);
  std::byte* view = attach(seg);  // it is still there, but to be deleted
  CHECK(CALL(seg_ctl, seg, CMI_SEG_RM, nullptr) == 0);
  CHECK_FAILS(CALL(seg_exp, seg, 0), nullptr, CMI_ERR_INVAL);
  CHECK(CALL(seg_dt, seg, view) == 0);
  CHECK_FAILS(CALL(seg_exp, seg, 0), nullptr, CMI_ERR_INVAL);
}

TEST_CASE_FIXTURE(Process, "seg_exp_with_an_unknown_attribute_is_notsupp") {
  ini();
  const cmi_seg seg = segment();
  for (unsigned bit = 0; bit < 32; ++bit) {
    const uint32_t attribute = uint32_t{1} << bit;
    if (attribute == CMI_SEG_WRITE_THROUGH) continue;
    CAPTURE(attribute);
    CHECK_FAILS(CALL(seg_exp, seg, static_cast<int32_t>(attribute)), nullptr, CMI_ERR_NOTSUPP);
  }
  CHECK((status_flags(seg) & CMI_SEG_ST_EXPORTED) == 0);
}

TEST_CASE_FIXTURE(Process, "rseg_del_leaves_the_segment_attached_and_usable") {
  ini();
  const cmi_seg seg = segment();
  std::byte* view = attach(seg);
  cmi_rseg* rseg = CALL(seg_exp, seg, 0);
  REQUIRE(rseg != nullptr);
  view[0] = std::byte{1};
  CHECK(CALL(rseg_del, rseg) == 0);
  CHECK(view[0] == std::byte{1});
  view[0] = std::byte{2};
  CHECK(*attach(seg) == std::byte{2});
  CHECK((status_flags(seg) & CMI_SEG_ST_EXPORTED) != 0);
  CHECK(CALL(seg_exp, seg, 0) != nullptr);
}

TEST_CASE_FIXTURE(Process, "rseg_del_of_a_handle_that_is_not_ours_is_inval") {
  ini();
  const cmi_seg seg = segment();
  cmi_rseg* rseg = CALL(seg_exp, seg, 0);
  REQUIRE(rseg != nullptr);
  Flat copy = copy_of(seg, rseg);

  CHECK_FAILS(CALL(rseg_del, nullptr), -1, CMI_ERR_INVAL);
  for (const size_t at :
       {size_t{0}, size_t{2}, size_t{4}, size_t{12}, copy.size() / 2, copy.size() - 1}) {
    CAPTURE(at);
    Flat damaged = copy;
    damaged[at] ^= std::byte{0x10};
    CHECK_FAILS(CALL(rseg_del, rseg_of(damaged)), -1, CMI_ERR_INVAL);
  }
  CHECK(CALL(rseg_del, rseg_of(copy)) == 0);  // a copy names it as well as the original
  CHECK_FAILS(CALL(rseg_del, rseg_of(copy)), -1, CMI_ERR_INVAL);
}

TEST_CASE_FIXTURE(Process, "a_process_imports_its_own_segment_as_a_remote_one") {
  ini();
  const cmi_seg home = segment(4);
  std::byte* view = attach(home);
  view[9] = std::byte{0x61};
  const cmi_seg import = import_own(home, 0);
  CHECK(import > 0);
  CHECK(import != home);
  CHECK((status_flags(import) & CMI_SEG_ST_IMPORTED) != 0);
  CHECK((status_flags(home) & CMI_SEG_ST_IMPORTED) == 0);
  CHECK(info().cur_imp_segs == 1);

  std::byte* remote = attach(import);
  CHECK(CALL(cmi_enb, 1) == 0);
  CHECK(load_fault(remote).is_cmi(CMI_ERROR_TOKEN));
  cmi_ds ds;
  ds.token.tok = token(home);
  REQUIRE(CALL(seg_ctl, import, CMI_SEG_TOKEN, &ds) == 0);
  CHECK(CALL(cmi_enb, 0) == 0);
  CHECK(load_fault(remote).is_cmi(CMI_ERROR_ENABLE));
  CHECK(CALL(cmi_enb, 1) == 0);
  CHECK(remote[9] == std::byte{0x61});

  view[9] = std::byte{0x62};
  CHECK(CALL(wmb_fn) == 0);
  CHECK(remote[9] == std::byte{0x62});
  remote[10] = std::byte{0x63};
  CHECK(CALL(wmb_fn) == 0);
  CHECK(view[10] == std::byte{0x63});
}

TEST_CASE_FIXTURE(Process, "handles_tokens_and_addresses_are_little_endian_bytes") {
  ini();
  const cmi_seg seg = segment(5);
  const Flat handle = export_segment(seg);
  check_head(handle, "rseg");
  CHECK(number(handle, 32, 4) == static_cast<uint64_t>(seg));
  CHECK(number(handle, 36, 8) == 5 * unit());

  const Flat tok = copy_of(seg, token(seg, CMI_ACC_READ | CMI_ACC_ATOMIC));
  check_head(tok, "tken");
  CHECK(number(tok, 24, 8) == number(handle, 24, 8));  // names the same segment
  CHECK(number(tok, 48, 4) == 0x5);
  CHECK(number(tok, 52, 1) == 1);  // for any node

  const Flat own = copy_of(ctxt->naddr);
  check_head(own, "nadr");
  CHECK(std::memcmp(own.data() + 24, handle.data() + 52, 32) == 0);  // the home's node and context

  // What was made elsewhere is understood byte for byte, and refused with one byte changed.
  Flat golden(sizeof kGoldenNaddr);
  CHECK(golden.size() == own.size());
  std::memcpy(golden.data(), kGoldenNaddr, sizeof kGoldenNaddr);
  auto* naddr = reinterpret_cast<cmi_naddr*>(golden.data());
  CHECK(CALL(tok_new, seg, naddr, CMI_ACC_READ) != nullptr);
  CHECK_FAILS(CALL(tok_new, seg, naddr, CMI_ACC_READ), nullptr, CMI_ERR_BOUND);
  std::swap(golden[0], golden[1]);
  CHECK_FAILS(CALL(tok_new, seg, naddr, CMI_ACC_READ), nullptr, CMI_ERR_INVAL);
}

TEST_SUITE_END();

}  // namespace cmi::one_process::export_test
