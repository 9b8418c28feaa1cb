#include "core/node/proxy_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

#include "core/base/fault_point.hpp"

namespace cmi::node {

namespace {
bool read_proxy(int fd, Proxy_shm& p) {
  return pread(fd, &p, sizeof p, 0) == static_cast<ssize_t>(sizeof p) && p.magic == kProxyMagic &&
         p.blob.size <= kMaxBlob && p.token[p.version & 1].size <= kMaxBlob;
}

std::vector<std::byte> content(const Proxy_shm::Part& part) {
  return {part.bytes, part.bytes + part.size};
}
}  // namespace

Status write_proxy_file(int fd, Bytes blob) {
  Proxy_shm p{};  // on the stack: nothing may throw while a slot is in the making
  p.magic = kProxyMagic;
  p.blob.size = static_cast<uint32_t>(blob.size());
  if (!blob.empty()) std::memcpy(p.blob.bytes, blob.data(), blob.size());
  return write_all(fd, &p, sizeof p, 0) ? Status::kOk : Status::kNoMem;
}

Result<std::vector<std::byte>> read_proxy_blob(int fd) {
  Proxy_shm p;
  if (!read_proxy(fd, p)) return Status::kInval;
  return content(p.blob);
}

Result<std::vector<std::byte>> read_proxy_token(int fd, uint64_t* version) {
  Proxy_shm p;
  if (!read_proxy(fd, p)) return Status::kInval;
  *version = p.version;
  return content(p.token[p.version & 1]);
}

Status write_proxy_token(int fd, Bytes token) {
  Proxy_shm p;
  if (!read_proxy(fd, p)) return Status::kInval;
  uint64_t version = p.version + 1;
  Proxy_shm::Part& part = p.token[version & 1];
  part.size = static_cast<uint32_t>(token.size());
  if (!token.empty()) std::memcpy(part.bytes, token.data(), token.size());
  const auto at = static_cast<off_t>(offsetof(Proxy_shm, token) + (version & 1) * sizeof part);
  if (!write_all(fd, &part, sizeof part, at)) return Status::kNoMem;
  // Dies here: the version still names the other token.
  fault_point("node.token.written");
  if (!write_all(fd, &version, sizeof version, offsetof(Proxy_shm, version))) {
    return Status::kNoMem;
  }
  fault_point("node.token.published");
  return Status::kOk;
}

}  // namespace cmi::node
