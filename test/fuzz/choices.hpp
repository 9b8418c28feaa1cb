// Where a test of random input takes its decisions from: a seed, or bytes that a fuzzer made up.
// Pure.
#pragma once

#include <cstdint>
#include <random>
#include <span>

namespace cmi::test {

class Choices {
 public:
  explicit Choices(uint64_t seed) : random_(seed) {}
  // The bytes must live as long as the object. Behind their end every choice is 0.
  explicit Choices(std::span<const uint8_t> input) : input_(input), of_input_(true) {}

  uint64_t any() { return of_input_ ? take(8) : random_(); }
  // Takes no more bytes than it needs, so that what the fuzzer changes matters.
  uint64_t below(uint64_t n) {
    if (!of_input_) return random_() % n;
    constexpr uint64_t kByte = 1 << 8, kTwoBytes = 1 << 16;
    return take(n <= kByte ? 1 : n <= kTwoBytes ? 2 : 8) % n;
  }
  bool one_in(uint64_t n) { return below(n) == 0; }
  // Nothing is left to decide; never so with a seed.
  bool over() const { return of_input_ && input_.empty(); }

 private:
  uint64_t take(size_t bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < bytes && !input_.empty(); ++i) {
      value |= uint64_t{input_.front()} << (8 * i);
      input_ = input_.subspan(1);
    }
    return value;
  }

  std::mt19937_64 random_;
  std::span<const uint8_t> input_;
  bool of_input_ = false;
};

}  // namespace cmi::test
