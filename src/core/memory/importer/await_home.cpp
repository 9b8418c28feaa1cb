// Waiting for what a home owes.
#include "core/memory/importer/await_home.hpp"

#include <algorithm>

#include "core/memory/importer/import_access.hpp"

namespace cmi::memory {

bool await(ImporterCore& core, Import& imp, fabric::Op& op, Deadline deadline) {
  fabric::Link& link = *imp.link;
  WaitSlices slices(deadline);
  while (!op.done() && !deadline.passed()) {
    const Deadline slice = slices.next();
    auto session = link.session(slice);
    if (session == nullptr) {
      if (link.condemned() || home_has_ended(core, imp)) link.advance();
      continue;
    }
    if (op.done()) break;
    link.pump(*session);
    // What cached pages wait for may come by direct acks, over the network.
    if (imp.views.local.local()) {
      session->wait(op, slice);
    } else {
      session->endpoint().wait(op, slice);
    }
    if (!op.done()) link.advance();
  }
  return op.done();
}

bool await(ImporterCore& core, Import& imp, fabric::Op& op, const Patience& patience) {
  for (int spans = 1;; ++spans) {
    if (await(core, imp, op, patience.next())) return true;
    if (patience.span == 0) return false;
    if (imp.link->health().heard() > now() - patience.span && spans < Patience::kMostSpans)
      continue;
    imp.link->give_up(now() - patience.span);
    return false;
  }
}

bool await(ImporterCore& core, WriteBack& write_back, const Patience& patience) {
  constexpr Nanos kLook = 100 * kMilli;
  int parts = write_back.parts.load(), spans = 1;
  for (Deadline end = patience.next();;) {
    if (await(core, *write_back.import, write_back.done, Deadline{std::min(end.at, now() + kLook)}))
      break;
    if (const int left = write_back.parts.load(); left != parts && patience.span != 0) {
      parts = left;
      end = patience.next();
    } else if (end.passed()) {
      if (write_back.import->link->health().heard() > now() - patience.span &&
          spans++ < Patience::kMostSpans) {
        end = patience.next();
        continue;
      }
      if (patience.span != 0) write_back.import->link->give_up(now() - patience.span);
      return false;
    }
  }
  return write_back.done.cause() == fabric::Cause::kOk;
}

bool await(ImporterCore& core, const std::vector<WriteBackPtr>& write_backs,
           const Patience& patience) {
  bool good = true;
  for (auto& b : write_backs) good = await(core, *b, patience) && good;
  return good;
}

}  // namespace cmi::memory
