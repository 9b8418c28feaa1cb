// The small file behind an imported segment: the handle, and the token that was set for it, kept
// for the other processes of the node. Made by its owner before anybody sees it; tokens are
// exchanged under the exclusive lock of the node. Threads: any.
#pragma once

#include <vector>

#include "core/node/layout.hpp"

namespace cmi::node {

Status write_proxy_file(int fd, Bytes blob);  // a new file
Result<std::vector<std::byte>> read_proxy_blob(int fd);
Result<std::vector<std::byte>> read_proxy_token(int fd, uint64_t* version);
Status write_proxy_token(int fd, Bytes token);

}  // namespace cmi::node
