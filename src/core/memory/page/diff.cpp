// Diffs in two steps: a bit for each byte that differs, then runs out of the bits. What is counted,
// checked for room and written comes from the same bits, whatever the page does meanwhile.
#include "core/memory/page/diff.hpp"

#include <bit>
#include <cstring>

#include "core/base/mutation.hpp"
#include "core/memory/page/compare.hpp"
#include "core/memory/page/page_mutations.hpp"

namespace cmi::memory {

namespace {

constexpr size_t kRunHead = 2 * sizeof(uint16_t);

std::byte* put(std::byte* to, size_t value) {
  const auto v = static_cast<uint16_t>(value);
  std::memcpy(to, &v, sizeof v);
  return to + sizeof v;
}

// The bytes whose bits are set, one after the other.
void pack(const std::byte* page, const ChangedBits& bits, std::byte* to) {
  for (size_t b = 0; b < kCompareBlocks; ++b, page += kCompareBlock) {
    for (uint64_t word = bits[b]; word != 0; word &= word - 1) *to++ = page[std::countr_zero(word)];
  }
}

// First byte at or after `from` that differs; there is one.
size_t find_changed(const ChangedBits& bits, uint64_t changed, size_t from) {
  size_t b = from / kCompareBlock;
  uint64_t word = bits[b] & ~uint64_t{0} << from % kCompareBlock;
  if (word == 0) {
    b = static_cast<size_t>(std::countr_zero(changed & ~uint64_t{1} << b));
    word = bits[b];
  }
  return b * kCompareBlock + static_cast<size_t>(std::countr_zero(word));
}

// First byte at or after `from` that does not; kPageSize for none.
size_t find_unchanged(const ChangedBits& bits, size_t from) {
  size_t b = from / kCompareBlock;
  uint64_t word = ~bits[b] & ~uint64_t{0} << from % kCompareBlock;
  while (word == 0) {
    if (++b == kCompareBlocks) return kPageSize;
    word = ~bits[b];
  }
  return b * kCompareBlock + static_cast<size_t>(std::countr_zero(word));
}

// Relaxed: order toward readers comes from the invalidation round that follows.
template <class T>
void store(std::byte* to, const std::byte* from) {
  T v;
  std::memcpy(&v, from, sizeof v);
  __atomic_store_n(reinterpret_cast<T*>(to), v, __ATOMIC_RELAXED);
}

// Copies n bytes in the widest aligned pieces, so that nothing outside them is written and every
// aligned word among them changes at once.
void store_bytes(std::byte* to, const std::byte* from, size_t n) {
  while (n > 0) {
    const auto at = reinterpret_cast<uintptr_t>(to);
    size_t step = 1;
    if (at % 8 == 0 && n >= 8) {
      step = 8;
      store<uint64_t>(to, from);
    } else if (at % 4 == 0 && n >= 4) {
      step = 4;
      store<uint32_t>(to, from);
    } else if (at % 2 == 0 && n >= 2) {
      step = 2;
      store<uint16_t>(to, from);
    } else {
      store<uint8_t>(to, from);
    }
    to += step;
    from += step;
    n -= step;
  }
}

}  // namespace

uint64_t take_unchanged(uint64_t seen, uint64_t old, uint64_t next) {
  uint64_t take = 0;
  for (int bit = 0; bit < 64; bit += 8) {
    if (((seen ^ old) >> bit & 0xff) == 0) take |= uint64_t{0xff} << bit;
  }
  return (seen & ~take) | (next & take);
}

size_t encode_diff(const std::byte* page, const std::byte* twin, Writer& out) {
  ChangedBits bits;
  const uint64_t changed = compare(page, twin, bits);
  if (changed == 0) return 0;
  if (mutated("mutate_gaps_merged")) mutation::widen(bits);
  const ChangeCount total = count_changes(bits, changed);
  const bool bitmap = total.runs > kMaxRuns;
  const size_t size =
      sizeof(uint16_t) + (bitmap ? sizeof bits : total.runs * kRunHead) + total.bytes;
  if (!out.ok() || out.room() < size) return kDiffNoRoom;

  std::byte* to = out.reserve(size);
  if (bitmap) {
    to = put(to, kBitmap);
    std::memcpy(to, bits, sizeof bits);
    pack(page, bits, to + sizeof bits);
    return total.bytes;
  }
  to = put(to, total.runs);
  size_t end = 0;
  for (size_t run = 0; run < total.runs; ++run) {
    const size_t start = find_changed(bits, changed, end);
    end = find_unchanged(bits, start);
    to = put(to, start);
    to = put(to, end - start);
    std::memcpy(to, page + start, end - start);
    to += end - start;
  }
  return total.bytes;
}

namespace {
bool apply_bitmap(Reader& in, std::byte* page) {
  ChangedBits bits;
  const Bytes raw = in.bytes(sizeof bits);
  if (!in.ok()) return false;
  std::memcpy(bits, raw.data(), sizeof bits);
  size_t changed = 0;
  for (uint64_t word : bits) changed += static_cast<size_t>(std::popcount(word));
  const Bytes bytes = in.bytes(changed);
  if (!in.ok()) return false;
  const std::byte* from = bytes.data();
  // Block by block: no aligned word lies in two.
  for (size_t b = 0; b < kCompareBlocks; ++b, page += kCompareBlock) {
    for (uint64_t word = bits[b]; word != 0;) {
      const int start = std::countr_zero(word);
      const int length = std::countr_one(word >> start);
      if (length == 1) {
        store<uint8_t>(page + start, from);
      } else {
        store_bytes(page + start, from, static_cast<size_t>(length));
      }
      from += length;
      // Carries through the run and clears it; past the last one there is nothing left.
      word &= word + (uint64_t{1} << start);
    }
  }
  return true;
}
}  // namespace

bool apply_diff(Reader& in, std::byte* page) {
  const auto runs = in.get<uint16_t>();
  if (runs == kBitmap) return apply_bitmap(in, page);
  Reader check = in;
  size_t free_from = 0;  // the lowest offset the next run may start at
  for (unsigned i = 0; i < runs; ++i) {
    const size_t offset = check.get<uint16_t>();
    const size_t length = check.get<uint16_t>();
    check.bytes(length);
    if (!check.ok() || length == 0 || offset < free_from || offset + length > kPageSize) {
      return false;
    }
    free_from = offset + length;
  }
  if (!check.ok()) return false;

  for (unsigned i = 0; i < runs; ++i) {
    const size_t offset = in.get<uint16_t>();
    const Bytes bytes = in.blob();
    store_bytes(page + offset, bytes.data(), bytes.size());
  }
  return true;
}

void apply_where_unchanged(const std::byte* old, const std::byte* next, std::byte* page) {
  for (size_t at = 0; at < kPageSize; at += sizeof(uint64_t)) {
    uint64_t was, want;
    std::memcpy(&was, old + at, sizeof was);
    std::memcpy(&want, next + at, sizeof want);
    auto* word = reinterpret_cast<uint64_t*>(page + at);
    uint64_t seen = __atomic_load_n(word, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(word, &seen, take_unchanged(seen, was, want), false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
    }
  }
}

}  // namespace cmi::memory
