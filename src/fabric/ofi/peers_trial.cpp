// See peers_trial.hpp. Processes: the one that tries is a child of the caller's; its peers are
// children of it. Each is killed with its parent. Over a pipe the caller hears what is tried next,
// so that it knows what a process that has died or does not go on was doing.
#include "fabric/ofi/peers_trial.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/fd.hpp"

namespace cmi::fabric::ofi {

namespace {

enum TrialStep : uint8_t { kNoProcess, kOpening, kTalking, kKilling, kClosing, kStopping, kEnding };
constexpr const char* kFailures[] = {
    "no process could be started to try it in",
    "it does not open in a process of its own",
    "a message from another process does not arrive",
    "who talks to a peer that is killed crashes, or cannot talk to others any more",
    "who talks to a peer that closes its endpoint crashes, or cannot talk to others any more",
    "who talks to a peer that is stopped crashes, or cannot talk to others any more",
    "it does not close after its peers have ended",
};
constexpr uint8_t kAllDone = std::size(kFailures);
constexpr Nanos kTrialPatience = 8 * kSecond;  // for all of it
constexpr Nanos kEchoPatience = 2 * kSecond;   // for one message there and back
constexpr Nanos kSendingOn = 200 * kMilli;     // to a peer that is not there
constexpr Nanos kPause = 20 * kMicro;

struct TrialNews {
  uint8_t step = kNoProcess;  // what is tried from now on
  pid_t process = 0;          // one that has been started
};

// Each message is the answer to one of the same size, or what has to be answered.
class CountMessages final : public Receiver {
 public:
  int count = 0;

 private:
  void on_message(Endpoint& /*ep*/, Bytes /*message*/) override { ++count; }
};

bool send_once(Endpoint& ep, Peer to, Op& op) {
  static const std::array<std::byte, 64> kWord{};
  return !op.in_flight() && ep.send(op, to, kWord.data(), kWord.size()) == Post::kPosted;
}

bool write_all(const Fd& to, const void* from, size_t size) {
  return ::write(to.get(), from, size) == static_cast<ssize_t>(size);
}
bool read_all(const Fd& from, void* to, size_t size) {
  auto* at = static_cast<std::byte*>(to);
  while (size > 0) {
    const ssize_t n = ::read(from.get(), at, size);
    if (n <= 0 && errno != EINTR) return false;
    if (n <= 0) continue;
    at += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

struct TrialAddress {
  uint32_t length = 0;
  std::byte bytes[252];
};
bool send_address(const Fd& to, const Endpoint& ep) {
  TrialAddress a{};
  const Bytes own = ep.address();
  if (own.size() > sizeof a.bytes) return false;
  a.length = static_cast<uint32_t>(own.size());
  std::memcpy(a.bytes, own.data(), own.size());
  return write_all(to, &a, sizeof a);
}
Result<Peer> take_address(const Fd& from, Endpoint& ep) {
  TrialAddress a{};
  if (!read_all(from, &a, sizeof a) || a.length > sizeof a.bytes) return Status::kInval;
  return ep.add_peer(Bytes(a.bytes, a.length));
}

// Answers each message, until it is told to close its endpoint, which it confirms, or is killed.
[[noreturn]] void be_trial_peer(const OpenForTrial& open, const Fd& to, const Fd& from) {
  CountMessages received;
  Op op;
  auto fabric = open();
  if (!fabric) ::_exit(1);
  auto ep = (*fabric)->open_endpoint(received);
  if (!ep || !send_address(to, **ep)) ::_exit(1);
  const auto peer = take_address(from, **ep);
  if (!peer) ::_exit(1);
  for (int answered = 0;;) {
    (void)(*ep)->poll();
    if (answered < received.count && send_once(**ep, *peer, op)) ++answered;
    pollfd told{from.get(), POLLIN, 0};
    const timespec pause{0, kPause};
    if (::ppoll(&told, 1, &pause, nullptr) > 0) break;
  }
  ep->reset();
  (void)write_all(to, "c", 1);
  for (;;) ::pause();
}

// The process that tries.
class Survivor {
 public:
  Survivor(const OpenForTrial& open, const Fd& news) : open_(open), news_(news) {}

  [[noreturn]] void live() {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    // The default: who crashes dies of it, whatever handlers the client has.
    for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGFPE}) ::signal(signal, SIG_DFL);
    if (all_goes_well()) say({kAllDone});
    ::_exit(0);
  }

 private:
  struct Partner {
    pid_t pid = -1;
    Fd to, from;
    Peer peer{};
  };

  void say(TrialNews news) { (void)write_all(news_, &news, sizeof news); }

  bool all_goes_well() {
    Partner killed, closed, stopped, witness;
    for (Partner* p : {&killed, &closed, &stopped, &witness}) {
      if (!start(*p)) return false;
    }
    say({kOpening});
    auto fabric = open_();
    if (!fabric) return false;
    auto ep = (*fabric)->open_endpoint(received_);
    if (!ep) return false;
    ep_ = ep->get();
    say({kTalking});
    for (Partner* p : {&killed, &closed, &stopped, &witness}) {
      if (!meet(*p)) return false;
    }
    say({kKilling});
    ::kill(killed.pid, SIGKILL);
    ::waitpid(killed.pid, nullptr, 0);
    if (!send_on(killed) || !echoed(witness)) return false;
    say({kClosing});
    char word = 'c';
    if (!write_all(closed.to, &word, 1) || !read_all(closed.from, &word, 1)) return false;
    if (!send_on(closed) || !echoed(witness)) return false;
    say({kStopping});
    ::kill(stopped.pid, SIGSTOP);
    ::waitpid(stopped.pid, nullptr, WUNTRACED);
    if (!send_on(stopped) || !echoed(witness)) return false;
    ::kill(stopped.pid, SIGCONT);
    if (!echoed(witness)) return false;
    say({kEnding});
    ep->reset();
    return true;
  }

  bool start(Partner& p) {
    int to[2], from[2];
    if (::pipe2(to, O_CLOEXEC) != 0) return false;
    Fd theirs(to[0]);
    p.to.reset(to[1]);
    if (::pipe2(from, O_CLOEXEC) != 0) return false;
    p.from.reset(from[0]);
    Fd own(from[1]);
    p.pid = ::fork();
    if (p.pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(news_.get());
      be_trial_peer(open_, own, theirs);
    }
    say({kNoProcess, p.pid});
    return p.pid > 0;
  }

  bool meet(Partner& p) {
    const auto peer = take_address(p.from, *ep_);
    if (!peer || !send_address(p.to, *ep_)) return false;
    p.peer = *peer;
    return echoed(p);
  }

  // Operations that do not end stay where they are.
  Op& fresh_op() { return *ops_.emplace_back(std::make_unique<Op>()); }

  bool echoed(const Partner& p) {
    const int before = received_.count;
    Op& op = fresh_op();
    bool sent = false;
    for (const Deadline end = Deadline::in(kEchoPatience); received_.count == before;) {
      if (end.passed()) return false;
      sent = sent || send_once(*ep_, p.peer, op);
      if (ep_->poll() == 0) ::usleep(kPause / kMicro);
    }
    return true;
  }

  // What comes of it is the provider's business, as long as it returns.
  bool send_on(const Partner& p) {
    for (const Deadline end = Deadline::in(kSendingOn); !end.passed();) {
      if (ops_.size() < 256) (void)send_once(*ep_, p.peer, fresh_op());
      if (ep_->poll() == 0) ::usleep(kPause / kMicro);
    }
    return true;
  }

  const OpenForTrial& open_;
  const Fd& news_;
  CountMessages received_;
  std::vector<std::unique_ptr<Op>> ops_;
  Endpoint* ep_ = nullptr;
};

// They are killed with their parent, and are not ours to wait for.
void await_ends_of(const std::vector<pid_t>& processes) {
  const Deadline end = Deadline::in(kSecond);
  for (const pid_t pid : processes) {
    while (::kill(pid, 0) == 0 && !end.passed()) ::usleep(kPause / kMicro);
  }
}

// The shm provider names its files after processes, and does not remove those of the killed.
void remove_files_of(const std::vector<pid_t>& processes) {
  DIR* const folder = ::opendir("/dev/shm");
  if (folder == nullptr) return;
  while (const dirent* const entry = ::readdir(folder)) {
    const bool theirs = std::any_of(processes.begin(), processes.end(), [&](pid_t pid) {
      return std::string_view(entry->d_name).starts_with(std::to_string(pid) + ":");
    });
    if (theirs) ::unlinkat(::dirfd(folder), entry->d_name, 0);
  }
  ::closedir(folder);
}

}  // namespace

const char* what_fails_at_peers_ends(const OpenForTrial& open) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return kFailures[kNoProcess];
  const Fd heard(ends[0]);
  Fd news(ends[1]);
  const pid_t pid = ::fork();
  if (pid == 0) Survivor(open, news).live();
  news.reset();
  if (pid < 0) return kFailures[kNoProcess];
  std::vector<pid_t> processes{pid};
  uint8_t step = kNoProcess;
  for (const Deadline end = Deadline::in(kTrialPatience); step != kAllDone && !end.passed();) {
    pollfd readable{heard.get(), POLLIN, 0};
    const Nanos left = std::max<Nanos>(end.left(), 0);
    if (::poll(&readable, 1, static_cast<int>(left / kMilli) + 1) <= 0) continue;
    TrialNews one;
    if (!read_all(heard, &one, sizeof one)) break;  // it has ended
    if (one.process > 0) processes.push_back(one.process);
    step = std::max(step, std::min(one.step, kAllDone));
  }
  ::kill(pid, SIGKILL);
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  await_ends_of(processes);
  remove_files_of(processes);
  return step != kAllDone ? kFailures[step] : nullptr;
}

}  // namespace cmi::fabric::ofi
