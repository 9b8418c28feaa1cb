// Who this node is: the machine since its boot and its network namespace, and the name that the
// user gave. Reads /proc; any thread.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

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

uint64_t boot_id() {
  const std::string boot = first_line("/proc/sys/kernel/random/boot_id");
  if (boot.empty()) return 0;
  const uint64_t id = mix(checksum(bytes_of(boot)));
  return id != 0 ? id : 1;
}

}  // namespace cmi::node
