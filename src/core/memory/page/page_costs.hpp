// What pages cost: at an importer those that its threads wait for, at a home those that are
// published, by whom and where in the page. Kept for the pages that cost most, in bounded memory.
//
// Any thread, the fault handler too. Whoever counts never waits: where another thread is counting,
// it leaves its own out, so a count is a little low where many threads miss at once. The locks are
// leaves.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/ids.hpp"
#include "core/base/lock.hpp"
#include "core/memory/page/top_pages.hpp"
#include "core/memory/page/update_protocol.hpp"
#include "core/memory/wire/wire.hpp"
#include "core/node/context_report.hpp"

namespace cmi::memory {

// Of one import. Regions as well as pages: what is loaded in order costs at no page of its own.
class PageCosts {
 public:
  enum class Kind { kLoadMiss, kStoreMiss, kFirstStore };
  void count(uint32_t page, Kind kind);
  // A notification that names these pages; useless: none of them was cached.
  void count_notice(std::span<const PageRange> pages, bool useless);

  void report(node::ImportLine* out);

 private:
  using Cost = node::PageCost;
  Mutex mu_;
  TopPages<Cost, 64> pages_ CMI_GUARDED_BY(mu_);
  TopPages<Cost, 16> regions_ CMI_GUARDED_BY(mu_);
};

// Of one segment at home.
class PageWriters {
 public:
  // An importer's diff of the page: these words. A writer is shown with its known words alone.
  void count_words(uint32_t page, const ContextId& by, const StoredWords& words);
  // A publication of these pages; `by`: none for one of the home's own node.
  void count_publication(std::span<const PageRange> pages, const ContextId& by);
  // One sharer is notified of these pages.
  void count_notice(std::span<const PageRange> pages);

  void report(node::HomeLine* out);

 private:
  static constexpr size_t kMost = 4;  // writers that are told apart
  struct Writer {
    ContextId by;
    uint64_t publications = 0;
    StoredWords words;
  };
  struct Cost {
    uint64_t publications = 0, notices = 0, bounces = 0;
    std::array<Writer, kMost> writers;
    uint32_t known = 0;  // so many of them
    bool more = false;   // there were others, whose place was taken
    ContextId last;      // has published it last
    Writer& writer(const ContextId& by);
  };
  using Table = TopPages<Cost, 32>;
  // Made with the first publication: most segments of a home have none. Null: there is no memory.
  Table* table() CMI_REQUIRES(mu_);

  Mutex mu_;
  std::unique_ptr<Table> table_ CMI_GUARDED_BY(mu_);
};

}  // namespace cmi::memory
