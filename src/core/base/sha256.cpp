#include "core/base/sha256.hpp"

#include <sha2.h>

#include <cstring>

namespace cmi {

namespace {
constexpr size_t kBlock = 64;
}  // namespace

Digest sha256(std::string_view bytes) {
  SHA2_CTX state;
  SHA256Init(&state);
  SHA256Update(&state, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  Digest digest;
  SHA256Final(digest.data(), &state);
  return digest;
}

Digest hmac_sha256(std::string_view key, std::string_view bytes) {
  std::array<char, kBlock> padded{};
  if (key.size() > kBlock) {
    const Digest hashed = sha256(key);
    std::memcpy(padded.data(), hashed.data(), hashed.size());
  } else if (!key.empty()) {
    std::memcpy(padded.data(), key.data(), key.size());
  }
  std::string inner, outer;
  for (const char c : padded) {
    inner += static_cast<char>(c ^ 0x36);
    outer += static_cast<char>(c ^ 0x5c);
  }
  const Digest first = sha256(inner.append(bytes));
  return sha256(outer.append(reinterpret_cast<const char*>(first.data()), first.size()));
}

std::string to_hex(const Digest& digest) {
  std::string text;
  for (const uint8_t byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned differ = 0;
  for (size_t i = 0; i < a.size(); ++i) differ |= static_cast<unsigned>(a[i] ^ b[i]);
  return differ == 0;
}

}  // namespace cmi
