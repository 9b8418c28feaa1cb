// Little-endian writer and bounds-checked reader for everything that leaves the process: handles,
// tokens, addresses, messages. A reader that runs out turns bad and stays bad; callers test ok()
// once at the end. No allocation; any thread. What moves one value is inlined whatever the compiler
// thinks of it: its length is known then, which makes a message's header a dozen stores and not a
// dozen calls of memcpy.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace cmi {

using Bytes = std::span<const std::byte>;

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the codec stores native words");

class Writer {
 public:
  explicit Writer(std::span<std::byte> out) : out_(out) {}
  template <class T>
  requires std::is_integral_v<T>
  [[gnu::always_inline]] void put(T v) {
    if (std::byte* to = reserve(sizeof v); to != nullptr) std::memcpy(to, &v, sizeof v);
  }
  void bytes(Bytes b) {
    if (std::byte* to = reserve(b.size()); to != nullptr && !b.empty()) {
      std::memcpy(to, b.data(), b.size());
    }
  }
  void blob(Bytes b) {  // at most 65535 bytes
    put<uint16_t>(static_cast<uint16_t>(b.size()));
    bytes(b);
  }
  [[gnu::always_inline]] std::byte* reserve(size_t n) {
    if (n > out_.size() - at_ || !ok_) {
      ok_ = false;
      return nullptr;
    }
    std::byte* p = out_.data() + at_;
    at_ += n;
    return p;
  }
  size_t size() const { return at_; }
  size_t room() const { return out_.size() - at_; }
  bool ok() const { return ok_; }
  Bytes done() const { return Bytes(out_.data(), at_); }

 private:
  std::span<std::byte> out_;
  size_t at_ = 0;
  bool ok_ = true;
};

class Reader {
 public:
  explicit Reader(Bytes in) : in_(in) {}
  template <class T>
  requires std::is_integral_v<T>
  [[gnu::always_inline]] T get() {
    T v{};
    Bytes b = bytes(sizeof v);
    if (b.size() == sizeof v) std::memcpy(&v, b.data(), sizeof v);
    return v;
  }
  [[gnu::always_inline]] Bytes bytes(size_t n) {
    if (n > in_.size() - at_ || !ok_) {
      ok_ = false;
      return {};
    }
    Bytes b = in_.subspan(at_, n);
    at_ += n;
    return b;
  }
  Bytes blob() { return bytes(get<uint16_t>()); }
  Bytes rest() { return bytes(in_.size() - at_); }
  size_t left() const { return in_.size() - at_; }
  bool ok() const { return ok_; }
  bool done() const { return ok_ && at_ == in_.size(); }

 private:
  Bytes in_;
  size_t at_ = 0;
  bool ok_ = true;
};

// FNV-1a over bytes: each step is a bijection of the state, so every change of a single byte shows.
// It detects damage, not malice.
inline uint64_t checksum(Bytes b, uint64_t h = 0xcbf29ce484222325ull) {
  for (std::byte c : b) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
  return h;
}

}  // namespace cmi
