// The caches of imports, and the views of them. Application threads.
#pragma once

#include "core/memory/importer/importer_core.hpp"

namespace cmi::memory {

class ImportViews {
 public:
  explicit ImportViews(ImporterCore& core) : core_(core) {}

  // Before the first view; once. Where the home is on this machine its pages are asked for; else
  // there is a cache. kNoMem. `reserve`: memory for all of the cache is taken now.
  Status prepare(Import& imp, bool reserve);
  // The cache file and its tables; once. kNoMem.
  Status make_cache(Import& imp, bool reserve);
  // The import is prepared. kNoMem: there is no room at `addr`, or none at all.
  Result<std::shared_ptr<const View>> attach(const std::shared_ptr<Import>& imp, void* addr,
                                             bool read_only);
  void detach(const std::shared_ptr<const View>& view, Deadline deadline);
  // Bytes that cached pages of the import may take. What is more goes before this returns.
  void set_cache_size(const std::shared_ptr<Import>& imp, size_t bytes);
  // Pages of the view that will be loaded: those that are not cached are asked for, and nobody
  // waits until they are here. A hint: what cannot be had in time is left to the load.
  void prefetch(const View& view, PageRange pages, Deadline deadline);
  // No thread may access anything: the next access of each page faults again. Only the mappings go,
  // pages keep their states and come back without asking the home.
  void close_all();

 private:
  // In the process's table and in the import's list.
  std::shared_ptr<const View> enter(const std::shared_ptr<Import>& imp, std::byte* at,
                                    bool read_only);
  Result<std::shared_ptr<const View>> attach_local(const std::shared_ptr<Import>& imp, void* addr,
                                                   bool read_only);
  Result<std::shared_ptr<const View>> attach_write_through(const std::shared_ptr<Import>& imp,
                                                           void* addr, bool read_only);

  ImporterCore& core_;
};

}  // namespace cmi::memory
