// The end of a run that went wrong, the exception handler and the alarm: an ordinary client's
// handlers, installed with plain sigaction.
#include "failure.hpp"

#include <cmi/ofi/cmi_impl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <iterator>

namespace wordcount {
namespace {

// A line in the making, on the stack: signal handlers use it, so nothing is allocated.
class Line {
 public:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    const size_t room = std::size(text_) - 1 - length_;
    const auto result =
        fmt::format_to_n(text_ + length_, room, format, std::forward<Args>(args)...);
    length_ += std::min(result.size, room);
  }
  [[nodiscard]] std::string_view text() const { return {text_, length_}; }

 private:
  char text_[512];
  size_t length_ = 0;
};

void say(std::string_view what) {
  Line line;
  line.add("{}: {}\n", self, what);
  (void)!::write(STDERR_FILENO, line.text().data(), line.text().size());
}

// They notice a closed connection as well, so what does not fit is no loss.
[[noreturn]] void tell_partners_and_end(std::string_view what) {
  Line line;
  line.add("{}{}\n", kFailed, what);
  for (const Partner& partner : partners) {
    (void)!::send(partner.fd, line.text().data(), line.text().size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  ::_exit(1);
}

bool has_ended(const Partner& partner, int milliseconds) {
  pollfd entry = {.fd = partner.fd, .events = POLLRDHUP, .revents = 0};
  return ::poll(&entry, 1, milliseconds) > 0;
}

// What the partner said last, if it said why it ends. Without taking it.
std::string_view last_words(const Partner& partner, char (&bytes)[512]) {
  const ssize_t got = ::recv(partner.fd, bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT);
  std::string_view text(bytes, static_cast<size_t>(std::max<ssize_t>(got, 0)));
  const size_t begin = text.find(kFailed);
  if (begin == text.npos) return {};
  text.remove_prefix(begin + kFailed.size());
  return text.substr(0, text.find('\n'));
}

// Names in `line` those partners that have ended, with what they said; waits for the first of them.
void add_the_lost(Line& line) {
  constexpr int kTurn = 20;  // milliseconds
  constexpr int kPatience = 2000;
  bool found = false;
  for (int waited = 0; !found && waited < kPatience; waited += kTurn) {
    const int share = std::max(1, kTurn / std::max(1, static_cast<int>(partners.size())));
    for (const Partner& partner : partners) {
      if (!has_ended(partner, share)) continue;
      found = true;
      char bytes[512];
      const std::string_view why = last_words(partner, bytes);
      line.add("; {} {}{}", partner.name, why.empty() ? "has ended" : "gives up: ", why);
    }
    if (partners.empty()) return;
  }
}

void on_exception(int, siginfo_t* info, void*) {
  if (info->si_code != SEGV_CMI) {
    Line line;
    line.add("invalid access to {}", info->si_addr);
    say(line.text());
    ::_exit(1);
  }
  // The access is tried again, and waits for the home meanwhile.
  if (info->si_errno == CMI_ERROR_TRANSIENT && Clock::now() < deadline) return;
  Line line;
  line.add("exception {} ({}) at {} in segment {}", info->si_errno,
           cmi_ofi_exception_name(info->si_errno), info->si_addr, info->si_id);
  give_up_for_loss(line.text());
}

void on_alarm(int) {
  say("not finished in time (see --timeout)");
  ::_exit(1);
}

}  // namespace

void give_up(std::string_view what) {
  std::fflush(nullptr);
  say(what);
  tell_partners_and_end(what);
}

// Called by the handler as well.
void give_up_for_loss(std::string_view what) {
  Line line;
  line.add("{}", what);
  add_the_lost(line);
  say(line.text());
  tell_partners_and_end(line.text());
}

void limit_run_to(std::chrono::seconds time) {
  deadline = Clock::now() + time;
  struct sigaction action = {};
  action.sa_handler = on_alarm;
  sigaction(SIGALRM, &action, nullptr);
  ::alarm(static_cast<unsigned>(time.count()) + 2);
}

void install_exception_handler() {
  struct sigaction action = {};
  action.sa_sigaction = on_exception;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
}

}  // namespace wordcount
