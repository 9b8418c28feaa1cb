// See byte_ring.hpp.
#include "fabric/ring/byte_ring.hpp"

#include <algorithm>
#include <cstring>

#include "fabric/fabric.hpp"

namespace cmi::fabric::ring {

namespace {
constexpr uint64_t kWord = sizeof(uint64_t), kMask = kRingBytes - 1;
static_assert((kRingBytes & kMask) == 0 && kRingBytes >= kMaxMessage + kWord);

constexpr uint64_t room_of(size_t size) { return kWord + (size + kWord - 1) / kWord * kWord; }
}  // namespace

void RingWriter::copy(uint64_t at, Bytes from) {
  if (from.empty()) return;
  const uint64_t first = std::min<uint64_t>(from.size(), kRingBytes - (at & kMask));
  std::memcpy(bytes_ + (at & kMask), from.data(), first);
  if (first < from.size()) std::memcpy(bytes_, from.data() + first, from.size() - first);
}

// How far the reader is: not before where it was, and not further than there is anything to read.
bool RingWriter::look() {
  const uint64_t read = words_.read.load(std::memory_order_acquire);
  if (read - read_ > written_ - read_ || read % kWord != 0) return false;
  read_ = read;
  return true;
}

RingWriter::Put RingWriter::put(std::span<const Bytes> parts) {
  uint64_t size = 0;
  for (const Bytes part : parts) size += part.size();
  const uint64_t room = room_of(size);
  if (size > kMaxMessage) return Put::kTooLong;
  if (kRingBytes - (written_ - read_) < room) {
    if (!look()) return Put::kCorrupt;
    if (kRingBytes - (written_ - read_) < room) return Put::kFull;
  }
  copy(written_, std::as_bytes(std::span(&size, 1)));
  uint64_t at = written_ + kWord;
  for (const Bytes part : parts) {
    copy(at, part);
    at += part.size();
  }
  written_ += room;
  words_.written.store(written_, std::memory_order_release);
  return Put::kDone;
}

// The fence pairs with the one in may_sleep(): the reader sees what was written, or this sees it
// fall asleep.
bool RingWriter::wakes_reader() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return words_.asleep.load(std::memory_order_relaxed) != 0 &&
         words_.asleep.exchange(0, std::memory_order_relaxed) != 0;
}

bool RingReader::look() {
  const uint64_t written = words_.written.load(std::memory_order_acquire);
  if (written - read_ > kRingBytes || written - read_ < written_ - read_ || written % kWord != 0) {
    return false;
  }
  written_ = written;
  return true;
}

RingReader::Next RingReader::next() {
  if (read_ == written_) {
    if (!look()) return Next::kCorrupt;
    if (read_ == written_) return Next::kNothing;
  }
  // Loaded once: the writer may change it at any time.
  const auto* const word = reinterpret_cast<const uint64_t*>(bytes_ + (read_ & kMask));
  const uint64_t size = __atomic_load_n(word, __ATOMIC_RELAXED);
  if (size > kMaxMessage || room_of(size) > written_ - read_) return Next::kCorrupt;
  size_ = size;
  return Next::kMessage;
}

void RingReader::take(std::byte* to) {
  const uint64_t at = (read_ + kWord) & kMask;
  const uint64_t first = std::min<uint64_t>(size_, kRingBytes - at);
  std::memcpy(to, bytes_ + at, first);
  if (first < size_) std::memcpy(to + first, bytes_, size_ - first);
  // From here on the copy alone counts: the compiler loads nothing of it once more.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  read_ += room_of(size_);
  words_.read.store(read_, std::memory_order_release);
}

bool RingReader::may_sleep() {
  words_.asleep.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return read_ == written_ && words_.written.load(std::memory_order_relaxed) == read_;
}

}  // namespace cmi::fabric::ring
