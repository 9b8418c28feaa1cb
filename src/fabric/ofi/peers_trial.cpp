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
constexpr Nanos kSendingOn = 100 * kMilli;     // to a peer that is not there
constexpr Nanos kPause = 20 * kMicro;
constexpr int kKills = 6;                   // at whatever a peer does while it sends
constexpr int kFlooded = 200;               // messages of a peer that has to go
constexpr char kFlood = 'f', kClose = 'c';  // what peers are told

struct TrialNews {
  uint8_t step = kNoProcess;  // what is tried from now on
  pid_t process = 0;          // one that has been started
};

std::string trial_name(pid_t process) { return "cmi-trial-" + std::to_string(process) + "."; }

constexpr size_t kTalkSize = 64,
                 kFloodSize = 4096;  // bytes of a message that is answered, and of others

class CountMessages final : public Receiver {
 public:
  int words = 0, bulk = 0;

 private:
  void on_message(Endpoint& /*ep*/, Bytes message) override {
    ++(message.size() == kTalkSize ? words : bulk);
  }
};

bool send_once(Endpoint& ep, Peer to, Op& op, size_t size) {
  static const std::array<std::byte, kFloodSize> kMessage{};
  return !op.in_flight() && ep.send(op, to, kMessage.data(), size) == Post::kPosted;
}

bool write_all(const Fd& to, const void* from, size_t size) {
  return ::write(to.get(), from, size) == static_cast<ssize_t>(size);
}
bool read_all(const Fd& from, void* to, size_t size) {
  auto* at = static_cast<std::byte*>(to);
  while (size > 0) {
    const ssize_t n = ::read(from.get(), at, size);
    if (n == 0 || (n < 0 && errno != EINTR)) return false;
    if (n < 0) continue;
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

// Answers each word until it is told otherwise, or killed. F: it sends as much as it can. C: it
// closes its endpoint, and says so.
[[noreturn]] void be_trial_peer(const OpenForTrial& open, const Fd& to, const Fd& from) {
  CountMessages received;
  std::array<Op, 16> ops;
  auto fabric = open(trial_name(::getpid()));
  if (!fabric) ::_exit(1);
  auto ep = (*fabric)->open_endpoint(received);
  if (!ep || !send_address(to, **ep)) ::_exit(1);
  const auto peer = take_address(from, **ep);
  if (!peer) ::_exit(1);
  char told = 0;
  for (int answered = 0; told != kClose;) {
    (void)(*ep)->poll();
    if (told == kFlood) {
      for (Op& op : ops) (void)send_once(**ep, *peer, op, kFloodSize);
    } else if (answered < received.words && send_once(**ep, *peer, ops[0], kTalkSize)) {
      ++answered;
    }
    pollfd more{from.get(), POLLIN, 0};
    const timespec pause{0, told == kFlood ? 0 : kPause};
    if (::ppoll(&more, 1, &pause, nullptr) > 0 && !read_all(from, &told, 1)) ::_exit(1);
  }
  ep->reset();
  (void)write_all(to, &told, 1);
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
    // The default: a child that crashes dies of it, whatever handlers the client has.
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
    std::array<Partner, kKills> killed;
    Partner closed, stopped;
    std::vector<Partner*> all{&closed, &stopped, &witness_};
    for (Partner& p : killed) all.push_back(&p);
    if (!std::all_of(all.begin(), all.end(), [this](Partner* p) { return start(*p); }))
      return false;
    say({kOpening});
    auto fabric = open_(trial_name(::getpid()));
    if (!fabric) return false;
    auto ep = (*fabric)->open_endpoint(received_);
    if (!ep) return false;
    ep_ = ep->get();
    say({kTalking});
    if (!std::all_of(all.begin(), all.end(), [this](Partner* p) { return meet(*p); })) return false;
    say({kKilling});
    for (const Partner& p : killed) {
      if (!outlives_killed(p)) return false;
    }
    say({kClosing});
    if (!outlives_closed(closed)) return false;
    say({kStopping});
    if (!outlives_stopped(stopped)) return false;
    say({kEnding});
    ep->reset();
    return true;
  }

  bool outlives_killed(const Partner& p) {
    if (!flooded_by(p)) return false;
    ::kill(p.pid, SIGKILL);
    ::waitpid(p.pid, nullptr, 0);
    send_on(p);
    return echoed(witness_);
  }

  bool outlives_closed(const Partner& p) {
    char word = kClose;
    if (!flooded_by(p) || !write_all(p.to, &word, 1)) return false;
    send_on(p);
    if (!read_all(p.from, &word, 1)) return false;
    send_on(p);
    return echoed(witness_);
  }

  bool outlives_stopped(const Partner& p) {
    if (!flooded_by(p)) return false;
    ::kill(p.pid, SIGSTOP);
    ::waitpid(p.pid, nullptr, WUNTRACED);
    send_on(p);
    if (!echoed(witness_)) return false;
    ::kill(p.pid, SIGCONT);
    return flooded() && echoed(witness_);
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

  template <class Done>
  bool until(Nanos patience, Done done) {
    for (const Deadline end = Deadline::in(patience); !done(); poll_or_rest()) {
      if (end.passed()) return false;
    }
    return true;
  }
  void poll_or_rest() {
    if (ep_->poll() == 0) ::usleep(kPause / kMicro);
  }

  bool echoed(const Partner& p) {
    const int before = received_.words;
    Op& op = fresh_op();
    bool sent = false;
    return until(kEchoPatience, [&] {
      sent = sent || send_once(*ep_, p.peer, op, kTalkSize);
      return received_.words != before;
    });
  }

  bool flooded_by(const Partner& p) { return write_all(p.to, &kFlood, 1) && flooded(); }
  bool flooded() {
    const int before = received_.bulk;
    return until(kEchoPatience, [&] { return received_.bulk >= before + kFlooded; });
  }

  // What comes of it is the provider's business, as long as it returns.
  void send_on(const Partner& p) {
    (void)until(kSendingOn, [&] {
      for (const size_t size : {kTalkSize, kFloodSize}) {
        if (ops_.size() < 4096) (void)send_once(*ep_, p.peer, fresh_op(), size);
      }
      return false;
    });
  }

  const OpenForTrial& open_;
  const Fd& news_;
  Partner witness_;  // nothing happens to it
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

// A process that is killed leaves its files to others.
void remove_files_of(const std::vector<pid_t>& processes) {
  DIR* const folder = ::opendir("/dev/shm");
  if (folder == nullptr) return;
  while (const dirent* const entry = ::readdir(folder)) {
    const bool theirs = std::any_of(processes.begin(), processes.end(), [&](pid_t pid) {
      return std::string_view(entry->d_name).starts_with(trial_name(pid));
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
