#include "core/node/proxies.hpp"

#include <fcntl.h>

#include "core/node/proxy_file.hpp"

namespace cmi::node {

namespace {
Result<Fd> open_proxy(const Folder& folder, SegmentKind kind, int32_t id) {
  if (kind != SegmentKind::kProxy) return Status::kInval;
  Result<Fd> fd = open_file(folder, segment_file_name(id).text, O_RDWR);
  if (!fd && fd.status() == Status::kReconfig) return Status::kInval;
  return fd;
}
}  // namespace

Result<std::vector<std::byte>> Proxies::blob(int32_t id) {
  Exclusive lock(seat_.registry->lock(), Deadline::in(kLockWait));
  if (!lock) return Status::kReconfig;
  auto found = find_locked(*seat_.registry, lock, id);
  if (!found) return Status::kInval;
  Result<Fd> fd = open_proxy(seat_.registry->folder(), found->word.kind, id);
  if (!fd) return fd.status();
  return read_proxy_blob(fd->get());
}

Result<std::vector<std::byte>> Proxies::token(int32_t id, uint64_t* version) {
  Exclusive lock(seat_.registry->lock(), Deadline::in(kLockWait));
  if (!lock) return Status::kReconfig;
  auto found = find_locked(*seat_.registry, lock, id);
  if (!found) return Status::kInval;
  Result<Fd> fd = open_proxy(seat_.registry->folder(), found->word.kind, id);
  if (!fd) return fd.status();
  return read_proxy_token(fd->get(), version);
}

Status Proxies::store_token(int32_t id, Bytes token) {
  if (token.size() > kMaxBlob) return Status::kInval;
  Exclusive lock(seat_.registry->lock(), Deadline::in(kLockWait));
  if (!lock) return Status::kReconfig;
  auto found = find_locked(*seat_.registry, lock, id);
  if (!found) return Status::kInval;
  if (!seat_.owns(*found)) return Status::kPerm;
  Result<Fd> fd = open_proxy(seat_.registry->folder(), found->word.kind, id);
  if (!fd) return fd.status();
  return write_proxy_token(fd->get(), token);
}

}  // namespace cmi::node
