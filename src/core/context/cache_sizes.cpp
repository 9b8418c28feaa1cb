#include "core/context/cache_sizes.hpp"

#include <vector>

#include "core/base/cause.hpp"
#include "core/memory/importer/cache.hpp"
#include "core/memory/importer/import.hpp"

namespace cmi::context {

void CacheSizes::start(const std::shared_ptr<memory::Import>& import) {
  Guard g(mu_);
  const size_t bytes = chosen_.of_new();
  // As it was begun, but for what was said since; the last word counts, whether there is room.
  if (bytes != 0 && bytes != import->cache.use.size()) (void)apply(import, bytes);
}

size_t CacheSizes::of_new() {
  Guard g(mu_);
  return chosen_.of_new();
}

// What a cache may take is counted before it takes more, and after it takes less.
Status CacheSizes::apply(const std::shared_ptr<memory::Import>& import, size_t bytes) {
  const uint64_t most = memory::cache_bytes(bytes);
  auto& breaks = services_.node.breaks();
  const bool grows = most > import->cache.use.most_bytes();
  if (grows) {
    if (Status s = breaks.charge_cache(import->id, most); s == Status::kNoMem) return s;
  }
  services_.engine.importer().views().set_cache_size(import, bytes);
  if (!grows) (void)breaks.charge_cache(import->id, most);
  return Status::kOk;
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
  Status all = Status::kOk;
  for (auto& i : imports) {
    if (Status s = apply(i, bytes); !ok(s)) all = s;
  }
  return all;
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
