// Lines: how they come up, what they carry, how they end.
#include "fabric/lifeline.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "core/base/log.hpp"

namespace cmi::fabric {

namespace {

constexpr uint64_t kGreeting = 0x3145'4649'4c49'4d43;  // "CMILIFE1"
constexpr uint32_t kSign = 0x534c4d43;                 // "CMLS"
constexpr size_t kGreetingSize = 64, kSignSize = 16;
constexpr Nanos kNothingDue = 3600 * kSecond;
constexpr int kBatch = 32;

}  // namespace

Result<std::unique_ptr<Lifelines>> Lifelines::open(const std::vector<Bytes>& listeners,
                                                   const ContextId& self, Nanos dead_after,
                                                   LifelineOwner& owner) {
  std::unique_ptr<Lifelines> l(new Lifelines(self, dead_after, owner));
  if (Status s = l->listeners_.open(listeners); !ok(s)) return s;
  l->epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  l->waker_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!l->epoll_ || !l->waker_) return Status::kNoMem;
  epoll_event e{};
  e.events = EPOLLIN;
  e.data.fd = l->waker_.get();
  if (::epoll_ctl(l->epoll_.get(), EPOLL_CTL_ADD, l->waker_.get(), &e) != 0) return Status::kNoMem;
  if (!l->listeners_.watch(l->epoll_.get())) return Status::kNoMem;
  l->due_ = now() + kNothingDue;
  return l;
}

Lifelines::~Lifelines() {
  for (auto& [fd, line] : lines_) ::close(fd);
}

void Lifelines::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] ssize_t n = ::write(waker_.get(), &one, sizeof one);
}

void Lifelines::forget_in_child() {
  for (auto& fd : open_) {
    if (const int open = fd.load(std::memory_order_relaxed); open != 0) ::close(open - 1);
  }
  listeners_.forget_in_child();
  for (Fd* fd : {&epoll_, &waker_}) ::close(fd->get());
}

Lifelines::Line* Lifelines::add(Fd fd, uint32_t events, Nanos t) {
  size_t slot = 0;
  while (slot < kMaxLines && open_[slot].load(std::memory_order_relaxed) != 0) ++slot;
  epoll_event e{};
  e.events = events;
  e.data.fd = fd.get();
  if (slot == kMaxLines || ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &e) != 0) {
    return nullptr;
  }
  const int number = fd.release();
  open_[slot].store(number + 1, std::memory_order_relaxed);
  Line& line = lines_[number];
  line.slot = slot;
  line.since = t;
  due_ = std::min(due_, t + kPatience);
  return &line;
}

void Lifelines::close(int fd) {
  auto it = lines_.find(fd);
  if (it == lines_.end()) return;
  open_[it->second.slot].store(0, std::memory_order_relaxed);
  lines_.erase(it);
  ::close(fd);
}

int Lifelines::find(const ContextId& peer, Side side) const {
  for (auto& [fd, line] : lines_) {
    if (line.stage == Stage::kUp && line.side == side && line.peer == peer) return fd;
  }
  return -1;
}

bool Lifelines::trying(const ContextId& home) const {
  return std::any_of(lines_.begin(), lines_.end(), [&](auto& l) {
    const Stage stage = l.second.stage;
    return (stage == Stage::kConnecting || stage == Stage::kGreeted) && l.second.peer == home;
  });
}

// A socket that connects, or is connected already; -1 with what is known of the peer.
int Lifelines::start(Bytes listener, uint16_t port, bool* refused) {
  *refused = false;
  sockaddr_storage to{};
  const socklen_t len = LifelineListeners::beside(listener, port, &to);
  if (len == 0 || port == 0) return -1;
  Fd fd(::socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return -1;
  LifelineListeners::send_at_once(fd.get());
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), len) != 0 && errno != EINPROGRESS) {
    *refused = errno == ECONNREFUSED;
    return -1;
  }
  return fd.release();
}

bool Lifelines::connect(const ContextId& home, Bytes listener, uint16_t port, uint64_t secret,
                        Nanos t) {
  hang_up(home, Side::kOurs);
  bool refused;
  Fd fd(start(listener, port, &refused));
  if (refused) owner_.on_refused(home, Side::kOurs);
  Line* line = fd ? add(std::move(fd), EPOLLOUT, t) : nullptr;
  if (line == nullptr) return false;
  line->peer = home;
  line->side = Side::kOurs;
  line->stage = Stage::kConnecting;
  line->secret = secret;
  return true;
}

void Lifelines::probe(const ContextId& peer, Bytes listener, uint16_t port, Nanos t) {
  bool refused;
  Fd fd(start(listener, port, &refused));
  if (refused) owner_.on_refused(peer, Side::kTheirs);
  Line* line = fd ? add(std::move(fd), EPOLLOUT, t) : nullptr;
  if (line == nullptr) return;
  line->peer = peer;
  line->side = Side::kTheirs;
  line->stage = Stage::kProbing;
}

// Into a socket's buffer whole, or the peer does not read.
bool Lifelines::write(int fd, Sign sign, uint64_t value) {
  std::byte bytes[kSignSize];
  Writer out(bytes);
  out.put(kSign);
  out.put(static_cast<uint32_t>(sign));
  out.put(value);
  return ::send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof bytes);
}

bool Lifelines::send(const ContextId& peer, Side side, Sign sign, uint64_t value) {
  const int fd = find(peer, side);
  return fd >= 0 && write(fd, sign, value);
}

void Lifelines::hang_up(const ContextId& peer, Side side) {
  std::vector<int> ending;
  for (auto& [fd, line] : lines_) {
    if (line.side == side && line.peer == peer && line.stage != Stage::kCaller &&
        line.stage != Stage::kProbing && line.stage != Stage::kProbed) {
      ending.push_back(fd);
    }
  }
  for (int fd : ending) close(fd);
}

void Lifelines::say_goodbye() {
  for (auto& [fd, line] : lines_) {
    if (line.stage == Stage::kUp) write(fd, Sign::kGoodbye, 0);
  }
  while (!lines_.empty()) close(lines_.begin()->first);
}

int Lifelines::advance(Nanos t) {
  epoll_event events[kBatch];
  const int n = ::epoll_wait(epoll_.get(), events, kBatch, 0);
  for (int i = 0; i < n; ++i) {
    const int fd = events[i].data.fd;
    if (fd == waker_.get()) {
      uint64_t count;
      [[maybe_unused]] ssize_t got = ::read(fd, &count, sizeof count);
    } else if (listeners_.has(fd)) {
      accept_callers(fd, t);
    } else if (lines_.count(fd) != 0) {  // closed meanwhile otherwise
      ready(fd, events[i].events, t);
    }
  }
  if (t >= due_) expire(t);
  return std::max(n, 0);
}

void Lifelines::accept_callers(int listening, Nanos t) {
  for (int i = 0; i < kBatch; ++i) {
    bool short_of_descriptors = false;
    Fd fd = listeners_.accept(listening, &short_of_descriptors);
    if (!fd) {
      // The listeners would stay readable: not looked at until some line has had its time.
      if (short_of_descriptors) {
        trace(kFacMem, kWarn, "lifelines: no descriptor for a caller");
        listeners_.ignore(epoll_.get());
        due_ = std::min(due_, t + kPatience);
      }
      return;
    }
    // A caller that says nothing must not keep out those that do.
    int oldest = -1;
    size_t callers = 0;
    for (auto& [other, line] : lines_) {
      if (line.stage != Stage::kCaller) continue;
      if (++callers == 1 || line.since < lines_.at(oldest).since) oldest = other;
    }
    if (callers >= kMaxCallers) close(oldest);
    if (Line* line = add(std::move(fd), EPOLLIN, t)) line->side = Side::kTheirs;
  }
}

void Lifelines::ready(int fd, uint32_t events, Nanos t) {
  const Stage stage = lines_.at(fd).stage;
  if (stage == Stage::kConnecting || stage == Stage::kProbing) return connected(fd, t);
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) read(fd, t);
}

// Our id, the id of the peer that is meant, and the secret; none for a probe.
bool Lifelines::say_who(int fd, const Line& line) {
  std::byte bytes[kGreetingSize] = {};
  Writer out(bytes);
  out.put(kGreeting);
  for (const ContextId* id : {&self_, &line.peer}) {
    out.put(id->hi);
    out.put(id->lo);
  }
  out.put(line.secret);
  out.put(port());
  epoll_event e{};
  e.events = EPOLLIN;
  e.data.fd = fd;
  return ::send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof bytes) &&
         ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &e) == 0;
}

void Lifelines::connected(int fd, Nanos t) {
  Line& line = lines_.at(fd);
  int error = 0;
  socklen_t len = sizeof error;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0) error = errno;
  if (error == 0 && say_who(fd, line)) {
    line.stage = line.stage == Stage::kProbing ? Stage::kProbed : Stage::kGreeted;
    line.since = t;
    return;
  }
  if (error != ECONNREFUSED) return lose(fd);
  const ContextId peer = line.peer;
  const Side side = line.side;
  close(fd);
  owner_.on_refused(peer, side);
}

// What waits to be read. Each call of the owner may end this line and others.
void Lifelines::read(int fd, Nanos t) {
  for (int i = 0; i < kAtOnce; ++i) {
    auto it = lines_.find(fd);
    if (it == lines_.end()) return;
    Line& line = it->second;
    if (line.stage == Stage::kConnecting || line.stage == Stage::kProbing) return;  // another one
    const size_t want = line.stage == Stage::kCaller ? kGreetingSize : kSignSize;
    const ssize_t n = ::recv(fd, line.in.data() + line.got, want - line.got, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) return lose(fd);
    line.got += static_cast<size_t>(n);
    if (line.got < want) continue;
    line.got = 0;
    const auto bytes = line.in;
    if (want == kSignSize) {
      on_sign(fd, Bytes(bytes.data(), want), t);
    } else if (!on_greeting(fd, Bytes(bytes.data(), want), t)) {
      return close(fd);
    }
  }
}

// False: the line is to be closed, and nobody misses it.
bool Lifelines::on_greeting(int fd, Bytes bytes, Nanos t) {
  Reader in(bytes);
  const bool ours = in.get<uint64_t>() == kGreeting;
  ContextId from{in.get<uint64_t>(), 0};
  from.lo = in.get<uint64_t>();
  ContextId to{in.get<uint64_t>(), 0};
  to.lo = in.get<uint64_t>();
  const auto secret = in.get<uint64_t>();
  const auto listening = in.get<uint16_t>();
  if (!ours || !in.ok()) return false;
  if (to == self_ && secret == 0 && owner_.follows(from)) return false;
  if (to != self_ || secret == 0 || !owner_.admits(from, secret)) {
    write(fd, Sign::kOver, 0);
    return false;
  }
  hang_up(from, Side::kTheirs);  // an older one, whose end says nothing now
  Line& line = lines_.at(fd);
  line.peer = from;
  line.stage = Stage::kUp;
  line.since = t;
  if (!write(fd, Sign::kWelcome, static_cast<uint64_t>(dead_after_))) return false;
  owner_.on_up(from, Side::kTheirs, listening, 0);
  return true;
}

void Lifelines::on_sign(int fd, Bytes bytes, Nanos t) {
  Reader in(bytes);
  const bool ours = in.get<uint32_t>() == kSign;
  const auto sign = static_cast<Sign>(in.get<uint32_t>());
  const auto value = in.get<uint64_t>();
  Line& line = lines_.at(fd);
  const ContextId peer = line.peer;
  const Side side = line.side;
  if (!ours || sign < Sign::kWelcome || sign > Sign::kOver) {
    trace(kFacMem, kWarn, "lifelines: {:016x} sent what is no sign", peer.hi);
    return lose(fd);
  }
  if (line.stage == Stage::kGreeted && sign == Sign::kWelcome) {
    line.stage = Stage::kUp;
    line.since = t;
    owner_.on_up(peer, side, 0, value);
  } else if (line.stage == Stage::kUp || sign == Sign::kOver) {
    if (sign != Sign::kWelcome) owner_.on_sign(peer, side, sign, value);
  }
}

void Lifelines::lose(int fd) {
  const Line line = lines_.at(fd);
  close(fd);
  const bool probe = line.stage == Stage::kProbing || line.stage == Stage::kProbed;
  if (line.stage != Stage::kCaller && !probe) owner_.on_lost(line.peer, line.side);
}

void Lifelines::expire(Nanos t) {
  if (listeners_.ignored()) listeners_.watch(epoll_.get());
  due_ = t + kNothingDue;
  std::vector<int> over;
  for (auto& [fd, line] : lines_) {
    if (line.stage == Stage::kUp) continue;
    if (t - line.since >= kPatience) {
      over.push_back(fd);
    } else {
      due_ = std::min(due_, line.since + kPatience);
    }
  }
  for (int fd : over) {
    if (lines_.count(fd) != 0) lose(fd);
  }
}

}  // namespace cmi::fabric
