#include "core/memory/home/requests/swap_word.hpp"

#include "core/base/mutation.hpp"
#include "core/base/word_sleep.hpp"
#include "core/memory/home/access_check.hpp"
#include "core/memory/vm/guarded_copy.hpp"

namespace cmi::memory {

WireStatus make_swap(HomeCore& home, Segment* s, const ContextId& client, const CasRequest& m,
                     uint64_t* found, bool* publish) {
  Sharer* h = nullptr;
  const uint64_t offset = m.offset;
  const auto index = static_cast<uint32_t>(offset / kPageSize);
  const WireStatus status = check(home, s, client, m.instance, fabric::kAtomic, &h);
  if (status != WireStatus::kOk) return status;
  if (offset % 8 != 0 || s->brk.bytes < 8 || offset > s->brk.bytes - 8) return WireStatus::kRange;
  if (!h->covers(index, 1)) return WireStatus::kRights;
  if (s->flux.pages.contains(index)) return WireStatus::kInFlux;
  // The CPU's own swap: coherent with swaps of this node's processes and with each other.
  auto* const word = reinterpret_cast<uint64_t*>(s->service.data() + offset);
  uint64_t expected = m.expected;
  bool swapped = false;
  const auto swap = [&] {
    swapped = __atomic_compare_exchange_n(word, &expected, m.desired, false, __ATOMIC_SEQ_CST,
                                          __ATOMIC_SEQ_CST);
  };
  if (!unless_broken(s->service.data() + offset, sizeof *word, swap)) return WireStatus::kBroken;
  if (swapped && home.parts.local) wake_at_word(word, true);
  *found = expected;  // in both cases
  *publish = swapped && !mutated("mutate_cas_unpublished");
  return WireStatus::kOk;
}

RoundPtr publish_swap(HomeCore& home, Segment& s, const ContextId& client, const CasRequest& m) {
  const auto index = static_cast<uint32_t>(m.offset / kPageSize);
  return home.rounds.publish(s, client, m.instance, {PageRange{index, 1}}, word_of(s, m.offset));
}

}  // namespace cmi::memory
