// The end of imports in good order: of one of them, of all with their context. Application threads.
#pragma once

#include <vector>

#include "core/memory/importer/importer_core.hpp"
#include "core/memory/importer/patience.hpp"

namespace cmi::memory {

class Leaving {
 public:
  explicit Leaving(ImporterCore& core) : core_(core) {}

  // Writes back and notifies the home; for the end of an import. Views must be gone.
  void leave(const std::shared_ptr<Import>& imp, const Patience& patience);
  // Writes back and notifies the homes that the context ends, where a home may forget all that was
  // imported from it. The imports stay, and threads that run keep the pages that they have.
  void say_goodbye(const std::vector<std::shared_ptr<Import>>& imports, const Patience& patience);
  // The same, and forgets the imports. Views must be gone.
  void leave_all(const std::vector<std::shared_ptr<Import>>& imports, const Patience& patience);

 private:
  // kOver: the home lives, as far as we know, and may forget this import. With stores or reads
  // still under way it must not: should the stores arrive and never be announced, it notifies the
  // others when it finds us dead.
  enum class Use { kOver, kHomeEnded, kUnderWay };
  Use end_use(const std::shared_ptr<Import>& imp, const Patience& patience);
  bool being_written_back(const Import& imp) const;

  ImporterCore& core_;
};

}  // namespace cmi::memory
