// Chooses the provider: the first candidate that opens and does what it says.
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "core/base/fd.hpp"
#include "core/base/log.hpp"
#include "fabric/fabric.hpp"
#include "fabric/ofi/address.hpp"
#include "fabric/ofi/domain.hpp"
#include "fabric/ofi/first.hpp"
#include "fabric/ofi/peers_trial.hpp"
#include "fabric/ofi/refused.hpp"
#include "fabric/split.hpp"

namespace cmi::fabric {

namespace {

// Providers do not tell why they do not open. With fewer descriptors left than a fabric takes, that
// is why.
bool short_of_descriptors() {
  std::array<Fd, 32> room;
  for (Fd& fd : room) {
    fd.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!fd) return true;
  }
  return false;
}

// Nor that of ports, of which a fabric and its trial take some.
bool short_of_ports(const std::string& address) {
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  const bool is_v4 = ::inet_pton(AF_INET, address.c_str(), &v4.sin_addr) == 1;
  if (!is_v4 && ::inet_pton(AF_INET6, address.c_str(), &v6.sin6_addr) != 1) return false;
  v4.sin_family = AF_INET;
  v6.sin6_family = AF_INET6;
  std::array<Fd, 8> room;
  for (Fd& fd : room) {
    fd.reset(::socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int bound = is_v4 ? ::bind(fd.get(), reinterpret_cast<sockaddr*>(&v4), sizeof v4)
                            : ::bind(fd.get(), reinterpret_cast<sockaddr*>(&v6), sizeof v6);
    if (bound != 0) return errno == EADDRINUSE;
  }
  return false;
}

}  // namespace

void process_ends() { ofi::process_ends(); }

Result<std::unique_ptr<Fabric>> open_fabric(const Config& config) {
  if (ofi::libfabric() == nullptr) return Status::kNotSupp;
  ofi::KeepSignalHandlers keep;
  const Result<std::string> address = ofi::local_address(config.address);
  if (!address) return address.status();
  return ofi::open_first(ofi::candidates(config.provider, *address, *ofi::libfabric()), config,
                         *address, ofi::libfabric()->fabric);
}

// What a trial shows of messages, without the one-sided operations that it is refused for.
static std::string of_messages_alone(const std::string& provider, ofi::OfiFabric::Opener opener) {
  using Opened = Result<std::unique_ptr<Fabric>>;
  const auto open = [&provider, opener](const std::string& own) -> Opened {
    auto found = ofi::candidates(provider, own, *ofi::libfabric());
    if (found.empty()) return Status::kNotSupp;
    return ofi::OfiFabric::open(std::move(found[0]), true, opener);
  };
  const char* const fails = ofi::what_fails_at_peers_ends(open);
  return fails != nullptr
             ? std::string("; with messages alone: ") + fails
             : "; messages alone pass a trial, but pages are read by one-sided operations alone";
}

Result<std::unique_ptr<Fabric>> ofi::open_first(std::vector<Info> found, const Config& config,
                                                const std::string& address,
                                                OfiFabric::Opener opener) {
  const char* wanted = config.provider.empty() ? "any" : config.provider.c_str();
  for (ofi::Info& info : found) {
    const std::string name = info->fabric_attr->prov_name;
    if (const char* why = ofi::why_refused(name, ofi::libfabric()->version())) {
      const std::string alone = name == "shm" ? of_messages_alone(name, opener) : "";
      alert(kFacIni, "provider {} is not used: {}{}", name, why, alone);
      if (!config.provider.empty()) return Status::kNotSupp;
      continue;
    }
    const bool tried =
        std::find(config.tried.begin(), config.tried.end(), name) != config.tried.end();
    Result<std::unique_ptr<Fabric>> f = ofi::OfiFabric::open(std::move(info), tried, opener);
    if (!f) continue;  // traced where it failed
    if (config.provider.empty() && !(*f)->traits().wait_fd) {
      trace(kFacIni, kWarn, "provider {}: no descriptor to sleep on", name);
      continue;
    }
    return with_whole_operations(f.take());
  }
  if (short_of_descriptors()) {
    alert(kFacIni, "no libfabric provider opens: too many open files");
    return Status::kNoMem;
  }
  if (short_of_ports(address)) {
    alert(kFacIni, "no libfabric provider opens: no free ports (net.ipv4.ip_local_port_range)");
    return Status::kNoMem;
  }
  constexpr const char* kNone = "no usable libfabric provider on {} (asked for: {})";
  if (config.may_fail) {
    trace(kFacIni, kWarn, kNone, address, wanted);
  } else {
    alert(kFacIni, kNone, address, wanted);
  }
  return Status::kNotSupp;
}

}  // namespace cmi::fabric
