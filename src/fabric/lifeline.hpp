// Lifelines: plain TCP connections beside the provider's, one from each importing context to each
// context that it imports from. No provider says when a peer dies while nothing is under way; the
// kernel does, by closing what a process had open. And they carry the heartbeats.
//
// A context listens for lifelines at its own port, next to each of its listeners: the same for all.
// An importer connects and sends its own id, the home's id, and the secret that it got over its
// link; the home answers, and from then on either side sends signs of 16 bytes. A line that ends
// without a goodbye proves nothing yet. The proof of a death is that nobody listens any more where
// the peer did.
//
// What a fork leaves in the child would keep a dead parent's lines open; hence forget_in_child().
//
// Threads: one, the service thread, but for wake(). Nothing blocks.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "core/base/clock.hpp"
#include "core/base/codec.hpp"
#include "core/base/fd.hpp"
#include "core/base/ids.hpp"
#include "core/base/status.hpp"
#include "fabric/lifeline_listeners.hpp"

namespace cmi::fabric {

enum class Sign : uint32_t {
  kWelcome = 1,  // value: nanoseconds of silence after which the sender declares us dead
  kAsk,          // value: anything; answered by one of the next two, with the same value
  kVouch,        // we are heard, and owe the sender nothing
  kAnswer,       // we are heard
  kGoodbye,      // the sender's context ends in good order
  kOver,         // the sender has nothing to do with us, or no more
};

// Which of the two lines that there may be between two contexts.
enum class Side : uint8_t {
  kOurs,    // we connected: the peer is a home
  kTheirs,  // it connected: the peer is an importer
};

// Called from advance().
class LifelineOwner {
 public:
  virtual ~LifelineOwner() = default;
  // A caller says that it is this peer. False: it is answered that all is over.
  virtual bool admits(const ContextId& peer, uint64_t secret) = 0;
  // A home that lost our line asks whether we are still there. False: as above.
  virtual bool follows(const ContextId& home) = 0;
  // The line is up. Ours: `value` is that of the welcome. Theirs: `listener` is the port of theirs.
  virtual void on_up(const ContextId& peer, Side side, uint16_t listening, uint64_t value) = 0;
  virtual void on_sign(const ContextId& peer, Side side, Sign sign, uint64_t value) = 0;
  // It ended, or did not come up; nothing is proven.
  virtual void on_lost(const ContextId& peer, Side side) = 0;
  // Nobody listens where this peer did.
  virtual void on_refused(const ContextId& peer, Side side) = 0;
};

class Lifelines {
 public:
  // Listens at the addresses of the listeners, at a port of its own. kNotSupp: none is an IP
  // address.
  static Result<std::unique_ptr<Lifelines>> open(const std::vector<Bytes>& listeners,
                                                 const ContextId& self, Nanos dead_after,
                                                 LifelineOwner& owner);
  ~Lifelines();

  uint16_t port() const { return listeners_.port(); }
  int descriptor() const { return epoll_.get(); }  // readable: advance() has something to do
  void wake();                                     // makes it readable; any thread

  // Connects to the port beside that listener. An earlier line to the same home ends. False: not
  // even begun, or refused at once (on_refused was called).
  bool connect(const ContextId& home, Bytes listener, uint16_t port, uint64_t secret, Nanos t);
  // Looks whether that importer still listens there and has anything to do with us: on_refused if
  // nobody listens, on_sign with kOver if somebody says so, and nothing otherwise.
  void probe(const ContextId& peer, Bytes listener, uint16_t port, Nanos t);
  // False: there is no such line, or the peer does not read: it is silent then.
  bool send(const ContextId& peer, Side side, Sign sign, uint64_t value);
  void hang_up(const ContextId& peer, Side side);
  bool trying(const ContextId& home) const;  // a line of ours is on its way up
  size_t lines() const { return lines_.size(); }
  void say_goodbye();  // on every line, and ends them

  int advance(Nanos t);
  Nanos due() const { return due_; }  // when a line has to be given up

  void forget_in_child();  // after fork: closes the descriptors, touches nothing else

 private:
  enum class Stage : uint8_t {
    kCaller,      // accepted, has not sent its greeting
    kConnecting,  // ours, on its way up
    kGreeted,     // the same, has sent our greeting
    kUp,
    kProbing,  // asks, connects first
    kProbed,   // has asked
  };
  struct Line {
    ContextId peer;
    Side side{};
    Stage stage{};
    uint64_t secret = 0;
    Nanos since = 0;  // of the stage
    std::array<std::byte, 64> in;
    size_t got = 0;
    size_t slot = 0;  // in open_
  };
  static constexpr size_t kMaxLines = 4096;
  static constexpr size_t kMaxCallers = 64;    // of stage kCaller
  static constexpr int kAtOnce = 64;           // signs of one line
  static constexpr Nanos kPatience = kSecond;  // with a stage other than kUp

  Lifelines(const ContextId& self, Nanos dead_after, LifelineOwner& owner)
      : self_(self), dead_after_(dead_after), owner_(owner) {}
  Line* add(Fd fd, uint32_t events, Nanos t);  // null: no room
  void close(int fd);
  bool say_who(int fd, const Line& line);
  int find(const ContextId& peer, Side side) const;  // up, or -1
  int start(Bytes listener, uint16_t port, bool* refused);
  void accept_callers(int listening, Nanos t);
  void ready(int fd, uint32_t events, Nanos t);
  void connected(int fd, Nanos t);
  void read(int fd, Nanos t);
  bool on_greeting(int fd, Bytes bytes, Nanos t);
  void on_sign(int fd, Bytes bytes, Nanos t);
  void lose(int fd);
  void expire(Nanos t);
  static bool write(int fd, Sign sign, uint64_t value);

  const ContextId self_;
  const Nanos dead_after_;
  LifelineOwner& owner_;
  LifelineListeners listeners_;
  Fd epoll_, waker_;
  std::map<int, Line> lines_;  // by descriptor
  Nanos due_ = 0;
  // The descriptors of lines_ plus one, 0 for none: what a forked child closes, whatever the
  // service thread was doing to the map when it was copied.
  std::array<std::atomic<int>, kMaxLines> open_{};
};

}  // namespace cmi::fabric
