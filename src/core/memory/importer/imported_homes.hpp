// The homes that segments are imported from, for the watch over peers, which calls all of these on
// the service thread; ask(): any thread.
#pragma once

#include <memory>
#include <vector>

#include "core/memory/importer/importer_core.hpp"

namespace cmi::memory {

class ImportedHomes {
 public:
  explicit ImportedHomes(ImporterCore& core) : core_(core) {}

  bool imports_from(const ContextId& home);
  // Whether events of this context may name the home: this context has imported a segment of it
  // that is not marked for deletion. An import of a neighbour is reported by the neighbour.
  bool concerned_with(const ContextId& home);
  std::shared_ptr<fabric::Link> link_with(const ContextId& home);  // null: there is none
  // Has a link with several routes find out whether the one that it takes still leads there.
  void try_link(const ContextId& home);
  // The home is dead or has ended: its link is condemned, its segments are gone.
  void lose(const ContextId& home);
  // Whether what is cached of the home's segments may be used. While it may not, nothing of it is
  // mapped and accesses wait; pages, dirty ones too, stay what they are.
  void set_lease_expired(const ContextId& home, bool lease_expired);
  // Until then the home vouches for us.
  void set_lease_end(const ContextId& home, Nanos at);

  // Each home with a question on its way; see engine/probe_all.hpp.
  struct Asked {
    access::NaddrInfo who;
    fabric::ListenerAddress listener;
    std::shared_ptr<fabric::Link> link;
    std::shared_ptr<fabric::Request> request;  // null: dead already
  };
  std::vector<Asked> ask();

 private:
  void set_alarm();

  ImporterCore& core_;
};

}  // namespace cmi::memory
