// Calls of cmi_ofi_offer and cmi_ofi_find on behalf of a test, and a folder for both.
#pragma once

#include <doctest/doctest.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <string>

#include "system/calls.hpp"

namespace cmi::test {

// A string that goes to another process.
using Text = std::array<char, 160>;

inline Text text_of(const std::string& string) {
  Text text{};
  REQUIRE(string.size() < text.size());
  std::copy(string.begin(), string.end(), text.begin());
  return text;
}

// A folder for offers, which goes away with the case.
struct Meeting {
  Meeting() {
    std::string pattern = "/tmp/cmi-meet-XXXXXX";
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    path = text_of(pattern);
  }
  ~Meeting() { std::filesystem::remove_all(path.data()); }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  Text path{};
};

struct Offered {
  int rc;
  cmi_error error;
  Text words;  // of the error
  bool ok() const { return rc == 0; }
  bool says(const char* part) const { return std::strstr(words.data(), part) != nullptr; }
};

// Makes and attaches a segment of a page, stores `word`, and offers it under `name`.
inline Offered offer(Process& home, const Text& where, uint64_t word, const char* name = "table") {
  return home.run(
      [](Text place, Text as, uint64_t value) {
        cmi_ctxt* const c = ctxt();
        Offered offered{-1, CMI_ERR_NONE, {}};
        const cmi_seg seg = CMIFN(c, 10, seg_get)(c, kPage, 0);
        auto* const at = static_cast<uint64_t*>(CMIFN(c, 10, seg_at)(c, seg, nullptr, 0));
        cmi_rseg* const rseg = CMIFN(c, 10, seg_exp)(c, seg, 0);
        cmi_token* const tok = CMIFN(c, 10, tok_new)(c, seg, CMI_NADDR_ANY, CMI_ACC_READ);
        if (at == nullptr || rseg == nullptr || tok == nullptr) return offered;
        *at = value;
        offered.rc = cmi_ofi_offer(c, place.data(), as.data(), rseg, tok);
        offered.error = cmi_get_error(c);
        std::strncpy(offered.words.data(), cmi_ofi_error_text(c), offered.words.size() - 1);
        return offered;
      },
      where, text_of(name), word);
}

struct Found {
  cmi_seg seg;
  cmi_error error;
  uint64_t word;
  Text words;  // of the error
  bool says(const char* part) const { return std::strstr(words.data(), part) != nullptr; }
};

// Finds, attaches and reads what is offered.
inline Found find(Process& peer, const Text& where, uint32_t timeout_ms,
                  const char* name = "table") {
  return peer.run(
      [](Text place, Text as, uint32_t timeout) {
        cmi_ctxt* const c = ctxt();
        const cmi_seg seg = cmi_ofi_find(c, place.data(), as.data(), timeout);
        Found found{seg, cmi_get_error(c), 0, {}};
        std::strncpy(found.words.data(), cmi_ofi_error_text(c), found.words.size() - 1);
        if (seg == CMI_SEG_INVALID) return found;
        const void* const at = CMIFN(c, 10, seg_at)(c, seg, nullptr, CMI_SEG_READ);
        CMIFN(c, 10, cmi_enb)(c, 1);
        found.word = load64(reinterpret_cast<uint64_t>(at)).value;
        return found;
      },
      where, text_of(name), timeout_ms);
}

}  // namespace cmi::test
