// What the observer is told of failures: stores that were lost, and homes that were. It is told
// when everything is known: once no batch is open that began before the loss, so that one call
// names all the pages of a segment, and the causes come before the end of the home.
// Threads: any, the fault handler included.
#include <algorithm>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/memory/importer/importer.hpp"
#include "core/memory/wire/bus_messages.hpp"

namespace cmi::memory {

void Importer::lose(const std::shared_ptr<Import>& imp, const std::vector<uint32_t>& pages) {
  const bool local = imp->link->local_fault();
  Guard batches(write_backs_mu_);
  losses_.add(imp, pages, local, next_write_back_);
}

// Called after each thing that a report may have waited for. Who comes while another one tells
// waits for it: what is due counts as told only then, so a barrier returns after its event, and the
// end of a home comes after the stores that it took along.
void Importer::report() {
  if (!losses_.due()) return;
  SignalsBlocked quiet;
  // Outside the lock: what these let go of may end a session, and that comes here again.
  std::vector<std::shared_ptr<WriteBack>> open;
  std::vector<std::shared_ptr<Import>> imports;
  LossReporter::Reports reports;
  Guard one_at_a_time(observer_mu_);
  open = open_batches();
  imports = all_imports();
  // What ends after it was looked at here calls us again.
  std::vector<OpenWriteBack> holding;
  for (auto& b : open) holding.push_back({b->import.get(), b->import->link.get(), b->seq});
  reports = losses_.take(holding);
  fault_point("mutation_report_window");
  const size_t told = reports.stores.size() + reports.homes.size();
  for (auto& l : reports.stores) {
    if (l.import->events.marked.load()) continue;
    if (l.import->ours) {
      parts_.observer.stores_lost(l.import->id, std::move(l.pages), l.local);
    } else {
      losses_.add_of_neighbour(l);
      others_due_.fetch_add(1);
    }
  }
  for (auto& h : reports.homes) {
    access::NaddrInfo home;
    std::vector<int32_t> segments;
    for (auto& imp : imports) {
      if (imp->link != h.link || !imp->ours || !imp->events.made.load() ||
          imp->events.marked.load())
        continue;
      home = {imp->rseg.home_node, imp->rseg.home};
      segments.push_back(imp->id);
    }
    if (!segments.empty()) parts_.observer.home_down(home, std::move(segments));
  }
  losses_.reported(told);
}

// The process that imported a segment for its node is told of the stores that any of them has lost.
// Service thread. What does not fit into its queue goes with the next tick.
void Importer::notify_importing_processes() {
  constexpr size_t kAtOnce = 512;  // ranges of one datagram
  std::vector<Loss> losses = losses_.take_of_neighbours();
  std::erase_if(losses, [&](Loss& l) {
    const auto info = parts_.node.find(l.import->id, 0);
    if (!info && info.status() == Status::kReconfig) return false;
    if (!info || info->removed) return true;  // nobody is told of it any more
    std::sort(l.pages.begin(), l.pages.end());
    while (!l.pages.empty()) {
      std::vector<PageRange> ranges;
      size_t taken = 0;
      for (; taken < l.pages.size(); ++taken) {
        const uint32_t page = l.pages[taken];
        if (!ranges.empty() && page < ranges.back().first + ranges.back().count) continue;
        if (!ranges.empty() && page == ranges.back().first + ranges.back().count) {
          ++ranges.back().count;
        } else if (ranges.size() < kAtOnce) {
          ranges.push_back({page, 1});
        } else {
          break;
        }
      }
      std::byte buf[kWireSize<BusLost> + kAtOnce * PageRangeList::kItem];
      Writer out(buf);
      BusLost m;
      m.segment = l.import->id;
      m.count = ranges.size();
      m.how = (l.local ? kLostLocal : uint64_t{0}) |
              (taken == l.pages.size() ? kLostLast : uint64_t{0});
      encode(m, out);
      for (const PageRange& r : ranges) PageRangeList::put(out, r);
      if (parts_.node.bus_send(info->owner, out.done()) == Status::kReconfig) return false;
      l.pages.erase(l.pages.begin(), l.pages.begin() + static_cast<ptrdiff_t>(taken));
    }
    return true;
  });
  others_due_.store(static_cast<int>(losses_.put_back(std::move(losses))));
}

}  // namespace cmi::memory
