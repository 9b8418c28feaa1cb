// What the client said of the sizes of caches. Pure; the lock of the owner guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace cmi::context {

class ChosenSizes {
 public:
  // Of all segments that there are and will be, in bytes, not 0: what was said of single ones no
  // longer counts.
  void set_all(size_t bytes) {
    all_ = bytes;
    at_home_.clear();
  }
  // Of one segment at home.
  void set(int32_t seg, size_t bytes) { at_home_[seg] = bytes; }
  void forget(int32_t seg) { at_home_.erase(seg); }

  size_t of_new() const { return all_; }  // of an import to come; 0: nothing was said
  // Of a segment at home; `otherwise`: where nothing was said.
  size_t of(int32_t seg, size_t otherwise) const {
    if (const auto it = at_home_.find(seg); it != at_home_.end()) return it->second;
    return all_ != 0 ? all_ : otherwise;
  }

 private:
  size_t all_ = 0;
  std::map<int32_t, size_t> at_home_;
};

}  // namespace cmi::context
