#include "core/node/machine_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "core/base/fd.hpp"

namespace cmi::node {

namespace {
std::string content_of(const std::string& path) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(8192, '\0');  // more than these files have
  const ssize_t n = fd ? read(fd.get(), text.data(), text.size()) : 0;
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return text;
}

std::optional<uint64_t> number_at(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} ? std::optional(value) : std::nullopt;
}

// The number behind `name`, which begins a line.
std::optional<uint64_t> number_behind(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    if (text.starts_with(name)) return number_at(text.substr(name.size()));
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  }
  return std::nullopt;
}

// Version 2 alone. A group's limit holds for all groups below it.
void look_at_groups(const std::string& root, MachineMemory* m) {
  const std::string groups = content_of(root + "/proc/self/cgroup");
  const std::string_view mine = "0::";
  if (!groups.starts_with(mine)) return;
  std::string path = groups.substr(mine.size(), groups.find('\n') - mine.size());
  for (;;) {
    const std::string folder = fmt::format("{}/sys/fs/cgroup{}/memory.", root, path);
    const auto most = number_at(content_of(folder + "max"));
    const auto used = number_at(content_of(folder + "current"));
    if (most && used) {
      const std::string stat = content_of(folder + "stat");
      // Of files' pages the kernel gives up what is needed; pages of a tmpfs are not among these.
      const uint64_t files = number_behind(stat, "inactive_file ").value_or(0) +
                             number_behind(stat, "active_file ").value_or(0);
      const uint64_t kept = *used - std::min(*used, files);
      m->total = std::min(m->total, *most);
      m->free = std::min(m->free, *most - std::min(*most, kept));
    }
    if (path.empty() || path == "/") return;
    path.erase(path.rfind('/'));
  }
}
}  // namespace

MachineMemory machine_memory_below(const std::string& root) {
  MachineMemory m;
  const std::string info = content_of(root + "/proc/meminfo");
  if (const auto total = number_behind(info, "MemTotal:")) m.total = *total << 10;
  if (const auto free = number_behind(info, "MemAvailable:")) m.free = *free << 10;
  look_at_groups(root, &m);
  return m;
}

MachineMemory machine_memory() { return machine_memory_below(""); }

}  // namespace cmi::node
