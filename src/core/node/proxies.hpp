// What imported segments keep for the other processes of the node: the handle, and the token that
// the importer set. Both lie in the proxy's file (proxy_file.hpp).
// Threads: any; each call takes the exclusive lock.
#pragma once

#include <vector>

#include "core/base/codec.hpp"
#include "core/base/status.hpp"
#include "core/node/seat.hpp"

namespace cmi::node {

class Proxies {
 public:
  explicit Proxies(const Seat& seat) : seat_(seat) {}

  Result<std::vector<std::byte>> blob(int32_t id);  // as given to create_proxy()
  // Each store raises `version`, which is 0 while there is no token. Storing is the owner's alone
  // (kPerm).
  Status store_token(int32_t id, Bytes token);
  Result<std::vector<std::byte>> token(int32_t id, uint64_t* version);

 private:
  const Seat& seat_;
};

}  // namespace cmi::node
