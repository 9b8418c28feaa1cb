// <cmi/interprocess.hpp>: containers of containers in a segment, what a function that is run under
// the lock returns and throws, and what is told after a client that died with the lock. Exit status
// 0: all of it is as the header says.
#include <sys/wait.h>
#include <unistd.h>

#include <cmi/interprocess.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

namespace {

namespace ipc = cmi::interprocess;
using Names = ipc::map<int, ipc::string>;
using Lists = ipc::map<int, ipc::vector<ipc::string>>;

std::string g_folder;

[[noreturn]] void fail(int line, const char* what) {
  std::fprintf(stderr, "line %d: not %s\n", line, what);
  std::filesystem::remove_all(g_folder);
  std::_Exit(EXIT_FAILURE);
}
#define EXPECT(condition) ((condition) ? void() : fail(__LINE__, #condition))

template <class Thrown, class F>
bool throws(F&& f) {
  try {
    f();
  } catch (const Thrown&) {
    return true;
  }
  return false;
}

// Another node's process: adds a name, then dies in the middle of adding another.
[[noreturn]] void visit() {
  ::setenv("CMI_NODE", "another", 1);
  const auto context = cmi::context::open();
  auto memory = ipc::memory::find(context, g_folder, "names", std::chrono::seconds(30));
  while (memory.with<Names>("names", &Names::size) == 0) ::usleep(1000);
  const size_t count = memory.with<Names>("names", [](Names& all) {
    EXPECT(all.at(1) == "a string too long to lie inside of its own object");
    all[2] = "another one, as long, which lies in the segment as well";
    return all.size();
  });
  EXPECT(count == 2);
  memory.with<Names>("names", [](Names& all) {
    all[3] = "half a change";
    std::_Exit(EXIT_SUCCESS);
  });
  std::_Exit(EXIT_FAILURE);
}

void look_at_results(ipc::memory& memory) {
  memory.with<Lists>("lists", [](Lists& all) {
    all[7].emplace_back("made with the allocator of the map that it is in, by nobody's asking");
    for (int i = 0; i < 100; ++i) all[8].emplace_back("x");
  });
  EXPECT(memory.with<Lists>("lists", [](Lists& all) { return all[8].size(); }) == 100);
  EXPECT(memory.with<Lists>("lists", &Lists::size) == 2);
  // Two objects of one name differ by their type.
  EXPECT(memory.with<Names>("lists", &Names::size) == 0);

  EXPECT(throws<std::domain_error>([&] {
    memory.with<Names>("names", [](Names&) { throw std::domain_error("by the function"); });
  }));
  EXPECT(throws<std::exception>(
      [&] { memory.with<Lists>("lists", [](Lists& all) { all[9].resize(1 << 20); }); }));
  EXPECT(memory.with<Names>("names", &Names::size) == 1);  // the lock was released
}

void run() {
  const pid_t visitor = ::fork();
  if (visitor == 0) visit();
  const auto context = cmi::context::open();
  EXPECT(
      throws<std::invalid_argument>([&] { ipc::memory::make(context, g_folder, "small", 4096); }));
  auto memory = ipc::memory::make(context, g_folder, "hidden", 1 << 20);
  memory.with<Names>("names", [](Names& all) { all[1] = "short"; });
  look_at_results(memory);

  auto shared = ipc::memory::make(context, g_folder, "names", 1 << 20);
  shared.with<Names>(
      "names", [](Names& all) { all[1] = "a string too long to lie inside of its own object"; });
  int status = -1;
  EXPECT(::waitpid(visitor, &status, 0) == visitor && status == 0);
  try {
    shared.with<Names>("names", &Names::size);
    fail(__LINE__, "told");
  } catch (const std::system_error& e) {
    EXPECT(e.code() == std::errc::owner_dead);
  }
}

}  // namespace

int main() {
  std::string folder = "/dev/shm/cmi-test-XXXXXX";
  EXPECT(::mkdtemp(folder.data()) != nullptr);
  g_folder = folder;
  ::setenv("CMI_RUNTIME_DIR", (folder + "/runtime").c_str(), 1);
  try {
    run();
  } catch (const std::exception& e) {
    fail(0, e.what());
  }
  std::filesystem::remove_all(folder);
  return EXIT_SUCCESS;
}
