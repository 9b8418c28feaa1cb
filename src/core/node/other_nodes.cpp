#include "core/node/other_nodes.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "core/node/charges.hpp"
#include "core/node/layout.hpp"
#include "core/node/node.hpp"

namespace cmi::node {

namespace {
bool is_folder_name(std::string_view name) {
  return name.size() == 16 && name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

template <class Use>
void for_each_node(int runtime_dir, std::string_view but, Use use) {
  Fd fd(openat(runtime_dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(fd ? fdopendir(fd.get()) : nullptr, closedir);
  if (dir) fd.release();
  while (const dirent* e = dir ? readdir(dir.get()) : nullptr) {
    if (is_folder_name(e->d_name) && but != e->d_name) use(std::string(e->d_name));
  }
}

// The registry of a node, if it is one of this version.
Fd open_registry(int runtime_dir, const std::string& name, Header_shm* header) {
  const std::string path = name + "/" + kRegistryName;
  Fd fd(openat(runtime_dir, path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  const bool whole = fd && pread(fd.get(), static_cast<void*>(header), sizeof *header, 0) ==
                               static_cast<ssize_t>(sizeof *header);
  if (!whole || header->magic.load() != kRegistryMagic || header->version != kRegistryVersion ||
      folder_name({header->node_hi, header->node_lo}).text != name) {
    fd.reset();
  }
  return fd;
}

uint64_t charged_in(int registry, const Header_shm& header) {
  const uint64_t n = std::min<uint64_t>(header.segments_high.load(), kMaxSegments);
  std::vector<Segment_shm> segments(n);
  std::vector<Reservation_shm> reservations(kMaxReservations);
  const auto get = [registry](auto& all, size_t at) {
    const size_t size = all.size() * sizeof all[0];
    return pread(registry, static_cast<void*>(all.data()), size, static_cast<off_t>(at)) ==
           static_cast<ssize_t>(size);
  };
  if (!get(segments, offsetof(Registry_shm, segments)) ||
      !get(reservations, offsetof(Registry_shm, reservations))) {
    return 0;  // it goes away
  }
  return charged_by(segments, reservations, true);
}
}  // namespace

uint64_t charged_of_others(const Folder& own) {
  uint64_t sum = 0;
  for_each_node(own.parent.get(), own.name.text, [&](const std::string& name) {
    Header_shm header{};
    const Fd fd = open_registry(own.parent.get(), name, &header);
    if (fd && __builtin_add_overflow(sum, charged_in(fd.get(), header), &sum)) sum = UINT64_MAX;
  });
  return sum;
}

bool reap_nodes(const std::string& runtime_dir, const FileName* own, Nanos wait) {
  const Fd dir(open(runtime_dir.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!dir) return false;
  bool any = false;
  for_each_node(dir.get(), own != nullptr ? own->text : "", [&](const std::string& name) {
    Header_shm header{};
    if (!open_registry(dir.get(), name, &header)) return;
    Config config;
    config.runtime_dir = runtime_dir;
    config.id = {header.node_hi, header.node_lo};
    const Result<int> dead = reap_folder(config, wait);
    any |= dead && *dead > 0;
  });
  return any;
}

}  // namespace cmi::node
