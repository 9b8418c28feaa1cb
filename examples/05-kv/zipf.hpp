// Keys as YCSB draws them: record i of n with a probability that goes as 1/i^0.99 (Gray and others,
// SIGMOD '94), spread over the records by a hash, so that keys that are drawn often lie anywhere.
#ifndef CMI_EXAMPLE_ZIPF_HPP
#define CMI_EXAMPLE_ZIPF_HPP

#include <cmath>
#include <cstdint>
#include <random>
#include <string>

namespace kv {

class Zipf {
 public:
  Zipf(uint64_t records, uint64_t seed) : records_(records), random_(seed) {
    for (uint64_t i = 1; i <= records; ++i) zeta_ += 1 / std::pow(static_cast<double>(i), kTheta);
    const double both = 1 + std::pow(0.5, kTheta);
    const auto n = static_cast<double>(records);
    eta_ = (1 - std::pow(2 / n, 1 - kTheta)) / (1 - both / zeta_);
  }
  uint64_t next() {
    const double u = chance(), scaled = u * zeta_;
    uint64_t rank = 0;
    if (scaled >= 1) rank = 1;
    if (scaled >= 1 + std::pow(0.5, kTheta)) {
      rank = static_cast<uint64_t>(static_cast<double>(records_) *
                                   std::pow(eta_ * u - eta_ + 1, 1 / (1 - kTheta)));
    }
    return rank % records_ * 0x9e3779b97f4a7c15 % records_;
  }
  // From 0 to below 1.
  double chance() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

 private:
  static constexpr double kTheta = 0.99;
  uint64_t records_;
  double zeta_ = 0, eta_ = 0;
  std::mt19937_64 random_;
};

inline std::string key_of(uint64_t record) { return "user" + std::to_string(record); }
// Its key, its writer and a number, again and again: a reader knows a value of another key, and one
// that is of two.
inline std::string value_of(uint64_t record, uint64_t writer, uint64_t number, size_t size) {
  const std::string unit =
      key_of(record) + ":" + std::to_string(writer) + ":" + std::to_string(number) + ";";
  std::string value;
  while (value.size() < size) value += unit;
  value.resize(size);
  return value;
}
inline bool belongs(uint64_t record, const std::string& value) {
  const size_t unit = value.find(';') + 1;
  if (unit == 0 || !value.starts_with(key_of(record) + ":")) return false;
  return value.compare(unit, std::string::npos, value, 0, value.size() - unit) == 0;
}

}  // namespace kv

#endif
