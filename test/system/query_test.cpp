// seg_ctl with STATUS, INFO and RM, attr_get, cmi_ctl with INFO; the arguments of all commands.
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "core/node/node.hpp"
#include "system/one_process.hpp"

namespace cmi::one_process::query_test {

namespace {

bool power_of_two(size_t n) { return n != 0 && (n & (n - 1)) == 0; }

const cmi_seg kUnknown[] = {0, CMI_SEG_INVALID, CMI_SEG_ALL, 987654, INT32_MAX, INT32_MIN};

}  // namespace

TEST_SUITE_BEGIN("segment");

TEST_CASE_FIXTURE(Process, "seg_ctl_of_an_unknown_segment_is_inval") {
  ini();
  for (const cmi_seg seg : kUnknown) {
    for (const int32_t command : {CMI_SEG_RM, CMI_SEG_TOKEN, CMI_SEG_STATUS, CMI_SEG_INFO}) {
      CAPTURE(seg);
      CAPTURE(command);
      cmi_ds ds;
      std::memset(&ds, 0, sizeof ds);
      CHECK_FAILS(CALL(seg_ctl, seg, command, &ds), -1, CMI_ERR_INVAL);
    }
  }
}

TEST_CASE_FIXTURE(Process, "seg_ctl_with_an_unknown_command_is_inval") {
  ini();
  const cmi_seg seg = segment();
  cmi_ds ds;
  std::memset(&ds, 0, sizeof ds);
  // Commands of cmi_ctl are none of seg_ctl.
  for (const int32_t command : {0, -1, 1, 0x100, 0x108, INT32_MAX, INT32_MIN, CMI_CTL_INFO}) {
    CAPTURE(command);
    CHECK_FAILS(CALL(seg_ctl, seg, command, &ds), -1, CMI_ERR_INVAL);
  }
}

TEST_CASE_FIXTURE(Process, "seg_ctl_with_a_null_operand_is_inval") {
  ini();
  const cmi_seg home = segment();
  for (const cmi_seg seg : {home, import_own(home, 0)}) {
    for (const int32_t command : {CMI_SEG_TOKEN, CMI_SEG_STATUS, CMI_SEG_INFO}) {
      CAPTURE(command);
      CHECK_FAILS(CALL(seg_ctl, seg, command, nullptr), -1, CMI_ERR_INVAL);
    }
    CHECK(CALL(seg_ctl, seg, CMI_SEG_RM, nullptr) == 0);
  }
}

TEST_CASE_FIXTURE(Process, "seg_rm_twice_succeeds") {
  ini();
  const cmi_seg home = segment();
  const cmi_seg import = import_own(home);
  for (const cmi_seg seg : {import, home}) {
    std::byte* view = attach(seg);  // keeps it, or its id would be unknown the second time
    CHECK(CALL(seg_ctl, seg, CMI_SEG_RM, nullptr) == 0);
    CHECK(CALL(seg_ctl, seg, CMI_SEG_RM, nullptr) == 0);
    CHECK((status_flags(seg) & CMI_SEG_ST_REMOVED) != 0);
    CHECK_FAILS(CALL(seg_at, seg, nullptr, 0), nullptr, CMI_ERR_INVAL);
    CHECK(CALL(seg_dt, seg, view) == 0);
  }
}

TEST_CASE_FIXTURE(Process, "seg_info_tells_size_alignment_and_flags") {
  ini();
  for (const int32_t flags : {0, CMI_SEG_NORESERVE, CMI_SEG_CLIENT_INCONSIST,
                              CMI_SEG_CLIENT_INCONSIST | CMI_SEG_NORESERVE}) {
    CAPTURE(flags);
    const cmi_seg seg = segment(3, flags);
    cmi_ds ds;
    std::memset(&ds, 0xff, sizeof ds);
    REQUIRE(CALL(seg_ctl, seg, CMI_SEG_INFO, &ds) == 0);
    CHECK(ds.info.seg_sz == 3 * unit());
    CHECK(ds.info.seg_brk == 3 * unit());
    CHECK(ds.info.seg_align == info().seg_alignment);
    CHECK(ds.info.seg_flags == flags);
  }
}

TEST_CASE_FIXTURE(Process, "attr_get_gives_the_size_of_handle_token_and_address") {
  ini();
  const cmi_seg home = segment();
  for (const cmi_seg seg : {home, import_own(home)}) {
    for (const int32_t attribute : {CMI_ATTR_RSEG_SIZE, CMI_ATTR_TOKEN_SIZE}) {
      CAPTURE(attribute);
      // A larger buffer: the answer's length is told, and nothing else is written.
      size_t answer[] = {0, 0x5a5a};
      size_t length = sizeof answer;
      REQUIRE(CALL(attr_get, seg, attribute, answer, &length) == 0);
      CHECK(length == sizeof(size_t));
      CHECK(answer[0] >= sizeof(cmi_base));
      CHECK(answer[1] == 0x5a5a);
    }
  }
  // An object says itself how long it is; what is told is neither less nor more.
  const auto length_of = [](const void* object) {
    uint32_t length = 0;
    std::memcpy(&length, static_cast<const char*>(object) + 12, sizeof length);
    return size_t{length};
  };
  const cmi_rseg* const handle = CALL(seg_exp, home, 0);
  const cmi_token* const token = CALL(tok_new, home, CMI_NADDR_ANY, CMI_ACC_READ);
  REQUIRE(handle != nullptr);
  REQUIRE(token != nullptr);
  CHECK(size_of(home, CMI_ATTR_RSEG_SIZE) == length_of(handle));
  CHECK(size_of(home, CMI_ATTR_TOKEN_SIZE) == length_of(token));
  CHECK(size_of(home, CMI_ATTR_NODEADDR_SIZE) == length_of(ctxt->naddr));
  size_t naddr = 0;
  for (const cmi_seg seg : kUnknown) {  // not looked at
    CHECK(size_of(seg, CMI_ATTR_NODEADDR_SIZE) >= sizeof(cmi_base));
    if (naddr == 0) naddr = size_of(seg, CMI_ATTR_NODEADDR_SIZE);
    CHECK(size_of(seg, CMI_ATTR_NODEADDR_SIZE) == naddr);
  }
}

TEST_CASE_FIXTURE(Process, "attr_get_with_a_short_buffer_is_nomem_and_tells_the_size") {
  ini();
  const cmi_seg seg = segment();
  for (const int32_t attribute :
       {CMI_ATTR_RSEG_SIZE, CMI_ATTR_TOKEN_SIZE, CMI_ATTR_NODEADDR_SIZE}) {
    for (const size_t bytes : {0, 4, 7}) {
      CAPTURE(bytes);
      size_t answer = 0x5a5a;
      size_t length = bytes;
      CHECK_FAILS(CALL(attr_get, seg, attribute, &answer, &length), -1, CMI_ERR_NOMEM);
      CHECK(length == sizeof(size_t));
      CHECK(answer == 0x5a5a);
    }
  }
}

TEST_CASE_FIXTURE(Process, "attr_get_of_an_unknown_attribute_is_inval") {
  ini();
  const cmi_seg seg = segment();
  for (const int32_t attribute : {0, -1, 0x300, 0x304, CMI_SEG_INFO, INT32_MAX, INT32_MIN}) {
    size_t answer = 0;
    size_t length = sizeof answer;
    CAPTURE(attribute);
    CHECK_FAILS(CALL(attr_get, seg, attribute, &answer, &length), -1, CMI_ERR_INVAL);
  }
}

TEST_CASE_FIXTURE(Process, "attr_get_of_an_unknown_segment_is_inval") {
  ini();
  for (const cmi_seg seg : kUnknown) {
    for (const int32_t attribute : {CMI_ATTR_RSEG_SIZE, CMI_ATTR_TOKEN_SIZE}) {
      size_t answer = 0;
      size_t length = sizeof answer;
      CAPTURE(seg);
      CHECK_FAILS(CALL(attr_get, seg, attribute, &answer, &length), -1, CMI_ERR_INVAL);
    }
  }
}

TEST_CASE_FIXTURE(Process, "attr_get_without_a_buffer_is_inval") {
  ini();
  const cmi_seg seg = segment();
  size_t value = 0;
  size_t length = sizeof value;
  CHECK_FAILS(CALL(attr_get, seg, CMI_ATTR_RSEG_SIZE, nullptr, &length), -1, CMI_ERR_INVAL);
  CHECK_FAILS(CALL(attr_get, seg, CMI_ATTR_RSEG_SIZE, &value, nullptr), -1, CMI_ERR_INVAL);
  CHECK_FAILS(CALL(attr_get, 0, CMI_ATTR_NODEADDR_SIZE, nullptr, nullptr), -1, CMI_ERR_INVAL);
}

TEST_CASE_FIXTURE(Process, "ctl_info_tells_limits_and_units") {
  ini();
  const cmi_cfg_info i = info();
  CHECK(i.max_mem_cfg > 0);
  CHECK(i.max_mem_avail > 0);
  CHECK(i.max_mem_avail <= i.max_mem_cfg);
  CHECK(i.max_seg_sz > 0);
  CHECK(i.max_seg_sz % i.prot_units == 0);
  CHECK(i.max_exp_segs > 0);
  CHECK(i.max_imp_segs > 0);
  CHECK(i.max_acc_toks > 0);
  CHECK(i.max_acc_stok > 0);
  CHECK(i.max_acc_stok <= i.max_acc_toks);
  CHECK(i.cur_exp_segs == 0);
  CHECK(i.cur_imp_segs == 0);
  CHECK((i.max_write_through_segs == 0) == ((ctxt->caps & CMI_CAP_WRITE_THROUGH) == 0));
  for (const size_t n :
       {i.cache_line_sz, i.prot_units, i.seg_alloc_units, i.seg_alignment, i.seg_lrgpg_alignment}) {
    CHECK(power_of_two(n));
  }
  CHECK(i.cache_line_sz == 4096);
  CHECK(i.seg_alignment % 4096 == 0);
  CHECK(i.seg_lrgpg_alignment % i.seg_alignment == 0);
}

// A smaller unit would be no segment, and a larger one more than a segment takes.
TEST_CASE_FIXTURE(Process, "segments_take_whole_allocation_units_and_no_more") {
  ini();
  const size_t alloc = info().seg_alloc_units;
  for (const size_t size : {unit(), alloc, 2 * alloc}) {
    const size_t before = info().max_mem_avail;
    const cmi_seg seg = CALL(seg_get, size, 0);
    REQUIRE(seg > 0);
    CHECK(before - info().max_mem_avail == (size + alloc - 1) / alloc * alloc);
    CHECK(CALL(seg_ctl, seg, CMI_SEG_RM, nullptr) == 0);
  }
}

TEST_CASE_FIXTURE(Process, "ctl_info_recovery_size_is_whole_cache_lines") {
  ini();
  CHECK(info().max_reco_segsz > 0);
  CHECK(info().max_reco_segsz % info().cache_line_sz == 0);
}

TEST_CASE_FIXTURE(Process, "ctl_info_available_memory_follows_seg_get") {
  ini();
  const size_t before = info().max_mem_avail;
  const size_t size = 16 * unit();
  REQUIRE(size <= before);
  const cmi_seg seg = segment(16);
  CHECK(before - info().max_mem_avail >= size);
  CHECK(before - info().max_mem_avail < size + info().seg_alloc_units);
  CHECK(CALL(seg_ctl, seg, CMI_SEG_RM, nullptr) == 0);
  CHECK(info().max_mem_avail == before);
}

TEST_CASE_FIXTURE(Process, "cmi_ctl_of_an_unknown_command_is_inval") {
  ini();
  cmi_ctl_cfg cfg;
  std::memset(&cfg, 0, sizeof cfg);
  for (const int32_t command : {0, -1, 1, 0x200, 0x20b, CMI_SEG_INFO, INT32_MAX, INT32_MIN}) {
    CAPTURE(command);
    CHECK_FAILS(CALL(cmi_ctl, command, &cfg), -1, CMI_ERR_INVAL);
  }
}

TEST_CASE_FIXTURE(Process, "cmi_ctl_without_a_structure_is_inval") {
  ini();
  CHECK_FAILS(CALL(cmi_ctl, CMI_CTL_INFO, nullptr), -1, CMI_ERR_INVAL);
}

TEST_CASE_FIXTURE(Process, "node_addr_cmp_of_a_bad_operand_is_inval_and_writes_nothing") {
  ini();
  Flat own = copy_of(ctxt->naddr);
  Flat damaged = own;
  damaged[damaged.size() - 1] ^= std::byte{1};
  auto* const good = reinterpret_cast<cmi_naddr*>(own.data());
  auto* const bad = reinterpret_cast<cmi_naddr*>(damaged.data());
  uint32_t indexes[2] = {55, 66};
  cmi_naddr* one_bad[] = {good, bad};
  cmi_naddr* one_null[] = {good, nullptr};
  cmi_naddr* one_any[] = {good, CMI_NADDR_ANY};
  const cmi_cfg_ncmp operands[] = {
      {bad, one_bad, 1, indexes},     {nullptr, one_bad, 1, indexes},
      {good, one_bad, 2, indexes},    {good, one_null, 2, indexes},
      {good, one_any, 2, indexes},    {CMI_NADDR_ANY, one_bad, 1, indexes},
      {good, nullptr, 2, indexes},    {good, one_bad, 2, nullptr},
      {nullptr, nullptr, 0, nullptr},
  };
  for (const cmi_cfg_ncmp& operand : operands) {
    CAPTURE(&operand - operands);
    cmi_ctl_cfg cfg{};
    cfg.ncmp = operand;
    CHECK_FAILS(CALL(cmi_ctl, CMI_CTL_NODE_ADDR_CMP, &cfg), -1, CMI_ERR_INVAL);
    CHECK(cfg.ncmp.ncmp_addrs == operand.ncmp_addrs);
  }
  CHECK(indexes[0] == 55);
  CHECK(indexes[1] == 66);
  cmi_ctl_cfg cfg{};
  cfg.ncmp = {good, nullptr, 0, nullptr};
  CHECK(CALL(cmi_ctl, CMI_CTL_NODE_ADDR_CMP, &cfg) == 0);
  CHECK(cfg.ncmp.ncmp_addrs == 0);
}

// The addresses and the array of indexes are the client's memory like any other.
TEST_CASE_FIXTURE(Process, "node_addr_cmp_takes_operands_in_segments") {
  ini();
  const cmi_seg home = segment(4);
  const cmi_seg import = import_own(home);
  std::byte* near = attach(home);
  std::byte* far = attach(import);
  REQUIRE(CALL(cmi_enb, 1) == 0);
  const Flat own = copy_of(ctxt->naddr);
  std::copy(own.begin(), own.end(), near);
  auto* const address = reinterpret_cast<cmi_naddr*>(far);
  auto* const cfg = reinterpret_cast<cmi_ctl_cfg*>(far + 4096);
  auto* const list = reinterpret_cast<cmi_naddr**>(far + 8192);
  auto* const index = reinterpret_cast<uint32_t*>(far + 12288);
  REQUIRE(CALL(mb_fn) == 0);
  *list = address;
  *index = 9;
  std::memset(static_cast<void*>(cfg), 0, sizeof *cfg);
  cfg->ncmp = {address, list, 1, index};
  REQUIRE(CALL(cmi_ctl, CMI_CTL_NODE_ADDR_CMP, cfg) == 0);
  CHECK(*index == 0);
  CHECK(cfg->ncmp.ncmp_addrs == 1);
}

TEST_CASE_FIXTURE(Process, "cmi_ini_on_a_node_full_of_contexts_is_nomem") {
  // Members take descriptors of this process.
  rlimit former{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &former) == 0);
  rlimit more = former;
  more.rlim_cur = former.rlim_max;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &more) == 0);
  {
    std::vector<std::unique_ptr<cmi::node::Node>> members;
    for (uint64_t i = 1; i < cmi::node::kMaxContexts; ++i) {
      auto member = cmi::node::Node::join({folder(), "alone", uint64_t{1} << 30}, {0, i});
      REQUIRE_MESSAGE(member, "member ", i);
      members.push_back(member.take());
    }
    ini();  // the last one that there is room for
    end();
    auto last = cmi::node::Node::join({folder(), "alone", uint64_t{1} << 30}, {1, 0});
    REQUIRE(last);
    members.push_back(last.take());
    CHECK_FAILS(cmi_ini(CMI_VERNO, nullptr), nullptr, CMI_ERR_NOMEM);
    members.pop_back();
    ini();
    end();
  }
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &former) == 0);
}

TEST_SUITE_END();

}  // namespace cmi::one_process::query_test
