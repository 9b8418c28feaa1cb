// Reports of failures to the observer, and to other processes of the node.
#include "core/memory/importer/losses.hpp"

#include <algorithm>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/memory/wire/bus_messages.hpp"

namespace cmi::memory {

void Losses::lose(const std::shared_ptr<Import>& imp, const std::vector<uint32_t>& pages) {
  const bool local = imp->link->health().local_fault();
  write_backs_.with_next([&](uint64_t next) { losses_.add(imp, pages, local, next); });
}

void Losses::lose(const std::shared_ptr<fabric::Link>& home) {
  write_backs_.with_next([&](uint64_t next) { losses_.add(home, next); });
}

bool Losses::confirm(Import& imp) {
  SignalsBlocked quiet;
  Guard g(mu_);
  imp.events.made.store(!imp.link->condemned());
  return imp.events.made.load();
}

void Losses::report() {
  if (!losses_.due()) return;
  SignalsBlocked quiet;
  // Destroyed outside the lock: the last reference may end a session, whose end calls report().
  std::vector<WriteBackPtr> open;
  std::vector<std::shared_ptr<Import>> imports;
  LossReporter::Reports reports;
  Guard one_at_a_time(mu_);
  open = write_backs_.open();
  imports = imports_.all();
  // What ends after it was looked at here calls us again.
  std::vector<OpenWriteBack> holding;
  holding.reserve(open.size());
  for (auto& b : open) holding.push_back({b->import.get(), b->import->link.get(), b->seq});
  reports = losses_.take(holding);
  fault_point("mutation_report_window");
  const size_t reported = reports.stores.size() + reports.homes.size();
  report_stores(reports.stores);
  report_homes(reports.homes, imports);
  losses_.reported(reported);
}

void Losses::report_stores(std::vector<Loss>& stores) {
  for (auto& l : stores) {
    if (l.import->events.marked.load()) continue;
    if (l.import->ours) {
      observer_.stores_lost(l.import->id, std::move(l.pages), l.local);
    } else {
      losses_.add_of_neighbour(l);
      of_neighbours_.fetch_add(1);
    }
  }
}

void Losses::report_homes(const std::vector<LostHome>& homes,
                          const std::vector<std::shared_ptr<Import>>& imports) {
  for (auto& h : homes) {
    access::NaddrInfo home;
    std::vector<int32_t> segments;
    for (auto& imp : imports) {
      if (imp->link != h.link || !imp->ours || !imp->events.named()) continue;
      home = {imp->rseg.home_node, imp->rseg.home};
      segments.push_back(imp->id);
    }
    if (!segments.empty()) observer_.home_down(home, std::move(segments));
  }
}

void Losses::notify_importing_processes() {
  std::vector<Loss> losses = losses_.take_of_neighbours();
  std::erase_if(losses, [this](Loss& l) { return notify_importing_process(l); });
  of_neighbours_.store(static_cast<int>(losses_.put_back(std::move(losses))));
}

bool Losses::notify_importing_process(Loss& l) {
  constexpr size_t kAtOnce = 512;  // ranges of one datagram
  const auto info = node_.segments().find(l.import->id, 0);
  if (!info && info.status() == Status::kReconfig) return false;
  if (!info || info->removed) return true;
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
    m.how =
        (l.local ? kLostLocal : uint64_t{0}) | (taken == l.pages.size() ? kLostLast : uint64_t{0});
    encode(m, out);
    for (const PageRange& r : ranges) PageRangeList::put(out, r);
    if (node_.bus().send(info->owner, out.done()) == Status::kReconfig) return false;
    l.pages.erase(l.pages.begin(), l.pages.begin() + static_cast<ptrdiff_t>(taken));
  }
  return true;
}

}  // namespace cmi::memory
