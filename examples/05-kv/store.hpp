// A key-value store in one segment, for the threads of any nodes: hash table, readers without
// locks, writers under locks that survive their owners. A client that is killed at any moment
// leaves the value that was there before, or the new one.
//
// - A slot has two cells. A writer fills in the one that is not current, with the next number and a
//   checksum over all of it. Current is the cell with the higher number whose checksum is right.
// - So a reader needs no lock: it copies a cell and believes its checksum. Where it sees half of a
//   store, since no order holds before the barrier, the other cell has what was before.
// - Keys are spread over groups, each with a lock. In a group a key is looked for in one page, and
//   in those behind it, round to the first, as long as the ones before are full.
#ifndef CMI_EXAMPLE_STORE_HPP
#define CMI_EXAMPLE_STORE_HPP

#include <array>
#include <cmi/cmi.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
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
};

class Store {
 public:
  static constexpr size_t kPage = 4096;

  /** What a segment of this shape takes. It is made with CMI_SEG_CLIENT_CONSIST. */
  static size_t bytes(const Shape& shape) {
    return kPage + lock_pages(shape) * kPage + shape.groups * shape.pages * kPage;
  }
  /** Makes a store where there are zeros; before others open it. */
  static void make(const cmi::view<std::byte>& memory, const Shape& shape) {
    if (shape.groups == 0 || shape.pages == 0 || shape.cell_bytes % 8 != 0 ||
        slot_bytes(shape) > kPage || memory.size() < bytes(shape)) {
      throw std::invalid_argument("kv: no such shape");
    }
    auto* const head = reinterpret_cast<Head*>(memory.data());
    head->shape = shape;
    head->magic = kMagic;
    cmi::publish();
  }
  Store(const cmi::context& context, const cmi::view<std::byte>& memory)
      : context_(context), memory_(memory.data()) {
    const auto* const head = reinterpret_cast<const Head*>(memory_);
    if (memory.size() < kPage || head->magic != kMagic) {
      throw std::invalid_argument("kv: there is no store");
    }
    shape_ = head->shape;
    slots_ = kPage / slot_bytes(shape_);
  }

  /** Whether the key has a value, and which. */
  bool get(std::string_view key, std::string& value) const {
    const uint64_t hash = hash_of(key);
    for (int tries = 0; tries < kTries; ++tries) {
      const Seen seen = look(key, hash, &value);
      if (seen != Seen::torn) return seen == Seen::found;
      std::this_thread::yield();
    }
    const Locked locked(*this, hash);  // so many writers at this key that none was seen whole
    return look(key, hash, &value) == Seen::found;
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
    for (uint64_t page = 0; page < shape_.groups * shape_.pages; ++page) {
      for (size_t slot = 0; slot < slots_; ++slot) {
        Copy copy;
        if (current(slot_at(page, slot), copy) == Seen::found && copy.head.state == kPresent) {
          f(copy.key(), copy.value());
        }
      }
    }
  }

 private:
  static constexpr uint64_t kMagic = 0x31766b2d696d63;  // "cmi-kv1"
  static constexpr uint32_t kPresent = 1, kAbsent = 2;
  static constexpr int kTries = 100;
  static constexpr size_t kLockStride = 256;  // bytes from one lock to the next
  static constexpr std::chrono::seconds kPatience{60};

  struct Head {
    Shape shape;
    uint64_t magic;
  };
  struct Cell {
    uint64_t check;   // of all that follows
    uint64_t number;  // 0: never used
    uint64_t hash;
    uint32_t state, key_size, value_size, unused;
    // key and value follow
  };
  struct Copy {
    Cell head = {};
    std::array<char, kPage> text;
    std::string_view key() const { return {text.data(), head.key_size}; }
    std::string_view value() const { return {text.data() + head.key_size, head.value_size}; }
  };
  enum class Seen { found, nothing, torn };

  // A group's lock. Nothing has to be repaired after a dead owner: cells say what is whole.
  class Locked {
   public:
    Locked(const Store& store, uint64_t hash)
        : mutex_(store.context_, *reinterpret_cast<cmi_ofi_mutex*>(
                                     store.memory_ + kPage + store.group_of(hash) * kLockStride)) {
      const cmi::taken taken = mutex_.try_lock_for(kPatience);
      if (taken == cmi::taken::no) throw std::runtime_error("kv: a lock is held too long");
      if (taken == cmi::taken::owner_dead) mutex_.repaired();
    }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;
    // Publishes what was stored. Throws where that did not reach its home.
    void release() {
      held_ = false;
      mutex_.unlock();
    }
    ~Locked() {
      try {
        if (held_) mutex_.unlock();
      } catch (const std::exception&) {  // declared dead meanwhile: the lock is another one's
      }
    }

   private:
    cmi::mutex mutex_;
    bool held_ = true;
  };

  static size_t lock_pages(const Shape& shape) {
    return (shape.groups * kLockStride + kPage - 1) / kPage;
  }
  static size_t cell_bytes(const Shape& shape) { return sizeof(Cell) + shape.cell_bytes; }
  static size_t slot_bytes(const Shape& shape) { return 2 * cell_bytes(shape); }

  static uint64_t mix(uint64_t value) {
    value = (value ^ (value >> 32)) * 0xd6e8feb86659fd93;
    return value ^ (value >> 29);
  }
  static uint64_t sum(uint64_t seed, const char* at, size_t size) {
    uint64_t result = mix(seed + size + 1);
    for (; size >= 8; at += 8, size -= 8) {
      uint64_t word;
      std::memcpy(&word, at, 8);
      result = mix(result ^ word) + 0x9e3779b97f4a7c15;
    }
    uint64_t rest = 0;
    std::memcpy(&rest, at, size);
    return mix(result ^ rest);
  }
  static uint64_t hash_of(std::string_view key) { return sum(0, key.data(), key.size()); }
  static uint64_t check_of(const Copy& copy) {
    const auto* const fields = reinterpret_cast<const char*>(&copy.head);
    return sum(sum(kMagic, fields + 8, sizeof(Cell) - 8), copy.text.data(),
               size_t{copy.head.key_size} + copy.head.value_size);
  }

  uint64_t group_of(uint64_t hash) const { return hash % shape_.groups; }
  std::byte* slot_at(uint64_t page, size_t slot) const {
    return memory_ + (1 + lock_pages(shape_) + page) * kPage + slot * slot_bytes(shape_);
  }
  std::byte* cell_at(std::byte* slot, int which) const {
    return slot + static_cast<size_t>(which) * cell_bytes(shape_);
  }
  static uint64_t word(const std::byte* cell, size_t offset) {
    return __atomic_load_n(reinterpret_cast<const uint64_t*>(cell + offset), __ATOMIC_RELAXED);
  }
  static uint64_t number_of(const std::byte* cell) { return word(cell, offsetof(Cell, number)); }
  // Whether a slot may hold this key: one that does not is not copied.
  bool may_hold(std::byte* slot, uint64_t hash) const {
    return word(cell_at(slot, 0), offsetof(Cell, hash)) == hash ||
           word(cell_at(slot, 1), offsetof(Cell, hash)) == hash;
  }

  bool whole(const std::byte* cell, Copy& copy) const {
    std::memcpy(&copy.head, cell, sizeof copy.head);
    const uint64_t size = uint64_t{copy.head.key_size} + copy.head.value_size;
    if (copy.head.number == 0 || size > shape_.cell_bytes) return false;
    std::memcpy(copy.text.data(), cell + sizeof copy.head, size);
    return copy.head.check == check_of(copy);
  }
  // The current cell of a slot.
  Seen current(std::byte* slot, Copy& copy, int* which = nullptr) const {
    const uint64_t numbers[] = {number_of(cell_at(slot, 0)), number_of(cell_at(slot, 1))};
    if (numbers[0] == 0 && numbers[1] == 0) return Seen::nothing;
    const int newer = numbers[1] > numbers[0] ? 1 : 0;
    for (const int one : {newer, 1 - newer}) {
      if (which != nullptr) *which = one;
      if (whole(cell_at(slot, one), copy)) return Seen::found;
    }
    // A first store that is under way, or whose writer died: there is nothing yet.
    return numbers[1 - newer] == 0 ? Seen::nothing : Seen::torn;
  }

  // f(slot) of the group's slots in the order in which a key is looked for, until it returns true,
  // or behind the first page that has a slot that was never used.
  template <class F>
  bool search(uint64_t hash, F&& f) const {
    const uint64_t first = group_of(hash) * shape_.pages;
    for (uint64_t i = 0; i < shape_.pages; ++i) {
      const uint64_t page = first + (hash / shape_.groups + i) % shape_.pages;
      bool room = false;
      for (size_t slot = 0; slot < slots_; ++slot) {
        std::byte* const at = slot_at(page, slot);
        if (f(at)) return true;
        room = room || (number_of(cell_at(at, 0)) == 0 && number_of(cell_at(at, 1)) == 0);
      }
      if (room) return false;
    }
    return false;
  }

  Seen look(std::string_view key, uint64_t hash, std::string* value) const {
    Seen result = Seen::nothing;
    search(hash, [&](std::byte* slot) {
      if (!may_hold(slot, hash)) return false;
      Copy copy;
      const Seen seen = current(slot, copy);
      if (seen == Seen::torn) result = Seen::torn;
      if (seen != Seen::found || copy.head.hash != hash || copy.key() != key) return false;
      result = copy.head.state == kPresent ? Seen::found : Seen::nothing;
      if (value != nullptr && result == Seen::found) value->assign(copy.value());
      return true;
    });
    return result;
  }

  // Under the lock: the key's slot, or one that is free.
  bool change(std::string_view key, std::string_view value, bool present) {
    const uint64_t hash = hash_of(key);
    Locked locked(*this, hash);
    std::byte *own = nullptr, *free = nullptr;
    int current_cell = 1, free_cell = 1;
    uint64_t number = 0, free_number = 0;
    bool was_there = false;
    search(hash, [&](std::byte* slot) {
      Copy copy;
      int which = 1;
      const Seen seen = current(slot, copy, &which);
      if (seen == Seen::torn) throw std::runtime_error("kv: a slot is damaged");
      const bool there = seen == Seen::found;
      if (there && copy.head.hash == hash && copy.key() == key) {
        own = slot, current_cell = which, number = copy.head.number;
        was_there = copy.head.state == kPresent;
      } else if (free == nullptr && (!there || copy.head.state == kAbsent)) {
        free = slot, free_cell = there ? which : 1, free_number = there ? copy.head.number : 0;
      }
      return own != nullptr;
    });
    if (!present && !was_there) return false;
    if (own == nullptr) own = free, current_cell = free_cell, number = free_number;
    if (own == nullptr) throw std::length_error("kv: the key's group is full");
    Copy copy;
    copy.head = {0,
                 number + 1,
                 hash,
                 present ? kPresent : kAbsent,
                 static_cast<uint32_t>(key.size()),
                 static_cast<uint32_t>(value.size()),
                 0};
    std::copy(value.begin(), value.end(), std::copy(key.begin(), key.end(), copy.text.begin()));
    copy.head.check = check_of(copy);
    std::byte* const cell = cell_at(own, 1 - current_cell);
    std::memcpy(cell + sizeof copy.head, copy.text.data(), key.size() + value.size());
    std::memcpy(cell, &copy.head, sizeof copy.head);
    locked.release();
    return was_there;
  }

  const cmi::context& context_;
  std::byte* memory_;
  Shape shape_;
  size_t slots_ = 0;
};

}  // namespace kv

#endif
