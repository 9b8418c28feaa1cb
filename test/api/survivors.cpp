// Locks between processes of three nodes whose owners are killed: the home, an owner that dies by
// SIGKILL while it holds everything, a neighbour of the home that does, and those that come after.
// What it costs to take a lock is counted. Exit status 0: it all went as <cmi/ofi/cmi_sync.h> says.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmi/cmi.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <shared_mutex>
#include <thread>

namespace {

using cmi::taken;
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

constexpr uint32_t kCells = 4;
constexpr int kTurns = 40;

// What lies in the segment, which is the client's to keep consistent.
struct shared {
  alignas(4096) cmi_ofi_mutex mutex;
  alignas(4096) cmi_ofi_mutex neighbours;
  alignas(4096) cmi_ofi_shared_mutex shared_mutex, read_only;
  alignas(4096) cmi_ofi_ticket_lock ticket;
  alignas(4096) cmi_ofi_semaphore semaphore;
  alignas(4096) cmi_ofi_barrier barrier;
  alignas(4096) cmi_ofi_latch latch, all, over;
  alignas(4096) std::array<uint8_t, 4096> queue;
  alignas(4096) uint64_t turns, overdraft, owner, of_home;
};
static_assert(sizeof(shared) % 4096 == 0 && cmi::queue<uint64_t>::bytes(kCells) <= 4096);

void leave(const char* sign) { std::filesystem::create_directory(g_folder + "/" + sign); }
void await(const char* sign) {
  for (int i = 0; i < 6000; ++i) {
    if (std::filesystem::exists(g_folder + "/" + sign)) return;
    std::this_thread::sleep_for(milliseconds(10));
  }
  fail(__LINE__, sign);
}

// Everything at once, from several nodes: exclusion, and a release that carries along what was
// stored before.
void take_turns(const cmi::context& context, shared& s) {
  cmi::mutex mutex(context, s.mutex);
  cmi::ticket_lock ticket(context, s.ticket);
  cmi::latch all(context, s.all, 3);
  all.count_down();
  EXPECT(all.wait_for(seconds(60)));
  for (int i = 0; i < kTurns; ++i) {
    if (i % 2 == 0) {
      const std::lock_guard<cmi::mutex> held(mutex);
      const std::lock_guard<cmi::ticket_lock> held_too(ticket);
      EXPECT(s.turns + s.overdraft == 0);
      s.turns = s.turns + 1;
      s.overdraft = s.overdraft - 1;
    } else {
      cmi::shared_mutex both(context, s.shared_mutex);
      const std::shared_lock<cmi::shared_mutex> held(both);
    }
  }
  cmi::latch over(context, s.over, 3);
  over.count_down();
  EXPECT(over.wait_for(seconds(60)));
}

// A swap each, and nothing else goes to the home.
void count_messages(const cmi::context& context, shared& s) {
  cmi::mutex mutex(context, s.mutex);
  mutex.lock();
  mutex.unlock();
  cmi_ofi_stats before = {}, after = {};
  before.size = after.size = sizeof before;
  EXPECT(cmi_ofi_get_stats(context.get(), &before) == 0);
  mutex.lock();
  mutex.unlock();
  EXPECT(cmi_ofi_get_stats(context.get(), &after) == 0);
  EXPECT(after.cas_calls == before.cas_calls + 2 && after.cas_lost == before.cas_lost);
  EXPECT(after.pages_fetched == before.pages_fetched);
}

// Takes all there is, and is killed with it.
void die(const cmi::context& context, shared& s) {
  take_turns(context, s);
  cmi::mutex mutex(context, s.mutex);
  cmi::shared_mutex shared_mutex(context, s.shared_mutex), read_only(context, s.read_only);
  cmi::ticket_lock ticket(context, s.ticket);
  cmi::semaphore semaphore(context, s.semaphore, 2);
  cmi::barrier barrier(context, s.barrier, 2);
  cmi::queue<uint64_t> queue(context, s.queue.data(), kCells);
  EXPECT(queue.try_push_for(11, seconds(30)) == taken::yes);
  EXPECT(barrier.arrive_and_wait() == taken::yes);
  mutex.lock();
  shared_mutex.lock();
  read_only.lock_shared();
  ticket.lock();
  EXPECT(semaphore.acquire() == taken::yes && semaphore.acquire() == taken::yes);
  uint64_t name = 0;
  EXPECT(cmi_ofi_holder(context.get(), &s, &name) == 0 && name != 0);
  cmi::atomic_ref<uint64_t>(context, s.owner).store(name);
  leave("held");
  ::pause();
}

void come_after(const cmi::context& context, shared& s) {
  take_turns(context, s);
  count_messages(context, s);
  cmi::barrier barrier(context, s.barrier, 2);
  EXPECT(barrier.arrive_and_wait() == taken::yes);
  await("held");
  cmi::mutex mutex(context, s.mutex);
  EXPECT(mutex.try_lock_for(milliseconds(30)) == taken::no);
  EXPECT(cmi_ofi_holder_gone(context.get(), &s, s.owner) == 0);
  EXPECT(cmi_ofi_holder_gone(context.get(), &s, s.of_home) == 0);
  EXPECT(cmi_ofi_mutex_unlock(context.get(), &s.mutex) == -1);
  EXPECT(cmi_get_error(context.get()) == CMI_ERR_PERM);
  await("neighbour");
  cmi::mutex neighbours(context, s.neighbours);
  EXPECT(neighbours.try_lock_for(milliseconds(30)) == taken::no);
  leave("kill");
  EXPECT(mutex.try_lock_for(seconds(60)) == taken::owner_dead);
  leave("owner_dead");
  await("kill_neighbour");
  EXPECT(neighbours.try_lock_for(seconds(60)) == taken::owner_dead);
  EXPECT(cmi_ofi_holder_gone(context.get(), &s, s.owner) == 1);
  mutex.unlock();
  try {
    mutex.lock();
    EXPECT(false);
  } catch (const std::system_error& e) {
    EXPECT(e.code() == std::errc::owner_dead);
  }
  EXPECT(mutex.try_lock_for(seconds(60)) == taken::owner_dead);
  mutex.repaired();
  mutex.unlock();
  mutex.lock();
  mutex.unlock();

  cmi::shared_mutex shared_mutex(context, s.shared_mutex), read_only(context, s.read_only);
  EXPECT(shared_mutex.try_lock_shared_for(seconds(60)) == taken::owner_dead);
  EXPECT(shared_mutex.try_lock_for(seconds(60)) == taken::owner_dead);
  EXPECT(read_only.try_lock_for(seconds(60)) == taken::yes);
  cmi::ticket_lock ticket(context, s.ticket);
  EXPECT(ticket.try_lock_for(seconds(60)) == taken::owner_dead);
  cmi::semaphore semaphore(context, s.semaphore, 2);
  EXPECT(semaphore.acquire() == taken::owner_dead);
  EXPECT(barrier.arrive_and_wait() == taken::owner_dead);
  cmi::queue<uint64_t> queue(context, s.queue.data(), kCells);
  uint64_t item = 0;
  EXPECT(queue.try_pop_for(item, seconds(30)) == taken::yes && item == 11);
  EXPECT(queue.try_pop_for(item, milliseconds(0)) == taken::no);

  // Rubbish in shared memory is an error.
  cmi::atomic_ref<uint64_t>(context, s.latch.word).store(0x1234);
  EXPECT(cmi_ofi_latch_wait(context.get(), &s.latch, 10) == -1);
  EXPECT(cmi_get_error(context.get()) == CMI_ERR_INVAL);
  EXPECT(cmi_ofi_mutex_lock(context.get(), nullptr, 0) == -1);
  EXPECT(cmi_get_error(context.get()) == CMI_ERR_INVAL);
  leave("done");
}

// On the home's node, with the segment itself: what it asks goes over the node's bus.
void be_neighbour() {
  const cmi::context context = cmi::context::open();
  await("exported");
  cmi_seg id = 0;
  std::ifstream(g_folder + "/id") >> id;
  void* const at = CMIFN(context.get(), 10, seg_at)(context.get(), id, nullptr, 0);
  EXPECT(at != nullptr);
  shared& s = *static_cast<shared*>(at);
  await("held");
  EXPECT(cmi_ofi_holder_gone(context.get(), at, s.owner) == 0);
  EXPECT(cmi_ofi_holder_gone(context.get(), at, s.of_home) == 0);
  cmi::mutex neighbours(context, s.neighbours);
  neighbours.lock();
  leave("neighbour");
  await("owner_dead");
  EXPECT(cmi_ofi_holder_gone(context.get(), at, s.owner) == 1);
  leave("kill_neighbour");
  ::pause();
}

void import(void (*body)(const cmi::context&, shared&)) {
  const cmi::context context = cmi::context::open();
  const cmi::segment segment = context.find(g_folder + "/meeting", "locks", seconds(60));
  const cmi::view<shared> view = segment.attach<shared>();
  body(context, *view);
}

void home(pid_t owner, pid_t neighbour) {
  const cmi::context context = cmi::context::open();
  cmi::segment segment = context.make(sizeof(shared), CMI_SEG_CLIENT_CONSIST);
  const cmi::view<shared> view = segment.attach<shared>();
  const cmi::handle handle = segment.export_handle();
  const cmi::token token = segment.grant();
  uint64_t name = 0;
  EXPECT(cmi_ofi_holder(context.get(), view.data(), &name) == 0);
  view->of_home = name;
  cmi::publish();
  const cmi::offer offer = context.offer(g_folder + "/meeting", "locks", handle, token);
  std::ofstream(g_folder + "/id") << segment.id();
  leave("exported");
  take_turns(context, *view);
  await("held");
  EXPECT(cmi_ofi_holder_gone(context.get(), view.data(), view->owner) == 0);
  await("kill");
  ::kill(owner, SIGKILL);
  await("kill_neighbour");
  ::kill(neighbour, SIGKILL);
  await("done");
  EXPECT(cmi_ofi_holder_gone(context.get(), view.data(), view->owner) == 1);
  EXPECT(cmi_ofi_holder_gone(context.get(), view.data(), name) == 0);
  EXPECT(view->turns == 3 * kTurns / 2);
}

pid_t start(const char* node, const std::function<void()>& body) {
  const pid_t child = ::fork();
  EXPECT(child >= 0);
  if (child != 0) return child;
  ::setenv("CMI_NODE", node, 1);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    body();
  } catch (const std::exception& e) {
    fail(0, e.what());
  }
  std::exit(EXIT_SUCCESS);
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
  const pid_t owner = start("owner", [] { import(die); });
  const pid_t next = start("next", [] { import(come_after); });
  const pid_t neighbour = start("home", be_neighbour);
  try {
    home(owner, neighbour);
  } catch (const std::exception& e) {
    fail(0, e.what());
  }
  int status = 0;
  EXPECT(::waitpid(next, &status, 0) == next);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT(::waitpid(owner, &status, 0) == owner);
  EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT(::waitpid(neighbour, &status, 0) == neighbour);
  EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  std::filesystem::remove_all(folder);
  return EXIT_SUCCESS;
}
