// locks: threads of several nodes take turns under a mutex and a ticket lock, then pass items
// through a queue; the home says whether all came out exact. All of them are the library's, and
// survive the death of their owner; this program says so where it happens, and fails.
//
//   locks home DIR NODES THREADS ROUNDS    the first node; offers the segment in DIR
//   locks node DIR                         each of the others, with a CMI_NODE of its own
//
// DIR is how they find each other, as in 01-hello; run-locks starts them all on this machine.
#include <unistd.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cmi/cmi.hpp>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kSeconds = 60;     // bound on the whole run
constexpr uint64_t kMaxWorkers = 62;  // of all nodes: parties of a barrier, and an even number
constexpr uint64_t kMaxItems = 1024 * 1024;
constexpr uint32_t kCells = 64;
constexpr size_t kPage = 4096;

struct Item {
  uint64_t producer;
  uint64_t number;  // 0, 1, 2 ... of each producer
};

// What a lock protects. Only who has the lock touches it, with plain loads and stores.
struct Account {
  alignas(kPage) uint64_t turns;
  uint64_t credit;
  uint64_t last_node;
  uint64_t handed_over;               // turns that came after another node's
  alignas(kPage) uint64_t overdraft;  // credit + overdraft is 0, modulo 2^64
};

// All that lies in the segment. What is waited for lies on pages of its own, since a page is what
// the others drop and fetch again.
struct Shared {
  uint64_t nodes, threads, rounds;  // stored by the home before anybody else looks
  alignas(kPage) uint64_t joined;
  alignas(kPage) cmi_ofi_barrier gate;
  alignas(kPage) uint64_t wrong;  // what the threads have found to be wrong
  alignas(kPage) cmi_ofi_mutex mutex;
  Account by_mutex;
  alignas(kPage) cmi_ofi_ticket_lock ticket;
  Account by_ticket;
  alignas(kPage) std::array<std::byte, cmi::queue<Item>::bytes(kCells)> queue;
  alignas(kPage) uint8_t taken[kMaxItems];  // 1: by the one consumer that stores here
};
constexpr size_t kSegment = (sizeof(Shared) + kPage - 1) / kPage * kPage;

std::string self = "locks";

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", self.c_str(), what.c_str());
  std::fflush(nullptr);
  ::_exit(1);
}
void must_be_done(cmi::taken result, const char* what) {
  if (result != cmi::taken::yes) {
    fail(std::string(what) + (result == cmi::taken::no ? ": not in time" : ": an owner has died"));
  }
}

// An access that could not be done, say because the home has gone; and a run that does not end.
void on_exception(int, siginfo_t* info, void*) {
  char line[96];
  const int length = std::snprintf(line, sizeof line, "locks: %s %d at %p\n",
                                   info->si_code == SEGV_CMI ? "exception" : "invalid access",
                                   info->si_errno, info->si_addr);
  (void)!::write(STDERR_FILENO, line, static_cast<size_t>(length));
  ::_exit(1);
}
void on_alarm(int) {
  constexpr char kLate[] = "locks: not finished in time\n";
  (void)!::write(STDERR_FILENO, kLate, sizeof kLate - 1);
  ::_exit(1);
}
void install_handlers() {
  struct sigaction action = {};
  action.sa_sigaction = on_exception;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
  std::signal(SIGALRM, on_alarm);
  ::alarm(kSeconds);
}

// The sign that a node has left: outside of the segment, where it would be seen before the call
// that left it there has returned.
std::string left_sign(const std::string& folder, uint64_t node) {
  return folder + "/left-" + std::to_string(node);
}

// What one thread of a node does.
class Worker {
 public:
  Worker(const cmi::context& context, Shared& shared, uint64_t node, uint64_t thread)
      : context_(context),
        shared_(shared),
        node_(node),
        number_(node * shared.threads + thread),
        workers_(shared.nodes * shared.threads),
        wrong_(context, shared.wrong),
        gate_(context, shared.gate, static_cast<uint32_t>(workers_)) {}

  // All workers of all nodes go on together.
  void gate() { must_be_done(gate_.arrive_and_wait(), "the gate"); }

  void take_turns_by_mutex() {
    cmi::mutex mutex(context_, shared_.mutex);
    for (uint64_t round = 0; round < shared_.rounds; ++round) {
      const std::lock_guard held(mutex);
      turn(shared_.by_mutex);
    }
  }

  void take_turns_by_ticket() {
    cmi::ticket_lock lock(context_, shared_.ticket);
    for (uint64_t round = 0; round < shared_.rounds; ++round) {
      const std::lock_guard held(lock);
      turn(shared_.by_ticket);
    }
  }

  // Every other worker produces, every other consumes; a single one does both in turn.
  void pass_items() {
    cmi::queue<Item> queue(context_, shared_.queue.data(), kCells);
    const auto in_time = std::chrono::seconds(kSeconds);
    const bool produces = number_ % 2 == 0;
    std::vector<uint64_t> next(workers_, 0);  // by producer: no item below this is still to come
    for (uint64_t round = 0; round < shared_.rounds; ++round) {
      if (produces) {
        must_be_done(queue.try_push_for({number_, round}, in_time), "push");
        continue;
      }
      Item item{};
      must_be_done(queue.try_pop_for(item, in_time), "pop");
      const uint64_t index = item.producer / 2 * shared_.rounds + item.number;
      if (item.producer >= workers_ || item.number >= shared_.rounds || index >= kMaxItems) {
        fail("an item that nobody has pushed");
      }
      expect(item.number >= next[item.producer]);
      next[item.producer] = item.number + 1;
      expect(shared_.taken[index] == 0);
      shared_.taken[index] = 1;
    }
    cmi::publish();
  }

 private:
  void turn(Account& account) {
    expect(account.credit + account.overdraft == 0);
    account.credit += number_ + 1;
    account.handed_over += account.turns != 0 && account.last_node != node_;
    account.last_node = node_;
    account.turns++;
    account.overdraft -= number_ + 1;
  }
  void expect(bool right) {
    if (!right) wrong_.fetch_add(1);
  }

  const cmi::context& context_;
  Shared& shared_;
  const uint64_t node_;
  const uint64_t number_;   // 0, 1, 2 ... over all nodes
  const uint64_t workers_;  // of all nodes
  cmi::atomic_ref<uint64_t> wrong_;
  cmi::barrier gate_;
};

struct Times {
  Clock::time_point gate[4];
};

// One node's part, by its own threads. What the first of them saw of time.
Times work(const cmi::context& context, Shared& shared, uint64_t node) {
  Times times{};
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < shared.threads; ++thread) {
    threads.emplace_back([=, &context, &shared, &times] {
      try {
        const cmi::thread_scope registered(context);
        Worker worker(context, shared, node, thread);
        size_t gates = 0;
        const auto pass_gate = [&] {
          worker.gate();
          if (thread == 0) times.gate[gates++] = Clock::now();
        };
        pass_gate();
        worker.take_turns_by_mutex();
        pass_gate();
        worker.take_turns_by_ticket();
        pass_gate();
        worker.pass_items();
        pass_gate();
      } catch (const std::exception& e) {
        fail(e.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return times;
}

bool report(const Shared& shared, const Times& times) {
  const uint64_t workers = shared.nodes * shared.threads;
  const uint64_t turns = workers * shared.rounds;
  const auto each = [&](int phase, uint64_t count) {
    const std::chrono::duration<double, std::micro> took =
        times.gate[phase + 1] - times.gate[phase];
    return took.count() / static_cast<double>(count);
  };
  const auto turns_line = [&](const char* name, const Account& account, int phase) {
    std::printf("%-12s %7lu of %lu turns, %lu of them after another node's, %.1f us each\n", name,
                account.turns, turns, account.handed_over, each(phase, turns));
    return account.turns == turns && account.credit + account.overdraft == 0;
  };
  const uint64_t items = workers / 2 * shared.rounds;
  uint64_t taken = 0;
  for (uint64_t i = 0; i < items; ++i) taken += shared.taken[i];

  std::printf("%lu nodes with %lu threads each\n", shared.nodes, shared.threads);
  bool exact = turns_line("mutex", shared.by_mutex, 0);
  exact = turns_line("ticket lock", shared.by_ticket, 1) && exact;
  std::printf("%-12s %7lu of %lu items, %.1f us each\n", "queue", taken, items, each(2, items));
  exact = exact && taken == items && shared.wrong == 0;
  std::printf("%lu things out of order; exact: %s\n", shared.wrong, exact ? "yes" : "no");
  return exact;
}

int run_home(const std::string& folder, uint64_t nodes, uint64_t threads, uint64_t rounds) {
  const cmi::context context = cmi::context::open();
  // A node that dies leaves no page in flux: the locks tell what may be half changed.
  cmi::segment segment = context.make(kSegment, CMI_SEG_CLIENT_CONSIST);
  const cmi::view<Shared> shared = segment.attach<Shared>();
  shared->nodes = nodes;
  shared->threads = threads;
  shared->rounds = rounds;
  shared->joined = 1;
  cmi::publish();
  const cmi::handle handle = segment.export_handle();
  const cmi::token token = segment.grant();
  const cmi::offer offer = context.offer(folder, "locks", handle, token);

  const bool exact = report(*shared, work(context, *shared, 0));

  for (uint64_t node = 1; node < nodes; ++node) {
    while (!std::filesystem::exists(left_sign(folder, node))) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  return exact ? 0 : 1;
}

int run_node(const std::string& folder) {
  uint64_t node = 0;
  {
    const cmi::context context = cmi::context::open();
    const cmi::segment segment = context.find(folder, "locks", std::chrono::seconds(kSeconds));
    const cmi::view<Shared> shared = segment.attach<Shared>();
    node = cmi::atomic_ref(context, shared->joined).fetch_add(1);
    self = "locks, node " + std::to_string(node + 1);
    if (node >= shared->nodes) fail("more nodes than were asked for");
    work(context, *shared, node);
  }
  std::filesystem::create_directory(left_sign(folder, node));
  return 0;
}

uint64_t number(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> given(argv + 1, argv + argc);
  const bool home = given.size() == 5 && given[0] == "home";
  uint64_t nodes = 0, threads = 0, rounds = 0;
  if (home) {
    nodes = number(given[2]);
    threads = number(given[3]);
    rounds = number(given[4]);
  }
  const bool sensible = nodes > 0 && threads > 0 && rounds > 0 && nodes <= kMaxWorkers &&
                        threads <= kMaxWorkers / nodes && nodes * threads % 2 == 0 &&
                        rounds <= kMaxItems / (nodes * threads);
  if (home ? !sensible : given.size() != 2 || given[0] != "node") {
    std::fprintf(stderr,
                 "usage: locks home DIR NODES THREADS ROUNDS (an even number of threads in all)\n"
                 "       locks node DIR\n");
    return 2;
  }
  install_handlers();
  try {
    return home ? run_home(given[1], nodes, threads, rounds) : run_node(given[1]);
  } catch (const std::exception& e) {
    fail(e.what());
  }
}
