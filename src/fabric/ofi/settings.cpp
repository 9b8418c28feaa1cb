// See settings.hpp.
#include "fabric/ofi/settings.hpp"

#include <cstdlib>
#include <cstring>

#include "fabric/ofi/call_table.hpp"

namespace cmi::fabric::ofi {

namespace {
char* answering_getenv(const char* name) {
  static char yes[] = "1";
  char* const set = std::getenv(name);
  return set == nullptr && std::strcmp(name, "FI_OFI_RXM_USE_SRX") == 0 ? yes : set;
}
}  // namespace

void Settings::hold(const char* name, const char* value) {
  const char* before = std::getenv(name);
  held_.push_back({name, before == nullptr ? std::nullopt : std::optional<std::string>(before)});
  setenv(name, value, 1);
}

void Settings::propose(const char* name, const char* value) {
  if (std::getenv(name) == nullptr) hold(name, value);
}

Settings::~Settings() {
  for (const Held& h : held_) {
    if (h.before) {
      setenv(h.name, h.before->c_str(), 1);
    } else {
      unsetenv(h.name);
    }
  }
}

bool answer_queries(const void* function) {
  return CallTable(function).replace("getenv", reinterpret_cast<void*>(&answering_getenv)) > 0;
}

}  // namespace cmi::fabric::ofi
