// Which values of one cell are older than which others, and why. A history is explained if there is
// one order of the values that agrees with all of it: if nothing is older than itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cmi::checker {

struct Place {  // of an event in a history
  uint32_t thread = 0;
  uint32_t event = 0;
};

enum class Rule : uint8_t {
  kNone,
  kInitial,
  kThread,
  kProcess,
  kHome,
  kPublished,
  kSettled,
  kSwap
};

// Why one value is older than another; see check.hpp for the rules.
struct Reason {
  Rule rule = Rule::kNone;
  Place first;                // who met the older one, or the swap
  Place second;               // who met the newer one
  uint32_t from = 0, to = 0;  // kSwap: because these two are so ordered
};

struct Swap {
  uint32_t taken = 0;  // the values that it took away and put
  uint32_t put = 0;
  Place place;
};

class Order {
 public:
  explicit Order(uint32_t values) : n_(values), reasons_(size_t{values} * values) {}

  bool has(uint32_t older, uint32_t newer) const {
    return reason(older, newer).rule != Rule::kNone;
  }
  const Reason& reason(uint32_t older, uint32_t newer) const {
    return reasons_[size_t{older} * n_ + newer];
  }
  void add(uint32_t older, uint32_t newer, const Reason& why) {
    reasons_[size_t{older} * n_ + newer] = why;
  }
  // Adds what follows from there being nothing between the two values of a swap: what is newer than
  // the first is newer than the second, what is older than the second is older than the first.
  void add_swaps(const std::vector<Swap>& swaps);

  // Whether the values can be put in a line.
  bool is_one() const;
  // Each is older than the next, the last than the first; when is_one() is false.
  std::vector<uint32_t> shortest_cycle() const;

 private:
  uint32_t n_;
  std::vector<Reason> reasons_;  // by older and newer value
};

}  // namespace cmi::checker
