// A swap of one word, for an importer whose provider has no atomics.
#include "core/base/mutation.hpp"
#include "core/memory/home/access_check.hpp"
#include "core/memory/home/requests/handlers.hpp"
#include "core/memory/vm/guarded_copy.hpp"

namespace cmi::memory {

void on_cas(HomeCore& home, const fabric::ClientInfo& client, uint64_t number,
            const CasRequest& m) {
  const uint64_t offset = m.offset, desired = m.desired;
  uint64_t expected = m.expected;
  WireStatus status = WireStatus::kMalformed;
  uint64_t found = 0;
  const auto answer = [&home, id = client.id, number](WireStatus st, uint64_t word) {
    reply(home.parts.server, id, number, st, Encoded(CasReply{word}));
  };
  {
    Guard g(home.mu);
    Segment* s = nullptr;
    Sharer* h = nullptr;
    status = check(home, client.id, m.uid, m.instance, fabric::kAtomic, &s, &h);
    if (status == WireStatus::kOk &&
        (offset % 8 != 0 || s->brk.bytes < 8 || offset > s->brk.bytes - 8)) {
      status = WireStatus::kRange;
    } else if (status == WireStatus::kOk && !h->covers(offset / kPageSize, 1)) {
      status = WireStatus::kRights;
    } else if (status == WireStatus::kOk &&
               s->flux.pages.contains(static_cast<uint32_t>(offset / kPageSize))) {
      status = WireStatus::kInFlux;
    } else if (status == WireStatus::kOk) {
      // The CPU's own swap: coherent with swaps of this node's processes and with each other.
      auto* word = reinterpret_cast<uint64_t*>(s->service.data() + offset);
      bool swapped = false;
      const auto swap = [&] {
        swapped = __atomic_compare_exchange_n(word, &expected, desired, false, __ATOMIC_SEQ_CST,
                                              __ATOMIC_SEQ_CST);
      };
      if (!unless_broken(s->service.data() + offset, sizeof *word, swap)) {
        status = WireStatus::kBroken;
        swapped = false;
      } else {
        found = expected;  // what stood there, in both cases
      }
      if (swapped && !mutated("mutate_cas_unpublished")) {
        const PageRange page{static_cast<uint32_t>(offset / kPageSize), 1};
        if (auto p = home.rounds.publish(*s, client.id, m.instance, {page}, word_of(*s, offset));
            p != nullptr) {
          p->finished = [answer, found] { answer(WireStatus::kOk, found); };
          return;
        }
      }
    }
  }
  answer(status, found);
}

}  // namespace cmi::memory
