// SHA-256 by libmd and HMAC over it (RFC 2104), for proofs that somebody knows a secret. Any
// thread, without locks.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace cmi {

using Digest = std::array<uint8_t, 32>;

Digest sha256(std::string_view bytes);
Digest hmac_sha256(std::string_view key, std::string_view bytes);

// 64 lower-case hexadecimal digits.
std::string to_hex(const Digest& digest);

// Whether two texts are the same, in a time that does not tell where they differ.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace cmi
