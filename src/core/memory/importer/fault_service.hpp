// Faults of application threads on views of imports: see fault.hpp, fetch.hpp. Runs in the SIGBUS
// handler, all signals blocked, or in the threads that take faults.
#pragma once

#include <optional>

#include "core/memory/importer/importer_core.hpp"
#include "core/memory/vm/import_faults.hpp"

namespace cmi::memory {

class FaultService final : public ImportFaults {
 public:
  explicit FaultService(ImporterCore& core) : core_(core) {}

  // A fault at `addr` of `view`. kNone: the access may be tried again.
  // `seen`: the page as it was while the thread that faulted was waiting, if that is another one
  // (see snapshot()). A store that may be over by now is left alone: its thread faults anew if not.
  Exception serve(const View& view, const std::byte* addr, bool write, const PageSeen* seen,
                  Deadline deadline);

  Userfault& userfault() override { return core_.userfault; }
  uint64_t cleaned() const override { return core_.dirty.cleaned(); }
  std::optional<PageSeen> snapshot(const View& view, const std::byte* addr,
                                   uint64_t cleaned) const override;
  bool begin_serving(pid_t thread) override { return core_.enabled.begin_serving(thread); }
  void end_serving() override { core_.enabled.end_serving(); }
  Nanos reconf_timeout() const override { return core_.reconf_timeout.get(); }
  void poison(const View& view, const std::byte* addr) override;
  void unpoison(const View& view, const std::byte* addr) override;

 private:
  ImporterCore& core_;
};

}  // namespace cmi::memory
