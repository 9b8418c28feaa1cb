// Namespaces by unshare(), devices by ip, lost packets by nft.
#include "fault/network.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace cmi::test {

namespace {

bool write_file(const char* path, const std::string& text) {
  const Fd fd(::open(path, O_WRONLY | O_CLOEXEC));
  return fd && ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

// Root's rights over networks that this process makes, inside a user namespace.
bool become_root() {
  if (::geteuid() == 0 && ::unshare(CLONE_NEWNET) == 0) return true;
  const std::string uid = std::to_string(::geteuid()), gid = std::to_string(::getegid());
  return ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 &&
         write_file("/proc/self/setgroups", "deny") &&
         write_file("/proc/self/uid_map", "0 " + uid + " 1") &&
         write_file("/proc/self/gid_map", "0 " + gid + " 1");
}

Fd again(const Fd& fd) { return Fd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 3)); }

}  // namespace

Network::Network(Cluster& cluster) : cluster_(cluster) {
  if (!become_root()) {
    reason_ = std::string("no network namespace: ") + std::strerror(errno);
  } else if (!run({"ip", "-batch", "-"},
                  "link set lo up\n"
                  "link add switch type bridge\n"
                  "link set switch up\n"
                  "link add switch2 type bridge\n"
                  "link set switch2 up\n")) {
    reason_ = "ip makes no bridge: " + said_;
  } else if (!run({"nft", "-f", "-"},
                  "add table bridge cmi\n"
                  "add chain bridge cmi lost { type filter hook forward priority 0; }\n")) {
    reason_ = "nft drops no packets on a bridge: " + said_;
  }
}

// The command ends by itself: all it waits for is the kernel.
bool Network::run(const std::vector<std::string>& command, const std::string& input, int network) {
  int in[2], out[2];
  if (::pipe2(in, O_CLOEXEC) != 0) return false;
  const Fd in_read(in[0]);
  Fd in_write(in[1]);
  if (::pipe2(out, O_CLOEXEC) != 0) return false;
  const Fd out_read(out[0]);
  Fd out_write(out[1]);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
    ::dup2(in_read.get(), 0);
    ::dup2(out_write.get(), 1);
    ::dup2(out_write.get(), 2);
    if (network < 0 || ::setns(network, CLONE_NEWNET) == 0) {
      ::execvp(arguments[0], arguments.data());
      ::dprintf(2, "%s: %s", arguments[0], std::strerror(errno));
    }
    ::_exit(127);
  }
  out_write.reset();
  // Shorter than a pipe holds.
  [[maybe_unused]] const ssize_t sent = ::write(in_write.get(), input.data(), input.size());
  in_write.reset();
  said_.clear();
  char text[256];
  for (ssize_t n; (n = ::read(out_read.get(), text, sizeof text)) != 0;) {
    if (n > 0) said_.append(text, static_cast<size_t>(n));
    if (n < 0 && errno != EINTR) break;
  }
  int status = -1;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status == 0;
}

void Network::must(bool done, const std::string& what) {
  if (!done) throw std::runtime_error(what + ": " + said_);
}

void Network::join(const std::string& node) {
  const std::string number = std::to_string(ports_.size() + 1);
  const std::string port = "port" + number, address = "10.77.0." + number;
  const Fd own(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  must(own && ::unshare(CLONE_NEWNET) == 0, "unshare");
  Fd network(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  must(::setns(own.get(), CLONE_NEWNET) == 0 && network, "setns");
  Place& place = places_[node];
  place = {number, std::move(network)};
  must(run({"ip", "link", "set", "lo", "up"}, "", place.network.get()), "loopback");
  connect(place, "switch", port, "eth0", address);
  ports_[node] = port;
  cluster_.place(node, again(place.network), {{"CMI_ADDRESS", address}});
}

void Network::join_beside(const std::string& node, const std::string& other) {
  cluster_.place(node, again(places_.at(other).network), {});
}

void Network::add_cable(const std::string& node) {
  const Place& place = places_.at(node);
  connect(place, "switch2", "more" + place.number, "eth1", "10.78.0." + place.number);
}

void Network::connect(const Place& place, const std::string& to, const std::string& port,
                      const std::string& device, const std::string& address) {
  const std::string path =
      "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(place.network.get());
  must(run({"ip", "-batch", "-"}, "link add " + port + " type veth peer name " + device +
                                      " netns " + path + "\nlink set " + port + " master " + to +
                                      "\nlink set " + port + " up\n"),
       "a veth pair");
  must(run({"ip", "-batch", "-"},
           "addr add " + address + "/24 dev " + device + "\nlink set " + device + " up\n",
           place.network.get()),
       "the node's end of it");
}

void Network::pull(const std::string& node) {
  must(run({"ip", "link", "set", port(node), "down"}, ""), "link down");
}
void Network::plug(const std::string& node) {
  must(run({"ip", "link", "set", port(node), "up"}, ""), "link up");
}

void Network::drop(const std::string& from, const std::string& to) {
  dropped_.emplace_back(port(from), port(to));
  write_rules();
}

void Network::part(const std::vector<std::string>& side, const std::vector<std::string>& other) {
  for (const std::string& here : side) {
    for (const std::string& there : other) {
      dropped_.emplace_back(port(here), port(there));
      dropped_.emplace_back(port(there), port(here));
    }
  }
  write_rules();
}

void Network::heal() {
  dropped_.clear();
  write_rules();
}

// All rules at once: nft changes them in one step.
void Network::write_rules() {
  std::string rules = "flush chain bridge cmi lost\n";
  for (const auto& [from, to] : dropped_) {
    rules += "add rule bridge cmi lost iifname " + from + " oifname " + to + " drop\n";
  }
  must(run({"nft", "-f", "-"}, rules), "nft");
}

}  // namespace cmi::test
