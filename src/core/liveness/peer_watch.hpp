// What the home's and the importer's side tell the watch over peers, and ask of it. The class
// Membership (core/memory/membership) implements it, above both sides.
// Threads: any.
#pragma once

#include "core/access/handles.hpp"
#include "core/base/clock.hpp"
#include "core/base/ids.hpp"
#include "fabric/link.hpp"

namespace cmi::liveness {

class PeerWatch {
 public:
  // The port of this context's lifelines; 0: there are none.
  virtual uint16_t port() const = 0;
  // An importer will connect a lifeline: the secret that identifies it.
  virtual uint64_t expect(const ContextId& importer) = 0;
  // A home that this context imports from: a lifeline to it is connected, and its lease is kept.
  // Port 0: the home has no lifelines. False: no lifeline by the deadline, or the link to the home
  // was condemned; without a lifeline nothing of the home may be cached.
  virtual bool watch_home(const access::RsegInfo& rseg, const fabric::Link& link, uint16_t port,
                          uint64_t secret, Deadline deadline) = 0;
  // An import came to nothing: where there is no other import from that home, its lifeline is no
  // longer tried.
  virtual void unwatch_home(const ContextId& home) = 0;
  // Silence after which a peer counts as dead.
  virtual Nanos dead_after() const = 0;
  virtual void look() = 0;  // something is shared that was not, or an answer is overdue
  virtual void suspect(const ContextId& peer) = 0;  // something went wrong: it is looked at now

 protected:
  ~PeerWatch() = default;
};

}  // namespace cmi::liveness
