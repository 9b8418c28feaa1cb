// Makes the descriptors that a provider opens close-on-exec, which it forgets itself
// (libfabric 1.17, net and rxm). A child that execs would otherwise keep connections open that
// peers should see end. Any thread.
#pragma once

#include <sys/types.h>

#include <bitset>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.hpp"
#include "core/base/codec.hpp"
#include "core/base/lock.hpp"

namespace cmi::fabric::ofi {

// Marks what appears in its lifetime, the set-up of an object of the provider. Racy with other
// threads that open descriptors in the same span and want them inherited; only sockets, pipes and
// the kernel's anonymous ones (epoll, eventfd) are touched.
class CloseOnExec {
 public:
  CloseOnExec();
  ~CloseOnExec();
  CloseOnExec(const CloseOnExec&) = delete;
  CloseOnExec& operator=(const CloseOnExec&) = delete;

  static constexpr int kMost = 4096;  // descriptors beyond are not looked at

 private:
  std::bitset<kMost> before_;
};

// Connections are made and accepted deep inside the provider's progress. They are known by their
// addresses: one end is an endpoint of ours, or the other end is a peer that we were given. Looks
// for new ones now and then; until then, a second at most of traffic, a new one is inherited.
class Connections {
 public:
  void add(Bytes address) CMI_EXCLUDES(mu_);  // of an endpoint or a peer; as often as wanted
  void remove(Bytes address) CMI_EXCLUDES(mu_);
  // To be called while there is traffic. Cheap when it is not yet time; never waits.
  void mark_now_and_then() CMI_EXCLUDES(mu_);

 private:
  static constexpr Nanos kEvery = kSecond;
  std::atomic<Nanos> next_{0};
  Mutex mu_;
  std::multiset<std::string> ours_ CMI_GUARDED_BY(mu_);
};

// The connections that an endpoint has accepted: those of this process whose near end is its
// address. From the first on nothing listens there any more. Works without a free descriptor, up to
// CloseOnExec::kMost. Under the lock that whoever closes such sockets holds, in all its life.
class Accepted {
 public:
  explicit Accepted(Bytes address);
  // How many there are, shut down before or now.
  size_t shut_down();

 private:
  std::string name_;
  std::vector<int> listened_;
};

// Connections to an endpoint that nobody speaks on, or whose other side has closed. Some providers
// keep those for good. One that says nothing, or has been closed there, is shut down at the second
// look at it, so that a peer has had time to speak and the provider to see the end; the provider
// sees that and closes it. One that the peer had closed before it said anything net (1.17
// to 2.x) has let go of by then: it stops watching it, reads the end, takes that for "nothing yet",
// and forgets it. So what is still there at the third look, shut on both sides, is nobody's, and is
// closed here.
// Under the lock that whoever closes such sockets holds.
class Strangers {
 public:
  // `forgetful`: the provider is one of those. How many were shut down or closed.
  size_t end(Bytes address, bool forgetful);

 private:
  using Sockets = std::set<std::pair<int, ino_t>>;  // numbers of descriptors are used again
  Sockets seen_;  // at the last look, silent or closed by the other side
  Sockets shut_;  // by the last look
};

}  // namespace cmi::fabric::ofi
