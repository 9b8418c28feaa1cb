#include "core/context/imported_segments.hpp"

#include <algorithm>
#include <utility>

#include "core/memory/importer/import.hpp"

namespace cmi::context {

void ImportedSegments::add_ours(int32_t seg, Import import) {
  Guard g(mu_);
  Entry& entry = entries_[seg];
  entry.import = std::move(import);
  entry.ours = true;
}

ImportedSegments::Import ImportedSegments::begin_view(int32_t seg) {
  Guard g(mu_);
  auto it = entries_.find(seg);
  if (it == entries_.end()) return nullptr;
  ++it->second.views;
  return it->second.import;
}

ImportedSegments::Import ImportedSegments::begin_view(int32_t seg, Import made) {
  Guard g(mu_);
  auto [it, fresh] = entries_.try_emplace(seg);
  if (fresh) it->second.import = std::move(made);
  ++it->second.views;
  return it->second.import;
}

void ImportedSegments::end_view(int32_t seg) {
  Guard g(mu_);
  if (auto it = entries_.find(seg); it != entries_.end()) --it->second.views;
}

int ImportedSegments::views(int32_t seg) {
  Guard g(mu_);
  auto it = entries_.find(seg);
  return it == entries_.end() ? 0 : it->second.views;
}

void ImportedSegments::mark_removed(int32_t seg) {
  Guard g(mu_);
  auto it = entries_.find(seg);
  if (it == entries_.end()) return;
  it->second.removed = true;
  it->second.import->events.marked.store(true);
}

ImportedSegments::Import ImportedSegments::take_unused(int32_t seg) {
  Guard g(mu_);
  auto it = entries_.find(seg);
  if (it == entries_.end()) return nullptr;
  const Entry& entry = it->second;
  if (entry.views > 0 || (entry.ours && !entry.removed)) return nullptr;
  Import import = std::move(it->second.import);
  entries_.erase(it);
  return import;
}

ImportedSegments::Import ImportedSegments::ours(int32_t seg) {
  Guard g(mu_);
  auto it = entries_.find(seg);
  return it == entries_.end() || !it->second.ours ? nullptr : it->second.import;
}

std::vector<ImportedSegments::Import> ImportedSegments::all_ours() {
  Guard g(mu_);
  std::vector<Import> imports;
  for (auto& [seg, entry] : entries_) {
    if (entry.ours) imports.push_back(entry.import);
  }
  return imports;
}

std::vector<ImportedSegments::Import> ImportedSegments::all() {
  Guard g(mu_);
  std::vector<Import> imports;
  for (auto& [seg, entry] : entries_) imports.push_back(entry.import);
  return imports;
}

std::vector<ImportedSegments::Import> ImportedSegments::take_all() {
  Guard g(mu_);
  std::vector<Import> imports;
  imports.reserve(entries_.size());
  for (auto& [seg, entry] : entries_) imports.push_back(std::move(entry.import));
  entries_.clear();
  return imports;
}

uint32_t ImportedSegments::count_ours() {
  Guard g(mu_);
  return static_cast<uint32_t>(
      std::count_if(entries_.begin(), entries_.end(), [](auto& e) { return e.second.ours; }));
}

std::optional<size_t> ImportedSegments::brk(int32_t seg) {
  Guard g(mu_);
  auto it = entries_.find(seg);
  if (it == entries_.end()) return std::nullopt;
  return size_t{it->second.import->brk.load()} * kPageSize;
}

}  // namespace cmi::context
