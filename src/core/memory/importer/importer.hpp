// The importing side of the coherence protocol: fetches, twins, write-backs, invalidations, CAS.
// One per context; doc/design/protocol.md names the rules that the comments refer to.
//
// Importer makes the parts and hands them out. Each part holds the core (importer_core.hpp), whose
// members own the data, each with its lock; what belongs to one import is in import.hpp.
//
// Threads: faults and calls come from application threads, in parallel; notifications, ticks and
// answers to asynchronous requests from the service thread; answers also from whichever application
// thread polls.
#pragma once

#include <memory>
#include <vector>

#include "core/memory/importer/fault_service.hpp"
#include "core/memory/importer/import_views.hpp"
#include "core/memory/importer/imported_homes.hpp"
#include "core/memory/importer/importer_core.hpp"
#include "core/memory/importer/joining.hpp"
#include "core/memory/importer/leaving.hpp"
#include "core/memory/importer/notification_handler.hpp"
#include "core/memory/importer/publishing.hpp"
#include "core/memory/importer/swaps.hpp"
#include "core/memory/importer/timer.hpp"
#include "core/memory/importer/tokens.hpp"
#include "core/memory/importer/write_through.hpp"
#include "core/memory/page/local_imports.hpp"
#include "core/node/context_report.hpp"

namespace cmi::memory {

class Importer final : public LocalImports {
 public:
  using Parts = ImporterParts;
  // kNotSupp: the kernel or its settings lack something. kNoMem: there are no descriptors left.
  static Result<std::unique_ptr<Importer>> open(Parts parts);
  ~Importer();

  Joining& joining() { return joining_; }
  Tokens& tokens() { return tokens_; }
  ImportViews& views() { return views_; }
  Leaving& leaving() { return leaving_; }
  FaultService& faults() { return faults_; }
  WriteThrough& write_through() { return write_through_; }
  Publishing& publishing() { return publishing_; }
  Swaps& swaps() { return swaps_; }
  Notifications& notifications() { return notifications_; }
  ImportedHomes& homes() { return homes_; }
  WriteBackTimer& timer() { return timer_; }
  LeaseAlarm& lease_alarm() { return core_.lease_alarm; }
  ReconfTimeout& reconf_timeout() { return core_.reconf_timeout; }

  // cmi_enb of the calling thread changed. Views are closed while no thread is enabled. Throws
  // bad_alloc.
  void thread_enabled(bool enabled);
  // An access to this import that came to nothing in time is tried again: its home lives.
  bool waits_on(const Import& imp) const;

  void token_changed(int32_t id) override { tokens_.changed(id); }
  uint32_t pages_of_ours(int32_t id) override { return core_.imports.pages_of_ours(id); }

  // Service thread.
  int advance();
  bool busy() const;  // wants ticks and polling of links
  // What to sleep on. Returns for how long at most: what others wait for is left to them, but they
  // may be gone any moment.
  Nanos descriptors(std::vector<int>* fds);
  // importer_report.cpp
  void report(node::ContextReport* out);
  void draw(const ContextId& home, int32_t segment, std::vector<node::MapLine>* out);

 private:
  explicit Importer(Parts parts) : core_(std::move(parts)) {}

  ImporterCore core_;
  Joining joining_{core_};
  Tokens tokens_{core_};
  ImportViews views_{core_};
  Leaving leaving_{core_};
  FaultService faults_{core_};
  WriteThrough write_through_{core_};
  Publishing publishing_{core_};
  Swaps swaps_{core_};
  Notifications notifications_{core_};
  ImportedHomes homes_{core_};
  WriteBackTimer timer_{core_};
  Nanos hot_links_seen_ = 0;  // the service thread has advanced links that others wait for
};

}  // namespace cmi::memory
