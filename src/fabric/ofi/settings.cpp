// See settings.hpp.
#include "fabric/ofi/settings.hpp"

#include <cstdlib>

namespace cmi::fabric::ofi {

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

}  // namespace cmi::fabric::ofi
