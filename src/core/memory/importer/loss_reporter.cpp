// What waits to be reported, and for which write-backs.
#include "core/memory/importer/loss_reporter.hpp"

#include <algorithm>
#include <utility>

#include "core/memory/importer/import.hpp"

namespace cmi::memory {

void LossReporter::add(const std::shared_ptr<Import>& imp, const std::vector<uint32_t>& pages,
                       bool local, uint64_t before) {
  {
    Guard g(mu_);
    auto it = std::find_if(stores_.begin(), stores_.end(),
                           [&](const Loss& l) { return l.import == imp; });
    if (it == stores_.end()) {
      stores_.push_back({imp, {}, false, 0});
      it = std::prev(stores_.end());
      due_.fetch_add(1);
    }
    it->pages.insert(it->pages.end(), pages.begin(), pages.end());
    it->local = it->local || local;
    it->before = before;
  }
  // Release: whoever sees the count rise finds the loss.
  (local ? local_losses_ : losses_).fetch_add(1, std::memory_order_release);
}

void LossReporter::add(std::shared_ptr<fabric::Link> home, uint64_t before) {
  Guard g(mu_);
  homes_.push_back({std::move(home), before});
  due_.fetch_add(1);
}

LossReporter::Reports LossReporter::take(const std::vector<OpenWriteBack>& open) {
  Reports out;
  Guard g(mu_);
  std::erase_if(stores_, [&](Loss& l) {
    const bool waits = std::any_of(open.begin(), open.end(), [&](const OpenWriteBack& b) {
      return b.import == l.import.get() && b.seq < l.before;
    });
    if (!waits) out.stores.push_back(std::move(l));
    return !waits;
  });
  // Stores that wait are reported before the end of their home.
  std::vector<const fabric::Link*> owing;
  for (const Loss& l : stores_) owing.push_back(l.import->link.get());
  std::erase_if(homes_, [&](LostHome& h) {
    const bool waits = std::any_of(open.begin(), open.end(),
                                   [&](const OpenWriteBack& b) {
                                     return b.link == h.link.get() && b.seq < h.before;
                                   }) ||
                       std::find(owing.begin(), owing.end(), h.link.get()) != owing.end();
    if (!waits) out.homes.push_back(std::move(h));
    return !waits;
  });
  return out;
}

void LossReporter::add_of_neighbour(Loss loss) {
  Guard g(mu_);
  of_neighbours_.push_back(std::move(loss));
}

std::vector<Loss> LossReporter::take_of_neighbours() {
  Guard g(mu_);
  return std::exchange(of_neighbours_, {});
}

size_t LossReporter::put_back(std::vector<Loss> losses) {
  Guard g(mu_);
  for (auto& l : losses) of_neighbours_.push_back(std::move(l));
  return of_neighbours_.size();
}

}  // namespace cmi::memory
