// The memory that the benchmark's processes share beside what they measure: commands of the
// measuring process to the others, and what they tell each other to get connected. Made before they
// are forked; plain data and atomics only.
#pragma once

#include <atomic>
#include <cstring>
#include <memory>

#include "peers.hpp"
#include "util.hpp"

namespace bench {

// The processes, each a CMI node of its own, but for the crew: it starts the members of crew.hpp.
enum Role : int { kHome, kPeer, kOther1, kOther2, kOther3, kCrew };
inline constexpr int kRoles = 6, kOthers = kCrew - kOther1;
const char* role_name(int role);

enum class Command : uint32_t {
  // For the home.
  kMakeSegment,  // size, whether to export it, flags; the handle and the token go to Control
  kDropSegment,
  kStamp,       // pages, version: Pattern::kHome to each page, then a barrier
  kCheck,       // pages, version, pattern, first page: whether the importer's stores are there
  kStoreFirst,  // pages, rounds, what to store to (StoreTo): fills Control::samples
  kBarrier,     // pages to store to first, version -> nanoseconds that the barrier took
  kCheckWords,  // pages, members, n: word w of them is CrewMember::last of member w % members, but
                // for n words that are 0
  kPeek,        // page -> its word 0
  kCompute,     // 1: a thread computes for each CPU of the home, 0: no more
  kConnectRaw,  // takes in the addresses of the measuring process
  kCpuTime,     // -> nanoseconds of CPU of the process so far, and of its raw thread
  // For other importers.
  kImport,
  kLeave,
  kLoad,       // page -> word 1 of it; load misses of this process so far in the second result
  kSpin,       // page: publishes each new value of word 1 in Control::seen until stop_spinning
  kSample,     // pages: loads word 1 of one of them each ms until stop_spinning -> loads, and how
               // many of them found a later value than the one before of that page
  kAwait,      // first, count, bare: waits for so many latches of latch() from the first one on, or
               // at Control::awaited for as many values, and says of each in seen_value when
  kOpenRelay,  // its address goes to Control
  kRelay,      // whether a thread spins: answers relayed messages until stop_relay (relay.hpp)
  // For the crew.
  kWork,  // CrewJob, members, how much, whether without timers: fills Control::crew
  // For all.
  kQuit,
};
// Held: another importer spins on page 0. Tracked: by the kernel, with nothing of the library.
enum class StoreTo : uint64_t { kSegment, kHeldSegment, kPlainMemory, kTrackedMemory };

struct Mailbox {
  std::atomic<uint32_t> asked{0}, answered{0};  // numbers of commands; futexes
  Command command{};
  uint64_t args[4]{};
  uint64_t results[2]{};
  char error[256]{};  // empty: done
};

// What the members of the crew do with the segment that the home has made; see crew.hpp.
enum class CrewJob : uint64_t { kTable, kScatter, kTurns, kCrowd };
inline constexpr size_t kCrewMost = 64;
// One of them. What is counted is counted from the beginning of the work until all have finished.
struct CrewMember {
  std::atomic<uint32_t> step{0};    // of CrewStep
  std::atomic<uint32_t> turn{0};    // a futex: what the member before this one has left to it
  uint64_t operations, last;        // how many, and the value that was stored last
  double nanos;                     // of all operations
  uint64_t misses;                  // loads and stores
  uint64_t requests;                // to the home, whose answers were waited for
  uint64_t publications;            // those of them that told the home of stores
  uint64_t notifications, useless;  // from the home, and those that found nothing
  uint64_t segments;                // of TCP with data, sent by this process; 0: not over TCP
  char error[160];
};

// What the thread that serves raw libfabric does.
enum class RawMode : uint32_t { kOff, kPoll, kSleep, kFetch, kRelay, kEnd };

struct Blob {
  uint32_t size = 0;
  std::byte bytes[1020]{};
  void set(const void* from, size_t n) {
    must(n <= sizeof bytes, "a blob is too large");
    std::memcpy(bytes, from, n);
    size = static_cast<uint32_t>(n);
  }
};

struct RawTarget {  // one for each way of waiting
  Blob address;
  uint64_t key = 0, base = 0;
};

inline constexpr size_t kMaxSamples = 1 << 16;

// Medians of a row, for the supervisor of a run.
struct Outcome {
  char name[48], unit[8], provider[64];
  double value, raw, floor;  // 0 where there is none
};
inline constexpr uint32_t kMaxOutcomes = 192;

// Size: it is the shared memory of a run, made once as a whole.
struct Control {
  Mailbox mail[kRoles];
  std::atomic<uint32_t> ready[kRoles];

  std::atomic<uint32_t> raw_wanted{0}, raw_now{0};  // RawMode; futexes
  std::atomic<uint32_t> raw_failed{0};
  RawTarget polling, sleeping;
  Blob peer_address, fetching_address;

  Blob handle, token;
  uint64_t segment_size = 0;
  uint64_t stride = 1;  // of kStamp and kCheck: their pages are so many pages apart

  std::atomic<uint64_t> seen_value{0};
  std::atomic<double> seen_at{0};
  std::atomic<uint32_t> stop_spinning{0};
  std::atomic<uint32_t> awaited{0};  // a futex

  Blob relay_address[kOthers];
  std::atomic<uint32_t> relays_ready{0}, stop_relay{0};

  std::atomic<uint32_t> crew_step{0};  // a futex: how far the members may go
  CrewMember crew[kCrewMost]{};

  PeerStack peers[kPeerStacks]{};

  uint32_t outcome_count = 0;
  Outcome outcomes[kMaxOutcomes]{};

  uint32_t sample_count = 0;
  double samples[kMaxSamples];
};

void futex_wait(std::atomic<uint32_t>& word, uint32_t while_value, double nanos);
void futex_wake(std::atomic<uint32_t>& word);

inline constexpr double kAnswerWithin = 60 * kSecond;

// Measuring process: gives a command, waits for the answer. Fails when it says so or is not there
// within a minute.
struct Answer {
  uint64_t first, second;
};
Answer call(Control& control, int role, Command command, uint64_t a = 0, uint64_t b = 0,
            uint64_t c = 0, uint64_t d = 0);
// The two halves of call().
void ask(Control& control, int role, Command command, uint64_t a = 0, uint64_t b = 0,
         uint64_t c = 0, uint64_t d = 0);
Answer await(Control& control, int role, double within = kAnswerWithin);

// While it lives the home's raw thread serves; on the measuring process. Both ends of it wait until
// that thread has changed over, so that it takes no CPU from what is measured next.
class RawServing {
 public:
  RawServing(Control& control, RawMode mode) : control_(control) { change(mode); }
  ~RawServing();
  RawServing(const RawServing&) = delete;
  RawServing& operator=(const RawServing&) = delete;

 private:
  void change(RawMode mode);
  Control& control_;
};

}  // namespace bench
