#include "core/memory/home/quarantine.hpp"

#include <sys/mman.h>

namespace cmi::memory {

bool Quarantine::add(Mapping memory, Sessions sessions) {
  void* const at = mmap(memory.data(), memory.size(), PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  Guard g(mu_);
  bytes_ += memory.size();
  places_.push_back({std::move(memory), std::move(sessions)});
  return at != MAP_FAILED;
}

std::optional<Quarantine::Place> Quarantine::take_excess() {
  Guard g(mu_);
  if (places_.size() <= most_places_ && bytes_ <= most_bytes_) return std::nullopt;
  Place oldest = std::move(places_.front());
  places_.pop_front();
  bytes_ -= oldest.addresses.size();
  return oldest;
}

uint64_t Quarantine::bytes() {
  Guard g(mu_);
  return bytes_;
}

}  // namespace cmi::memory
