// locks: threads of several nodes take turns under a spin lock and a ticket lock, then pass items
// through a queue; the home says whether all came out exact.
//
//   locks home DIR NODES THREADS ROUNDS    the first node; offers the segment in DIR
//   locks node DIR                         each of the others, with a CMI_NODE of its own
//
// DIR is how they find each other, as in 01-hello; run-locks starts them all on this machine.
#include "locks.hpp"

#include <unistd.h>

#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace locks;  // the program is about nothing else
using Clock = std::chrono::steady_clock;

constexpr unsigned kSeconds = 60;  // bound on the whole run
constexpr uint64_t kMaxThreads = 64;
constexpr uint64_t kMaxItems = 1024 * 1024;
constexpr size_t kCells = 64;

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

// All that lies in the segment.
struct Shared {
  uint64_t nodes, threads, rounds;  // stored by the home before anybody else looks
  alignas(kPage) uint64_t joined;
  alignas(kPage) uint64_t arrived;  // at gates
  alignas(kPage) uint64_t wrong;    // what the threads have found to be wrong
  SpinLockState spin;
  Account by_spin;
  TicketLockState ticket;
  Account by_ticket;
  QueueState<Item, kCells> queue;
  alignas(kPage) uint8_t taken[kMaxItems];  // 1: by the one consumer that stores here
};
constexpr size_t kSegment = (sizeof(Shared) + kPage - 1) / kPage * kPage;

cmi_ctxt* context = nullptr;
std::string self = "locks";

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", self.c_str(), what.c_str());
  std::fflush(nullptr);
  ::_exit(1);
}
void must(bool ok, const char* what) {
  if (!ok) fail(std::string(what) + " failed: " + cmi_ofi_error_text(context));
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
  Worker(Shared* shared, uint64_t node, uint64_t thread)
      : shared_(*shared),
        node_(node),
        number_(node * shared->threads + thread),
        workers_(shared->nodes * shared->threads),
        wrong_(context, &shared->wrong) {}

  // All workers of all nodes leave gate n together.
  void gate(uint64_t n) {
    Word arrived(context, &shared_.arrived);
    arrived.take_number();
    arrived.wait([&](uint64_t word) { return word >= n * workers_; });
  }

  void take_turns_by_spinning() {
    SpinLock lock(context, &shared_.spin);
    for (uint64_t round = 0; round < shared_.rounds; ++round) {
      lock.lock();
      turn(shared_.by_spin);
      lock.unlock();
    }
  }

  void take_turns_by_ticket() {
    TicketLock lock(context, &shared_.ticket);
    for (uint64_t round = 0; round < shared_.rounds; ++round) {
      const uint64_t ticket = lock.lock();
      expect(shared_.by_ticket.turns == ticket);  // first come, first served
      turn(shared_.by_ticket);
      lock.unlock();
    }
  }

  // Every other worker produces, every other consumes; a single one does both in turn.
  void pass_items() {
    Queue<Item, kCells> queue(context, &shared_.queue);
    const bool produces = number_ % 2 == 0;
    std::vector<uint64_t> next(workers_, 0);  // by producer: no item below this is still to come
    for (uint64_t round = 0; round < shared_.rounds; ++round) {
      if (produces) {
        queue.push({number_, round});
        continue;
      }
      Item item{};
      queue.pop(&item);
      const uint64_t index = item.producer / 2 * shared_.rounds + item.number;
      if (item.producer >= workers_ || item.number >= shared_.rounds || index >= kMaxItems) {
        fail("an item that nobody has pushed");
      }
      expect(item.number >= next[item.producer]);
      next[item.producer] = item.number + 1;
      expect(shared_.taken[index] == 0);
      shared_.taken[index] = 1;
    }
    must(cmi_wmb() == 0, "cmi_wmb");
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
    if (!right) wrong_.take_number();
  }

  Shared& shared_;
  const uint64_t node_;
  const uint64_t number_;   // 0, 1, 2 ... over all nodes
  const uint64_t workers_;  // of all nodes
  Word wrong_;
};

struct Times {
  Clock::time_point gate[4];
};

// One node's part, by its own threads. What the first of them saw of time.
Times work(Shared* shared, uint64_t node) {
  Times times{};
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < shared->threads; ++thread) {
    threads.emplace_back([=, &times] {
      must(CMIFN(context, 10, ini_th)(context) == 0, "ini_th");
      must(CMIFN(context, 10, cmi_enb)(context, 1) == 0, "cmi_enb");
      Worker worker(shared, node, thread);
      const auto pass_gate = [&](uint64_t n) {
        worker.gate(n);
        if (thread == 0) times.gate[n - 1] = Clock::now();
      };
      pass_gate(1);
      worker.take_turns_by_spinning();
      pass_gate(2);
      worker.take_turns_by_ticket();
      pass_gate(3);
      worker.pass_items();
      pass_gate(4);
      must(CMIFN(context, 10, fini)(context) == 0, "fini of a thread");
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
  bool exact = turns_line("spin lock", shared.by_spin, 0);
  exact = turns_line("ticket lock", shared.by_ticket, 1) && exact;
  std::printf("%-12s %7lu of %lu items, %.1f us each\n", "queue", taken, items, each(2, items));
  exact = exact && taken == items && shared.wrong == 0;
  std::printf("%lu things out of order; exact: %s\n", shared.wrong, exact ? "yes" : "no");
  return exact;
}

int run_home(const std::string& folder, uint64_t nodes, uint64_t threads, uint64_t rounds) {
  cmi_seg seg = CMIFN(context, 10, seg_get)(context, kSegment, 0);
  must(seg != CMI_SEG_INVALID, "seg_get");
  auto* shared = static_cast<Shared*>(CMIFN(context, 10, seg_at)(context, seg, nullptr, 0));
  must(shared != nullptr, "seg_at");
  shared->nodes = nodes;
  shared->threads = threads;
  shared->rounds = rounds;
  shared->joined = 1;
  must(cmi_wmb() == 0, "cmi_wmb");
  cmi_rseg* handle = CMIFN(context, 10, seg_exp)(context, seg, 0);
  must(handle != nullptr, "seg_exp");
  cmi_token* token = CMIFN(context, 10, tok_new)(context, seg, CMI_NADDR_ANY,
                                                 CMI_ACC_READ | CMI_ACC_WRITE | CMI_ACC_ATOMIC);
  must(token != nullptr, "tok_new");
  must(cmi_ofi_offer(context, folder.c_str(), "locks", handle, token) == 0, "cmi_ofi_offer");

  const bool exact = report(*shared, work(shared, 0));

  for (uint64_t node = 1; node < nodes; ++node) {
    while (!std::filesystem::exists(left_sign(folder, node))) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  must(cmi_ofi_offer(context, folder.c_str(), "locks", nullptr, nullptr) == 0, "cmi_ofi_offer");
  must(CMIFN(context, 10, tok_del)(context, token) == 0, "tok_del");
  must(CMIFN(context, 10, rseg_del)(context, handle) == 0, "rseg_del");
  must(CMIFN(context, 10, seg_dt)(context, seg, shared) == 0, "seg_dt");
  must(CMIFN(context, 10, seg_ctl)(context, seg, CMI_SEG_RM, nullptr) == 0, "CMI_SEG_RM");
  return exact ? 0 : 1;
}

int run_node(const std::string& folder) {
  cmi_seg seg = cmi_ofi_find(context, folder.c_str(), "locks", kSeconds * 1000);
  must(seg != CMI_SEG_INVALID, "cmi_ofi_find");
  auto* shared = static_cast<Shared*>(CMIFN(context, 10, seg_at)(context, seg, nullptr, 0));
  must(shared != nullptr, "seg_at");
  must(CMIFN(context, 10, cmi_enb)(context, 1) == 0, "cmi_enb");

  const uint64_t node = Word(context, &shared->joined).take_number();
  self = "locks, node " + std::to_string(node + 1);
  if (node >= shared->nodes) fail("more nodes than were asked for");
  work(shared, node);
  must(CMIFN(context, 10, seg_dt)(context, seg, shared) == 0, "seg_dt");
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
  const bool sensible = nodes > 0 && threads > 0 && rounds > 0 && nodes <= kMaxThreads &&
                        threads <= kMaxThreads && nodes * threads % 2 == 0 &&
                        rounds <= kMaxItems / (nodes * threads);
  if (home ? !sensible : given.size() != 2 || given[0] != "node") {
    std::fprintf(stderr,
                 "usage: locks home DIR NODES THREADS ROUNDS (an even number of threads in all)\n"
                 "       locks node DIR\n");
    return 2;
  }
  install_handlers();
  context = cmi_ini(10, nullptr);
  must(context != nullptr, "cmi_ini");
  const int status = home ? run_home(given[1], nodes, threads, rounds) : run_node(given[1]);
  must(CMIFN(context, 10, fini)(context) == 0, "fini");
  return status;
}
