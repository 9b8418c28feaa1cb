// A client in C++20 on two nodes, with <cmi/cmi.hpp> alone: a segment made, offered, found and
// shared, atomic objects, failures as exceptions and codes, losses, events. Exit status 0: it all
// went as the header says.
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmi/cmi.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

namespace {

using std::chrono::seconds;

std::string g_folder;  // of the whole test

[[noreturn]] void fail(int line, const char* what) {
  std::fprintf(stderr, "node %s, line %d: not %s\n", std::getenv("CMI_NODE"), line, what);
  if (std::string_view(std::getenv("CMI_NODE")) == "home") std::filesystem::remove_all(g_folder);
  std::_Exit(EXIT_FAILURE);
}

#define EXPECT(condition) ((condition) ? void() : fail(__LINE__, #condition))

// What lies in the segment.
struct table {
  uint64_t greeted, answered, revoked, seen;
  uint32_t left, right;  // of one word
  uint8_t small[8];
  double sum;
};

constexpr int kRounds = 100;

bool comes(const volatile uint64_t& word, uint64_t value) {
  for (int i = 0; i < 3000; ++i) {
    if (word >= value) return true;  // it may have gone on by then
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// Signs that need no shared memory: folders.
void leave(const std::string& folder, const char* sign) {
  std::filesystem::create_directory(folder + "/" + sign);
}
bool appears(const std::string& folder, const char* sign) {
  for (int i = 0; i < 3000; ++i) {
    if (std::filesystem::exists(folder + "/" + sign)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// Both nodes at once.
void add(const cmi::context& context, table& t, bool left) {
  const cmi::atomic_ref<uint32_t> mine(context, left ? t.left : t.right);
  const cmi::atomic_ref<uint8_t> shared(context, t.small[3]);
  const cmi::atomic_ref<double> sum(context, t.sum);
  for (int i = 0; i < kRounds; ++i) {
    mine.fetch_add(1);
    shared.fetch_add(2);
    sum.fetch_add(0.5);
  }
}

void failures(const cmi::context& context) {
  std::error_code code;
  const cmi::segment none = context.make(1, 0, code);
  EXPECT(!none && code == CMI_ERR_INVAL && code.category() == cmi::category());
  EXPECT(code.message() == cmi_ofi_strerror(CMI_ERR_INVAL));
  try {
    (void)context.make(1);
    EXPECT(false);
  } catch (const cmi::error& e) {
    EXPECT(e.code() == CMI_ERR_INVAL);
    EXPECT(std::string(e.what()).find("seg_get") == 0);
  }
  (void)context.find("/nonexistent", "table", seconds(0), code);
  EXPECT(code == CMI_ERR_RECONFIG);
  EXPECT(!context.import_text("cmi1-rseg-AAAA", "cmi1-token-AAAA", code) && code == CMI_ERR_INVAL);
  EXPECT(!context.next_event());
  pollfd event{context.event_descriptor(), POLLIN, 0};
  EXPECT(event.fd >= 0 && ::poll(&event, 1, 0) == 0);
}

// What can fail does not throw where it is given a code: calls on memory that is in no view.
void failures_without_exceptions(const cmi::context& context) {
  struct {
    cmi_ofi_mutex mutex;
    cmi_ofi_shared_mutex shared;
    cmi_ofi_ticket_lock ticket;
    cmi_ofi_semaphore semaphore;
    cmi_ofi_barrier barrier;
    cmi_ofi_latch latch;
    alignas(8) uint64_t word;
    uint64_t queue[16];
  } nowhere = {};
  std::error_code code;
  const auto refused = [&] { return std::exchange(code, {}) == CMI_ERR_INVAL; };
  const std::chrono::milliseconds soon(1);
  cmi::mutex mutex(context, nowhere.mutex);
  EXPECT(mutex.try_lock_for(soon, code) == cmi::taken::no && refused());
  EXPECT((mutex.unlock(code), refused()) && (mutex.repaired(code), refused()));
  cmi::shared_mutex shared(context, nowhere.shared);
  EXPECT(shared.try_lock_for(soon, code) == cmi::taken::no && refused());
  EXPECT(shared.try_lock_shared_for(soon, code) == cmi::taken::no && refused());
  EXPECT((shared.unlock(code), refused()) && (shared.unlock_shared(code), refused()));
  cmi::ticket_lock ticket(context, nowhere.ticket);
  EXPECT(ticket.try_lock_for(soon, code) == cmi::taken::no && refused());
  EXPECT((ticket.unlock(code), refused()) && (ticket.repaired(code), refused()));
  cmi::semaphore semaphore(context, nowhere.semaphore, 1, code);
  EXPECT(refused());
  EXPECT(semaphore.try_acquire_for(soon, code) == cmi::taken::no && refused());
  EXPECT((semaphore.release(code), refused()));
  cmi::barrier barrier(context, nowhere.barrier, 1, code);
  EXPECT(refused());
  EXPECT(barrier.arrive_and_wait_for(soon, code) == cmi::taken::no && refused());
  cmi::latch latch(context, nowhere.latch, 1, code);
  EXPECT(refused());
  EXPECT((latch.count_down(1, code), refused()) && !latch.wait_for(soon, code) && refused());
  cmi::queue<uint64_t> queue(context, nowhere.queue, 4, code);
  EXPECT(refused());
  EXPECT(queue.try_push_for(1, soon, code) == cmi::taken::no && refused());
  EXPECT(queue.try_pop_for(nowhere.word, soon, code) == cmi::taken::no && refused());
  const cmi::atomic_ref word(context, nowhere.word);
  uint64_t expected = 0;
  EXPECT(!word.compare_exchange(expected, 1, code) && refused());
  EXPECT((word.store(1, code), refused()) &&
         (static_cast<void>(word.fetch_add(1, code)), refused()));
  EXPECT((static_cast<void>(word.exchange(1, code)), refused()) && nowhere.word == 0);
  EXPECT((static_cast<void>(word.fetch_sub(1, code)), refused()));
  cmi::arena arena(context, nowhere.queue, 4096, 4096, code);
  EXPECT(refused());
  EXPECT((arena.commit(code), refused()) && (arena.abort(code), refused()));
  EXPECT(arena.sweep(code) == 0 && refused());
  EXPECT(!cmi::attach_alike(context, cmi::segment(context.get(), 12345), code) && refused());
  EXPECT(cmi::handle().text(code).empty() && refused());
  EXPECT(cmi::token().text(code).empty() && refused());
  cmi::offer offer = context.offer("/nowhere", "no/name", cmi::handle(), cmi::token(), code);
  EXPECT(refused());
  EXPECT(!context.next_event(code) && !code);
  EXPECT(context.event_descriptor(code) >= 0 && !code);
  const cmi::epoch epoch(context, code);
  EXPECT(!code);
  const cmi::epoch second(context, code);  // one is open
  EXPECT(code == CMI_ERR_BOUND && (code.clear(), true));
  cmi::view<uint64_t>(context.get(), 12345, &nowhere.word, 8).prefetch(0, 1, code);
  EXPECT(refused());
  cmi::publish(code);
  EXPECT(!code);
}

void home(const std::string& folder) {
  const cmi::context context = cmi::context::open();
  failures(context);
  failures_without_exceptions(context);
  cmi::segment segment = context.make(2 * 4096);
  EXPECT(segment.id() > 0 && segment.size() == 2 * 4096);
  const cmi::view<table> view = segment.attach<table>();
  EXPECT(view.size() == 2 * 4096 / sizeof(table));
  const cmi::handle handle = segment.export_handle();
  cmi::token token = segment.grant();
  EXPECT(handle.text().starts_with("cmi1-rseg-") && token.text().starts_with("cmi1-token-"));
  view->greeted = 7;
  cmi::publish();
  {
    const cmi::offer offer = context.offer(folder, "table", handle, token);
    EXPECT(comes(view->answered, 1));
  }
  EXPECT(std::filesystem::is_empty(folder));
  std::thread([&] {
    const cmi::thread_scope here(context);
    add(context, *view, true);
  }).join();
  EXPECT(comes(view->answered, 2));
  EXPECT(view->left == kRounds && view->right == kRounds && view->sum == kRounds);
  EXPECT(view->small[3] == static_cast<uint8_t>(4 * kRounds) && view->small[2] == 0);

  token.revoke();
  EXPECT(!token.get());
  view->revoked = 1;  // the other node cannot see it any more
  leave(folder, "revoked");
  EXPECT(appears(folder, "seen"));
}

void answer(const std::string& folder) {
  const cmi::context context = cmi::context::open();
  const cmi::segment segment = context.find(folder, "table", seconds(30));
  const cmi::view<table> view = segment.attach<table>();
  EXPECT(view->greeted == 7);
  {
    cmi::epoch epoch(context);
    view->answered = 1;
    epoch.flush();
  }
  add(context, *view, false);
  const cmi::view<const table> reader = segment.attach<const table>();
  EXPECT(reader->right == kRounds);
  volatile int reached = 0;
  const auto wrong = cmi::guarded([&] {
    reached = 1;
    const_cast<table&>(*reader).seen = 1;
    reached = 2;
  });
  EXPECT(wrong && wrong->exception == CMI_ERROR_ACCESS && reached == 1);
  EXPECT(std::string(wrong->name()) == "CMI_ERROR_ACCESS");
  EXPECT(wrong->address == &reader->seen && wrong->segment == segment.id());
  try {
    (void)cmi::guarded([] { throw 5; });
    EXPECT(false);
  } catch (int thrown) {
    EXPECT(thrown == 5);
  }
  EXPECT(!cmi::guarded([&] { view->answered = 2; }));
  cmi::publish();

  EXPECT(appears(folder, "revoked"));
  uint64_t word = 1;
  const auto inner = [&] { return cmi::guarded([&] { word = view->revoked; }); };
  std::optional<cmi::loss> lost;
  EXPECT(!cmi::guarded([&] { lost = inner(); }));  // guards nest
  EXPECT(lost && lost->exception == CMI_ERROR_TOKEN && word == 1);
  leave(folder, "seen");
}

}  // namespace

int main() {
  std::string folder = "/dev/shm/cmi-test-XXXXXX";
  ::setenv("CMI_NODE", "home", 1);
  EXPECT(::mkdtemp(folder.data()) != nullptr);
  const std::string meeting = folder + "/meeting", runtime = folder + "/runtime";
  std::filesystem::create_directory(meeting);
  ::setenv("CMI_RUNTIME_DIR", runtime.c_str(), 1);
  g_folder = folder;
  const pid_t child = ::fork();
  EXPECT(child >= 0);
  if (child == 0) {
    ::setenv("CMI_NODE", "answers", 1);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  }
  try {
    if (child == 0) {
      answer(meeting);
      return EXIT_SUCCESS;
    }
    home(meeting);
  } catch (const cmi::error& e) {
    fail(0, e.what());
  }
  int status = 0;
  EXPECT(::waitpid(child, &status, 0) == child);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  std::filesystem::remove_all(folder);
  return EXIT_SUCCESS;
}
