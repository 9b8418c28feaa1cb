// An array whose parts lie on several nodes, each in memory of the node that stores to it, and at
// one address behind the other in every process. Its owner stores to plain memory, and publishes
// with a message for all pages together; the others load what they have not got. Were all of it in
// one segment, what others than its home store would travel twice: to the home, and from there.
#ifndef CMI_EXAMPLE_SPREAD_HPP
#define CMI_EXAMPLE_SPREAD_HPP

#include <chrono>
#include <cmi/cmi.hpp>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "algorithms.hpp"

inline constexpr uint64_t kPage = 4096;
inline uint64_t in_pages(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Where neither programs nor libraries lie, nor AddressSanitizer's notes, and nothing is mapped
// unasked.
inline void* free_address() {
  static uint64_t next = uint64_t{1} << 45;
  return reinterpret_cast<void*>(std::exchange(next, next + (uint64_t{1} << 32)));
}

// Where a node stands among the others. Parts begin at multiples of 4096 items.
struct Spot {
  const cmi::context& context;
  std::string folder;
  std::vector<graph::Part> parts;
  uint64_t node;
};

template <class T>
class Spread {
 public:
  Spread(const Spot& spot, const std::string& name) : all_(static_cast<T*>(free_address())) {
    for (uint64_t k = 0; k < spot.parts.size(); ++k) {
      // First of all the own one, so that nobody waits in a circle.
      const uint64_t owner = (spot.node + k) % spot.parts.size();
      const graph::Part part = spot.parts[owner];
      if (part.begin == part.end) continue;
      const std::string named = name + "." + std::to_string(owner);
      const uint64_t bytes = in_pages((part.end - part.begin) * sizeof(T));
      segments_.push_back(k == 0 ? spot.context.make(bytes)
                                 : spot.context.find(spot.folder, named, kPatience));
      attach(spot.context, part.begin, bytes, k == 0 ? 0 : CMI_SEG_READ);
      if (k == 0) {
        handle_ = segments_.back().export_handle();
        token_ = segments_.back().grant(CMI_ACC_READ);
        offer_ = spot.context.offer(spot.folder, named, handle_, token_);
      }
    }
  }
  T* all() const { return all_; }
  // What others have stored is about to be loaded.
  void fetch() const {
    for (const auto& view : views_) view.prefetch();
  }

 private:
  static constexpr std::chrono::seconds kPatience{60};

  void attach(const cmi::context& context, uint64_t begin, uint64_t bytes, int32_t flags) {
    const cmi_seg id = segments_.back().id();
    void* const at = CMIFN(context.get(), 10, seg_at)(context.get(), id, all_ + begin, flags);
    if (at == nullptr) throw std::runtime_error(cmi_ofi_error_text(context.get()));
    views_.emplace_back(context.get(), id, at, bytes);
  }

  T* all_;
  std::vector<cmi::segment> segments_;
  cmi::handle handle_;
  cmi::token token_;
  cmi::offer offer_;
  std::vector<cmi::view<T>> views_;
};

#endif
