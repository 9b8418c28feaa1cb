// Environment variables that libfabric and what lies below it read once, when they are loaded: held
// at the library's values for just that long, so that neither the client nor its children see them.
// Not for more than one thread at a time; like every setenv, it races with other threads' getenv.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace cmi::fabric::ofi {

class Settings {
 public:
  Settings() = default;
  ~Settings();  // everything is as it was
  Settings(const Settings&) = delete;
  Settings& operator=(const Settings&) = delete;

  void hold(const char* name, const char* value);     // whatever the user has set
  void propose(const char* name, const char* value);  // unless the user has set it

 private:
  struct Held {
    const char* name;
    std::optional<std::string> before;
  };
  std::vector<Held> held_;
};

}  // namespace cmi::fabric::ofi
