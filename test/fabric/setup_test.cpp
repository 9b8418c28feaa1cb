// Opening a fabric: the choice of the provider and the address, and what must be left alone in the
// process while libraries load.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "core/base/log.hpp"
#include "fabric/far_node.hpp"
#include "fabric/ofi/call_table.hpp"
#include "fabric/ofi/info.hpp"
#include "fabric/ofi/kernel_symbols.hpp"
#include "fabric/world.hpp"
#include "support/skip.hpp"

namespace cmi::test::setup_test {
namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGINT, SIGTERM};

void marker(int) {}

// A process can load libfabric once only, and these must see it happen.
void run_in_a_process_of_its_own(const char* name, const char* argument) {
  const pid_t pid = spawn_case(name, argument, -1);
  REQUIRE(pid > 0);
  int status = 0;
  pid_t ended = 0;
  const bool in_time = eventually([&] { return (ended = waitpid(pid, &status, WNOHANG)) != 0; });
  if (!in_time) {
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
  }
  CHECK(in_time);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

void use_everything(Fabric& fabric) {
  Server server(fabric, kPageSize);
  Client client(fabric, server.endpoint->address());
  uint64_t word = 0;
  CHECK(client.read(&word, 8, server.region->key(), 0) == Cause::kOk);
}

TEST_CASE("child_opens_every_provider_and_compares_its_handlers" * doctest::skip()) {
  const char* which = std::getenv(kCaseArgument);
  REQUIRE(which != nullptr);
  const bool own = std::string(which) == "own";
  for (int s : kSignals) {
    struct sigaction sa = {};
    sa.sa_handler = own ? marker : SIG_DFL;
    sa.sa_flags = own ? SA_RESTART : 0;
    REQUIRE(sigaction(s, &sa, nullptr) == 0);
  }
  for (const std::string provider : {"", "tcp;ofi_rxm", "sockets", "shm", "verbs;ofi_rxm"}) {
    const bool device = provider.find("verbs") != provider.npos;  // lo is none
    auto f = fabric::open_fabric({provider, device ? local_address() : ""});
    if (device && !without_verbs()) REQUIRE(f);
    if (f) use_everything(**f);
    for (int s : kSignals) {
      struct sigaction sa = {};
      REQUIRE(sigaction(s, nullptr, &sa) == 0);
      CAPTURE(s);
      CAPTURE(provider);
      const bool untouched = sa.sa_handler == (own ? marker : SIG_DFL);
      CHECK(untouched);
      CHECK((sa.sa_flags & SA_RESTART) == (own ? SA_RESTART : 0));
    }
  }
}

TEST_CASE("a_clients_signal_handlers_are_not_displaced_by_opening_a_fabric") {
  run_in_a_process_of_its_own("child_opens_every_provider_and_compares_its_handlers", "own");
}

TEST_CASE("signals_without_a_handler_still_have_none_after_opening_a_fabric") {
  run_in_a_process_of_its_own("child_opens_every_provider_and_compares_its_handlers", "none");
}

// Counted from outside of any library: calls of read() of this process and bytes that they brought.
struct Reads {
  uint64_t calls = 0, bytes = 0;
};
Reads reads_so_far() {
  std::ifstream io("/proc/self/io");
  Reads r;
  std::string name;
  for (uint64_t value = 0; io >> name >> value;) {
    if (name == "rchar:") r.bytes = value;
    if (name == "syscr:") r.calls = value;
  }
  return r;
}

TEST_CASE("child_opens_a_fabric_and_counts_what_it_reads" * doctest::skip()) {
  const Reads before = reads_so_far();
  auto f = fabric::open_fabric({std::getenv(kCaseArgument), ""});
  const Reads after = reads_so_far();
  REQUIRE(f);
  // With the kernel's symbols, over 10,000 calls and 14 MB.
  CHECK(after.calls - before.calls < 2000);
  CHECK(after.bytes - before.bytes < (4u << 20));
  use_everything(**f);
  // Others in the process open that file as ever.
  std::FILE* symbols = std::fopen("/proc/kallsyms", "r");
  CHECK(symbols != nullptr);
  if (symbols != nullptr) std::fclose(symbols);
}

TEST_CASE("where_there_is_no_rdma_device_the_kernels_symbols_are_not_read") {
  if (reads_so_far().calls == 0) return skip("this kernel does not count what a process reads");
  if (fabric::ofi::has_rdma_device()) return skip("this machine has an RDMA device");
  auto found = fabric::open_fabric({});
  if (!found) return skip("libfabric opens no provider on this machine");
  if (!fabric::ofi::may_patch_calls(fabric::ofi::libfabric()->version())) {
    return skip("the calls of this libfabric are left alone");
  }
  run_in_a_process_of_its_own("child_opens_a_fabric_and_counts_what_it_reads", "");
  if (!fabric::open_fabric({"tcp;ofi_rxm", ""})) return skip("this libfabric has no rxm");
  run_in_a_process_of_its_own("child_opens_a_fabric_and_counts_what_it_reads", "tcp;ofi_rxm");
}

TEST_CASE("an_rdma_device_is_seen_by_its_folders") {
  char scratch[] = "/tmp/cmi-devices.XXXXXX";
  REQUIRE(mkdtemp(scratch) != nullptr);
  const std::string sys = std::string(scratch) + "/sys", dev = std::string(scratch) + "/dev";
  const auto seen = [&] { return fabric::ofi::has_rdma_device(sys, dev); };
  CHECK_FALSE(seen());
  std::filesystem::create_directories(sys);
  std::filesystem::create_directories(dev + "/rdma_cm");
  CHECK_FALSE(seen());
  std::filesystem::create_directories(dev + "/uverbs0");
  CHECK(seen());
  std::filesystem::remove_all(dev);
  CHECK_FALSE(seen());
  std::filesystem::create_directories(sys + "/rxe0");
  CHECK(seen());
  std::filesystem::remove_all(scratch);
}

TEST_CASE("child_opens_every_provider_and_compares_its_environment" * doctest::skip()) {
  const auto all = [] {
    std::vector<std::string> variables;
    for (char** e = environ; *e != nullptr; ++e) variables.emplace_back(*e);
    std::sort(variables.begin(), variables.end());
    return variables;
  };
  if (std::string(std::getenv(kCaseArgument)) == "set") {
    setenv("FI_MR_CACHE_MONITOR", "memhooks", 1);
    setenv("FI_OFI_RXM_BUFFER_SIZE", "8192", 1);
  }
  const auto before = all();
  for (const char* provider : {"", "tcp;ofi_rxm", "sockets"}) {
    auto f = fabric::open_fabric({provider, ""});
    if (f) use_everything(**f);
    CHECK(all() == before);
  }
}

TEST_CASE("a_clients_environment_is_the_same_after_opening_a_fabric") {
  run_in_a_process_of_its_own("child_opens_every_provider_and_compares_its_environment", "set");
  run_in_a_process_of_its_own("child_opens_every_provider_and_compares_its_environment", "unset");
}

// rxm asks with each endpoint, when what was held while libfabric was loaded is given back.
TEST_CASE("libfabric_goes_on_reading_that_receive_buffers_are_shared_unless_the_user_says_not") {
  if (!fabric::open_fabric({"tcp;ofi_rxm", ""})) return skip("this libfabric has no rxm");
  void* so = dlopen("libfabric.so.1", RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(so != nullptr);
  const auto params = reinterpret_cast<decltype(&fi_getparams)>(dlsym(so, "fi_getparams"));
  const auto free_params = reinterpret_cast<decltype(&fi_freeparams)>(dlsym(so, "fi_freeparams"));
  REQUIRE((params != nullptr && free_params != nullptr));
  const auto read = [&] {
    fi_param* all = nullptr;
    int count = 0;
    std::string value = "not asked for";
    REQUIRE(params(&all, &count) == 0);
    for (int i = 0; i < count; ++i) {
      if (std::string(all[i].name) != "FI_OFI_RXM_USE_SRX") continue;
      value = all[i].value != nullptr ? all[i].value : "";
    }
    free_params(all);
    return value;
  };
  if (std::getenv("FI_OFI_RXM_USE_SRX") != nullptr) return skip("the user has said");
  CHECK(read() == "1");
  setenv("FI_OFI_RXM_USE_SRX", "0", 1);
  CHECK(read() == "0");
  unsetenv("FI_OFI_RXM_USE_SRX");
  dlclose(so);
}

TEST_CASE("a_provider_that_would_harm_its_user_is_refused_with_the_reason") {
  namespace ofi = fabric::ofi;
  if (ofi::libfabric() == nullptr) return skip("there is no libfabric on this machine");
  static std::string said;
  TraceSink sink;
  sink.alert = [](void*, const char* line) { said += std::string(line) + "\n"; };
  sink.log = [](void*, const char*) {};
  Trace::get().configure(kFacAll, kError, sink);
  for (const char* name : {"shm", "udp", "udp;ofi_rxd", "rxd"}) {
    CAPTURE(name);
    said.clear();
    auto f = fabric::open_fabric({name, ""});
    CHECK(!f);
    CHECK(f.status() == Status::kNotSupp);
    CAPTURE(said);
    const bool reason = said.find("is not used: ") != std::string::npos;
    // Where this libfabric has none of that name, it cannot be said of any.
    const bool absent = said.find("no usable libfabric provider") != std::string::npos &&
                        ofi::candidates(name, "127.0.0.1", *ofi::libfabric()).empty();
    CHECK((reason || absent));
  }
  Trace::get().configure(kFacAll, kError, {});
}

TEST_CASE("the_best_provider_can_sleep_and_names_itself") {
  auto f = fabric::open_fabric({});
  if (!f) return skip("libfabric opens no provider on this machine");
  CHECK((*f)->traits().wait_fd);
  CHECK(!(*f)->traits().provider.empty());
  CHECK((*f)->traits().max_message == fabric::kMaxMessage);
  auto same = fabric::open_fabric({(*f)->traits().provider, ""});
  REQUIRE(same);
  CHECK((*same)->traits().provider == (*f)->traits().provider);
}

TEST_CASE("tcp_means_a_tcp_provider_with_reliable_datagrams_whatever_its_name") {
  auto f = fabric::open_fabric({"tcp", ""});
  if (!f) return skip("libfabric opens no tcp provider on this machine");
  const std::string name = (*f)->traits().provider;
  CHECK((name == "net" || name == "tcp" || name == "tcp;ofi_rxm"));
  use_everything(**f);
}

TEST_CASE("a_provider_that_does_not_exist_is_not_supported") {
  for (const char* name : {"nonsense", "tcp;nonsense", ";"}) {
    CAPTURE(name);
    auto f = fabric::open_fabric({name, ""});
    CHECK(!f);
    CHECK(f.status() == Status::kNotSupp);
  }
}

TEST_CASE("a_caret_leaves_a_provider_out") {
  auto f = fabric::open_fabric({"^net", ""});
  if (!f) return skip("libfabric opens no other provider on this machine");
  CHECK((*f)->traits().provider != std::string("net"));
}

TEST_CASE("an_address_that_is_not_of_this_machine_is_invalid") {
  for (const char* address : {"192.0.2.255", "0.0.0.0", "::", "2001:db8::1", "nonsense0",
                              "256.1.1.1", " ", "127.0.0.1 "}) {
    CAPTURE(address);
    auto f = fabric::open_fabric({"", address});
    CHECK(!f);
    CHECK(f.status() == Status::kInval);
  }
}

TEST_CASE("an_address_or_an_interface_of_this_machine_is_taken") {
  if (!fabric::open_fabric({})) return skip("libfabric opens no provider on this machine");
  for (const char* address : {"", "127.0.0.1", "127.0.0.5", "lo"}) {
    CAPTURE(address);
    auto f = fabric::open_fabric({"", address});
    REQUIRE(f);
    use_everything(**f);
  }
}

TEST_CASE("an_address_of_ipv6_is_taken") {
  auto f = fabric::open_fabric({"", "::1"});
  if (!f) return skip("this machine has no ::1");
  use_everything(**f);
  auto rxm = fabric::open_fabric({"tcp;ofi_rxm", "::1"});
  REQUIRE(rxm);
  use_everything(**rxm);
}

TEST_CASE("auto_takes_an_interface_that_is_not_loopback") {
  auto f = fabric::open_fabric({"", "auto"});
  if (!f) return skip("address auto finds no interface but loopback that libfabric can use");
  use_everything(**f);
}

std::map<int, std::string> open_descriptors() {
  std::map<int, std::string> out;
  DIR* dir = opendir("/proc/self/fd");
  REQUIRE(dir != nullptr);
  while (dirent* e = readdir(dir)) {
    const int fd = std::atoi(e->d_name);
    if (e->d_name[0] == '.' || fd == dirfd(dir)) continue;
    char target[256] = {};
    const std::string link = std::string("/proc/self/fd/") + e->d_name;
    if (readlink(link.c_str(), target, sizeof target - 1) > 0) out[fd] = target;
  }
  closedir(dir);
  return out;
}

CMI_CONTRACT(every_descriptor_is_closed_by_exec, world) {
  const std::map<int, std::string> before = open_descriptors();
  auto there = world.open(), here = world.open();
  Server server(*there, kPageSize);
  Client client(*here, server.endpoint->address());
  // Connections, too, which the provider makes on its own: some time after they came up.
  const auto inherited = [&] {
    uint64_t word = 0;
    CHECK(client.read(&word, 8, server.region->key(), 0) == Cause::kOk);
    CHECK(client.send(&word, 8) == Cause::kOk);
    std::string names;
    for (auto& [fd, name] : open_descriptors()) {
      const int flags = fcntl(fd, F_GETFD);
      if (before.contains(fd) || flags < 0 || (flags & FD_CLOEXEC) != 0) continue;
      names += std::to_string(fd) + "=" + name + " ";
    }
    return names;
  };
  CHECK(eventually([&] { return inherited().empty(); }, 3 * kSecond));
  CHECK(inherited() == "");
}

CMI_CONTRACT(nothing_stays_open_when_a_fabric_is_gone, world) {
  // The first time, libraries keep a few descriptors for good.
  const auto use = [&] {
    auto there = world.open(), here = world.open();
    Server server(*there, kPageSize);
    Client client(*here, server.endpoint->address());
    uint64_t word = 0;
    CHECK(client.read(&word, 8, server.region->key(), 0) == Cause::kOk);
  };
  use();
  const size_t before = open_descriptors().size();
  for (int i = 0; i < 5; ++i) use();
  CHECK(open_descriptors().size() <= before);
}

}  // namespace
}  // namespace cmi::test::setup_test
