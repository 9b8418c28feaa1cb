// An arena between two nodes at one address: containers of the standard that one makes and the
// other reads and changes, and a client that is killed in the middle of a transaction. Exit status
// 0: it all went as <cmi/cpp/arena.hpp> says.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmi/cmi.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory_resource>
#include <new>
#include <string>
#include <thread>
#include <vector>

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string g_folder;  // of the whole test
pid_t g_first = 0;     // its first process, the home

[[noreturn]] void fail(int line, const char* what) {
  std::fprintf(stderr, "node %s, line %d: not %s\n", std::getenv("CMI_NODE"), line, what);
  if (::getpid() == g_first) std::filesystem::remove_all(g_folder);
  std::_Exit(EXIT_FAILURE);
}

#define EXPECT(condition) ((condition) ? void() : fail(__LINE__, #condition))

using text = std::basic_string<char, std::char_traits<char>, cmi::arena_allocator<char>>;
using names = std::map<int, text, std::less<int>, cmi::arena_allocator<std::pair<const int, text>>>;

constexpr size_t kSize = 4 << 20;
constexpr int kNames = 60;

// In the first page, behind what attach_alike() keeps there.
struct roots {
  uint64_t address;
  names* all;
  uint64_t lost;
};

bool appears(const char* sign) {
  for (int i = 0; i < 6000; ++i) {
    if (std::filesystem::exists(g_folder + "/" + sign)) return true;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return false;
}

text long_text(int i) {
  const std::string words = "a name that fits no small string " + std::to_string(i);
  return text(words.c_str());
}

void make_and_die() {
  const cmi::context context = cmi::context::open();
  const cmi::segment segment = context.find(g_folder + "/meeting", "arena", seconds(60));
  const cmi::view<std::byte> view = cmi::attach_alike(context, segment);
  cmi::arena arena(context, view);
  arena.use();
  auto* const all = new (arena.allocate(sizeof(names))) names;
  for (int i = 0; i < kNames; ++i) all->emplace(i, long_text(i));
  auto* const root = reinterpret_cast<roots*>(view.data());
  root->all = all;
  arena.commit();
  for (int i = 0; i < 100; ++i) (void)arena.allocate(2000);
  arena.abort();
  for (int i = 0; i < 5; ++i) (void)arena.allocate(2000);
  std::filesystem::create_directory(g_folder + "/taken");
  ::pause();
}

void home(pid_t client) {
  const cmi::context context = cmi::context::open();
  cmi::segment segment = context.make(kSize, CMI_SEG_CLIENT_CONSIST);
  const cmi::view<std::byte> view = cmi::attach_alike(context, segment);
  const cmi::handle handle = segment.export_handle();
  const cmi::token token = segment.grant();
  const cmi::offer offer = context.offer(g_folder + "/meeting", "arena", handle, token);
  EXPECT(appears("taken"));
  cmi::arena arena(context, view);
  arena.use();
  EXPECT(arena.sweep() == 0);
  ::kill(client, SIGKILL);
  uint64_t undone = 0;
  for (int i = 0; i < 6000 && undone == 0; ++i) {
    undone = arena.sweep();
    if (undone == 0) std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT(undone == 5);
  names& all = *reinterpret_cast<roots*>(view.data())->all;
  EXPECT(all.size() == kNames);
  for (int i = 0; i < kNames; ++i) EXPECT(all.at(i) == long_text(i));
  all.erase(3);
  all.emplace(kNames, long_text(kNames));
  arena.commit();
  EXPECT(all.size() == kNames && all.count(3) == 0);

  // As a resource of std::pmr; and there is an end of it.
  {
    std::pmr::vector<int> numbers({1, 2, 3}, &arena);
    EXPECT(reinterpret_cast<std::byte*>(numbers.data()) > view.data() &&
           reinterpret_cast<std::byte*>(numbers.data()) < view.data() + kSize);
  }
  try {
    for (;;) (void)arena.allocate(60000);
  } catch (const std::bad_alloc&) {
  }
  arena.abort();
  void* const again = arena.allocate(60000);
  arena.deallocate(again, 60000);
  cmi_ofi_arena other;
  EXPECT(cmi_ofi_arena_open(context.get(), &other, view.data(), kSize, 4096) == -1);
  EXPECT(cmi_get_error(context.get()) == CMI_ERR_INVAL);
}

}  // namespace

int main() {
  std::string folder = "/dev/shm/cmi-test-XXXXXX";
  ::setenv("CMI_NODE", "home", 1);
  EXPECT(::mkdtemp(folder.data()) != nullptr);
  g_folder = folder;
  g_first = ::getpid();
  std::filesystem::create_directory(folder + "/meeting");
  ::setenv("CMI_RUNTIME_DIR", (folder + "/runtime").c_str(), 1);
  const pid_t client = ::fork();
  EXPECT(client >= 0);
  try {
    if (client == 0) {
      ::setenv("CMI_NODE", "client", 1);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      make_and_die();
    }
    home(client);
  } catch (const std::exception& e) {
    fail(0, e.what());
  }
  int status = 0;
  EXPECT(::waitpid(client, &status, 0) == client);
  EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  std::filesystem::remove_all(folder);
  return EXIT_SUCCESS;
}
