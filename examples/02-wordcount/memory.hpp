// The segment that all nodes share, and the few ways in which this program touches it: plain loads
// and stores at an offset, compare-and-swap, barriers and epochs. Counts what it does, for the
// report. Single-threaded.
#pragma once

#include <cmi.h>
#include <cmi/ofi/cmi_impl.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "failure.hpp"

namespace wordcount {

// Bytes from the start of the segment, the pointers of everything that lies in it. 0 is no place.
using Offset = uint64_t;

class SharedMemory {
 public:
  // The home node: makes a segment of zeros and exports it.
  static SharedMemory make(size_t size);
  // Any other node: imports what the home offers there.
  static SharedMemory find(const std::string& where, size_t size);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;
  ~SharedMemory() { close(); }

  // Detaches, takes back what was exported, and ends the context.
  void close();

  // At the home: lets the other nodes find it there, as long as it is open. False: it cannot be
  // offered there. `where` is a place of cmi_ofi_offer().
  [[nodiscard]] bool offer(const std::string& where);
  // The same, but for the end of the run where it cannot be.
  void must_offer(const std::string& where) { check(offer(where), "cmi_ofi_offer"); }
  [[nodiscard]] size_t size() const { return size_; }

  // A word that another node may be writing.
  template <typename T>
  T load(Offset at) {
    loads_++;
    return std::atomic_ref<T>(*place<T>(at, 1)).load(std::memory_order_acquire);
  }
  template <typename T>
  void store(Offset at, T value) {
    stores_++;
    std::atomic_ref<T>(*place<T>(at, 1)).store(value, std::memory_order_release);
  }

  // Memory that nobody changes any more; each element counts as one load.
  template <typename T>
  std::span<const T> read(Offset at, size_t count) {
    loads_ += count;
    return {place<T>(at, count), count};
  }
  // The same for bytes, counted in words of eight.
  std::string_view read_text(Offset at, size_t length) {
    loads_ += (length + 7) / 8;
    return {place<char>(at, length), length};
  }
  // Plain stores of a block, counted in words of eight.
  void write(Offset at, const void* bytes, size_t length) {
    stores_ += (length + 7) / 8;
    std::memcpy(place<char>(at, length), bytes, length);
  }

  // Stores `desired` if the word is `expected`; otherwise sets `expected` to what another node
  // stored first.
  bool compare_and_swap(Offset at, uint64_t& expected, uint64_t desired);

  // What was stored before is at the home, and visible everywhere, when this returns.
  void publish();

  // The flush epoch of this thread.
  void open_epoch();
  void flush_epoch();
  void close_epoch();

  [[nodiscard]] uint64_t loads() const { return loads_; }
  [[nodiscard]] uint64_t stores() const { return stores_; }
  [[nodiscard]] uint64_t swaps() const { return swaps_; }
  [[nodiscard]] cmi_ofi_stats library_counters() const;

 private:
  SharedMemory() = default;
  void begin(size_t size);
  void check(bool worked, const char* call) const;

  // A wrong offset must end in a message, not in somebody else's memory.
  template <typename T>
  T* place(Offset at, size_t count) {
    if (at % alignof(T) != 0 || at > size_ || count > (size_ - at) / sizeof(T)) {
      fail("offset {} with {} elements of {} bytes does not lie in the segment", at, count,
           sizeof(T));
    }
    return reinterpret_cast<T*>(view_ + at);
  }

  cmi_ctxt* context_ = nullptr;
  cmi_seg segment_ = CMI_SEG_INVALID;
  char* view_ = nullptr;
  size_t size_ = 0;
  cmi_rseg* handle_ = nullptr;  // at the home only
  cmi_token* token_ = nullptr;  // at the home only
  cmi_fb epoch_ = nullptr;
  uint64_t loads_ = 0;
  uint64_t stores_ = 0;
  uint64_t swaps_ = 0;
};

}  // namespace wordcount
