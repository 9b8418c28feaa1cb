// Keeps the calling thread the only one that cmi_enb opens imported segments to, while it lives and
// if it is the only one when it begins: others that ask for access wait (thread_enabled). Private
// to the Importer. What is done meanwhile must not wait.
#pragma once

#include "core/base/library_thread.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/importer/importer.hpp"
#include "core/memory/vm/sigbus.hpp"

namespace cmi::memory {

class Importer::ExclusiveAccess {
 public:
  explicit ExclusiveAccess(Importer& importer) : importer_(importer) {
    // Under the lock: who comes to be enabled is counted here, or finds exclusive_ set. A thread of
    // ours that serves a fault has access in the name of the thread that waits for it, whose signal
    // handlers may store meanwhile.
    Guard g(importer_.enabled_mu_);
    mine_ = (importer_.enabled_.size() == 1 && t_access_enabled && !t_library_thread) ||
            mutated("mutate_taken_for_sole");
    if (mine_) importer_.exclusive_.store(true, std::memory_order_relaxed);
  }
  // Release pairs with who waits: what was done meanwhile is seen.
  ~ExclusiveAccess() {
    if (mine_) importer_.exclusive_.store(false, std::memory_order_release);
  }
  ExclusiveAccess(const ExclusiveAccess&) = delete;
  ExclusiveAccess& operator=(const ExclusiveAccess&) = delete;
  bool mine() const { return mine_; }

 private:
  Importer& importer_;
  bool mine_ = false;
};

}  // namespace cmi::memory
