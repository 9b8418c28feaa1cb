// cmiadm ping: asks the home of a saved handle for its segment, as seg_imp() would, and measures.
// Joins no node: to the home it is one more client that leaves nothing there.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "command.hpp"
#include "core/access/handles.hpp"
#include "core/memory/wire/wire.hpp"
#include "fabric/link.hpp"
#include "fabric/reach.hpp"
#include "fabric/server.hpp"
#include "peers.hpp"
#include "text.hpp"

namespace cmi::adm {

namespace {

constexpr int kRounds = 5;

// Nobody may ask anything of us: the listener is there because a hello has to name one.
class NoService : public fabric::ServerHandler {
 public:
  bool on_hello(const fabric::ClientInfo&) override { return false; }
  void on_new_session(const fabric::ClientInfo&) override {}
  void on_request(const fabric::ClientInfo&, uint64_t, uint16_t, Reader) override {}
  void on_notification(const ContextId&, uint64_t, uint64_t, uint16_t, Reader,
                       const fabric::DirectAck&) override {}
  void on_acked_below(const ContextId&, uint64_t, std::span<const uint64_t>) override {}
  void on_ack(const ContextId&, uint64_t, Reader) override {}
  bool may_sweep(const ContextId&) override { return true; }
};

Result<access::RsegInfo> read_handle(const std::string& path) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) {
    complain("{}: {}", printable(path), std::strerror(errno));
    return Status::kInval;
  }
  std::byte bytes[access::kRsegSize + 1];
  size_t size = 0;
  for (;;) {
    const ssize_t n = read(fd.get(), bytes + size, sizeof bytes - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) complain("{}: {}", printable(path), std::strerror(errno));
    if (n <= 0 || (size += static_cast<size_t>(n)) == sizeof bytes) break;
  }
  Result<access::RsegInfo> info = Status::kInval;
  if (size == access::kRsegSize) info = access::decode_rseg(bytes);
  if (!info) {
    complain(
        "{}: not a remote segment handle, or damaged: it should be the {} bytes of what "
        "seg_exp() returned",
        printable(path), access::kRsegSize);
  }
  return info;
}

// The local address that packets to the listener would leave from; empty: the library's default.
std::string own_address_toward(Bytes listener) {
  sockaddr_storage a{};
  if (listener.size() > sizeof a || listener.size() < sizeof(sa_family_t)) return {};
  std::memcpy(&a, listener.data(), listener.size());
  const Fd fd(socket(a.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  auto* at = reinterpret_cast<sockaddr*>(&a);
  if (!fd || connect(fd.get(), at, static_cast<socklen_t>(listener.size())) != 0) return {};
  socklen_t len = sizeof a;
  if (getsockname(fd.get(), at, &len) != 0) return {};
  char text[INET6_ADDRSTRLEN] = {};
  const void* raw = a.ss_family == AF_INET
                        ? static_cast<void*>(&reinterpret_cast<sockaddr_in*>(&a)->sin_addr)
                        : static_cast<void*>(&reinterpret_cast<sockaddr_in6*>(&a)->sin6_addr);
  const char* got = inet_ntop(a.ss_family, raw, text, sizeof text);
  return got != nullptr ? got : "";
}

struct Answer {
  memory::WireStatus status{};
  Nanos took = 0;
};

// One question over the link, which leaves no import at the home; a value only for an answer that
// makes sense.
Result<Answer> ask(fabric::Link& link, uint64_t uid, Deadline deadline) {
  std::byte buf[16];
  Writer out(buf);
  out.put(uid);
  out.put<uint32_t>(0);  // no import has this number
  const Nanos begin = now();
  const auto reply =
      link.call(static_cast<uint16_t>(memory::RequestType::kCause), out.done(), deadline);
  if (!reply) return reply.status();
  Answer answer;
  answer.took = now() - begin;
  Reader in(*reply);
  answer.status = static_cast<memory::WireStatus>(in.get<uint8_t>());
  if (!in.done()) return Status::kInval;
  return answer;
}

// False, and it is said why: no process listens there, or none answers in time.
bool may_listen(const access::FabricAddress& listener, const std::string& there, Nanos wait) {
  const Deadline deadline = Deadline::in(wait);
  switch (fabric::probe_listener(listener, wait)) {
    case fabric::Reach::kRefused:
      complain("{}: refused: the home's context has ended, and its segments with it", there);
      return false;
    case fabric::Reach::kUnknown:
      if (!deadline.passed()) return true;  // not an address that can be probed
      complain(
          "{}: nobody answers within {}: look at the network between here and there, and "
          "at firewalls",
          there, human_time(static_cast<uint64_t>(wait)));
      return false;
    case fabric::Reach::kListening:
      break;
  }
  return true;
}

int ping_listener(const access::RsegInfo& rseg, const access::FabricAddress& listener, Nanos wait) {
  const std::string there = fmt::format("{} {}", listener.provider, listener_text(listener.blob));
  const Deadline deadline = Deadline::in(wait);
  if (!may_listen(listener, there, wait)) return kTrouble;
  auto fabric = fabric::open_fabric({listener.provider, own_address_toward(listener.blob)});
  if (!fabric) {
    complain("{}: this machine cannot open the provider {}; see \"cmiadm doctor\"", there,
             listener.provider);
    return kTrouble;
  }
  NoService nobody;
  fabric::Identity self;
  self.id = random_context_id();
  self.node = node::node_id_of(node::default_node_name());
  auto server = fabric::Server::open(**fabric, self.id, nobody);
  if (!server) {
    complain("{}: no endpoint of our own: {}", there, status_name(server.status()));
    return kTrouble;
  }
  self.notification_secret = random_u64();
  const Bytes own = (*server)->listener_address();
  self.listener.assign(own.begin(), own.end());
  fabric::Link link(**fabric, self, rseg.home, listener.blob);
  const Nanos begin = now();
  if (link.session(deadline) == nullptr) {
    complain(
        "{}: somebody listens there but no session came up within {}: the home hangs, is "
        "stopped, or is another process by now",
        there, human_time(static_cast<uint64_t>(wait)));
    return kTrouble;
  }
  const Nanos connected = now() - begin;
  std::vector<Nanos> rounds;
  Answer last;
  for (int i = 0; i < kRounds; ++i) {
    const Result<Answer> a = ask(link, rseg.uid, deadline);
    if (!a) {
      complain("{}: the home took the connection and does not answer: it hangs or is stopped",
               there);
      return kTrouble;
    }
    last = *a;
    rounds.push_back(last.took);
  }
  // Of a segment that is exported no more, the home says that instead.
  if (last.status != memory::WireStatus::kNotPresented) {
    complain("{}: the home lives, but segment {} is not exported any more", there, rseg.home_seg);
    return kTrouble;
  }
  std::sort(rounds.begin(), rounds.end());
  fmt::print("{}: segment {}, {}; connected in {}, round trip {} (best of {}: {})\n", there,
             rseg.home_seg, human_bytes(rseg.size), human_time(static_cast<uint64_t>(connected)),
             human_time(static_cast<uint64_t>(rounds[kRounds / 2])), kRounds,
             human_time(static_cast<uint64_t>(rounds[0])));
  return kFine;
}

}  // namespace

int ping(const Options& options) {
  const Result<access::RsegInfo> rseg = read_handle(options.file);
  if (!rseg) return kTrouble;
  if (rseg->listeners.empty()) complain("the handle names no listener");
  // An importer takes one that answers.
  int result = kTrouble;
  const bool elsewhere = rseg->machine != 0 && rseg->machine != node::machine_id();
  for (const access::FabricAddress& listener : rseg->listeners) {
    if (elsewhere && rseg->listeners.size() > 1 && fabric::is_loopback(listener.blob)) {
      fmt::print("{} {}: for processes on the home's machine\n", listener.provider,
                 listener_text(listener.blob));
      continue;
    }
    result = std::min(result, ping_listener(*rseg, listener, std::max(options.wait, kSecond)));
  }
  return result;
}

}  // namespace cmi::adm
