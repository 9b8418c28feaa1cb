// The network as cmiadm doctor sees it: libfabric, the provider that the library would choose, the
// address it would listen at, and whether bytes really go from one endpoint to another.
#include <cstring>

#include "core/base/log.hpp"
#include "doctor.hpp"
#include "fabric/local_interface.hpp"
#include "text.hpp"

namespace cmi::adm {

namespace {

constexpr Nanos kTransfer = 5 * kSecond;

bool contains(const std::string& text, const char* words) { return text.find(words) != text.npos; }

class Deaf : public fabric::Receiver {
 public:
  void on_message(fabric::Endpoint&, Bytes) override {}
};

// Reads a few bytes from one endpoint to another, both ours.
fabric::Cause read_across(fabric::Fabric& fabric) {
  Deaf deaf;
  alignas(4096) static std::byte there[4096], here[4096];
  for (size_t i = 0; i < sizeof there; ++i) there[i] = static_cast<std::byte>(i * 7 + 1);
  std::memset(here, 0, sizeof here);
  auto region = fabric.register_memory(there, sizeof there, fabric::kRead, random_u64());
  auto target = fabric.open_endpoint(deaf);
  auto initiator = fabric.open_endpoint(deaf);
  if (!region || !target || !initiator) return fabric::Cause::kLocal;
  const auto peer = (*initiator)->add_peer((*target)->address());
  if (!peer) return fabric::Cause::kLocal;
  fabric::Op op;
  const Deadline deadline = Deadline::in(kTransfer);
  bool posted = false;
  while (!op.done() && !deadline.passed()) {
    if (!posted) {
      const auto p = (*initiator)->read(op, *peer, here, sizeof here, (*region)->key(), 0);
      if (p == fabric::Post::kFailed) return fabric::Cause::kLocal;
      posted = p == fabric::Post::kPosted;
    }
    if ((*initiator)->poll() + (*target)->poll() == 0) op.nap(50 * kMicro);
  }
  initiator->reset();  // before the buffers and the operation go
  if (!op.done()) return fabric::Cause::kTimeout;
  if (op.cause() != fabric::Cause::kOk) return op.cause();
  return std::memcmp(here, there, sizeof here) == 0 ? fabric::Cause::kOk : fabric::Cause::kLocal;
}

// What to do where open_ways() has failed, with these words last.
std::string mend_of(const std::string& why, bool address, const context::Environment& env) {
  if (contains(why, "too many open files") || !descriptors_left(40)) return kMoreFiles;
  if (contains(why, "loopback")) return "ip link set lo up; or name an address with CMI_ADDRESS";
  if (address) {
    return "set CMI_ADDRESS to an address or an interface that \"ip addr\" shows, or to auto";
  }
  if (contains(why, "libfabric cannot be loaded") || contains(why, "is older than")) {
    return "apt-get install libfabric1";
  }
  if (!env.provider.empty()) {
    return "unset CMI_PROVIDER, or choose one of those that \"fi_info -l\" shows";
  }
  return "look at the firewall's rules for this machine's own addresses; CMI_TRACE=ini:debug makes "
         "a program say what each provider answers";
}

}  // namespace

void examine_fabric(Report& report, const context::Environment& env) {
  Overheard trace;
  auto interfaces = fabric::open_ways(env.provider, env.address);
  if (!interfaces) {
    std::string why = trace.last_alert();
    if (why.empty()) why = status_name(interfaces.status());
    const bool address = interfaces.status() == Status::kInval || contains(why, "loopback");
    report.push_back(
        {Health::kBroken, address ? "address" : "provider", why, mend_of(why, address, env)});
    return;
  }
  for (const fabric::LocalInterface& way : *interfaces) {
    const fabric::Traits& traits = way.serving->traits();
    report.push_back({Health::kGood, "provider",
                      fmt::format("{} on {}: swaps {}, messages of {}", traits.provider,
                                  traits.device.empty() ? "a device" : traits.device,
                                  way.cas ? "by the provider" : "by the home's CPU",
                                  human_bytes(traits.max_message)),
                      ""});
  }
  if (env.address.empty()) {
    report.push_back({Health::kLimited, "address",
                      "loopback: nobody on another machine can import what is exported here",
                      "export CMI_ADDRESS=auto, or an address or interface of this machine"});
  } else {
    report.push_back({Health::kGood, "address", env.address, ""});
  }
  fabric::Cause cause = fabric::Cause::kOk;
  for (const fabric::LocalInterface& way : *interfaces) {
    if (cause == fabric::Cause::kOk) cause = read_across(*way.serving);
  }
  const bool good = cause == fabric::Cause::kOk;
  report.push_back({good ? Health::kGood : Health::kBroken, "transfer",
                    good ? "4 KiB read from one endpoint to another"
                         : fmt::format("a read between two endpoints here: {}", cause_name(cause)),
                    good ? ""
                         : "set CMI_PROVIDER to another one; look at the firewall's rules for "
                           "this machine's own addresses"});
}

}  // namespace cmi::adm
