#include "core/context/thread_barriers.hpp"

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "core/base/cause.hpp"
#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "core/context/context.hpp"

namespace cmi::context {

Status Barriers::barrier(memory::LossMark& mark) {
  // Stores to imported segments and stores to this node's own segments are published both; each is
  // a couple of loads when there is nothing to do, without a look at the clock.
  const Status there =
      services_.engine.importer().publishing().barrier(mark, services_.longest_wait());
  const Status here = services_.engine.home().barriers().barrier(services_.longest_wait());
  return ok(there) ? here : there;
}

Status barrier_here() {
  Context* c = Context::current();
  if (c == nullptr || t_thread == nullptr || t_thread->context != c) return Status::kInit;
  return c->barriers().barrier();
}

Result<cmi_fb> Barriers::open_epoch() {
  if (t_thread->epoch != nullptr) return because(Status::kBound, "the thread has an epoch open");
  void* p = services_.allocator.get(sizeof(Epoch));
  if (p == nullptr) return Status::kNoMem;
  auto* e = new (p) Epoch{t_thread, services_.engine.importer().publishing().losses()};
  t_thread->epoch = e;
  return reinterpret_cast<cmi_fb>(e);
}

Status Barriers::flush_epoch(cmi_fb epoch) {
  if (epoch == nullptr || reinterpret_cast<Epoch*>(epoch) != t_thread->epoch) {
    return because(Status::kInval, "not an epoch of this thread");
  }
  if (mutated("mutate_epoch_not_flushed")) return Status::kOk;
  return barrier(t_thread->epoch->loss);
}

Status Barriers::close_epoch(cmi_fb epoch) {
  const Status s = flush_epoch(epoch);
  if (s == Status::kInval) return s;
  services_.allocator.put(t_thread->epoch);
  t_thread->epoch = nullptr;
  return s;
}

// The lines of a cflush by the side that flushes them.
struct Barriers::Flushed {
  std::vector<std::pair<std::shared_ptr<const memory::View>, const std::byte*>> imported;
  bool home = false;
  memory::Barriers::Lines lines;  // at home; those that may be accessed
};

Status Barriers::sort_lines(void* const* addrs, int32_t n, Flushed* flushed, Raised* raised) {
  memory::Home& at_home = services_.engine.home();
  for (int32_t i = 0; i < n; ++i) {
    auto view = services_.engine.views().find(addrs[i]);
    if (view != nullptr && view->import != nullptr) {
      flushed->imported.emplace_back(std::move(view), static_cast<const std::byte*>(addrs[i]));
      continue;
    }
    size_t offset;
    bool read_only;
    const int32_t seg = at_home.views().segment_at(addrs[i], &offset, &read_only);
    if (seg == 0) return because(Status::kInval, "an address is in no view");
    flushed->home = true;
    const bool past = at_home.breaks().past_break(seg, offset);
    if (!past && !at_home.recovery().in_flux(seg, offset)) {
      flushed->lines[seg].add({static_cast<uint32_t>(offset / kPageSize), 1});
    } else if (raised->exception == memory::Exception::kNone) {
      *raised = {past ? memory::Exception::kSegBrk : memory::Exception::kConsist, true, addrs[i],
                 seg};
    }
  }
  return Status::kOk;
}

Status Barriers::cflush(void* const* addrs, int32_t n, Raised* raised) {
  if (n < 0 || (addrs == nullptr && n > 0)) return Status::kInval;
  Flushed f;
  if (Status s = sort_lines(addrs, n, &f, raised); !ok(s)) return s;
  if (mutated("mutate_cflush_sends_nothing")) return Status::kOk;
  const Nanos wait = services_.longest_wait();
  Status status = f.home ? services_.engine.home().barriers().barrier(wait, f.lines) : Status::kOk;
  if (!f.imported.empty()) {
    memory::Exception e = memory::Exception::kNone;
    size_t at = 0;
    const Status s = services_.engine.importer().publishing().flush(
        f.imported, t_thread->loss, memory::Patience::of(wait), &e, &at);
    if (e != memory::Exception::kNone && raised->exception == memory::Exception::kNone) {
      *raised = {e, true, f.imported[at].second, f.imported[at].first->segment};
    }
    if (!ok(s)) status = s;
  }
  return status;
}

Status Barriers::prefetch(const void* addr, size_t len) {
  const auto* const at = static_cast<const std::byte*>(addr);
  const auto view = services_.engine.views().find(at);
  size_t offset = 0;
  bool read_only = false;
  if (view == nullptr || view->import == nullptr) {  // at home all of it is there
    return services_.engine.home().views().segment_at(at, &offset, &read_only) != 0
               ? Status::kOk
               : because(Status::kInval, "the address is in no view");
  }
  if (len == 0) return Status::kOk;
  const uint32_t first = memory::page_of(*view, at);
  const size_t rest = view->len - static_cast<size_t>(at - view->addr);
  const uint32_t last = memory::page_of(*view, at + std::min(len, rest) - 1);
  services_.engine.importer().views().prefetch(
      *view, {first, last - first + 1}, Deadline::in(std::min(services_.longest_wait(), kSecond)));
  return Status::kOk;
}

}  // namespace cmi::context
