// Decides alone which peers are alive: evidence goes in, verdicts come out. Pure logic; the time is
// an argument, so that nothing here waits.
//
// A peer is judged in two ways. By its silence: only while it shares a segment with us, because
// only then does it answer heartbeats. And by an answer that it owes: a peer that is heard of but
// does not do what it must holds others up just as a silent one does. A link that cannot be had is
// such an answer only where there is no lifeline that says better. Proof of its end is believed at
// once, and death is final.
//
// A context is judged as our home and as our importer apart, each by what was seen of it as that.
// A context that speaks as an importer has named itself and has not proven the name. Whatever it
// says, no home is declared dead by it, nor a dead one kept alive.
//
// Time that passed while nobody judged (this process was stopped) does not count against anybody:
// what the peers said meanwhile still lies unread.
//
// Threads: one, the service thread.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/base/clock.hpp"
#include "core/base/ids.hpp"

namespace cmi::liveness {

enum class PeerState : uint8_t { kAlive, kUnreachable, kDead };

enum class Reason : uint8_t {
  kHeard,           // it was unreachable and was heard of again
  kSilent,          // nothing was heard of it for so long
  kUnacknowledged,  // it is heard of, but an answer has been due for so long
  kEnded,           // proof: nobody listens where it did, or its node has released its lock
  kGoodbye,         // it ended in good order
  kDisowned,        // the peer counts this context as dead and refuses it
};
const char* reason_name(Reason r);

enum class Role : uint8_t { kHome, kImporter };  // what a context is to us

struct PeerId {
  ContextId context;
  Role role{};
  auto operator<=>(const PeerId&) const = default;
};

struct Verdict {
  PeerId peer;
  PeerState state{};
  Reason reason{};
};

struct Limits {
  Nanos beat = 250 * kMilli;    // silence after which a peer is asked for a sign of life
  Nanos unreachable = kSecond;  // silence after which it counts as unreachable; see reachable_for()
  Nanos dead = 10 * kSecond;    // silence, or an answer overdue, after which it counts as dead
};

// How long an importer may use its cached pages after it asked a heartbeat that its home vouched
// for, and how long a home goes on vouching for an importer that owes it an answer. Whoever is
// declared dead has stopped using its pages before, because
//
//     (an answer becomes due) + vouch_for + lease < (an answer becomes due) + dead,   and
//     (heard of last)                     + lease < (heard of last)         + dead.
//
// What is left is for taking the pages out of use, and for clocks that differ.
constexpr Nanos lease_of(Nanos dead) { return dead / 10 * 8; }
constexpr Nanos vouch_for(Nanos dead) { return dead / 10; }
// `unacknowledged_since`: 0 for nothing.
constexpr bool may_vouch(Nanos unacknowledged_since, Nanos t, Nanos dead) {
  return unacknowledged_since == 0 || t - unacknowledged_since < vouch_for(dead);
}

class Detector {
 public:
  explicit Detector(Limits limits) : limits_(limits) {}

  const Limits& limits() const { return limits_; }
  // As the client wishes, but not less than two heartbeats take.
  void set_unreachable_after(Nanos t);

  // A peer that shares a segment with us is expected to be heard of, from t on; one that shares
  // none is not. `beat`: silence after which it is asked for a sign of life.
  void share(const PeerId& peer, Nanos beat, Nanos t);
  void part(const PeerId& peer);

  void heard(const PeerId& peer, Nanos t);
  // It owes an answer since then; 0: it owes none.
  void owes(const PeerId& peer, Nanos since);
  // No link to it could be had since then; 0: there is one. `line`: there is a lifeline that it
  // answers, and while it does it lives, however long the link takes.
  void unlinked(const PeerId& peer, Nanos since, bool line);
  // A link to it broke: it is asked for a sign of life now.
  void suspect(const PeerId& peer);
  // kEnded, kGoodbye or kDisowned.
  void ended(const PeerId& peer, Reason proof);

  PeerState state(const PeerId& peer) const;  // kAlive for those it never heard of

  // What has become of the peers since it was called last, and which are to be asked for a sign of
  // life. The dead are forgotten with their verdict. Returns when it wants to be called again.
  Nanos judge(Nanos t, std::vector<Verdict>* verdicts, std::vector<PeerId>* ask);

 private:
  struct Peer {
    PeerState state = PeerState::kAlive;
    bool shares = false, ended = false;
    Reason proof{};  // once it has ended
    Nanos beat = 0;
    Nanos heard = 0;                          // last; silence counts from here
    Nanos asked = 0;                          // the last heartbeat to it
    Nanos unacknowledged = 0;                 // an answer is due since; 0: none is
    Nanos pardon = 0;                         // of that time, what passed while nobody judged
    Nanos unlinked = 0, unlinked_pardon = 0;  // the same for a link that cannot be had
    bool line = false;
    Nanos back = 0;  // it was unreachable until then
  };
  bool answers(const Peer& p, Nanos t) const;
  void pardon(Nanos pause, Nanos t);
  Nanos unacknowledged_from(const Peer& p) const;
  PeerState look(const Peer& p, Nanos t, Reason* why) const;
  Nanos due(const Peer& p, Nanos t) const;

  Limits limits_;
  std::map<PeerId, Peer> peers_;
  Nanos due_ = 0;  // when judge() wanted to be called again; 0: it has not been called
};

}  // namespace cmi::liveness
