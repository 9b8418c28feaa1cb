// The swaps of a thread whose answers have not come.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/memory/importer/import.hpp"
#include "core/memory/wire/wire.hpp"

namespace cmi::memory {

// A swap that what its caller had stored travels with, or whose answer brings the word's page. The
// answer is filled in before the request counts as answered.
struct SentSwap {
  std::optional<WireStatus> stores;  // what the home says of them; none: it has said nothing
  std::optional<WireStatus> swap;    // and of the swap; none: nothing that can be decoded
  uint64_t found = 0;
  // The caller's copy of the word's page when it was sent (rule 12).
  bool cached = false;
  uint32_t generation = 0;
  // What the answer is to bring, and what it has brought.
  enum class Fate : uint8_t { kOpen, kAnswered, kGivenUp };
  std::atomic<Fate> fate{Fate::kOpen};  // of that; the second thread sees what the first has done
  bool fetches = false, intent = false;
  uint8_t epoch = 0;
  uint32_t page = 0;
  std::vector<std::byte> content;  // room for the page, where it is asked for
  bool has_content = false;        // and it is there
  bool brought = false;            // and it is cached

  // Where the stores are refused the home makes no swap.
  std::optional<WireStatus> answer() const {
    return stores && *stores != WireStatus::kOk ? stores : swap;
  }
  // Or refused, for good, or nobody knows: it is not asked for anew.
  bool made() const { return stores != WireStatus::kOk || swap != WireStatus::kNotPresented; }
};

// Kept while its caller tries again, so that the swap is never started twice. It does not keep the
// import alive: a caller that has left the call by a jump never takes its swap back. Its request
// stays in the link until it is answered, also where the thread has ended: the answer ends the
// write-back that it is, gives back the intent that it brings and drops the copy of the page.
struct PendingSwap {
  const void* call = nullptr;
  std::weak_ptr<Import> import;
  std::shared_ptr<fabric::Request> request;  // null: not sent
  uint64_t offset = 0;
  std::shared_ptr<SentSwap> sent;  // null: it was sent alone, and brings nothing
  // What a swap in a mapped page has found. It has been made, and somebody has yet to hear of it.
  std::optional<uint64_t> made = std::nullopt;

  bool is_sent(const std::shared_ptr<Import>& to) const {
    return (request != nullptr || made) && import.lock() == to;
  }
  bool is_over(const std::shared_ptr<Import>& to) const {
    return is_sent(to) && (made || request->answered());
  }
  void forget() {
    request = nullptr;
    made.reset();
  }
};

// A signal handler may swap between two tries of the call that it has interrupted. So there may be
// several pending swaps of a thread; the addresses of their calls' frames distinguish them.
class PendingSwaps {
 public:
  // The pending swap of the call with this frame. `again` is false in the first try of a call: then
  // nothing was sent, and what is found is left over from an earlier call with the same frame.
  PendingSwap& of(const void* call, bool again) {
    const auto it = std::find_if(swaps_.begin(), swaps_.end(),
                                 [&](const PendingSwap& p) { return p.call == call; });
    if (it != swaps_.end()) {
      if (!again) it->forget();
      return *it;
    }
    std::erase_if(swaps_, [](const PendingSwap& p) { return p.request == nullptr && !p.made; });
    if (swaps_.size() == kMost) make_room(call);
    swaps_.emplace_back().call = call;
    return swaps_.back();
  }

 private:
  // Calls that were left by a jump. The stack grows downwards: what lies below a call that begins
  // is over, unless the call is on another stack than it, an alternate one for signals.
  void make_room(const void* call) {
    std::erase_if(swaps_,
                  [&](const PendingSwap& p) { return std::less<const void*>()(p.call, call); });
    if (swaps_.size() == kMost) swaps_.erase(swaps_.begin());
  }

  static constexpr size_t kMost = 8;  // handlers that swap do not nest deeper than that
  std::vector<PendingSwap> swaps_;    // the oldest first
};

}  // namespace cmi::memory
