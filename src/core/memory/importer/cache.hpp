// The size of an import's cache: pages go, least recently swept over first, when a fetch would
// exceed it. The limit is kept but for pages that are being fetched or written back at that moment.
#pragma once

#include <vector>

#include "core/memory/importer/importer_core.hpp"

namespace cmi::memory {

// Bytes that cached pages of the import may take. What is more goes before this returns.
// Bytes that a cache of this size may take: some pages at least.
size_t cache_bytes(size_t size);
void set_cache_size(ImporterCore& core, const std::shared_ptr<Import>& imp, size_t bytes);
// Before `pages` more pages are taken. Gives up at the deadline: a little too many is better than
// none.
void make_room(ImporterCore& core, const std::shared_ptr<Import>& owner, uint32_t n,
               Deadline deadline);
// Takes clean pages out of all views and gives their memory back, and that of absent ones; those to
// be written back go into *dirty.
void evict(ImporterCore& core, Import& imp, uint32_t first, uint32_t n,
           std::vector<uint32_t>* dirty);
// Memory for pages that are about to be fetched: where the file's reservation is gone, storing into
// a page that cannot be had would raise SIGBUS inside the provider. False: there is none.
bool back_pages(Import& imp, PageRange pages);

}  // namespace cmi::memory
