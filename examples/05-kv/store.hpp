// A key-value store in one segment, for the threads of any nodes: a hash table whose readers need
// no lock and no message, and whose updates are one swap. A client that is killed at any moment
// leaves the value that was there before, or the new one.
//
// - A slot has a word, and one cell more than there are writers. The word says which cell is
//   current, which one each writer fills in next, and how often that has changed.
// - A writer fills in its cell and makes it current by a swap of the word, which takes along what
//   was stored before; the cell that was current is its own from then on. What a dead writer has
//   half filled in nobody looks at, so there is nothing to repair.
// - A reader copies the current cell, and believes its checksum, which covers the word's number.
// - Keys are spread over groups, with a lock each for binding slots to keys and giving them up. A
//   key is looked for in one page of its group, and behind it as long as the ones before are full.
#ifndef CMI_EXAMPLE_STORE_HPP
#define CMI_EXAMPLE_STORE_HPP

#include <algorithm>
#include <array>
#include <chrono>
#include <cmi/cmi.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

namespace kv {

/** How large a store is; what makes it says so, and what opens it reads it there. */
struct Shape {
  uint64_t groups = 64;       // locks
  uint64_t pages = 8;         // of each group
  uint64_t cell_bytes = 144;  // of key and value together, a multiple of 8
  uint64_t writers = 4;       // objects that may change it at one time, at most 8
  size_t cell() const { return 24 + cell_bytes; }
  size_t slot() const { return 8 + (writers + 1) * cell(); }
  size_t slots() const { return 4096 / slot(); }                 // of a page
  size_t locks() const { return (groups * 256 + 4095) / 4096; }  // pages of locks, 256 bytes each
};

/** Of one thread: each has its own. */
class Store {
 public:
  static constexpr size_t kPage = 4096;

  /** What a segment of this shape takes. It is made with CMI_SEG_CLIENT_CONSIST. */
  static size_t bytes(const Shape& shape) {
    return (1 + shape.locks() + shape.groups * shape.pages) * kPage;
  }
  /** Makes a store where there are zeros; before others open it. */
  static void make(const cmi::view<std::byte>& memory, const Shape& shape) {
    if (shape.groups * shape.pages * shape.writers == 0 || shape.writers > kMostWriters ||
        shape.cell_bytes % 8 != 0 || shape.slots() == 0 || memory.size() < bytes(shape)) {
      throw std::invalid_argument("kv: no such shape");
    }
    *reinterpret_cast<Head*>(memory.data()) = {shape, kMagic, {}};
    cmi::publish();
  }
  Store(const cmi::context& context, const cmi::view<std::byte>& memory)
      : context_(context), memory_(memory.data()) {
    if (memory.size() < kPage || head().magic != kMagic) {
      throw std::invalid_argument("kv: there is no store");
    }
    shape_ = head().shape;
    slots_ = shape_.slots();
  }

  /** Whether the key has a value, and which. */
  bool get(std::string_view key, std::string& value) const {
    Copy copy;
    if (!find(key, hash_of(key), copy).present) return false;
    value.assign(copy.value());
    return true;
  }
  /** Every node sees the new value when this returns. Throws std::length_error: no room. */
  void put(std::string_view key, std::string_view value) {
    if (key.empty() || key.size() + value.size() > shape_.cell_bytes) {
      throw std::length_error("kv: key and value are too large, or there is no key");
    }
    change(key, value, true);
  }
  /** Whether it was there. */
  bool erase(std::string_view key) { return change(key, {}, false); }

  /** f(key, value) of everything, as each is at some moment. */
  template <class F>
  void each(F&& f) const {
    Copy copy;
    for (uint64_t page = 0; page < shape_.groups * shape_.pages; ++page) {
      for (size_t slot = 0; slot < slots_; ++slot) {
        std::byte* const at = slot_at(page, slot);
        uint64_t word = word_of(at);
        for (uint32_t looks = 0; used(word) && !read(at, word, copy); word = word_of(at)) {
          look_again(++looks);
        }
        if (used(word) && copy.head.present != 0) f(copy.key(), copy.value());
      }
    }
  }

 private:
  static constexpr uint64_t kMagic = 0x32766b2d696d63;  // "cmi-kv2"
  static constexpr uint64_t kMostWriters = 8;

  struct Head {
    Shape shape;
    uint64_t magic;
    cmi_ofi_mutex writers[kMostWriters];  // held as long as the number is somebody's
  };
  struct Cell {
    uint64_t check;  // of the word's number, and of all that follows
    uint64_t hash;
    uint16_t key_size, value_size;
    uint32_t present;  // key and value follow
  };
  static_assert(sizeof(Cell) == 24);
  struct Copy {
    Cell head = {};
    std::array<char, kPage> text;
    std::string_view key() const { return {text.data(), head.key_size}; }
    std::string_view value() const { return {text.data() + head.key_size, head.value_size}; }
  };
  struct Place {
    std::byte* slot = nullptr;  // the key's, or else the first free one
    uint64_t word = 0;
    bool own = false, present = false;
  };

  // Until what is being changed is seen whole.
  static void look_again(uint32_t looks) {
    if (looks > 1U << 24) throw std::runtime_error("kv: a slot is damaged");
    if (looks > 1) std::this_thread::yield();
  }
  struct Locked {
    Locked(const cmi::context& context, cmi_ofi_mutex& at, std::chrono::milliseconds span)
        : mutex(context, at), taken(mutex.try_lock_for(span)) {
      if (taken == cmi::taken::owner_dead) mutex.repaired();  // the words say what is whole
    }
    ~Locked() {
      try {
        if (held()) mutex.unlock();
      } catch (const std::exception&) {  // declared dead meanwhile: the lock is another one's
      }
    }
    bool held() const { return taken != cmi::taken::no; }
    cmi::mutex mutex;
    cmi::taken taken;
  };

  static uint64_t mix(uint64_t value) {
    value = (value ^ (value >> 32)) * 0xd6e8feb86659fd93;
    return value ^ (value >> 29);
  }
  static uint64_t sum(uint64_t seed, const char* at, size_t size) {
    uint64_t result = mix(seed + size + 1), word = 0;
    for (; size >= 8; at += 8, size -= 8) {
      std::memcpy(&word, at, 8);
      result = mix(result ^ word) + 0x9e3779b97f4a7c15;
    }
    word = 0;
    std::memcpy(&word, at, size);
    return mix(result ^ word);
  }
  static uint64_t hash_of(std::string_view key) { return sum(0, key.data(), key.size()); }
  static uint64_t check_of(const Copy& copy, uint64_t number) {
    const auto* const fields = reinterpret_cast<const char*>(&copy.head);
    return sum(sum(kMagic + number, fields + 8, sizeof(Cell) - 8), copy.text.data(),
               size_t{copy.head.key_size} + copy.head.value_size);
  }

  // A word, from its lowest bits on: the cell that each of 8 writers fills in next, 4 bits each;
  // the current cell, 4 bits; a number, 28 bits, 0 in a slot that was never used.
  static constexpr uint64_t kFresh = 0x087654321, kCell = 15;
  static uint64_t number_of(uint64_t word) { return word >> 36; }
  static bool used(uint64_t word) { return number_of(word) != 0; }
  static uint64_t cell_of(uint64_t word, uint64_t writer) { return word >> 4 * writer & kCell; }
  static uint64_t current_of(uint64_t word) { return cell_of(word, kMostWriters); }
  // The writer's cell is current, and the one that was is the writer's.
  static uint64_t changed(uint64_t word, uint64_t writer) {
    const uint64_t both = cell_of(word, writer) ^ current_of(word);
    const uint64_t cells = (word ^ both << 4 * writer ^ both << 32) & ((uint64_t{1} << 36) - 1);
    return std::max<uint64_t>((number_of(word) + 1) << 36, uint64_t{1} << 36) | cells;
  }

  Head& head() const { return *reinterpret_cast<Head*>(memory_); }
  std::byte* slot_at(uint64_t page, size_t slot) const {
    return memory_ + (1 + shape_.locks() + page) * kPage + slot * shape_.slot();
  }
  std::byte* cell_at(std::byte* slot, uint64_t cell) const {
    if (cell > shape_.writers) throw std::runtime_error("kv: a slot is damaged");
    return slot + 8 + cell * shape_.cell();
  }
  static uint64_t word_of(const std::byte* at) {
    return __atomic_load_n(reinterpret_cast<const uint64_t*>(at), __ATOMIC_ACQUIRE);
  }
  uint64_t hash_in(std::byte* slot, uint64_t word) const {
    return word_of(cell_at(slot, current_of(word)) + offsetof(Cell, hash));
  }

  // Copies the current cell. False: it is not seen whole.
  bool read(std::byte* slot, uint64_t word, Copy& copy) const {
    const std::byte* const cell = cell_at(slot, current_of(word));
    std::memcpy(&copy.head, cell, sizeof copy.head);
    const uint64_t size = uint64_t{copy.head.key_size} + copy.head.value_size;
    if (size > shape_.cell_bytes) return false;
    std::memcpy(copy.text.data(), cell + sizeof copy.head, size);
    return copy.head.check == check_of(copy, number_of(word));
  }

  // f(slot) of the group's slots in the order in which a key is looked for, until it returns true,
  // or behind the first page that has a slot that was never used.
  template <class F>
  void search(uint64_t hash, F&& f) const {
    const uint64_t first = hash % shape_.groups * shape_.pages;
    for (uint64_t i = 0; i < shape_.pages; ++i) {
      const uint64_t page = first + (hash / shape_.groups + i) % shape_.pages;
      bool room = false;
      for (size_t slot = 0; slot < slots_; ++slot) {
        std::byte* const at = slot_at(page, slot);
        if (f(at)) return;
        room = room || !used(word_of(at));
      }
      if (room) return;
    }
  }

  // Where the key is; `copy` gets its cell. First by the hashes in the cells; where that finds
  // nothing every cell is looked at, since the key's may have been seen before all of it had come.
  Place find(std::string_view key, uint64_t hash, Copy& copy) const {
    for (uint32_t looks = 0;; look_again(++looks)) {
      Place place;
      bool torn = false;
      search(hash, [&](std::byte* slot) {
        const uint64_t word = word_of(slot);
        const bool taken = used(word);
        if (looks == 0 && !(taken && hash_in(slot, word) == hash)) return false;
        const bool whole = taken && read(slot, word, copy);
        torn = torn || whole != taken;
        if (whole && copy.head.hash == hash && copy.key() == key) {
          place = {slot, word, true, copy.head.present != 0};
        } else if (place.slot == nullptr && whole == taken && (!taken || copy.head.present == 0)) {
          place = {slot, word, false, false};
        }
        return place.own;
      });
      if (place.own || (looks > 0 && !torn)) return place;
    }
  }

  // This object's number: one that nobody has, or whose client is gone.
  uint64_t writer() {
    for (uint64_t i = 0; !number_ && i < shape_.writers; ++i) {
      number_.emplace(context_, head().writers[i], std::chrono::milliseconds(0));
      writer_ = i;
      if (!number_->held()) number_.reset();
    }
    if (!number_) throw std::runtime_error("kv: no more writers are allowed");
    return writer_;
  }

  bool change(std::string_view key, std::string_view value, bool present) {
    const uint64_t hash = hash_of(key), me = writer();
    std::optional<Locked> locked;
    for (Copy copy;;) {
      const Place place = find(key, hash, copy);
      if (!present && !place.present) return false;
      if (!locked && place.present != present) {  // a slot is bound, or given up
        std::byte* const lock = memory_ + kPage + hash % shape_.groups * 256;
        locked.emplace(context_, *reinterpret_cast<cmi_ofi_mutex*>(lock), std::chrono::minutes(1));
        if (!locked->held()) throw std::runtime_error("kv: a lock is held too long");
        continue;
      }
      if (place.slot == nullptr) throw std::length_error("kv: the key's group is full");
      const uint64_t word = used(place.word) ? place.word : kFresh, next = changed(word, me);
      copy.head = {0, hash, static_cast<uint16_t>(key.size()), static_cast<uint16_t>(value.size()),
                   present ? 1U : 0U};
      std::copy(value.begin(), value.end(), std::copy(key.begin(), key.end(), copy.text.begin()));
      copy.head.check = check_of(copy, number_of(next));
      std::byte* const cell = cell_at(place.slot, cell_of(word, me));
      std::memcpy(cell + sizeof copy.head, copy.text.data(), key.size() + value.size());
      std::memcpy(cell, &copy.head, sizeof copy.head);
      const cmi::atomic_ref current(context_, *reinterpret_cast<uint64_t*>(place.slot));
      if (uint64_t was = place.word; current.compare_exchange(was, next)) return place.present;
    }
  }

  const cmi::context& context_;
  std::byte* memory_;
  Shape shape_;
  size_t slots_;
  std::optional<Locked> number_;  // that it changes the store with: none yet
  uint64_t writer_ = 0;
};

}  // namespace kv

#endif
