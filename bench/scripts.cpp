// See scripts.hpp.
#include "scripts.hpp"

#include <sched.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstring>

#include "util.hpp"

namespace bench {

namespace {
constexpr int kScriptSeconds = 120;

// The measuring process has a processor of its own.
class EveryProcessor {
 public:
  EveryProcessor() {
    cpu_set_t all;
    std::memset(&all, 0xff, sizeof all);
    sched_getaffinity(0, sizeof before_, &before_);
    sched_setaffinity(0, sizeof all, &all);
  }
  EveryProcessor(const EveryProcessor&) = delete;
  EveryProcessor& operator=(const EveryProcessor&) = delete;
  ~EveryProcessor() { sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_;
};
}  // namespace

Script run_script(const std::string& command) {
  const std::string bounded =
      "timeout -k 5 " + std::to_string(kScriptSeconds) + " " + command + " 2>&1 </dev/null";
  const EveryProcessor more;
  std::FILE* const pipe = popen(bounded.c_str(), "r");
  must(pipe != nullptr, "cannot start " + command);
  Script script;
  for (char buffer[4096]; const size_t n = std::fread(buffer, 1, sizeof buffer, pipe);) {
    script.output.append(buffer, n);
  }
  const int status = pclose(pipe);
  script.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return script;
}

}  // namespace bench
