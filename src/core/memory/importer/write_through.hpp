// Write-through imports: nothing is cached, each load and each store is a request to the home,
// which makes it in its own memory and answers then. Runs in the SIGBUS handler of the thread that
// accesses, all signals blocked; calls wait for the home.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/memory/importer/importer_core.hpp"

namespace cmi::memory {

class WriteThrough {
 public:
  explicit WriteThrough(ImporterCore& core) : core_(core) {}

  // Accesses, made at home. kNone: done. A store without an answer is left in *pending. If *pending
  // holds the same store already, that one is awaited and none is started.
  Exception load(const View& view, uint64_t offset, std::byte* to, size_t len, Deadline deadline);
  // `written`: a byte for each, zero where nothing is stored; null: all are.
  Exception store(const View& view, uint64_t offset, const std::byte* from, size_t len,
                  const uint8_t* written, PendingStore* pending, Deadline deadline);
  Exception swap(const View& view, uint64_t offset, const std::byte* expected,
                 const std::byte* desired, size_t len, std::byte* found, PendingStore* pending,
                 Deadline deadline);
  // Whether such an access is let through, as far as it is known here.
  Exception may(const View& view, uint64_t offset, size_t len, bool read, bool write,
                Deadline deadline);
  // Before a swap is computed: one that the same instruction has left is awaited. *happened: it has
  // taken effect on what is put into `old`, and swap() will find its answer.
  Exception settle_swap(const View& view, uint64_t offset, std::byte* old, size_t len,
                        PendingStore& pending, bool* happened, Deadline deadline);
  // What the last such accesses of threads have left.
  PendingStores& pending_stores() { return core_.pending_stores; }

 private:
  using Outcome = std::optional<Exception>;  // none: to be asked again

  Exception ask(const std::shared_ptr<Import>& owner, RequestType type, Bytes payload,
                PendingStore* pending, std::vector<std::byte>* reply, Deadline deadline);
  Outcome take_answer(Import& imp, Bytes answer, uint64_t token, std::vector<std::byte>* reply,
                      Deadline deadline);
  std::shared_ptr<fabric::Request> take_pending(const std::shared_ptr<Import>& imp,
                                                RequestType type, Bytes payload,
                                                PendingStore* pending);
  Exception leave_pending(const std::shared_ptr<Import>& imp, RequestType type, Bytes payload,
                          std::shared_ptr<fabric::Request> request, PendingStore* pending);

  ImporterCore& core_;
};

}  // namespace cmi::memory
