// The break of an imported extensible segment, as its home tells it (rule 24): pages behind it are
// in no view, no cache and no message of ours when the home hears that we know. Service thread, but
// for what the answers to our own requests say of it.
#include <algorithm>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/memory/importer/importer.hpp"

namespace cmi::memory {

namespace {
constexpr uint32_t kBreakSweep = 64;      // pages given back at once
constexpr int kNapsOfANotification = 20;  // of 1 ms, before the home is asked again

// The key ends at the former break; the next use asks for another. After the break itself: who
// finds the key in force is waited for, or has seen the new break.
auto closing_key_of(Import& imp) {
  return [&imp] { imp.key.close(); };
}
}  // namespace

// The end of a reply about this import, behind all else. False: malformed; *brk is as it was.
bool Importer::read_break(const Import& imp, Bytes in, Break* brk) {
  if (!imp.extensible) return in.empty();
  BreakPart part;
  if (!decode(in, &part) || !legal(imp, part.brk)) return false;
  *brk = part.brk;
  return true;
}

bool Importer::legal(const Import& imp, const Break& brk) {
  return legal_break(brk) && brk.bytes / kPageSize <= imp.pages;
}

bool Importer::take_break(Import& imp, const Break& brk) {
  return imp.brk.take(brk, closing_key_of(imp), [] {});
}

// A key that was granted when the break was this one. It may be used unless there is a newer break.
bool Importer::key_is_for(Import& imp, const Break& brk, uint32_t generation) {
  return imp.brk.take(brk, closing_key_of(imp), [&] { imp.key.open(generation); });
}

// For the other processes of the node.
void Importer::store_break(Import& imp) {
  if (!imp.ours) return;
  imp.brk.with_pages(
      [&](uint32_t pages) { (void)parts_.node.store_break(imp.id, size_t{pages} * kPageSize); });
}

// False: there is nothing to be waited for.
bool Importer::on_break(const std::shared_ptr<Import>& owner, const BreakNotification& m,
                        PendingAnswer* later) {
  Import& imp = *owner;
  const auto& [uid, instance, brk, low] = m;
  if (!imp.extensible || !legal(imp, brk)) return false;
  later->keys = imp.key.asked();
  const auto [late, behind, past] = imp.brk.notified(brk, low, closing_key_of(imp));
  if (behind && !late) later->then = brk;
  if (late) {
    parts_.server.ack(later->home, later->secret, later->number);
    return false;
  }
  trace(kFacSeg, kInfo, "segment {}: the break is at {}", imp.id, brk.bytes);
  store_break(imp);
  // Looked at when the break is set: a first attach that comes later sees it.
  if (!imp.cache.ready(std::memory_order_seq_cst) || past.count == 0) return true;
  fault_point("break_before_zap");
  // What was stored there goes with the memory, and with it the home's marks.
  std::vector<uint32_t> lost;
  std::vector<DirtyIntent> intents;
  drop_pages(imp, past, &lost, &intents);
  for (uint32_t done = 0; done < past.count; done += kBreakSweep) {
    evict(imp, past.first + done, std::min(kBreakSweep, past.count - done), &lost);
  }
  if (!intents.empty()) unmark(owner, intents);
  later->unsettled.push_back(past);
  return true;
}

// Nothing of before is left or under way: up to the break that was waiting for that, unless there
// is a newer one.
void Importer::grow_to(Import& imp, const Break& brk) {
  if (!imp.brk.grow(brk)) return;
  imp.changes.notify();
  store_break(imp);
}

// Whether nothing that was stored to these pages is under way any more; takes those that are done
// from the range's end. They lie behind the break until then.
bool Importer::settle_past_break(Import& imp, std::vector<PageRange>* pages) {
  while (!pages->empty()) {
    PageRange& r = pages->back();
    for (; r.count > 0; --r.count) {
      Page& p = imp.page(r.first + r.count - 1);
      p.lock();
      const bool settled = !p.in_flight;
      p.unlock();
      if (!settled) return false;
    }
    pages->pop_back();
  }
  return true;
}

// Growth does not wait for ever for those who are slow to hear of it: so before an access is
// refused, the home is asked. It repeats what it has told, and that is waited for.
Exception Importer::past_break(Import& imp, uint32_t page, Deadline deadline) {
  for (;;) {
    Break brk;
    const Exception e = explain(imp, deadline, &brk);
    if (e != Exception::kNone) return e;
    if (brk.round != 0 && page >= brk.bytes / kPageSize) return Exception::kSegBrk;
    for (int naps = 0; naps < kNapsOfANotification; ++naps) {
      const uint32_t seen = imp.changes.seen();
      if (page < imp.brk.load(std::memory_order_seq_cst)) return Exception::kNone;
      if (deadline.passed()) return Exception::kTransient;
      imp.changes.wait(seen, kMilli);
    }
  }
}

}  // namespace cmi::memory
