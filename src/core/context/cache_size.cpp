// CMI_CTL_CACHE_RSEG_SET and CMI_CTL_CACHE_RSEG_GET.
#include "core/base/cause.hpp"
#include "core/context/context.hpp"

namespace cmi::context {

void Context::start_cache(const std::shared_ptr<memory::Import>& import) {
  if (default_cache_ != 0) engine_->importer().views().set_cache_size(import, default_cache_);
}

Status Context::set_cache_size(int32_t seg, size_t bytes) {
  if (bytes == 0) return because(Status::kInval, "a cache of 0 bytes");
  std::vector<std::shared_ptr<memory::Import>> imports;
  if (seg == CMI_SEG_ALL) {
    Guard g(mu_);
    default_cache_ = bytes;
    export_cache_.clear();
    for (auto& [id, i] : imported_) {
      if (i.ours) imports.push_back(i.import);
    }
  } else {
    const auto info = known(seg);
    if (!info) return info.status();
    if (info->removed) return because(Status::kInval, "the segment was removed");
    const bool home = info->kind == node::SegmentKind::kHome;
    if (home && !engine_->home().owns(seg))
      return because(Status::kPerm, "another process made or imported it");
    Guard g(mu_);
    if (home) {
      export_cache_[seg] = bytes;
    } else if (auto it = imported_.find(seg); it != imported_.end() && it->second.ours) {
      imports.push_back(it->second.import);
    } else {
      return because(Status::kPerm, "another process made or imported it");
    }
  }
  for (auto& i : imports) engine_->importer().views().set_cache_size(i, bytes);
  return Status::kOk;
}

Result<size_t> Context::cache_size(int32_t seg) {
  if (seg == CMI_SEG_ALL) return because(Status::kInval, "only one segment can be asked for");
  const auto info = known(seg);
  if (!info) return info.status();
  if (info->removed) return because(Status::kInval, "the segment was removed");
  size_t bytes = info->size;  // no limit
  const bool home = info->kind == node::SegmentKind::kHome;
  if (home && !engine_->home().owns(seg))
    return because(Status::kPerm, "another process made or imported it");
  Guard g(mu_);
  if (home) {
    if (default_cache_ != 0) bytes = default_cache_;
    if (auto it = export_cache_.find(seg); it != export_cache_.end()) bytes = it->second;
    return bytes;
  }
  auto it = imported_.find(seg);
  if (it == imported_.end() || !it->second.ours)
    return because(Status::kPerm, "another process made or imported it");
  const size_t set = it->second.import->cache.use.size();
  return set != 0 ? set : bytes;
}

}  // namespace cmi::context
