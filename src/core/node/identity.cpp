// Who this node is: the machine since its boot and its network namespace, and the name that the
// user gave. Reads /proc; any thread.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "core/base/fd.hpp"
#include "core/node/node.hpp"

namespace cmi::node {

namespace {
std::string first_line(const char* path) {
  Fd fd(open(path, O_RDONLY | O_CLOEXEC));
  char buf[128];
  ssize_t n = fd ? read(fd.get(), buf, sizeof buf) : 0;
  std::string_view s(buf, n > 0 ? static_cast<size_t>(n) : 0);
  return std::string(s.substr(0, s.find('\n')));
}

Bytes bytes_of(const std::string& s) { return std::as_bytes(std::span(s.data(), s.size())); }

// The number of the network namespace; 0: not known. Of the process, and once its first thread has
// ended, of the calling one.
ino_t network_namespace() {
  struct stat st;
  const bool known =
      stat("/proc/self/ns/net", &st) == 0 || stat("/proc/thread-self/ns/net", &st) == 0;
  return known ? st.st_ino : 0;
}

// Spreads every input bit over the word: FNV alone leaves the high bits of short inputs alike.
uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}
}  // namespace

std::string default_node_name() {
  std::string name = first_line("/proc/sys/kernel/random/boot_id");
  if (name.empty()) {
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    name = host;
  }
  if (const ino_t ns = network_namespace(); ns != 0) name += "-" + std::to_string(ns);
  return name;
}

NodeId node_id_of(const std::string& name) {
  std::string all = default_node_name();
  all.push_back('\0');
  all += name;
  NodeId id{mix(checksum(bytes_of(all))), mix(checksum(bytes_of(all), 0x6c62272e07bb0142ull))};
  if (!id) id.lo = 1;
  return id;
}

uint64_t machine_id() {
  const std::string boot = first_line("/proc/sys/kernel/random/boot_id");
  const ino_t ns = network_namespace();
  if (boot.empty() || ns == 0) return 0;
  const uint64_t id = mix(checksum(bytes_of(boot), mix(ns)));
  return id != 0 ? id : 1;
}

namespace {
constexpr int kMostDefaults = 100;

std::string default_stem() { return "/dev/shm/cmi-" + std::to_string(geteuid()); }
std::string nth_default(int n) {
  return n == 0 ? default_stem() : default_stem() + "-" + std::to_string(n);
}
}  // namespace

std::string default_runtime_dir() {
  int unused = -1;
  for (int n = 0; n < kMostDefaults; ++n) {
    std::string dir = nth_default(n);
    struct stat st;
    if (lstat(dir.c_str(), &st) == 0) {
      if (st.st_uid == geteuid()) return dir;
    } else if (unused < 0) {
      unused = n;
    }
  }
  return nth_default(std::max(unused, 0));
}

bool is_default_runtime_dir(const std::string& dir) {
  const std::string stem = default_stem();
  if (!dir.starts_with(stem)) return false;
  const std::string_view rest = std::string_view(dir).substr(stem.size());
  return rest.empty() || (rest.size() > 1 && rest[0] == '-' &&
                          rest.find_first_not_of("0123456789", 1) == std::string_view::npos);
}

}  // namespace cmi::node
