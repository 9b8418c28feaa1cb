// The home side of the coherence protocol: segments of this node that this process made or
// attached, their exports and tokens, the importers that hold pages, and invalidation rounds.
//
// Home makes the parts and hands them to each other. The data lies in the classes of HomeCore
// (home_core.hpp); each class that Home gives out holds the operations of one subject; what
// importers ask for lies in requests/, a file for each message, and what processes of the node ask
// for in bus_handlers.cpp.
//
// Only the process that made a segment exports and publishes it. Other processes of the node attach
// the same file; they register their views with the owner over the node bus, and their barriers and
// swaps ask it to publish.
//
// Threads: any; requests and acknowledgements come from the thread that polls the server. Each
// segment has its own locks (segment.hpp), before HomeCore::mu; none is held over a wait for a
// peer, and answers that call back go out after they are released.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/memory/home/breaks.hpp"
#include "core/memory/home/bus_handlers.hpp"
#include "core/memory/home/exports.hpp"
#include "core/memory/home/holders.hpp"
#include "core/memory/home/home_barriers.hpp"
#include "core/memory/home/home_core.hpp"
#include "core/memory/home/home_views.hpp"
#include "core/memory/home/importer_watch.hpp"
#include "core/memory/home/local_grants.hpp"
#include "core/memory/home/quiescing.hpp"
#include "core/memory/home/recovery.hpp"
#include "core/memory/home/timer_scans.hpp"
#include "core/node/context_report.hpp"

namespace cmi::memory {

class Home {
 public:
  using Parts = HomeParts;
  // kNotSupp: the kernel or its settings lack something. kNoMem: there are no descriptors left.
  static Result<std::unique_ptr<Home>> open(Parts parts);

  // A new segment of this process; its id.
  Result<int32_t> create(uint64_t size, int32_t flags, uint64_t reservation);
  bool owns(int32_t id);
  // Ends every export, as the end of the process would, and says goodbye.
  void close(Deadline deadline);
  // Tells the other processes of the node that this one has set another token for a proxy; they
  // access nothing under the old one when this returns, or the deadline has passed (false).
  bool notify_token(int32_t proxy, Deadline deadline);
  void report(node::ContextReport* out);
  void draw(int32_t id, std::vector<node::MapLine>* out);

  HomeViews& views() { return views_; }
  Exports& exports() { return exports_; }
  Breaks& breaks() { return breaks_; }
  Recovery& recovery() { return recovery_; }
  Barriers& barriers() { return barriers_; }
  Quiescing& quiescing() { return quiescing_; }
  ImporterWatch& importers() { return importers_; }
  // Whether nobody uses a segment of this node under this name any more: holders.hpp.
  Result<bool> holder_gone(int32_t segment, uint64_t holder, Deadline deadline) {
    return memory::holder_gone(core_, segment, holder, deadline);
  }

  // From the server's handler.
  void on_new_session(const fabric::ClientInfo& client);
  void on_request(const fabric::ClientInfo& client, uint64_t number, uint16_t type, Reader in);
  void on_ack(const ContextId& client, uint64_t number, Reader released);
  void on_acked_below(const ContextId& client, uint64_t below, std::span<const uint64_t> behind);

  // Service thread.
  void on_datagram(node::Bus::Datagram datagram) { bus_.on_datagram(std::move(datagram)); }
  void on_channel(node::LocalChannel channel) { on_local_channel(core_, std::move(channel)); }
  void tick(Nanos t);
  bool busy();

 private:
  explicit Home(Parts parts) : core_(parts) {}
  Status begin_segment(int32_t id, uint64_t size, int32_t flags, Fd file);
  const std::string& device() const;
  bool remind_processes(const SegmentPtr& segment, bool lists, Nanos t, Finished* done)
      CMI_EXCLUDES(core_.mu);
  void remind_owners(Nanos t, Finished* done) CMI_REQUIRES(core_.mu);

  HomeCore core_;
  HomeViews views_{core_};
  Exports exports_{core_};
  Breaks breaks_{core_};
  Recovery recovery_{core_};
  Barriers barriers_{core_};
  Quiescing quiescing_{core_};
  ImporterWatch importers_{core_};
  TimerScans timer_scans_{core_};
  BusHandlers bus_{core_, quiescing_};
};

}  // namespace cmi::memory
