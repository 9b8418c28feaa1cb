// Write-backs: dirty pages into messages, and what becomes of the pages when these are answered.
// Application threads and, for the timer and for pages that were invalidated while dirty, the
// service thread, which never waits.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/memory/importer/importer_core.hpp"
#include "core/memory/importer/patience.hpp"

namespace cmi::memory {

class Collector;

// The last part reports what the write-back has lost, and completes it.
void end_part(ImporterCore& core, const WriteBackPtr& write_back);

// Writes back the dirty ones of `pages`, which are sorted here, and waits for answers in between
// where the collector is full. Those with an earlier write-back still under way stay in the dirty
// list. Returns how many pages it came to in time.
size_t write_back(ImporterCore& core, Import& imp, std::vector<uint32_t>& pages, Collector& out,
                  const Patience& patience);
// All of them, sorted, without a wait.
void write_back_sorted(ImporterCore& core, Import& imp, std::span<const uint32_t> pages,
                       Collector& out);

// hot_write_back.cpp
bool is_hot(Page& page);
// Those of `pages` that are hot; the others are left alone. False: not in time. Without patience
// nothing is waited for. *busy: those with an earlier write-back under way.
enum class Which { kAll, kDue };  // kDue: those that the timer has found changed once before
bool send_hot(ImporterCore& core, Import& imp, std::span<const uint32_t> pages, Collector& out,
              const Patience* patience, std::vector<uint32_t>* busy, Which which = Which::kAll);
// Long ranges of hot pages that changed in every byte leave `hot` for `pages`: a bulk write from
// the pages themselves takes fewer copies than the faults of the next stores cost. Both sorted.
void take_dense(ImporterCore& core, Import& imp, std::vector<uint32_t>* hot,
                std::vector<uint32_t>* pages);

// write_back_answers.cpp
// The home has applied the diffs of these pages and everyone else has dropped them, or it refused,
// or nobody knows (no status): the home is lost, or was given up. Ends a part of the write-back.
void answered(ImporterCore& core, const WriteBackPtr& write_back, std::vector<uint32_t>& pages,
              std::optional<WireStatus> status);
// The home has refused stores to these pages, or nobody will answer: they are lost. For pages that
// are not cached; the caller ends its part of the write-back.
void refuse_pages(ImporterCore& core, const WriteBackPtr& write_back, std::vector<uint32_t>& pages,
                  std::optional<WireStatus> status);

// write_behind.cpp
// Stores in order that are many: the calling thread takes home what is behind it.
void write_behind(ImporterCore& core, const std::shared_ptr<Import>& imp);
// Waits until few write-backs of the import are under way. False: not in time.
bool await_room_behind(ImporterCore& core, const std::shared_ptr<Import>& imp, Deadline deadline);

// free_twins.cpp
// No twin can be had: some of the oldest dirty pages of each import go home, and where those are
// all hot, some of them. False: nothing is dirty, or no twin is free in time.
bool free_twins(ImporterCore& core, Deadline deadline);

}  // namespace cmi::memory
