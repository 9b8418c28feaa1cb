// Addresses of segments that are gone. Over providers that read and write in software an operation
// in mid-payload outlives its registration, and an importer that has answered that it uses the
// segment no more may have lied. So nothing else gets the addresses that such an operation would
// reach for a long time, and the connections that it may have come by are closed before.
//
// Threads: any; the quarantine has a lock of its own, a leaf.
#pragma once

#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/fd.hpp"
#include "core/base/ids.hpp"
#include "core/base/lock.hpp"

namespace cmi::memory {

class Quarantine {
 public:
  using Sessions = std::vector<std::pair<ContextId, uint32_t>>;
  struct Place {
    Mapping addresses;  // their memory is the system's again
    Sessions sessions;  // that may still reach them
  };
  static constexpr size_t kMostPlaces = 256;
  static constexpr uint64_t kMostBytes = uint64_t{1} << 43;  // a sixteenth of what a process has

  explicit Quarantine(size_t most_places = kMostPlaces, uint64_t most_bytes = kMostBytes)
      : most_places_(most_places), most_bytes_(most_bytes) {}

  // Its memory goes to the system, its addresses to nobody yet. False: the memory cannot be closed
  // yet; the addresses are kept all the same.
  bool add(Mapping memory, Sessions sessions);
  // The oldest place, while there are more than so many or of so many bytes. Its sessions must end
  // before it is dropped, which frees its addresses.
  std::optional<Place> take_excess();
  uint64_t bytes();

 private:
  const size_t most_places_;
  const uint64_t most_bytes_;
  Mutex mu_;
  std::deque<Place> places_ CMI_GUARDED_BY(mu_);  // the oldest first
  uint64_t bytes_ CMI_GUARDED_BY(mu_) = 0;
};

}  // namespace cmi::memory
