// The programs of litmus tests: a few threads on several nodes, each a list of steps, and a
// histogram of what their loads gave. A test says which outcome is forbidden, or which one is
// allowed and has to be seen.
//
//   const Program mp = program({{0, {st(X, 1), wmb(), st(Y, 1), wmb()}},
//                               {1, {await(Y, 1, 0), rmb(), ld(X, 1)}}});
//
// Whoever plays one (lab.hpp, sim/lab.hpp) gives each round variables of its own, which are 0, in
// pages that many rounds share: what earlier rounds left (cached, dirty, on its way) is there, and
// threads load and store around the variables before the round begins.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace cmi::test {

// ---- Programs -------------------------------------------------------------------------------

enum Variable : uint8_t { X, Y, Z, U, V };
inline constexpr int kVariables = 5, kRegisters = 8, kMaxSteps = 24, kMaxThreads = 6;
inline constexpr uint8_t kLocals = 24;  // a thread's own registers, which outcomes do not have

enum class Act : uint8_t {
  kNothing,  // the barrier that is left out
  kStore,
  kLoad,
  kAwait,  // loads until the value is seen, for some milliseconds at most
  kCas,
  kWmb,
  kMb,
  kRmb,
  kFlush,
  kClose,   // close_fb, and the next epoch is opened
  kCflush,  // of one variable
  kWatch,   // loads for a while; the register tells whether the value was ever less than before
  kChurn,   // for a while stores the next value and the value in turn
  kPause,   // for some time, a millisecond at most
  kPost,    // tells other threads, outside the library
  kWait,    // until so many of this round have told
  // What programs of other people have (kernel.hpp):
  kLinger,   // a load, repeated for a while in half of the rounds until the value is seen
  kUpdate,   // what is there is swapped for what `op` makes of it; the result is what was there
  kTake,     // a swap that is tried until it succeeds: a lock
  kCompute,  // `op` of two locals or numbers
  kSkip,     // so many steps, where the first operand is 0
  kTell,     // the first operand goes to the register
};
enum class Op : uint8_t {
  kPlus,
  kMinus,
  kAnd,
  kOr,
  kXor,
  kEqual,
  kUnequal,
  kLess,
  kLessOrEqual,
  kSecond,
  kPlusUnless,  // of kUpdate: nothing is swapped where `expected` is there
};
constexpr uint64_t result_of(Op op, uint64_t a, uint64_t b) {
  switch (op) {
    case Op::kPlus:
    case Op::kPlusUnless:
      return a + b;
    case Op::kMinus:
      return a - b;
    case Op::kAnd:
      return a & b;
    case Op::kOr:
      return a | b;
    case Op::kXor:
      return a ^ b;
    case Op::kEqual:
      return a == b ? 1 : 0;
    case Op::kUnequal:
      return a != b ? 1 : 0;
    case Op::kLess:
      return a < b ? 1 : 0;
    case Op::kLessOrEqual:
      return a <= b ? 1 : 0;
    case Op::kSecond:
      return b;
  }
  return 0;
}
// The value that stands for the address of a variable.
inline constexpr uint8_t kAddress = 128;

struct Step {
  Act act = Act::kNothing;
  uint8_t variable = 0;
  uint8_t value = 0;         // stored, awaited, or swapped in
  uint8_t expected = 0;      // of a swap
  uint8_t reg = kRegisters;  // where what was loaded goes; kRegisters: nowhere
  // Locals of the thread, where they are not kLocals:
  uint8_t at = kLocals;      // has the address, in place of `variable`; none: nothing is done
  uint8_t first = kLocals;   // in place of `expected`
  uint8_t second = kLocals;  // in place of `value`
  uint8_t to = kLocals;      // takes the result
  Op op = Op::kPlus;
};
constexpr Step nothing() { return {}; }
constexpr Step st(Variable v, uint8_t value) { return {Act::kStore, v, value}; }
constexpr Step ld(Variable v, uint8_t reg) { return {Act::kLoad, v, 0, 0, reg}; }
constexpr Step await(Variable v, uint8_t value, uint8_t reg) {
  return {Act::kAwait, v, value, 0, reg};
}
constexpr Step cas(Variable v, uint8_t expected, uint8_t desired, uint8_t reg = kRegisters) {
  return {Act::kCas, v, desired, expected, reg};
}
constexpr Step wmb() { return {Act::kWmb}; }
constexpr Step mb() { return {Act::kMb}; }
constexpr Step rmb() { return {Act::kRmb}; }
constexpr Step flush_fb() { return {Act::kFlush}; }
constexpr Step close_fb() { return {Act::kClose}; }
constexpr Step cflush(Variable v) { return {Act::kCflush, v}; }
constexpr Step watch(Variable v, uint8_t at_least, uint8_t reg) {
  return {Act::kWatch, v, at_least, 0, reg};
}
constexpr Step churn(Variable v, uint8_t value) { return {Act::kChurn, v, value}; }
constexpr Step pause() { return {Act::kPause}; }
constexpr Step post() { return {Act::kPost}; }
constexpr Step wait(uint8_t posts) { return {Act::kWait, 0, posts}; }

using Locals = std::array<uint64_t, kLocals>;
// The variable that the step accesses; none where a local that is to have an address has another
// value.
constexpr std::optional<uint8_t> variable_of(const Step& s, const Locals& locals) {
  if (s.at == kLocals) return s.variable;
  const uint64_t address = locals[s.at];
  if (address < kAddress || address >= kAddress + kVariables) return std::nullopt;
  return static_cast<uint8_t>(address - kAddress);
}
// Whether the step is one that programs of other people have alone.
constexpr bool has_locals(const Step& s) {
  return s.at != kLocals || s.first != kLocals || s.second != kLocals || s.to != kLocals ||
         s.act == Act::kLinger || s.act == Act::kUpdate || s.act == Act::kTake;
}

struct Thread {
  uint8_t process = 0;
  uint8_t count = 0;
  std::array<Step, kMaxSteps> steps{};
  Thread() = default;
  Thread(int process, std::initializer_list<Step> steps);
};

struct Program {
  uint8_t count = 0;
  std::array<Thread, kMaxThreads> threads{};
  bool one_page = false;  // all variables lie in one page; else each in another one
  bool again = false;     // all rounds have the same variables; the last thread sets them to 0
  bool finals = false;    // after each round everybody publishes, and all variables are loaded
  bool calm = false;      // no loads, stores and pauses of the lab's own
  // Of interest is only whether each load and await sees its `value`, and each swap its `expected`:
  // a round in which one has seen something else ends early. Each value of a variable is stored by
  // one step.
  bool as_told = false;
  uint8_t variables = kVariables;  // the first of them, which the lab's own loads and stores are of
  std::array<uint8_t, kVariables> initial{};  // what the last thread stores before each round
};
Program program(std::initializer_list<Thread> threads);

// ---- Outcomes -------------------------------------------------------------------------------

// The registers, then the variables at the end where finals are asked for.
using Outcome = std::array<uint8_t, kRegisters + kVariables>;
inline constexpr uint8_t kDisagree = 255;  // a final value that is not the same on all nodes
constexpr uint8_t final_of(const Outcome& o, Variable v) {
  return o[static_cast<size_t>(kRegisters + v)];
}
using Predicate = std::function<bool(const Outcome&)>;

class Histogram {
 public:
  void add(const Outcome& o) { ++counts_[o]; }
  uint64_t count(const Predicate& matches) const;
  uint64_t rounds() const;
  friend std::ostream& operator<<(std::ostream& out, const Histogram& histogram);

 private:
  std::map<Outcome, uint64_t> counts_;
};

// Whether the tests run once more, in other circumstances (CMI_TEST_KERNEL, CMI_TEST_FAULT).
bool runs_again();
// Whether each litmus test plays all of its rounds, placements and delays: in the long run, where
// it does not run once more.
bool plays_all();
// How many rounds show that an outcome is never seen: a quarter of `rounds` unless all are played.
uint32_t share_of(uint32_t rounds);

// ---- Where ----------------------------------------------------------------------------------

// Processes 0 to processes-1, on a node each. The variables take turns among the segments: of two,
// X, Z and V lie in the first and Y and U in the last; of three, X, Y and Z have one each.
struct Placement {
  int processes = 2;
  std::vector<int> homes{0};  // of one segment, two or three
  std::string name = "";
  int beside = -1;   // this process is on the node of the first home
  int sharing = -1;  // this process is on the node of process 0, and shares its imports
};

}  // namespace cmi::test
