// Reading and writing command lines.
#include "checker/random/options.hpp"

#include <array>
#include <charconv>
#include <cstdio>
#include <string_view>
#include <utility>

namespace cmi::checker {

namespace {

constexpr const char* kUsage =
    "usage: random_check [option ...]\n"
    "Plays random programs on several nodes and checks what they saw against the memory model.\n"
    "  --seconds S         for so long (20)\n"
    "  --from N            seeds from N on (1)\n"
    "  --seed N            this seed only, over and over: timing differs from run to run\n"
    "  --nodes N --threads N --segments N --ops N\n"
    "                      instead of what the seed decides; threads and operations of each\n"
    "  --sharing on|off    two processes on some nodes, which share home and imports, or one on "
    "each\n"
    "                      (as the seed decides: in three of ten)\n"
    "  --delays on|off     delays at the library's fault points (in every other program)\n"
    "  --kernel this|6.1|thread|thread-6.6\n"
    "                      instead of what the seed decides: faults in signals with all that the\n"
    "                      kernel has, or as on Linux 6.1; or faults in a thread, likewise\n"
    "  --large-pages       with segments of large pages, for which the pool is grown\n"
    "  --mutation NAME     with the library broken at this fault point\n"
    "  --expect-violation  succeed when an illegal history was found, and only then\n"
    "  --dump FILE         writes the history that was illegal to a file, event by event\n"
    "  --list-mutations    names the mutations that the library has\n"
    "  --verbose           a line for each program\n";

constexpr std::array<std::pair<std::string_view, Kernel>, 4> kKernels{
    {{"this", Kernel::kThis},
     {"6.1", Kernel::kOld},
     {"thread", Kernel::kThread},
     {"thread-6.6", Kernel::kOldThread}}};

bool kernel(std::string_view text, Kernel* out) {
  for (const auto& [name, kernel] : kKernels) {
    if (text != name) continue;
    *out = kernel;
    return true;
  }
  return false;
}

bool number(std::string_view text, int64_t low, int64_t high, int64_t* out) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < low || value > high) {
    return false;
  }
  *out = value;
  return true;
}

}  // namespace

bool parse(int argc, char** argv, Options* options) {
  constexpr int64_t kMany = 1'000'000'000'000;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    const bool has_value = i + 1 < argc;
    int64_t value = 0;
    const auto takes = [&](std::string_view option, int64_t low, int64_t high) {
      return name == option && has_value && number(argv[i + 1], low, high, &value) && ++i > 0;
    };
    if (takes("--seconds", 1, 100'000)) {
      options->seconds = value;
    } else if (takes("--from", 0, kMany)) {
      options->shape.seed = static_cast<uint64_t>(value);
    } else if (takes("--seed", 0, kMany)) {
      options->shape.seed = static_cast<uint64_t>(value);
      options->one_seed = true;
    } else if (takes("--nodes", 2, 4)) {
      options->shape.nodes = static_cast<uint32_t>(value);
    } else if (takes("--threads", 1, 16)) {
      options->shape.threads = static_cast<uint32_t>(value);
    } else if (takes("--segments", 1, kMaxSegments)) {
      options->shape.segments = static_cast<uint32_t>(value);
    } else if (takes("--ops", 1, 100'000)) {
      options->shape.ops = static_cast<uint32_t>(value);
    } else if (name == "--delays" && has_value && argv[i + 1] == std::string_view("on")) {
      options->delays = 1;
      ++i;
    } else if (name == "--delays" && has_value && argv[i + 1] == std::string_view("off")) {
      options->delays = 0;
      ++i;
    } else if (name == "--sharing" && has_value && argv[i + 1] == std::string_view("on")) {
      options->shape.sharing = 2;
      ++i;
    } else if (name == "--sharing" && has_value && argv[i + 1] == std::string_view("off")) {
      options->shape.sharing = 1;
      ++i;
    } else if (name == "--kernel" && has_value && kernel(argv[i + 1], &options->kernel)) {
      ++i;
    } else if (name == "--mutation" && has_value) {
      options->mutation = argv[++i];
    } else if (name == "--dump" && has_value) {
      options->dump = argv[++i];
    } else if (name == "--large-pages") {
      options->large_pages = true;
    } else if (name == "--expect-violation") {
      options->expect_violation = true;
    } else if (name == "--list-mutations") {
      options->list_mutations = true;
    } else if (name == "--verbose") {
      options->verbose = true;
    } else {
      std::fprintf(stderr, "not understood: %s\n%s", argv[i], kUsage);
      return false;
    }
  }
  return true;
}

std::string replay(const Options& options, uint64_t seed) {
  std::string command = "random_check --seed " + std::to_string(seed) + " --seconds 60";
  const auto add = [&](const char* name, uint32_t value) {
    if (value != 0) command += std::string(" ") + name + " " + std::to_string(value);
  };
  add("--nodes", options.shape.nodes);
  add("--threads", options.shape.threads);
  add("--segments", options.shape.segments);
  add("--ops", options.shape.ops);
  if (options.shape.sharing != 0) {
    command += options.shape.sharing == 2 ? " --sharing on" : " --sharing off";
  }
  if (options.delays >= 0) command += options.delays != 0 ? " --delays on" : " --delays off";
  for (const auto& [name, kernel] : kKernels) {
    if (options.kernel == kernel) command += " --kernel " + std::string(name);
  }
  if (options.large_pages) command += " --large-pages";
  if (!options.mutation.empty()) command += " --mutation " + options.mutation;
  return command;
}

}  // namespace cmi::checker
