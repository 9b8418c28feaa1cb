// Byte-exact difference of a page and its twin, and its application at home. Pure code, no locks,
// no allocation: any thread, the fault handler too. Wire form: u16 nruns, then nruns times (u16
// offset, u16 length, bytes), offsets ascending. A run never covers a byte that is equal in both,
// since that byte may belong to another node; two runs have at least one such byte between them.
// With more than kMaxRuns a bit for each byte is shorter: u16 kBitmap, 64 times u64 (bit i of word
// b: byte b * 64 + i follows), then the bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/codec.hpp"
#include "core/base/ids.hpp"

namespace cmi::memory {

inline constexpr size_t kMaxRuns = 128;
inline constexpr uint16_t kBitmap = UINT16_MAX;
// What a diff can take at most: kMaxRuns with one equal byte between each two.
inline constexpr size_t kMaxDiffSize = 2 + kMaxRuns * 4 + kPageSize - (kMaxRuns - 1);
inline constexpr size_t kDiffNoRoom = SIZE_MAX;

// Returns how many bytes differ. 0: equal, nothing written. kDiffNoRoom: `out` has too little room,
// nothing written, `out` still good. The page must not change meanwhile if what is sent is to match
// what a later diff finds.
size_t encode_diff(const std::byte* page, const std::byte* twin, Writer& out);

// Reads one diff and stores its bytes into the page. False: malformed, the page is as it was and
// `in` is used up to an unspecified point. Writes the bytes of the runs and no others, so other
// threads may use those meanwhile; each aligned 2, 4 or 8 byte word that lies in a run whole is
// never seen torn.
bool apply_diff(Reader& in, std::byte* page);

// `seen` with those of its bytes that equal the old ones' replaced by the next ones.
uint64_t take_unchanged(uint64_t seen, uint64_t old, uint64_t next);

// Stores each byte of `next` where the page still has that of `old`, each aligned word at once:
// what anybody has stored since stays.
void apply_where_unchanged(const std::byte* old, const std::byte* next, std::byte* page);

}  // namespace cmi::memory
