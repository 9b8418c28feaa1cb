// Far nodes. The process one shares its memory and its address with us through a memory file, so
// that what operations did to it can be looked at while it is stopped and after it was killed.
#include "fabric/far_node.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cstdlib>

#include "fabric/ofi/address.hpp"
#include "fabric/ofi/domain.hpp"

namespace cmi::test {

namespace {
struct Shared {
  std::atomic<uint32_t> ready;  // 1: what follows is filled in
  uint32_t address_len;
  std::byte address[256];
  RemoteKey key;
};
static_assert(sizeof(Shared) <= kPageSize);
constexpr size_t kSharedBytes = kPageSize + kFarBytes;

Mapping map_shared(int fd) {
  void* m = mmap(nullptr, kSharedBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return m == MAP_FAILED ? Mapping() : Mapping(m, kSharedBytes);
}

class ProcessFarNode final : public FarNode {
 public:
  ProcessFarNode(const std::string& provider, uint16_t port) {
    Fd file(memfd_create("far node", MFD_CLOEXEC));
    REQUIRE(file);
    REQUIRE(ftruncate(file.get(), kSharedBytes) == 0);
    shared_ = map_shared(file.get());
    REQUIRE(shared_);
    pid_ = spawn_case("a_far_node_serves", provider + "@" + std::to_string(port), file.get());
    REQUIRE(pid_ > 0);
    REQUIRE(eventually([&] { return head().ready.load(std::memory_order_acquire) == 1; }));
  }
  ~ProcessFarNode() override { kill(); }
  Bytes address() override { return Bytes(head().address, head().address_len); }
  RemoteKey key() override { return head().key; }
  std::byte* memory() override { return shared_.data() + kPageSize; }
  void stop() override {
    ::kill(pid_, SIGSTOP);
    int status = 0;
    REQUIRE(waitpid(pid_, &status, WUNTRACED) == pid_);
    REQUIRE(WIFSTOPPED(status));
  }
  void resume() override { ::kill(pid_, SIGCONT); }
  void kill() override {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  Shared& head() { return *reinterpret_cast<Shared*>(shared_.data()); }
  Mapping shared_;
  pid_t pid_ = -1;
};

class FakeFarNode final : public FarNode {
 public:
  FakeFarNode(fabric::FakeNet& net, std::unique_ptr<Fabric> node)
      : net_(net), fabric_(std::move(node)), server_(*fabric_, kFarBytes) {}
  Bytes address() override { return server_.endpoint->address(); }
  RemoteKey key() override { return server_.region->key(); }
  std::byte* memory() override { return server_.memory.data(); }
  void stop() override { net_.stop(address()); }
  void resume() override { net_.resume(address()); }
  void kill() override { net_.kill(address()); }

 private:
  fabric::FakeNet& net_;
  std::unique_ptr<Fabric> fabric_;
  Server server_;
};
}  // namespace

std::unique_ptr<FarNode> fake_far_node(fabric::FakeNet& net, std::unique_ptr<Fabric> node) {
  return std::make_unique<FakeFarNode>(net, std::move(node));
}

std::unique_ptr<FarNode> process_far_node(const std::string& provider, uint16_t port) {
  return std::make_unique<ProcessFarNode>(provider, port);
}

// As the library opens it, but for the port.
static Result<std::unique_ptr<Fabric>> open_at(const std::string& provider, uint16_t port) {
  if (port == 0) return fabric::open_fabric({provider, local_address(), {}});
  const auto address = fabric::ofi::local_address(local_address());
  if (!address) return address.status();
  auto found = fabric::ofi::candidates(provider, *address, *fabric::ofi::libfabric());
  if (found.empty() || found[0]->src_addr == nullptr) return Status::kNotSupp;
  auto* at = static_cast<sockaddr_in*>(found[0]->src_addr);
  if (at->sin_family != AF_INET) return Status::kNotSupp;
  at->sin_port = htons(port);
  return fabric::ofi::OfiFabric::open(std::move(found[0]), true);
}

pid_t spawn_case(const char* name, const std::string& argument, int fd3) {
  const std::string filter = std::string("--test-case=") + name;
  const std::string assignment = std::string(kCaseArgument) + "=" + argument;
  // Everything the child needs is made before the fork: other threads may hold malloc's lock.
  std::vector<char*> env;
  for (char** e = environ; *e != nullptr; ++e) env.push_back(*e);
  env.push_back(const_cast<char*>(assignment.c_str()));
  env.push_back(nullptr);
  const char* args[] = {"/proc/self/exe", filter.c_str(), "--no-skip", "--quiet", nullptr};
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (fd3 == 3) fcntl(3, F_SETFD, 0);
    if (fd3 >= 0 && fd3 != 3) dup2(fd3, 3);
    execve("/proc/self/exe", const_cast<char**>(args), env.data());
    _exit(127);
  }
  return pid;
}

TEST_CASE("a_far_node_serves" * doctest::skip()) {
  REQUIRE(std::getenv(kCaseArgument) != nullptr);
  const std::string argument = std::getenv(kCaseArgument);  // provider@port
  const size_t at = argument.find('@');
  const auto port = static_cast<uint16_t>(std::stoi(argument.substr(at + 1)));
  Mapping shared = map_shared(3);
  REQUIRE(shared);
  auto fabric = open_at(argument.substr(0, at), port);
  REQUIRE(fabric);
  Inbox inbox;
  auto ep = (*fabric)->open_endpoint(inbox);
  REQUIRE(ep);
  auto region = (*fabric)->register_memory(shared.data() + kPageSize, kFarBytes,
                                           fabric::kRead | fabric::kWrite, random_u64(), ep->get());
  REQUIRE(region);
  auto& head = *reinterpret_cast<Shared*>(shared.data());
  const Bytes address = (*ep)->address();
  std::memcpy(head.address, address.data(), address.size());
  head.address_len = static_cast<uint32_t>(address.size());
  head.key = (*region)->key();
  head.ready.store(1, std::memory_order_release);
  Poller poller(**ep);
  for (;;) pause();  // until killed
}

}  // namespace cmi::test
