// The request that sets the mark of one page in the home's map of pages in flux, while a store
// waits for it. Private to the Importer. One thread, the one that faulted, all signals blocked.
#pragma once

#include "core/memory/importer.hpp"

namespace cmi::memory {

class Importer::Marking {
 public:
  // The page's mark has just been asked for, under its lock.
  Marking(Importer& importer, Import& imp, uint32_t page, uint8_t epoch)
      : importer_(importer), imp_(imp), page_(page), epoch_(epoch) {}
  ~Marking();  // the mark is not being asked for any more
  Marking(const Marking&) = delete;
  Marking& operator=(const Marking&) = delete;

  void start();  // once; await() does it where nobody did
  // Instead: asks for what the page holds, too, which is put at `content` when the mark is granted.
  // `meanwhile` runs when it has been asked.
  Exception fetch(std::byte* content, Deadline deadline, const std::function<void()>& meanwhile);
  // kNone: what the access needs has been done, or it is to be tried again.
  Exception await(Deadline deadline);
  bool granted() const { return granted_; }

 private:
  void start(RequestType type);
  Exception take_answer(std::byte* content, Deadline deadline);
  void end(bool granted);

  Importer& importer_;
  Import& imp_;
  const uint32_t page_;
  const uint8_t epoch_;
  std::shared_ptr<fabric::Request> request_;
  bool ended_ = false, granted_ = false;
};

}  // namespace cmi::memory
