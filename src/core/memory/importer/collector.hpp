// Takes the changes of pages into one write-back: diffs are packed into publish messages; runs of
// pages that changed in every byte, too long for one message, are written one-sided from the pages
// themselves. One thread; signals blocked; the pages added are locked by
// the caller.
#pragma once

#include <array>
#include <functional>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include "core/memory/importer/importer_core.hpp"
#include "core/memory/importer/patience.hpp"
#include "core/memory/page/diff.hpp"
#include "core/memory/wire/requests.hpp"

namespace cmi::memory {

// Pages that changed whole and are written one-sided, a write-back of their own. Their twins are
// kept until the write's fate is known: with them the home can tell whether it arrived.
struct BulkWrite {
  WriteBackPtr write_back;
  uint32_t first = 0;
  std::vector<uint32_t> twins;  // of the pages from `first` on
};

class Collector {
 public:
  // Fewer fit into one message, which the home publishes as it takes them: one round trip, where a
  // write and its announcement are two.
  static constexpr uint32_t kMinRun = fabric::kMaxPayload / kPageSize + 1;
  // Messages without an answer, 2 MiB: enough to keep a wire busy. A thread that adds pages looks
  // after each run of them, so there may be those of a run more.
  static constexpr size_t kMostUnanswered = 64;
  // The same for a home that takes less at the moment.
  static size_t most_unanswered(const fabric::Link& link) {
    return std::min(kMostUnanswered, link.allowed());
  }
  static constexpr size_t kMostBytes = fabric::kMaxPayload - sizeof(uint64_t);  // and a secret
  // Kept free in front of a message, for what a request with a swap has more at its beginning.
  static constexpr size_t kFront = kWireSize<SwapFetchRequest> - kWireSize<PublishRequest>;
  // Without a write-back, one is begun with the first page.
  Collector(ImporterCore& core, std::shared_ptr<Import> imp, WriteBackPtr write_back = {});
  ~Collector();  // sends the rest and ends the collector's part of the write-back
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  // Packs what differs from the twin; returns the bytes, 0 when nothing does. The message
  // clears the page's dirty intent at the home.
  size_t add(uint32_t page, const std::byte* twin) { return add(page, twin, nullptr); }
  // The same of a page that may still be stored to: the twin becomes what is sent.
  size_t add_and_renew(uint32_t page, std::byte* twin) { return add(page, twin, twin); }
  // The same of a hot page: each word of it is read once, and its dirty intent stays at the home.
  // 0: nothing differs, and nothing is done.
  size_t add_hot(uint32_t page, std::byte* twin);
  // Whether it has changed since it was sent last.
  bool differs(uint32_t page, const std::byte* twin) const;
  // Has the home clear the dirty intent of a page: it equals the home's, or its stores are lost.
  void clear_intent(uint32_t page);
  // Sends what has been added. No page may be locked.
  void flush();
  bool empty() const { return pages_.empty(); }
  // Whether all that was added stands in one message that is not sent yet, with room for a swap.
  bool fits_swap() const;
  // Sends it with a swap, which the home makes when it is published. `on_answer` runs first when
  // the home has answered, with nothing where it never will.
  using OnAnswer = std::function<void(Bytes)>;
  std::shared_ptr<fabric::Request> flush_with(const CasRequest& swap, OnAnswer on_answer);
  // The same of a swap whose answer brings more. Its number of pages is filled in.
  std::shared_ptr<fabric::Request> flush_with(SwapFetchRequest swap, OnAnswer on_answer);

  // Whether too many messages, or pages of bulk writes, are unanswered for more pages to be added
  // now. The bound keeps what is under way within the provider's queues. It also bounds the memory
  // that waits when a connection breaks and each page of a bulk write becomes a message.
  bool full();
  // The same over all messages of the link, for a caller that does not wait: it begins a new
  // collector later.
  bool link_full() const;
  // Waits until half of them are answered; false when they are not in time. No page may be locked,
  // nor ImportViewList::mu. Bulk writes that were added must have been started.
  bool await_room(const Patience& patience);

  // Lets runs go one-sided: with the session key, where it is at hand. Waits for nothing.
  void allow_runs();
  // How many pages, from this one to before `end`, are dirty and changed in every byte; 0 when they
  // are too few to go one-sided.
  uint32_t run_at(uint32_t page, uint32_t end);
  // They leave kDirty, with their twins.
  void add_run(uint32_t first, uint32_t n);
  // Starts the writes of the runs added. No page may be locked.
  void start_runs();

 private:
  size_t add(uint32_t page, const std::byte* twin, std::byte* renewed);
  size_t pack(uint32_t page, uint8_t epoch, const std::byte* data, const std::byte* twin,
              Bytes* diff);
  void renew(Bytes diff, uint32_t page, std::byte* twin);
  std::span<std::byte> buffer();  // kFront and the message
  template <class Message>
  std::shared_ptr<fabric::Request> send_with(RequestType type, const Message& m,
                                             OnAnswer on_answer);
  void open();
  bool grow();
  void release_bulk_write();

  ImporterCore& core_;
  std::shared_ptr<Import> import_;
  WriteBackPtr write_back_;
  std::array<std::byte, kFront + 512> little_;  // for the message, while it is short
  std::unique_ptr<std::byte[]> large_;          // for kFront + kMostBytes
  std::optional<Writer> out_;
  std::vector<uint32_t> pages_;
  // From the first that is not answered on. A list: empty, as it mostly is, it takes no memory.
  std::list<std::shared_ptr<fabric::Request>> sent_;
  std::shared_ptr<fabric::Session> session_;  // set: runs may go one-sided
  fabric::RemoteKey key_;
  std::vector<DirtyIntent> unmarked_;
  uint32_t no_run_before_ = 0;                      // pages below have been looked at
  std::vector<std::shared_ptr<BulkWrite>> runs_;    // to be started
  std::list<std::shared_ptr<BulkWrite>> runs_out_;  // from the first that is not over on
  size_t run_pages_ = 0;                            // of those
};

}  // namespace cmi::memory
