// A ring of messages in memory that two processes share: one writes, the other one reads, and
// neither believes the other. What a side needs of itself it keeps in its own memory; what it loads
// of the other's is copied out once and checked before it is used. So a liar loses messages, or
// makes them garbage, which every receiver of frames takes in any case; it never has this side read
// or write outside of the ring, nor go round without end.
//
// The memory holds, for each direction, RingWords and kRingBytes of messages. A message is a word
// with its length, the bytes, and padding up to the next word. It may be cut in two by the end of
// the ring; its word is not.
//
// Pure but for the shared memory. A writer, and a reader, is used by one thread at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/codec.hpp"

namespace cmi::fabric::ring {

inline constexpr size_t kRingBytes = size_t{64} << 10;  // a power of two
inline constexpr size_t kLine = 64;

// How many bytes each side has written and read, ever. Each line is stored to by one side, but for
// `asleep`, which the writer takes back.
struct RingWords {
  alignas(kLine) std::atomic<uint64_t> written;
  alignas(kLine) std::atomic<uint64_t> read;
  std::atomic<uint32_t> asleep;  // not 0: the reader may be asleep, and is to be woken
};
static_assert(sizeof(RingWords) == 2 * kLine && std::atomic<uint64_t>::is_always_lock_free);

class RingWriter {
 public:
  RingWriter(RingWords& words, std::byte* bytes) : words_(words), bytes_(bytes) {}
  enum class Put : uint8_t { kDone, kFull, kTooLong, kCorrupt };
  // The parts one behind the other, as one message of kMaxMessage bytes at most.
  Put put(std::span<const Bytes> parts);
  // After put(): whether the reader is to be woken. True once for each time that it falls asleep.
  bool wakes_reader();

 private:
  void copy(uint64_t at, Bytes from);
  bool look();

  RingWords& words_;
  std::byte* const bytes_;
  uint64_t written_ = 0;
  uint64_t read_ = 0;  // the last that was found, and could be
};

class RingReader {
 public:
  RingReader(RingWords& words, const std::byte* bytes) : words_(words), bytes_(bytes) {}
  enum class Next : uint8_t { kMessage, kNothing, kCorrupt };
  Next next();
  // Of the message that next() has found.
  size_t size() const { return size_; }
  void take(std::byte* to);
  // The thread is going to sleep. False: something has come.
  bool may_sleep();

 private:
  bool look();

  RingWords& words_;
  const std::byte* const bytes_;
  uint64_t read_ = 0;
  uint64_t written_ = 0;  // the last that was found, and could be
  size_t size_ = 0;
};

}  // namespace cmi::fabric::ring
