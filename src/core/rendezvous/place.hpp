// Where offers are left, as a client names it: the path of a folder, "tcp://HOST:PORT" or
// "tcp://HOST:PORT?secret=FILE", or "pmix:" or "pmix:RANK". Any thread, without locks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/status.hpp"

namespace cmi::rendezvous {

inline constexpr size_t kMaxWhere = 4000;   // characters
inline constexpr size_t kMaxSecret = 1024;  // bytes; at least 1

struct Place {
  enum class Kind : uint8_t { kFolder, kTcp, kPmix };
  Kind kind = Kind::kFolder;
  std::string folder;
  std::string host;              // a name, an IPv4 address, or an IPv6 address without brackets
  std::string port;              // 1 to 65535, without leading zeros
  std::string secret;            // empty: none
  std::optional<uint32_t> rank;  // with PMIx
};

// `secret` is what CMI_SECRET says, for a place of tcp that names no file. The file's last end of
// line is not of its secret. kInval: no such place can be, or the file holds no secret; kPerm: it
// may not be read; kNoMem: no descriptors.
Result<Place> parse_place(std::string_view where, const std::string& secret);

}  // namespace cmi::rendezvous
