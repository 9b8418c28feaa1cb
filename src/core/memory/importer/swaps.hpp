// atm_cas on imported segments (protocol rule 12). Application threads; calls wait for homes.
#pragma once

#include "core/memory/importer/importer_core.hpp"
#include "core/memory/importer/patience.hpp"
#include "core/memory/importer/pending_swaps.hpp"
#include "core/memory/wire/requests.hpp"

namespace cmi::memory {

class SwapFetch;

class Swaps {
 public:
  explicit Swaps(ImporterCore& core) : core_(core) {}

  // The barrier of the caller's process must have returned already. *pending: the same at each try
  // of a call; what an earlier one has sent is awaited, not repeated. *unknown: it ended, and
  // whether it was made nobody knows; it must not be tried again.
  Exception cas(const View& view, const std::byte* addr, uint64_t expected, uint64_t desired,
                uint64_t* found, PendingSwap* pending, bool* unknown, Deadline deadline);
  // Instead of the barrier of the importing side before a swap, and at its first try: where all
  // that is to be published fits one message to the word's home, the swap is sent along, and is in
  // *pending when this returns kOk. Anything else than kOk is what the barrier says: the swap was
  // not made.
  Status barrier_before_swap(const View& view, const std::byte* addr, uint64_t expected,
                             uint64_t desired, PendingSwap* pending, LossMark& mark, Nanos span);

 private:
  using ImportPtr = std::shared_ptr<Import>;
  struct Word {
    uint64_t offset, expected, desired;
    uint32_t page() const { return static_cast<uint32_t>(offset / kPageSize); }
  };

  // swap.cpp
  Exception make(const View& view, const Word& word, uint64_t* found, bool* brought,
                 PendingSwap* pending, bool* unknown, Deadline deadline);
  Exception may_swap(const ImportPtr& owner, uint32_t index, Deadline deadline);
  Exception take_swap(const ImportPtr& owner, uint64_t* found, PendingSwap* pending,
                      Deadline deadline);
  // kNone: the home takes swaps of this import.
  Exception await_presented(Import& imp, Deadline deadline);
  Exception swap_by_message(const View& view, const Word& word, uint64_t* found,
                            PendingSwap* pending, bool* unknown, Deadline deadline);
  Exception send_swap(const View& view, const Word& word, SwapFetch* fetch, PendingSwap* pending,
                      Deadline deadline);
  Exception await_swap(const View& view, const Word& word, SwapFetch* fetch, PendingSwap* pending,
                       bool* unknown, Deadline deadline);
  void swapped_late(const ImportPtr& owner, const std::shared_ptr<fabric::Request>& request,
                    uint32_t index);
  WriteBackPtr announce_swap(const ImportPtr& owner, uint64_t offset);
  Exception begin_use_of_word(Import& imp, uint64_t offset,
                              std::shared_ptr<fabric::Session>* session, fabric::RemoteKey* key,
                              Deadline deadline);
  Exception swap_by_provider(const View& view, const Word& word, uint64_t* found, bool* fetched,
                             bool* unknown, Deadline deadline);
  void patch(const ImportPtr& owner, uint64_t offset, uint64_t word, bool same_page,
             uint32_t generation);
  void note_over(Import& imp, uint32_t index);

  // swap_with_stores.cpp
  enum class Sent : uint8_t { kNothing, kWithSwap, kNotAll };
  bool may_send_with_swap(const View& view, uint32_t index);
  Sent send_with_swap(const ImportPtr& owner, const CasRequest& swap, SwapFetch* fetch,
                      PendingSwap* pending, const LossMark& mark);
  bool nothing_else_to_publish(const Import& imp);

  ImporterCore& core_;
};

bool swaps_by_provider(const Import& imp);

}  // namespace cmi::memory
