#include "core/context/cache_sizes.hpp"

#include <vector>

#include "core/base/cause.hpp"
#include "core/memory/importer/import.hpp"

namespace cmi::context {

void CacheSizes::start(const std::shared_ptr<memory::Import>& import) {
  Guard g(mu_);
  const size_t bytes = chosen_.of_new();
  if (bytes != 0) services_.engine.importer().views().set_cache_size(import, bytes);
}

void CacheSizes::forget(int32_t seg) {
  Guard g(mu_);
  chosen_.forget(seg);
}

Status CacheSizes::set(int32_t seg, size_t bytes) {
  if (bytes == 0) return because(Status::kInval, "a cache of 0 bytes");
  std::vector<std::shared_ptr<memory::Import>> imports;
  if (seg == CMI_SEG_ALL) {
    Guard g(mu_);
    chosen_.set_all(bytes);
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
      chosen_.set(seg, bytes);
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
  const bool home = info->kind == node::SegmentKind::kHome;
  if (home && !services_.engine.home().owns(seg))
    return because(Status::kPerm, "another process made or imported it");
  if (home) {
    Guard g(mu_);
    return chosen_.of(seg, info->size);
  }
  const auto import = imports_.ours(seg);
  if (import == nullptr) return because(Status::kPerm, "another process made or imported it");
  const size_t set = import->cache.use.size();
  return set != 0 ? set : size_t{info->size};  // no limit
}

}  // namespace cmi::context
