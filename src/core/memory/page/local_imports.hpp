// What the home's side has to say to the importing side of its own process: messages of neighbours
// on the node that concern imports arrive there, on the node's bus. The home's side knows no more
// of the importing side than this.
// Threads: the service thread.
#pragma once

#include <cstdint>

namespace cmi::memory {

class LocalImports {
 public:
  // The process that imported the segment for this node has set another token: no access is made
  // under the old token when this returns.
  virtual void token_changed(int32_t id) = 0;
  // Pages of the import with this id. 0: this process did not make such an import, or the import is
  // marked for deletion.
  virtual uint32_t pages_of_ours(int32_t id) = 0;

 protected:
  ~LocalImports() = default;
};

}  // namespace cmi::memory
