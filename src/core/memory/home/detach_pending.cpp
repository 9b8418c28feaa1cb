// Views of another process's segment that have ended here, and of which that process, the owner,
// has not heard: it was stopped, say. It looks for what was stored through them in this process's
// page tables and would take the stores to whatever lies at their addresses by then for stores to
// its segment, and nobody would publish them for what they are. So the addresses stay taken until
// it has answered or has ended. Any thread.
#include <sys/mman.h>

#include <algorithm>

#include "core/memory/home/home.hpp"
#include "core/memory/vm/store_log.hpp"

namespace cmi::memory {

namespace {
constexpr Nanos kNotifyAgain = 20 * kMilli;
}  // namespace

void Home::detach_later(PendingDetach view) {
  mprotect(view.addr, view.mapped, PROT_NONE);
  Guard g(mu_);
  const uint64_t question = next_question_++;
  auto p = std::make_shared<InvalidationRound>();
  p->waiting = 1;
  p->done.begin();
  p->finished = [this, question] {
    Guard again(mu_);
    asked_.erase(question);
    auto over = pending_detaches_.extract(question);
    if (!over.empty()) munmap(over.mapped().addr, over.mapped().mapped);
  };
  asked_[question] = p;
  pending_detaches_[question] = view;
}

// The timer's. Each thing is done twice without harm, so a question is repeated as it was.
void Home::remind_owners(Nanos t, Finished* done) {
  for (auto& [question, l] : pending_detaches_) {
    // What lies unread in a stopped process's queue is not helped by copies, and takes up our own.
    if (t - l.sent <= std::max(kNotifyAgain, l.sent - l.born)) continue;
    l.sent = t;
    if (l.view->stores != nullptr && !send_stored(l.owner, l.segment, *l.view->stores)) continue;
    const BusUnview m{kBusUnview, l.segment, question, reinterpret_cast<uint64_t>(l.addr), l.len};
    if (parts_.node.bus_send(l.owner, Encoded(m)) != Status::kInval) continue;
    if (auto asked = asked_.find(question); asked != asked_.end()) {
      settle(std::shared_ptr<InvalidationRound>(asked->second), done);  // it has ended
    }
  }
}

}  // namespace cmi::memory
