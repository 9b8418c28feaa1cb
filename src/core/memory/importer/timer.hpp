// The timer of the importing side: what no barrier publishes goes home in the background, with a
// bounded share of a processor. Service thread, which never waits.
#pragma once

#include <vector>

#include "core/base/cpu_share.hpp"
#include "core/memory/importer/importer_core.hpp"

namespace cmi::memory {

class WriteBackTimer {
 public:
  explicit WriteBackTimer(ImporterCore& core) : core_(core) {}

  void tick();
  // To the homes; after a while in which no request has.
  void report_acked_below();

 private:
  void take_aged(const std::shared_ptr<Import>& imp);
  void take_hot(const std::shared_ptr<Import>& imp);
  bool leaves(Import& imp, uint32_t index, Nanos t);
  Nanos used() const;
  bool left() const;

  ImporterCore& core_;
  // Of a processor, for write-backs that no thread waits for: 5 %.
  CpuShare share_{20, 2 * kMilli};
  size_t turn_ = 0;
  uint64_t looked_at_ = 0;  // pages
};

}  // namespace cmi::memory
