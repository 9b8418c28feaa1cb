// CMI_CTL_INFO: what the node, the machine and this build offer.
#include <sys/vfs.h>

#include <algorithm>

#include "core/context/context.hpp"
#include "core/emulate/emulate.hpp"

namespace cmi::context {

namespace {
// What the file system of this folder has free; unbounded where it does not say, as a tmpfs without
// a size.
uint64_t free_bytes(const std::string& folder) {
  struct statfs fs {};
  if (::statfs(folder.c_str(), &fs) != 0 || fs.f_blocks == 0) return UINT64_MAX;
  return static_cast<uint64_t>(fs.f_bavail) * static_cast<uint64_t>(fs.f_bsize);
}
}  // namespace

void Context::info(cmi_ctl_cfg* cfg) {
  const uint64_t in_use = node_->segments().memory_in_use();
  const uint64_t most = environment_.mem_max;
  // The file system may be smaller than the limit, and others may take of it and of the machine's
  // memory, such as further nodes.
  const uint64_t free = free_bytes(environment_.runtime_dir);
  const uint64_t own = std::min(most > in_use ? most - in_use : 0, free);
  const uint64_t left = std::min(own, node_->segments().room_on_machine(own));
  const uint64_t room = free > UINT64_MAX - in_use ? UINT64_MAX : free + in_use;
  cmi_ctl_cfg c{};
  c.info.max_mem_cfg = most;
  c.info.max_mem_avail = left / kPageSize * kPageSize;
  c.info.max_seg_sz =
      std::min<size_t>(kMaxSegmentSize, std::min(most, room) / kPageSize * kPageSize);
  c.info.max_exp_segs = memory::kMaxExports;
  c.info.max_imp_segs = node::kMaxSegments;
  c.info.max_write_through_segs = emulate::supported() ? memory::kMaxExports : 0;
  c.info.max_acc_toks = memory::kMaxTokens;
  c.info.max_acc_stok = memory::kMaxTokensPerSegment;
  c.info.cur_exp_segs = engine_->home().exports().count();
  c.info.cur_imp_segs = parts_->imports.count_ours();
  c.info.cache_line_sz = kPageSize;
  c.info.max_reco_segsz = memory::kMaxRecovery;
  c.info.prot_units = kPageSize;
  c.info.seg_alloc_units = kPageSize;
  c.info.seg_alignment = access::page_size_of(0);
  c.info.seg_lrgpg_alignment = access::page_size_of(CMI_SEG_LARGE_PAGES);
  *cfg = c;
}

}  // namespace cmi::context
