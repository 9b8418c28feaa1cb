// The imports of this process, by the ids of their proxies on the node: what the client imported,
// and what it attached of the imports of other processes. An import stays while it has views here,
// or while the client that imported it has not removed it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/lock.hpp"
#include "core/context/lock_order.hpp"

namespace cmi::memory {
struct Import;
}

namespace cmi::context {

// Any thread. Its lock is a leaf.
class ImportedSegments {
 public:
  using Import = std::shared_ptr<memory::Import>;

  // By seg_imp of this process.
  void add_ours(int32_t seg, Import import);
  // Counts one more view of the segment; null: there is no import of it here.
  Import begin_view(int32_t seg);
  // The same with an import that was made for the view. Returns the one that stays: of several
  // threads that make one, the first.
  Import begin_view(int32_t seg, Import made);
  void end_view(int32_t seg);
  int views(int32_t seg);

  // CMI_SEG_RM: it goes with its last view, and no event names it any more.
  void mark_removed(int32_t seg);
  // The import, if nothing needs it any more; it is out of the table then. Null otherwise.
  Import take_unused(int32_t seg);

  Import ours(int32_t seg);  // null: this process did not import it
  std::vector<Import> all_ours();
  std::vector<Import> all();
  std::vector<Import> take_all();
  uint32_t count_ours();
  // The break as this process has heard of it, in bytes.
  std::optional<size_t> brk(int32_t seg);

 private:
  struct Entry {
    Import import;
    bool ours = false;
    bool removed = false;
    int views = 0;
  };
  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_sizes);
  std::map<int32_t, Entry> entries_ CMI_GUARDED_BY(mu_);
};

}  // namespace cmi::context
