// Stores and homes that are lost and that the observer is to hear of. A report waits until no
// write-back is open that began before the loss, so that one report names all the pages of a
// segment, and the causes come before the end of the home. Any thread, the fault handler included.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/lock.hpp"
#include "core/memory/importer/lock_order.hpp"
#include "fabric/link.hpp"

namespace cmi::memory {

struct Import;

// Where a thread last looked at the loss counters: a barrier reports each loss to each thread once.
struct LossMark {
  uint64_t seen = 0;
  uint64_t seen_local = 0;  // by faults of this side
};

struct Loss {
  std::shared_ptr<Import> import;
  std::vector<uint32_t> pages;
  bool local = false;   // by a fault of this side
  uint64_t before = 0;  // write-backs from this one on have nothing to do with it
};

struct LostHome {
  std::shared_ptr<fabric::Link> link;
  uint64_t before = 0;
};

// A write-back that has not ended, as it concerns reports.
struct OpenWriteBack {
  const Import* import;
  const fabric::Link* link;
  uint64_t seq;
};

class LossReporter {
 public:
  // `before`: the number that the next write-back will have, which must not be given while this is
  // called.
  void add(const std::shared_ptr<Import>& imp, const std::vector<uint32_t>& pages, bool local,
           uint64_t before);
  void add(std::shared_ptr<fabric::Link> home, uint64_t before);
  LossMark mark() const {
    return {losses_.load(std::memory_order_acquire), local_losses_.load(std::memory_order_acquire)};
  }

  // Whether anything is not reported yet.
  bool due() const { return due_.load() != 0; }
  struct Reports {
    std::vector<Loss> stores;
    std::vector<LostHome> homes;
  };
  // What no open write-back holds up. It counts as due until reported() is called.
  Reports take(const std::vector<OpenWriteBack>& open);
  void reported(size_t reports) { due_.fetch_sub(reports); }

  // Losses of segments that another process of this node has imported, to be sent to it.
  void add_of_neighbour(Loss loss);
  std::vector<Loss> take_of_neighbours();
  // What could not be sent. Returns how many wait now.
  size_t put_back(std::vector<Loss> losses);

 private:
  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_write_backs);
  std::vector<Loss> stores_ CMI_GUARDED_BY(mu_);
  std::vector<LostHome> homes_ CMI_GUARDED_BY(mu_);
  std::vector<Loss> of_neighbours_ CMI_GUARDED_BY(mu_);
  std::atomic<size_t> due_{0};
  std::atomic<uint64_t> losses_{0}, local_losses_{0};
};

}  // namespace cmi::memory
