// The break of an imported extensible segment, as its home tells it (rule 24): pages behind it are
// in no view, no cache and no message of ours when the home hears that we know. Service thread, but
// for what the answers to our own requests say of it.
#include <algorithm>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/memory/importer.hpp"

namespace cmi::memory {

namespace {
constexpr uint32_t kSweep = 64;  // pages given back at once
}  // namespace

Break Importer::read_break(Reader& in) {
  Break brk;
  brk.bytes = in.get<uint64_t>();
  brk.round = in.get<uint32_t>();
  return brk;
}

bool Importer::legal(const Import& imp, const Break& brk) {
  return brk.round != 0 && brk.bytes % kPageSize == 0 && brk.bytes / kPageSize <= imp.pages;
}

bool Importer::take_break(Import& imp, const Break& brk) {
  Guard g(imp.brk_mu);
  if (brk.round < imp.brk_round) return false;
  if (brk.round == imp.brk_round) return true;
  imp.brk_round = brk.round;
  const auto pages = static_cast<uint32_t>(brk.bytes / kPageSize);
  imp.brk_high = std::max(imp.brk_high, pages);
  imp.brk.store(pages, std::memory_order_seq_cst);
  // The key ends at the former break; the next use asks for another. After the break itself: who
  // finds the key in force is waited for, or has seen the new break.
  imp.key_generation.store(0, std::memory_order_seq_cst);
  return true;
}

// A key that was granted when the break was this one. It may be used unless there is a newer break.
bool Importer::key_is_for(Import& imp, const Break& brk, uint32_t generation) {
  (void)take_break(imp, brk);
  Guard g(imp.brk_mu);
  if (brk.round != imp.brk_round) return false;
  imp.key_generation.store(generation, std::memory_order_seq_cst);
  return true;
}

// False: there is nothing to be waited for.
bool Importer::on_break(const std::shared_ptr<Import>& imp, Reader in, Revocation* later) {
  const Break brk = read_break(in);
  if (!in.done() || !imp->extensible || !legal(*imp, brk)) return false;
  later->keys = imp->keys.load(std::memory_order_seq_cst);
  if (!take_break(*imp, brk)) {  // a late copy
    parts_.server.ack(later->home, later->secret, later->number);
    return false;
  }
  trace(kFacSeg, kInfo, "segment {}: the break is at {}", imp->id, brk.bytes);
  PageRange past{static_cast<uint32_t>(brk.bytes / kPageSize), 0};
  {
    Guard g(imp->brk_mu);
    if (imp->ours) (void)parts_.node.store_break(imp->id, size_t{imp->brk.load()} * kPageSize);
    past.count = imp->brk_high - std::min(imp->brk_high, past.first);
    imp->brk_high = std::min(imp->brk_high, past.first);
  }
  if (!imp->ready.load(std::memory_order_acquire) || past.count == 0) return true;
  fault_point("break_before_zap");
  // What was stored there goes with the memory, and so do the home's marks.
  std::vector<uint32_t> lost;
  std::vector<PageMark> marks;
  drop_pages(*imp, past, &lost, &marks);
  for (uint32_t done = 0; done < past.count; done += kSweep) {
    evict(*imp, past.first + done, std::min(kSweep, past.count - done), &lost);
  }
  later->unsettled.push_back(past);
  return true;
}

// Whether nothing that was stored to these pages is under way any more; takes those that are done
// from the range's end.
bool Importer::settle_past_break(Import& imp, std::vector<PageRange>* pages) {
  while (!pages->empty()) {
    PageRange& r = pages->back();
    for (; r.count > 0; --r.count) {
      const uint32_t index = r.first + r.count - 1;
      Page& p = imp.table[index];
      p.lock();
      const bool settled = !p.in_flight || index < imp.brk.load(std::memory_order_seq_cst);
      p.unlock();
      if (!settled) return false;
    }
    pages->pop_back();
  }
  return true;
}

}  // namespace cmi::memory
