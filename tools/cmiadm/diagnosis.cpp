#include "diagnosis.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace cmi::adm {

namespace {
using Words = decltype(node::PageWriterLine::words);

constexpr Diagnosis kPrivate{"written by one, had by nobody else", ""};
constexpr Diagnosis kOneWriter{
    "read by others, written by one",
    "publish less often, and keep what changes apart from what is only read"};
constexpr Diagnosis kFalseSharing{"false sharing",
                                  "give what each context stores to pages (4096 bytes) of its own"};
constexpr Diagnosis kSameWords{
    "write after write",
    "have one context store there, or let atm_cas or a write-through segment do it"};
constexpr Diagnosis kUnknown{
    "written by several, not known where",
    "give what each context stores to pages of its own, if these are different words"};

bool any(const Words& words) {
  return std::any_of(words.begin(), words.end(), [](uint64_t w) { return w != 0; });
}

bool overlap(const Words& a, const Words& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if ((a[i] & b[i]) != 0) return true;
  }
  return false;
}
}  // namespace

Diagnosis diagnose(const node::PublishedPageLine& page) {
  if (page.writers.size() < 2) return page.notices == 0 ? kPrivate : kOneWriter;
  bool unknown = page.more_writers;
  for (auto a = page.writers.begin(); a != page.writers.end(); ++a) {
    unknown = unknown || !any(a->words);
    for (auto b = page.writers.begin(); b != a; ++b) {
      if (overlap(a->words, b->words)) return kSameWords;
    }
  }
  return unknown ? kUnknown : kFalseSharing;
}

std::string bytes_text(const Words& words) {
  constexpr size_t kBits = 64 * std::tuple_size_v<Words>, kMost = 4;
  const auto set = [&](size_t i) { return i < kBits && (words[i / 64] >> i % 64 & 1) != 0; };
  std::string text;
  size_t ranges = 0;
  for (size_t i = 0; i < kBits; ++i) {
    if (!set(i)) continue;
    size_t end = i;
    while (set(end)) ++end;
    if (ranges++ == kMost) return text + ", ...";
    text += fmt::format("{}{}-{}", text.empty() ? "" : ", ", 8 * i, 8 * end - 1);
    i = end;
  }
  return text;
}

}  // namespace cmi::adm
