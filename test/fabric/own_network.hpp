// A network namespace for a case that runs in a process of its own (spawn_case). For a process with
// one thread.
#pragma once

#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace cmi::test {

// One command of ip(8), several joined by "&& ip".
inline bool run_ip(const std::string& command) {
  return std::system(("PATH=/usr/sbin:/sbin:$PATH; { ip " + command + "; } 2>/dev/null").c_str()) ==
         0;
}

// With lo and nothing else in it. Null, or why there is none.
inline const char* enter_own_network() {
  const auto write_file = [](const char* path, const std::string& text) {
    std::ofstream out(path);
    return static_cast<bool>(out << text << std::flush);
  };
  const std::string uid = std::to_string(getuid()), gid = std::to_string(getgid());
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return "no namespaces of our own here";
  if (!write_file("/proc/self/setgroups", "deny") ||
      !write_file("/proc/self/uid_map", "0 " + uid + " 1") ||
      !write_file("/proc/self/gid_map", "0 " + gid + " 1") || !run_ip("link set lo up")) {
    return "no network of our own here";
  }
  return nullptr;
}

// An interface with this address and prefix, and with a carrier.
inline bool add_interface(const std::string& name, const std::string& address) {
  return run_ip("link add " + name + " type veth peer name " + name + "_end && ip addr add " +
                address + " dev " + name + " && ip link set " + name + " up && ip link set " +
                name + "_end up");
}

}  // namespace cmi::test
