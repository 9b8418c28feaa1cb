// The parts of cmiadm doctor: each adds what it found to the report.
#pragma once

#include <string>
#include <vector>

#include "command.hpp"
#include "core/base/descriptors_left.hpp"
#include "core/context/environment.hpp"

namespace cmi::adm {

enum class Health : uint8_t {
  kGood,
  kLimited,  // works, and something does not that one may want
  kBroken,   // cmi_ini() or what most clients do next fails
};

struct Finding {
  Health health = Health::kGood;
  std::string what;  // two or three words
  std::string found;
  std::string mend;  // a command, or what else to do; empty where all is well
};

using Report = std::vector<Finding>;

void examine_proc(Report& report);
void examine_kernel(Report& report, uint32_t newest);
void examine_memory(Report& report, const context::Environment& env);
void examine_local(Report& report, const context::Environment& env);  // after the kernel
void examine_limits(Report& report);
void examine_fabric(Report& report, const context::Environment& env);
void examine_nodes(Report& report, const Survey& survey);
// Makes a context of the environment's node and ends it again: whatever the others have found, here
// shows whether cmi_ini() succeeds, and if not, in which of its stages it ends.
void examine_start(Report& report, const context::Environment& env);

// What mends a want of descriptors.
inline constexpr const char* kMoreFiles = "ulimit -n 65536";
inline constexpr const char* kMendPages =
    "boot a kernel with pages of 4096 bytes (of arm64 the one whose name does not end in 16k or "
    "64k)";

// Lines of the library's trace while the object lives: what it says about a failure.
class Overheard {
 public:
  Overheard();
  ~Overheard();
  Overheard(const Overheard&) = delete;
  Overheard& operator=(const Overheard&) = delete;
  const std::string& last_alert() const { return alert_; }

 private:
  std::string alert_;
};

}  // namespace cmi::adm
