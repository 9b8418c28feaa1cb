// One fault on a view of a local import, served by the table that serves the others
// (fault_decision.hpp): its pages are protected or stored to, and never fetched.
#pragma once

#include <optional>

#include "core/memory/importer/fault_decision.hpp"
#include "core/memory/importer/importer_core.hpp"

namespace cmi::memory {

class LocalFault {
 public:
  LocalFault(ImporterCore& core, const View& view, uint32_t index, bool store, Deadline deadline)
      : core_(core),
        view_(view),
        imp_(*view.import),
        index_(index),
        store_(store),
        deadline_(deadline) {}
  // None: the import is a local one no more.
  std::optional<Exception> serve();

 private:
  // None: the fault is looked at again.
  std::optional<Exception> try_once();
  FaultDecision decide(LocalViews::Page page);
  bool map(LocalViews::Opened& at, FaultAction how);
  bool let_stores(LocalViews::Opened& at);
  std::optional<Exception> carry_out(FaultAction action);
  std::optional<Exception> join();
  std::optional<Exception> no_memory();
  std::optional<Exception> refuse();
  std::optional<Exception> await_lease();

  ImporterCore& core_;
  const View& view_;
  Import& imp_;
  const uint32_t index_;
  const bool store_;
  const Deadline deadline_;
  Exception refusal_ = Exception::kNone;
  uint32_t changes_ = 0;
  bool asked_break_ = false;
};

}  // namespace cmi::memory
