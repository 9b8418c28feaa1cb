// Environment variables that libfabric and what lies below it read. Those that are read once, when
// it is loaded, are held at the library's values for just that long, so that neither the client nor
// its children see them; not for more than one thread at a time, and like every setenv it races
// with other threads' getenv. One is read with each query and each endpoint, and is answered then.
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

// Has the library that `function` belongs to read FI_OFI_RXM_USE_SRX as 1 unless it is set: one
// pool of receive buffers for all connections of an endpoint. With one for each, rxm gives a buffer
// back to a connection that it has closed (1.17, seen over verbs), and crashes. False: it does not
// read its environment by a table that can be changed.
bool answer_queries(const void* function);

}  // namespace cmi::fabric::ofi
