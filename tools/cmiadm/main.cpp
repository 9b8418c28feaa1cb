// cmiadm: looks after the nodes of a machine. Reads the command line and runs one command.
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>

#include "command.hpp"
#include "text.hpp"

namespace cmi::adm {

namespace {

struct Command {
  const char* name;
  int (*run)(const Options&);
  size_t operands;
  const char* operand_name;
  const char* help;
};

constexpr Command kCommands[] = {
    {"list", list, 0, "", "contexts, segments, and who has them attached"},
    {"show", show, 1, " ID", "all about a segment, or about the context of a process"},
    {"reap", reap, 0, "", "clean up after processes that died"},
    {"doctor", doctor, 0, "", "what works on this machine, what does not, what mends it"},
    {"ping", ping, 1, " FILE", "ask the home of a saved remote segment handle for its segment"},
    {"top", top, 0, "", "what the contexts are doing, once a second"},
    {"quiesce", quiesce, 1, " SEG", "have the clients of a segment stop using it"},
    {"resume", resume, 1, " SEG", "have them go on"},
    {"reservation", reservation, 2, " delete KEY", "give back what a reservation holds"},
};

void usage(std::FILE* to) {
  std::fputs("usage: cmiadm [OPTIONS] COMMAND\n\n", to);
  for (const Command& c : kCommands) {
    std::fprintf(to, "  %-24s %s\n", (std::string(c.name) + c.operand_name).c_str(), c.help);
  }
  std::fputs(
      "\n"
      "  --runtime-dir DIR  where the nodes are (CMI_RUNTIME_DIR, /dev/shm/cmi-UID)\n"
      "  --node NAME        this node alone: its CMI_NODE, or the 16 digits that list shows\n"
      "  --json             for programs (list, show, doctor, top)\n"
      "  --ids              segment ids and nothing else (list)\n"
      "  --wait SECONDS     how long others may take to answer (2); 0: ask no context\n"
      "  --every SECONDS    between two looks (top, 1)\n"
      "  --count N          looks, then end (top)\n"
      "  --help, --version\n\n"
      "cmiadm(8) tells more.\n",
      to);
}

std::optional<unsigned> parse_number(std::string_view text, unsigned least, unsigned most) {
  unsigned n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc{} || end != text.data() + text.size() || n < least || n > most) {
    return std::nullopt;
  }
  return n;
}

// An option that is a number. False, with a word to the user, where it is none.
bool set_number(Options* options, std::string_view name, const char* value) {
  const unsigned least = name == "--wait" ? 0 : 1;
  constexpr unsigned kMost = 3600;
  const auto n = parse_number(value, least, kMost);
  if (!n) {
    complain("{} {}: not a number from {} to {}", name, printable(value), least, kMost);
    return false;
  }
  if (name == "--wait") options->wait = *n * kSecond;
  if (name == "--every") options->every = *n * kSecond;
  if (name == "--count") options->count = *n;
  return true;
}

// Options may stand before and after the command. Returns the exit status where there is nothing
// left to do.
std::optional<int> parse(int argc, char** argv, Options* options, const Command** command) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const auto argument = [&]() -> const char* { return i + 1 < argc ? argv[++i] : nullptr; };
    if (word == "--json") {
      options->json = true;
    } else if (word == "--ids") {
      options->ids = true;
    } else if (word == "--help" || word == "-h" || word == "help") {
      usage(stdout);
      return kFine;
    } else if (word == "--version") {
      std::puts("cmiadm " CMI_VERSION_TEXT);
      return kFine;
    } else if (word == "--runtime-dir" || word == "--node" || word == "--wait" ||
               word == "--every" || word == "--count") {
      const char* value = argument();
      if (value == nullptr || *value == '\0') {
        complain("{} wants a value", word);
        return kUsage;
      }
      if (word == "--runtime-dir") {
        options->runtime_dir = value;
      } else if (word == "--node") {
        options->node = folder_of_node(value);
      } else if (!set_number(options, word, value)) {
        return kUsage;
      }
    } else if (word.size() > 1 && word[0] == '-') {
      complain("there is no option {}; see \"cmiadm --help\"", printable(word));
      return kUsage;
    } else if (*command == nullptr) {
      for (const Command& c : kCommands) {
        if (word == c.name) *command = &c;
      }
      if (*command == nullptr) {
        complain("there is no command {}; see \"cmiadm --help\"", printable(word));
        return kUsage;
      }
    } else {
      options->operands.emplace_back(word);
    }
  }
  if (*command == nullptr) {
    usage(stderr);
    return kUsage;
  }
  if (options->operands.size() != (*command)->operands) {
    complain("usage: cmiadm {}{}", (*command)->name, (*command)->operand_name);
    return kUsage;
  }
  if (options->runtime_dir[0] != '/') {
    complain("{} is not an absolute path", printable(options->runtime_dir));
    return kUsage;
  }
  return std::nullopt;
}

int run(int argc, char** argv) {
  Options options;
  const char* dir = std::getenv("CMI_RUNTIME_DIR");
  options.runtime_dir = dir != nullptr && *dir != '\0' ? dir : node::default_runtime_dir();
  const Command* command = nullptr;
  if (const auto status = parse(argc, argv, &options, &command)) return *status;
  const int status = command->run(options);
  if (std::fflush(stdout) != 0) {
    complain("standard output: {}", std::strerror(errno));
    return kTrouble;
  }
  return status;
}

}  // namespace

}  // namespace cmi::adm

int main(int argc, char** argv) {
  try {
    return cmi::adm::run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("cmiadm: out of memory\n", stderr);
    return cmi::adm::kTrouble;
  }
}
