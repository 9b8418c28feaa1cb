#include "core/memory/vm/exception.hpp"

namespace cmi::memory {

namespace {

struct Words {
  const char* name;
  const char* meaning;
};

constexpr Words kWords[] = {
    {"no exception", "the access was made"},
    {"CMI_ERROR_ENABLE", "the thread has not called cmi_enb(ctxt, 1)"},
    {"CMI_ERROR_TOKEN", "no token is set, or it was revoked, or the segment was removed"},
    {"CMI_ERROR_ACCESS", "the token or the view does not allow this kind of access"},
    {"CMI_ERROR_SINVAL", "the exported segment is gone, or its home is dead"},
    {"CMI_ERROR_UE", "the memory at home has an uncorrectable error there"},
    {"CMI_ERROR_TRANSIENT", "the home cannot be reached for now; the access may be tried again"},
    {"CMI_ERROR_SEG_BRK", "the address is behind the break of an extensible segment"},
    {"CMI_ERROR_CONSIST", "the bytes are in flux since a node died; CMI_SEG_RECO recovers them"},
};
constexpr Words kUnknown = {"an unknown exception", "no exception of CMI has this number"};

const Words& words_of(int number) {
  constexpr int kKnown = sizeof kWords / sizeof kWords[0];
  return number >= 0 && number < kKnown ? kWords[number] : kUnknown;
}

}  // namespace

const char* exception_name(int number) { return words_of(number).name; }
const char* exception_meaning(int number) { return words_of(number).meaning; }

}  // namespace cmi::memory
