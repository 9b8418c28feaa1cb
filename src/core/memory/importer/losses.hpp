// What the observer is notified of failures: stores that were lost, and homes that were. The
// observer is notified when everything is known: once no write-back is open that began before the
// loss, so that one call names all the pages of a segment, and the causes come before the end of
// the home. Threads: any, the fault handler included. The lock is held while the observer is
// notified; the locks of the table of imports, of the write-backs and of the LossReporter are taken
// inside.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "core/base/lock.hpp"
#include "core/memory/importer/import_table.hpp"
#include "core/memory/importer/lock_order.hpp"
#include "core/memory/importer/loss_reporter.hpp"
#include "core/memory/importer/write_backs.hpp"
#include "core/memory/page/observer.hpp"
#include "core/node/node.hpp"

namespace cmi::memory {

class Losses {
 public:
  Losses(node::Node& node, Observer& observer, ImportTable& imports, WriteBacks& write_backs)
      : node_(node), observer_(observer), imports_(imports), write_backs_(write_backs) {}

  // Stores to these pages never reached the home. A write-back of the import is open.
  void lose(const std::shared_ptr<Import>& imp, const std::vector<uint32_t>& pages);
  // The home has ended or is dead; report() is to be called next.
  void lose(const std::shared_ptr<fabric::Link>& home);
  // Called after each thing that a report may have waited for. A thread that comes while another
  // one reports waits for it: what is due counts as reported only then, so a barrier returns after
  // its event, and the end of a home comes after the stores that it took along.
  void report();
  LossMark mark() const { return losses_.mark(); }

  // An import has succeeded: either the end of its home is reported with it, or it fails (false).
  bool confirm(Import& imp);

  // Losses of segments that other processes of the node have imported: they are notified by the
  // service thread. What does not fit into a queue goes with the next call.
  bool neighbours_due() const { return of_neighbours_.load() != 0; }
  void notify_importing_processes();

 private:
  void report_stores(std::vector<Loss>& stores) CMI_REQUIRES(mu_);
  void report_homes(const std::vector<LostHome>& homes,
                    const std::vector<std::shared_ptr<Import>>& imports) CMI_REQUIRES(mu_);
  // Whether all of it has been sent, or the receiver has gone.
  bool notify_importing_process(Loss& loss);

  node::Node& node_;
  Observer& observer_;
  ImportTable& imports_;
  WriteBacks& write_backs_;
  LossReporter losses_;
  // Held while the observer is notified, so that it hears of causes first.
  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_requests)
      CMI_ACQUIRED_BEFORE(lock_order::after_reports);
  std::atomic<int> of_neighbours_{0};
};

}  // namespace cmi::memory
