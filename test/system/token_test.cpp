// tok_new, tok_del and CMI_SEG_TOKEN at home: arguments, owners, limits.
#include <cstring>
#include <set>
#include <vector>

#include "system/one_process.hpp"

namespace cmi::one_process::token_test {

namespace {

cmi_token* token_of(Flat& bytes) { return reinterpret_cast<cmi_token*>(bytes.data()); }
cmi_naddr* naddr_of(Flat& bytes) { return reinterpret_cast<cmi_naddr*>(bytes.data()); }

}  // namespace

TEST_SUITE_BEGIN("access");

TEST_CASE_FIXTURE(Process, "tokens_for_any_node_are_never_bound") {
  constexpr int kTokens = 100;
  ini();
  const cmi_seg seg = segment();
  REQUIRE(info().max_acc_stok >= kTokens);
  std::set<Flat> different;
  for (int i = 0; i < kTokens; ++i) different.insert(copy_of(seg, token(seg, CMI_ACC_READ)));
  CHECK(different.size() == kTokens);
  for (Flat tok : different) CHECK(CALL(tok_del, token_of(tok)) == 0);
}

TEST_CASE_FIXTURE(Process, "as_many_tokens_as_info_says_and_no_more") {
  ini();
  const cmi_cfg_info limits = info();
  REQUIRE(limits.max_acc_stok >= 10000);
  const cmi_seg seg = segment(), other = segment();
  std::vector<cmi_token*> tokens;
  for (uint32_t i = 0; i < limits.max_acc_stok; ++i) {
    tokens.push_back(CALL(tok_new, seg, CMI_NADDR_ANY, CMI_ACC_READ));
    if (tokens.back() == nullptr) break;
  }
  REQUIRE(tokens.size() == limits.max_acc_stok);
  REQUIRE(tokens.back() != nullptr);
  CHECK_FAILS(CALL(tok_new, seg, CMI_NADDR_ANY, CMI_ACC_READ), nullptr, CMI_ERR_NOMEM);
  // Of one segment as of all.
  uint32_t all = limits.max_acc_stok;
  while (all < limits.max_acc_toks &&
         CALL(tok_new, other, CMI_NADDR_ANY, CMI_ACC_READ) != nullptr) {
    ++all;
  }
  CHECK(all == limits.max_acc_toks);
  CHECK_FAILS(CALL(tok_new, other, CMI_NADDR_ANY, CMI_ACC_READ), nullptr, CMI_ERR_NOMEM);
  // One that goes makes room for one, wherever it stood.
  for (const size_t at : {size_t{0}, tokens.size() / 2, tokens.size() - 1}) {
    CHECK(CALL(tok_del, tokens[at]) == 0);
    CHECK(CALL(tok_new, seg, CMI_NADDR_ANY, CMI_ACC_READ) != nullptr);
    CHECK_FAILS(CALL(tok_new, seg, CMI_NADDR_ANY, CMI_ACC_READ), nullptr, CMI_ERR_NOMEM);
  }
}

TEST_CASE_FIXTURE(Process, "tok_newva_of_what_is_no_part_of_the_segment_is_inval") {
  ini();
  const size_t size = unit();
  const cmi_seg seg = segment(4), other = segment(4);
  std::byte* view = attach(seg);
  std::byte* elsewhere = attach(other);
  const auto fails = [&](cmi_seg s, void* va, size_t bytes, cmi_error why) {
    CAPTURE(va);
    CAPTURE(bytes);
    CHECK_FAILS(CALL(tok_newva, s, va, bytes, CMI_NADDR_ANY, CMI_ACC_READ), nullptr, why);
  };
  fails(seg, view, 0, CMI_ERR_INVAL);
  fails(seg, view, size - 1, CMI_ERR_INVAL);
  fails(seg, view + 1, size, CMI_ERR_INVAL);
  fails(seg, view, 5 * size, CMI_ERR_INVAL);
  fails(seg, view + 3 * size, 2 * size, CMI_ERR_INVAL);
  fails(seg, view + 4 * size, size, CMI_ERR_INVAL);
  fails(seg, view, ~size_t{0} / size * size, CMI_ERR_INVAL);
  fails(seg, nullptr, size, CMI_ERR_INVAL);
  fails(seg, elsewhere, size, CMI_ERR_INVAL);
  fails(seg, &view, size, CMI_ERR_INVAL);
  fails(987654, view, size, CMI_ERR_INVAL);
  CHECK_FAILS(CALL(tok_newva, seg, view, size, nullptr, CMI_ACC_READ), nullptr, CMI_ERR_INVAL);
  CHECK_FAILS(CALL(tok_newva, seg, view, size, CMI_NADDR_ANY, 0), nullptr, CMI_ERR_INVAL);
  const cmi_seg import = import_own(seg);
  fails(import, attach(import), size, CMI_ERR_INVAL);
  // The first page, the last, all of them; and once for a node.
  CHECK(CALL(tok_newva, seg, view, size, CMI_NADDR_ANY, CMI_ACC_READ) != nullptr);
  CHECK(CALL(tok_newva, seg, view + 3 * size, size, CMI_NADDR_ANY, CMI_ACC_READ) != nullptr);
  CHECK(CALL(tok_newva, seg, view, 4 * size, ctxt->naddr, CMI_ACC_READ) != nullptr);
  CHECK_FAILS(CALL(tok_newva, seg, view, size, ctxt->naddr, CMI_ACC_READ), nullptr, CMI_ERR_BOUND);
  CHECK_FAILS(CALL(tok_new, seg, ctxt->naddr, CMI_ACC_READ), nullptr, CMI_ERR_BOUND);
  CHECK(CALL(seg_ctl, other, CMI_SEG_RM, nullptr) == 0);
  fails(other, elsewhere, size, CMI_ERR_INVAL);
}

TEST_CASE_FIXTURE(Process, "tok_new_of_an_unknown_segment_is_inval") {
  ini();
  const cmi_seg home = segment();
  const cmi_seg import = import_own(home);
  const cmi_seg removed = segment();
  std::byte* view = attach(removed);
  CHECK(CALL(seg_ctl, removed, CMI_SEG_RM, nullptr) == 0);
  for (const cmi_seg seg :
       {0, CMI_SEG_INVALID, CMI_SEG_ALL, 987654, INT32_MAX, INT32_MIN, import, removed}) {
    CAPTURE(seg);
    CHECK_FAILS(CALL(tok_new, seg, CMI_NADDR_ANY, CMI_ACC_READ), nullptr, CMI_ERR_INVAL);
    CHECK_FAILS(CALL(tok_new, seg, ctxt->naddr, CMI_ACC_READ), nullptr, CMI_ERR_INVAL);
  }
  CHECK(CALL(seg_dt, removed, view) == 0);
}

TEST_CASE_FIXTURE(Process, "tok_new_with_a_malformed_address_is_inval") {
  ini();
  const cmi_seg seg = segment();
  const Flat good = copy_of(ctxt->naddr);
  CHECK_FAILS(CALL(tok_new, seg, nullptr, CMI_ACC_READ), nullptr, CMI_ERR_INVAL);
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    CAPTURE(bit);
    Flat flipped = good;
    flipped[bit / 8] ^= std::byte(1u << bit % 8);
    CHECK_FAILS(CALL(tok_new, seg, naddr_of(flipped), CMI_ACC_READ), nullptr, CMI_ERR_INVAL);
  }
  for (size_t length = 0; length < good.size(); ++length) {
    CAPTURE(length);
    Flat truncated(good.begin(), good.begin() + static_cast<ptrdiff_t>(length));
    truncated.resize(good.size());
    CHECK_FAILS(CALL(tok_new, seg, naddr_of(truncated), CMI_ACC_READ), nullptr, CMI_ERR_INVAL);
  }
  Flat foreign = good;
  reinterpret_cast<cmi_base*>(foreign.data())->vendor = 0x1234;
  CHECK_FAILS(CALL(tok_new, seg, naddr_of(foreign), CMI_ACC_READ), nullptr, CMI_ERR_INVAL);
  // An object of another kind is no address either.
  Flat handle = export_segment(seg);
  CHECK_FAILS(CALL(tok_new, seg, naddr_of(handle), CMI_ACC_READ), nullptr, CMI_ERR_INVAL);
}

TEST_CASE_FIXTURE(Process, "tok_new_with_no_or_unknown_rights_is_inval") {
  ini();
  const cmi_seg seg = segment();
  for (const cmi_acc rights : {0u, 8u, 0x10u, 0x80000000u, 0xffffffffu, CMI_ACC_READ | 8u}) {
    CAPTURE(rights);
    CHECK_FAILS(CALL(tok_new, seg, CMI_NADDR_ANY, rights), nullptr, CMI_ERR_INVAL);
  }
  for (cmi_acc rights = 1; rights < 8; ++rights) {
    CAPTURE(rights);
    CHECK(CALL(tok_new, seg, CMI_NADDR_ANY, rights) != nullptr);
  }
}

TEST_CASE_FIXTURE(Process, "tok_del_of_a_token_that_is_not_ours_is_inval") {
  ini();
  const cmi_seg seg = segment();
  Flat copy = copy_of(seg, token(seg));
  CHECK_FAILS(CALL(tok_del, nullptr), -1, CMI_ERR_INVAL);
  for (size_t at = 0; at < copy.size(); at += 7) {
    CAPTURE(at);
    Flat damaged = copy;
    damaged[at] ^= std::byte{0x10};
    CHECK_FAILS(CALL(tok_del, token_of(damaged)), -1, CMI_ERR_INVAL);
  }
  CHECK(CALL(tok_del, token_of(copy)) == 0);
  CHECK_FAILS(CALL(tok_del, token_of(copy)), -1, CMI_ERR_INVAL);
  Flat handle = export_segment(seg);
  CHECK_FAILS(CALL(tok_del, token_of(handle)), -1, CMI_ERR_INVAL);
}

TEST_CASE_FIXTURE(Process, "a_token_set_on_a_home_segment_is_inval") {
  ini();
  const cmi_seg seg = segment();
  cmi_ds ds;
  ds.token.tok = token(seg);
  CHECK_FAILS(CALL(seg_ctl, seg, CMI_SEG_TOKEN, &ds), -1, CMI_ERR_INVAL);
  CHECK((status_flags(seg) & CMI_SEG_ST_TOKEN_SET) == 0);
}

TEST_CASE_FIXTURE(Process, "cmi_enb_leaves_home_views_alone") {
  ini();
  std::byte* view = attach(segment());
  const auto check = [&](char value) {
    CHECK_FALSE(load_fault(view).caught);
    CHECK_FALSE(store_fault(view).caught);
    view[1] = std::byte(value);
    CHECK(view[1] == std::byte(value));
  };
  check(1);  // never enabled
  CHECK(CALL(cmi_enb, 1) == 0);
  check(2);
  CHECK(CALL(cmi_enb, 0) == 0);
  check(3);
  in_thread([&] { check(4); });  // not even registered
}

TEST_SUITE_END();

}  // namespace cmi::one_process::token_test
