// The order of the fabric's locks, outermost first. Each mutex is declared after the level that
// stands before its own and before the level that stands behind it, so that clang
// (-Wthread-safety-beta) sees any function that takes two of them the wrong way round. The levels
// are never locked and have no definition. What each lock guards: doc/design/locking.md.
//
//   hello      Server::hello_mu_
//   sessions   Link::mu_
//   tables     ClientTable::mu_, KnownHomes::mu_, DirectAckSender::mu_, Session::detached_mu_
//   ports      Port::mu_, ring::Channel::send_mu_
//   queues     ofi::Queue::look_lock_, OfiEndpoint::book_lock_, locks of the splitting endpoint
//   providers  OfiFabric::gate_
//   bound      ofi::OfiEndpoint::bound_mu_
//   leaves     ofi::Registration::mu_, ring::Channel::receive_mu_, everything that is held for a
//              few instructions only
#pragma once

#include "core/base/lock.hpp"

namespace cmi::fabric::lock_order {

extern Mutex after_hello;
extern Mutex after_sessions CMI_ACQUIRED_AFTER(after_hello);
extern Mutex after_tables CMI_ACQUIRED_AFTER(after_sessions);
extern Mutex after_ports CMI_ACQUIRED_AFTER(after_tables);
extern Mutex after_queues CMI_ACQUIRED_AFTER(after_ports);
extern Mutex after_providers CMI_ACQUIRED_AFTER(after_queues);
extern Mutex after_bound CMI_ACQUIRED_AFTER(after_providers);

}  // namespace cmi::fabric::lock_order
