// The importers of this context's segments as the watch over peers sees them: which owe
// answers, which are there, and what the death of one means.
// Threads: any; nothing here waits.
#pragma once

#include <map>
#include <vector>

#include "core/memory/home/home_core.hpp"

namespace cmi::memory {

class ImporterWatch {
 public:
  explicit ImporterWatch(HomeCore& home) : home_(home) {}
  bool knows(const ContextId& client);  // some import of it is known here
  // Whether the end of this client would be reported; *who becomes its name.
  bool imported(const ContextId& client, access::NaddrInfo* who);
  // Since when importers owe acknowledgements; 0: this one owes none. An importer that cannot
  // answer before others have answered it owes nothing meanwhile.
  void unacknowledged_since(std::map<ContextId, Nanos>* since);
  Nanos unacknowledged_since(const ContextId& client);
  // All answers are due from now on: this side could not ask before.
  void extend_deadlines();
  // It is dead, or has said goodbye: fenced, and nobody waits for it any more.
  void forget(const ContextId& client, bool goodbye);

  // Asks all importers whether they are there; see engine/probe_all.hpp.
  uint64_t ask_importers();
  bool all_answered(uint64_t call);
  struct Silent {
    access::NaddrInfo who;
    fabric::ListenerAddress listener;
  };
  std::vector<Silent> end_call(uint64_t call);  // those that have not answered

 private:
  bool say_goodbye(const ContextId& client, bool goodbye);

  HomeCore& home_;
  uint64_t next_call_ CMI_GUARDED_BY(home_.mu) = 1;
  std::map<uint64_t, RoundPtr> calls_ CMI_GUARDED_BY(home_.mu);
};

}  // namespace cmi::memory
