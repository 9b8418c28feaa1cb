// Fetching ahead. A read is taken in by whatever thread polls its session, mostly the reader when
// it comes to pages that are still under way. The first page of each is left unmapped: the fault
// there is what asks for more. Of what a client asked for all pages are mapped. Ahead of stores all
// pages are left unmapped: they are mapped writable when their turn comes (write_stream.cpp).
#include "core/memory/importer/prefetch.hpp"

#include <algorithm>

#include "core/base/fault_point.hpp"
#include "core/memory/importer/cache.hpp"
#include "core/memory/importer/fetch.hpp"
#include "core/memory/importer/import_access.hpp"
#include "core/memory/importer/page_moves.hpp"

namespace cmi::memory {

namespace {

enum class Ahead : uint8_t { kOfLoads, kOfStores, kAsked };

bool start_ahead(ImporterCore& core, const View& view, PageRange pages, Ahead what,
                 Deadline deadline) {
  const std::shared_ptr<Import>& imp = view.import;
  auto session = imp->link->current();
  fabric::RemoteKey key;
  if (session == nullptr || !session_key(core, *imp, *session, &key, deadline) ||
      !acquire(*imp, pages.first, pages.count, deadline) || !enter_pages(*imp, pages, deadline) ||
      !back_pages(*imp, pages)) {
    return false;
  }
  if (!imp->allows(pages.first) || !imp->allows(pages.first + pages.count - 1)) return false;
  if (!imp->begin_use(session->generation(), key, uint64_t{pages.first} + pages.count))
    return false;
  auto ahead = std::make_shared<ReadUnderWay>();
  ahead->pages = pages;
  ahead->session = session;
  ahead->done.begin();
  imp->in_order.reads.add(ahead);
  core.traffic.reads_ahead.fetch_add(1);
  // Pages to be stored to are mapped when they are: they would have to be made writable then.
  const View* const to = what == Ahead::kOfStores ? nullptr : &view;
  const uint32_t wanted = what == Ahead::kAsked ? kNobodysPage : kNoPage;
  const auto over = [&core, imp, ahead, to, wanted](fabric::Cause cause) {
    SignalsBlocked quiet;
    imp->key.end_use();
    const PageRange r = ahead->pages;
    if (cause == fabric::Cause::kOk) {
      count_fetched(core, *imp, r.count);
      // The view may have been detached since; while it is in the list, it is not.
      const bool enabled = core.enabled.begin_serving();
      {
        Guard views(imp->views.mu);
        const bool attached = std::any_of(imp->views.list.begin(), imp->views.list.end(),
                                          [&](auto& v) { return v.get() == to; });
        deliver(core, *imp, enabled && attached ? to : nullptr, r, wanted, false);
      }
      core.enabled.end_serving();
    } else {
      give_up_fetch(core, imp, r.first, r.count);
    }
    imp->in_order.reads.remove(ahead);
    core.traffic.reads_ahead.fetch_sub(1);
    ahead->done.complete(cause);
  };
  fault_point("ahead_before_read");
  session->start_read(imp->page_data(pages.first), size_t{pages.count} * kPageSize, key,
                      uint64_t{pages.first} * kPageSize, over);
  return true;
}

}  // namespace

PageRange claim(ImporterCore& core, Import& imp, PageRange range, bool pass_over) {
  PageRange out{range.first, 0};
  for (uint32_t i = 0; i < range.count; ++i) {
    Page& p = imp.page(range.first + i);
    p.lock();
    const bool absent = p.state == PageState::kAbsent && !imp.flux.contains(range.first + i);
    if (absent) {
      ++p.generation;
      set_state(core, imp, p, PageState::kFetching);
    }
    p.unlock();
    if (absent) {
      ++out.count;
    } else if (out.count == 0 && pass_over) {
      out.first = range.first + i + 1;
    } else {
      break;
    }
  }
  return out;
}

void read_ahead(ImporterCore& core, const View& view, uint32_t page, bool write,
                Deadline deadline) {
  Import& imp = *view.import;
  // A small cache would lose what was fetched ahead before it is read.
  if (imp.cache.use.limit() < std::min(imp.pages, 2 * Streams::kDepth)) {
    return;
  }
  for (;;) {
    PageRange todo = imp.in_order.loads.ahead(
        page, std::min(imp.grant.end_page(), imp.brk.load(std::memory_order_relaxed)));
    if (todo.count == 0) return;
    make_room(core, view.import, todo.count, deadline);
    const uint32_t end = todo.first + todo.count;
    while (todo.first < end) {
      const PageRange r = claim(core, imp, {todo.first, end - todo.first}, true);
      if (r.count != 0 &&
          !start_ahead(core, view, r, write ? Ahead::kOfStores : Ahead::kOfLoads, deadline)) {
        // The reader will miss these pages and hear why.
        return give_up_fetch(core, view.import, r.first, r.count);
      }
      todo.first = r.first + r.count;
    }
  }
}

void fetch_asked(ImporterCore& core, const View& view, PageRange range, Deadline deadline) {
  Import& imp = *view.import;
  // It is no access: what forbids one is heard of by the load that comes.
  if (imp.views.local.local() || imp.lease.is_over() || range.count == 0 ||
      usable(imp, false, range.first) != Exception::kNone) {
    return;
  }
  const uint32_t known = std::min(imp.grant.end_page(), imp.brk.load(std::memory_order_relaxed));
  const uint32_t most = std::min({range.count, kMostAsked, imp.cache.use.limit() / 2});
  const uint32_t end = std::min(known, range.first + most);
  if (range.first >= end) return;
  make_room(core, view.import, end - range.first, deadline);
  while (range.first < end) {
    const uint32_t window = std::min(Streams::kMaxWindow, end - range.first);
    const PageRange r = claim(core, imp, {range.first, window}, true);
    if (r.count != 0 && !start_ahead(core, view, r, Ahead::kAsked, deadline)) {
      return give_up_fetch(core, view.import, r.first, r.count);
    }
    range.first = r.first + r.count;
  }
}

bool await_ahead(Import& imp, uint32_t page, Deadline deadline) {
  const std::shared_ptr<ReadUnderWay> ahead = imp.in_order.reads.find(page);
  if (ahead == nullptr) return false;
  auto session = ahead->session.lock();
  if (session != nullptr && !session->broken()) {
    imp.link->pump(*session);
    session->endpoint().wait(ahead->done, Deadline{std::min(deadline.at, now() + 10 * kMilli)});
    session.reset();
    if (!ahead->done.done()) imp.link->advance();  // sees it stall
    return true;
  }
  // The read ends with its session, when the last user has released that.
  session.reset();
  imp.link->advance();
  if (!ahead->done.done()) ahead->done.nap(kMilli);
  return true;
}

}  // namespace cmi::memory
