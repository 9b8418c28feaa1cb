#include "core/context/cache_sizes.hpp"

#include <vector>

#include "core/base/cause.hpp"
#include "core/memory/importer/import.hpp"

namespace cmi::context {

void CacheSizes::start(const std::shared_ptr<memory::Import>& import) {
  Guard g(mu_);
  if (default_ != 0) services_.engine.importer().views().set_cache_size(import, default_);
}

void CacheSizes::forget(int32_t seg) {
  Guard g(mu_);
  at_home_.erase(seg);
}

Status CacheSizes::set(int32_t seg, size_t bytes) {
  if (bytes == 0) return because(Status::kInval, "a cache of 0 bytes");
  std::vector<std::shared_ptr<memory::Import>> imports;
  if (seg == CMI_SEG_ALL) {
    Guard g(mu_);
    default_ = bytes;
    at_home_.clear();
    imports = imports_.all_ours();
  } else {
    const auto info = services_.known(seg);
    if (!info) return info.status();
    if (info->removed) return because(Status::kInval, "the segment was removed");
    const bool home = info->kind == node::SegmentKind::kHome;
    if (home && !services_.engine.home().owns(seg))
      return because(Status::kPerm, "another process made or imported it");
    if (home) {
      Guard g(mu_);
      at_home_[seg] = bytes;
    } else if (auto import = imports_.ours(seg); import != nullptr) {
      imports.push_back(std::move(import));
    } else {
      return because(Status::kPerm, "another process made or imported it");
    }
  }
  for (auto& i : imports) services_.engine.importer().views().set_cache_size(i, bytes);
  return Status::kOk;
}

Result<size_t> CacheSizes::get(int32_t seg) {
  if (seg == CMI_SEG_ALL) return because(Status::kInval, "only one segment can be asked for");
  const auto info = services_.known(seg);
  if (!info) return info.status();
  if (info->removed) return because(Status::kInval, "the segment was removed");
  size_t bytes = info->size;  // no limit
  const bool home = info->kind == node::SegmentKind::kHome;
  if (home && !services_.engine.home().owns(seg))
    return because(Status::kPerm, "another process made or imported it");
  if (home) {
    Guard g(mu_);
    if (default_ != 0) bytes = default_;
    if (auto it = at_home_.find(seg); it != at_home_.end()) bytes = it->second;
    return bytes;
  }
  const auto import = imports_.ours(seg);
  if (import == nullptr) return because(Status::kPerm, "another process made or imported it");
  const size_t set = import->cache.use.size();
  return set != 0 ? set : bytes;
}

}  // namespace cmi::context
