// The request that sets the dirty intent of a page in the home's map of pages in flux, while a
// store waits for it, and of those behind it where stores go on in order.
// One thread, the one that faulted, all signals blocked.
#pragma once

#include <array>
#include <functional>
#include <memory>

#include "core/memory/importer/importer_core.hpp"

namespace cmi::memory {

class IntentRequest {
 public:
  // The page has just been noted as waiting for its dirty intent, under its lock.
  IntentRequest(ImporterCore& core, Import& imp, uint32_t page, uint8_t epoch)
      : core_(core), imp_(imp), page_(page), epochs_{epoch} {}
  ~IntentRequest();  // the dirty intent is not being asked for any more
  IntentRequest(const IntentRequest&) = delete;
  IntentRequest& operator=(const IntentRequest&) = delete;

  // Before start(): for up to so many pages from the first on, as many as a store would find clean.
  void widen(uint32_t count);
  void start();  // once; await() calls it if it was not called before
  // Instead: asks for what the page holds, too, which is put at `content` when the dirty intent is
  // granted. `meanwhile` runs when it has been asked. `region_epoch`: its region is to be held
  // under this epoch from then on; 0: it is. The answer is here then, or the time is over.
  void fetch(std::byte* content, uint32_t region_epoch, Deadline deadline,
             const std::function<void()>& meanwhile);
  // kNone: what the access needs has been done, or it is to be tried again. May end the import:
  // after fetch(), not under the lock that its caller held for that.
  Exception await(Deadline deadline);
  bool granted() const { return granted_; }
  PageRange pages() const { return {page_, count_}; }

 private:
  void start(RequestType type);
  void take_answer(std::byte* content, Deadline deadline);
  Exception refused(Deadline deadline);
  void end(bool granted);

  ImporterCore& core_;
  Import& imp_;
  const uint32_t page_;
  uint32_t count_ = 1;
  std::array<uint8_t, StoreStreams::kMaxWindow> epochs_;  // of the pages asked for
  std::shared_ptr<fabric::Request> request_;
  WireStatus status_ = WireStatus::kMalformed;  // of the answer
  uint32_t seen_ = 0;                           // ChangeWait::seen() before it was awaited
  bool awaited_ = false;
  bool ended_ = false, granted_ = false;
};

}  // namespace cmi::memory
