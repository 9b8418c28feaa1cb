// What becomes of pages when the messages that wrote them back are answered. Runs in whatever
// thread polls the link.
#include <optional>
#include <vector>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/importer/collector.hpp"
#include "core/memory/importer/import_access.hpp"
#include "core/memory/importer/page_moves.hpp"
#include "core/memory/importer/write_back.hpp"

namespace cmi::memory {

namespace {

void came_home(ImporterCore& core, const std::shared_ptr<Import>& imp,
               const std::vector<uint32_t>& pages) {
  // Sends pages that have waited for this answer. Their write-back begins before this one ends, so
  // that a barrier that waits for this one finds the next.
  std::optional<Collector> next;
  const auto collector = [&]() -> Collector& { return next ? *next : next.emplace(core, imp); };
  for (uint32_t index : pages) {
    Page& p = imp->page(index);
    p.lock();
    if (p.pinned) collector().clear_intent(index);  // a bulk write does not carry its dirty intent
    p.in_flight = p.pinned = false;
    if (p.state == PageState::kWriting) {
      set_state(core, *imp, p, PageState::kClean);
    } else if (p.state == PageState::kZappedWriting) {
      set_state(core, *imp, p, PageState::kAbsent);
    } else if (p.state == PageState::kZappedDirty) {
      const size_t bytes = collector().add(index, core.twins.at(p.twin));
      drop_twin(core, p);
      p.in_flight = bytes != 0;
      set_state(core, *imp, p, PageState::kZappedWriting);
      if (bytes == 0) set_state(core, *imp, p, PageState::kAbsent);
    }
    p.unlock();
  }
}

// Stores to these pages never reached the home, so no thread may go on reading them. `refused`: the
// home said so.
void never_came_home(ImporterCore& core, const std::shared_ptr<Import>& imp,
                     const std::vector<uint32_t>& pages, bool refused) {
  Collector clearing(core, imp);
  Guard views(imp->views.mu);
  for (uint32_t index : pages) {
    Page& p = imp->page(index);
    p.lock();
    // A refused message has not cleared its dirty intent at home. Stores that may have arrived keep
    // theirs at home, in case this process dies. Here that intent counts no more: nothing takes it
    // back, and stores under a new token ask for their own.
    if (!p.pinned && refused) {
      clearing.clear_intent(index);
    } else if (!mutated("mutate_intent_of_unknown_taken_back")) {
      p.intent.take();
    }
    p.in_flight = p.pinned = false;
    if (p.state == PageState::kWriting || p.state == PageState::kDirty) {
      zap_everywhere(*imp, index, 1);
      drop_twin(core, p);
      ++p.generation;
      set_state(core, *imp, p, PageState::kAbsent);
    } else if (p.state == PageState::kZappedWriting) {
      set_state(core, *imp, p, PageState::kAbsent);
    } else if (p.state == PageState::kZappedDirty) {
      drop_twin(core, p);
      set_state(core, *imp, p, PageState::kZappedWriting);
      set_state(core, *imp, p, PageState::kAbsent);
    }
    p.unlock();
  }
}

}  // namespace

// What was stored to these pages is lost, and reported when the write-back has ended.
static void lose_pages(ImporterCore& core, const WriteBackPtr& write_back,
                       std::vector<uint32_t>& pages, std::optional<WireStatus> status) {
  Import& imp = *write_back->import;
  trace(kFacMem, kWarn, "segment {}: the home refused stores to {} pages ({})", imp.id,
        pages.size(), status ? static_cast<int>(*status) : -1);
  write_back->failed.store(true);
  core.losses.lose(write_back->import, pages);
  if (status == WireStatus::kBroken) imp.flux.doubt(pages);  // some of them are
}

static void end_refused(ImporterCore& core, const WriteBackPtr& write_back,
                        std::optional<WireStatus> status) {
  Import& imp = *write_back->import;
  // At the first loss all pages are closed, so that one event can name everything; but broken
  // memory is not the end of the pages beside it.
  if (status != WireStatus::kOk && status != WireStatus::kBroken &&
      imp.grant.state() == ImportState::kUsable) {
    // A request may end without an answer because its home was given up. Then this thread may be
    // here before the thread that gave the home up has closed the home's imports.
    refused(core, imp,
            status.value_or(imp.link->condemned() ? WireStatus::kEnding : WireStatus::kMalformed),
            write_back->token);
  }
}

void answered(ImporterCore& core, const WriteBackPtr& write_back, std::vector<uint32_t>& pages,
              std::optional<WireStatus> status) {
  SignalsBlocked quiet;
  Import& imp = *write_back->import;
  if (status == WireStatus::kOk) {
    came_home(core, write_back->import, pages);
  } else {
    lose_pages(core, write_back, pages, status);
    never_came_home(core, write_back->import, pages, status.has_value());
  }
  imp.changes.notify();
  end_refused(core, write_back, status);
  end_part(core, write_back);
}

void refuse_pages(ImporterCore& core, const WriteBackPtr& write_back, std::vector<uint32_t>& pages,
                  std::optional<WireStatus> status) {
  lose_pages(core, write_back, pages, status);
  end_refused(core, write_back, status);
}

}  // namespace cmi::memory
