// Packs the diffs of pages into publish messages of one batch. Private to the Importer.
// One thread; signals blocked; the pages added are locked by the caller.
#pragma once

#include <optional>
#include <vector>

#include "core/memory/diff.hpp"
#include "core/memory/importer.hpp"

namespace cmi::memory {

class Importer::Collector {
 public:
  // Without a batch, one is begun with the first page.
  Collector(Importer& importer, std::shared_ptr<Import> imp, std::shared_ptr<Batch> batch = {});
  ~Collector();  // sends the rest and ends the collector's part of the batch
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  // Packs what differs from the twin; returns the bytes, 0 when nothing does.
  size_t add(uint32_t page, const std::byte* twin);

 private:
  void open();
  void flush();

  Importer& importer_;
  std::shared_ptr<Import> import_;
  std::shared_ptr<Batch> batch_;
  std::vector<std::byte> buffer_;
  std::optional<Writer> out_;
  size_t count_at_ = 0;
  std::vector<uint32_t> pages_;
};

}  // namespace cmi::memory
