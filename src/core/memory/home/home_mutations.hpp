// What mutations (core/base/mutation.hpp) of the home do beyond a condition. Defined with
// CMI_FAULT_INJECTION only: elsewhere mutated() is false when compiled, and nothing calls these.
#pragma once

#include "core/base/codec.hpp"
#include "core/base/handover_mutex.hpp"
#include "core/memory/home/home_core.hpp"
#include "core/memory/wire/requests.hpp"

namespace cmi::memory {

struct HomeMutations {
  // Serves a publish request: others are notified first, and its diffs applied when they have
  // answered.
  static void publish_before_data(HomeCore& home, const fabric::ClientInfo& client, uint64_t number,
                                  const PublishRequest& m);
  // Leaves the registrations of all that a client imports open: they get another owner.
  static void keep_keys(HomeCore& home, const ContextId& client);
};

namespace mutation {

// Gives a lock away for a while.
void let_others_in(HandoverMutex& mu) CMI_REQUIRES(mu);

}  // namespace mutation
}  // namespace cmi::memory
