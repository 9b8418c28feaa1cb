// An importer of this machine that maps the segment's pages, as its home knows it
// (doc/design/local.md). Part of its Sharer. Guarded by the segment's lock `mu`; it never waits.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/fd.hpp"
#include "core/memory/page/page_set.hpp"
#include "core/memory/vm/local_control.hpp"
#include "core/memory/vm/userfault.hpp"

namespace cmi::memory {

class LocalImporter {
 public:
  struct Ticket {
    uint64_t hi = 0, lo = 0;
    bool operator==(const Ticket&) const = default;
  };
  explicit LocalImporter(Ticket ticket) : ticket_(ticket) {}
  // Its token or its views have changed. The importer may be about to use what it got here, and
  // asks anew when it sees the word.
  ~LocalImporter() {
    set_alone(false);
    if (control_) control_.cut_off();
  }
  LocalImporter(const LocalImporter&) = delete;
  LocalImporter& operator=(const LocalImporter&) = delete;

  // Whether this is the ticket that its offer was made with, and it has not been used.
  bool may_take(const Ticket& ticket) const { return !control_ && ticket == ticket_; }
  // It gets its descriptors. `watch`: of its views, each of `size` bytes.
  void take(LocalControl control, Userfault watch, std::vector<uint64_t> views, size_t size) {
    control_ = std::move(control);
    watch_ = std::move(watch);
    views_ = std::move(views);
    size_ = size;
  }
  // Whether it has come for its descriptors: it caches nothing then.
  bool maps() const { return static_cast<bool>(control_); }
  // Whether all who use the segment do.
  void set_alone(bool alone) {
    if (control_) control_.set_alone(alone);
  }
  // From here on an honest importer stores nothing: it sees the word before a page of its becomes
  // writable, and after; pages that were, are protected, also while it is stopped.
  void cut_off();
  // The pages that it may have stored to and not published.
  PageSet marked() const;

 private:
  Ticket ticket_;
  LocalControl control_;  // none: it has not come for its descriptors
  Userfault watch_;
  std::vector<uint64_t> views_;  // addresses in its process
  size_t size_ = 0;
};

}  // namespace cmi::memory
