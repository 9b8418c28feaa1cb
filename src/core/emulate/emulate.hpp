// Executes one instruction of an interrupted thread whose memory operand is not there to be mapped:
// reads the operand through Memory, runs the same instruction on a private copy of it with the
// thread's registers, writes what it stored through Memory, and only then moves the thread on. So
// nothing has happened when something fails, and no page is ever open to other threads.
//
// Threads: in the signal handler of the thread itself, all signals blocked. No allocation, no lock.
// Pure but for Memory and the reading of the instruction's own bytes.
#pragma once

#include <ucontext.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/base/clock.hpp"

namespace cmi::emulate {

// Why the instruction was not executed. The thread's registers and RIP are as they were, but for
// string instructions and scatters, which stop between two elements as they do on the CPU.
struct Stop {
  enum class Why : uint8_t {
    kNone,       // it was executed (a string instruction: for a while)
    kException,  // `code`: what Memory said
    kSignal,     // what the CPU and the kernel would have raised: `signo`, `code`
    kCannot,     // not an instruction that can be executed like this
  };
  Why why = Why::kNone;
  int signo = 0;
  int code = 0;
  uint64_t addr = 0;
  explicit operator bool() const { return why != Why::kNone; }

  static Stop exception(int code, uint64_t addr) { return {Why::kException, 0, code, addr}; }
  static Stop signal(int signo, int code, uint64_t addr) {
    return {Why::kSignal, signo, code, addr};
  }
  static Stop cannot(uint64_t addr) { return {Why::kCannot, 0, 0, addr}; }
};

// All memory that the instruction names, whoever it belongs to. Ranges may cross whatever borders
// there are.
class Memory {
 public:
  virtual ~Memory() = default;
  // `wanted`: a byte for each, zero where the instruction does not look; null: all are wanted. What
  // is not wanted and cannot be had is left alone.
  virtual Stop read(uint64_t addr, std::byte* to, size_t len, const uint8_t* wanted) = 0;
  // `written`: a byte for each, zero where nothing is stored; null: all are stored.
  virtual Stop write(uint64_t addr, const std::byte* from, size_t len, const uint8_t* written) = 0;
  // In place of the two for an instruction that is atomic: 1, 2, 4, 8 or 16 bytes. swap() stores
  // only if `expected` is still there, and tells what is.
  virtual Stop read_for_swap(uint64_t addr, std::byte* to, size_t len) = 0;
  virtual Stop swap(uint64_t addr, const std::byte* expected, const std::byte* desired,
                    std::byte* found, size_t len) = 0;
};

// False where the build has no decoder, the CPU no XSAVE, or the system lets no memory be executed
// that has been written: step() must not be called then. First called outside of handlers.
bool supported();

// What one instruction needs while it is executed: executable memory for it, and room for operands
// and registers within its reach.
class Bench {
 public:
  Bench() = default;
  ~Bench();
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  bool open();  // false: no memory, or none that may be executed
  bool is_open() const { return code_ != nullptr; }

  static constexpr size_t kPage = 4096;
  static constexpr size_t kOperand = 2048;  // room of one operand, behind up to 63 bytes
  std::byte* code() const { return code_; }
  std::byte* code_writable() const { return writable_; }
  std::byte* frame() const { return code_ + kPage; }
  std::byte* operand() const { return code_ + kPage + 1024; }
  std::byte* state_in() const { return code_ + 2 * kPage; }
  std::byte* state_out() const { return code_ + 3 * kPage; }
  std::byte* buffer(int which) const { return code_ + (4 + which) * kPage; }  // two

 private:
  static constexpr size_t kSize = 6 * kPage;
  std::byte* code_ = nullptr;      // readable and executable, and the data pages behind it
  std::byte* writable_ = nullptr;  // the same code, not executable
};

// Benches, each in use by one thread for the time of one instruction. Opened when first needed,
// kept for the next. Any thread, handlers too.
class Benches {
 public:
  Bench* take(Deadline deadline);  // null: none was free in time, or none could be opened
  void give(Bench* bench);

 private:
  static constexpr size_t kMost = 128;
  struct Slot {
    std::atomic<bool> taken{false};
    Bench bench;  // its taker's
  };
  std::array<Slot, kMost> slots_;
};

// How the thread stands at its instruction: its registers, the instruction's address, and the flags
// that instructions compute. A fault sets others.
using ThreadState = std::array<uint64_t, 18>;
ThreadState thread_state(const ucontext_t& uc);

// Executes the instruction that was interrupted.
Stop step(ucontext_t& uc, Memory& memory, Bench& bench);

}  // namespace cmi::emulate
