// cmiadm: looks after the nodes of a machine. Reads the command line and runs one command.
#include <CLI/CLI.hpp>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <system_error>

#include "command.hpp"
#include "text.hpp"

namespace cmi::adm {

namespace {

struct Command {
  const char* name;
  int (*run)(const Options&);
  const char* help;
};

constexpr Command kCommands[] = {
    {"list", list, "contexts, segments, and who has them attached"},
    {"show", show, "all about a segment, or about the context of a process"},
    {"reap", reap, "clean up after processes that died"},
    {"doctor", doctor, "what works on this machine, what does not, what mends it"},
    {"ping", ping, "ask the home of a saved remote segment handle for its segment"},
    {"top", top, "what the contexts are doing, once a second"},
    {"hot", hot, "the pages that cost most, by whom, and what mends it"},
    {"map", map, "a segment as a picture of its pages"},
    {"metrics", metrics, "what contexts have counted, as OpenMetrics text"},
    {"quiesce", quiesce, "have the clients of a segment stop using it"},
    {"resume", resume, "have them go on"},
    {"reservation", reservation, "give back what a reservation holds"},
};

// A validator returns what is wrong with the text, or nothing; it may also rewrite the text.
const CLI::Validator kNotEmpty(
    [](std::string& text) { return text.empty() ? std::string("wants a value") : std::string(); },
    "");
const CLI::Validator kAbsolute(
    [](std::string& text) {
      return text.starts_with('/') ? std::string() : text + " is not an absolute path";
    },
    "");
// "cmiadm list" shows keys without the 0x that CLI11 knows hexadecimal numbers by.
const CLI::Validator kKey(
    [](std::string& text) {
      if (text.size() > 16 || text.find_first_not_of("0123456789abcdefABCDEF") != text.npos ||
          text.find_first_not_of('0') == text.npos) {
        return text + " is no key of a reservation; \"cmiadm list\" shows them";
      }
      text.insert(0, "0x");
      return std::string();
    },
    "");

// The command line, as CLI11 is to read it.
class CommandLine {
 public:
  explicit CommandLine(Options* options) : options_(*options) {
    // Options may stand before and after the command, and the last of two counts.
    app_.fallthrough();
    app_.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    app_.set_version_flag("--version", "cmiadm " CMI_VERSION_TEXT);
    app_.footer(
        "\"cmiadm --help\" shows all options, which may stand before and after the command.\n"
        "cmiadm(8) tells more.");
    app_.require_subcommand(0, 1);
    add_options();
    for (const Command& c : kCommands) app_.add_subcommand(c.name, c.help);
    app_.add_subcommand("help", "show this")->group("");
    add_operands();
  }

  // Returns the exit status where there is nothing left to do.
  std::optional<int> parse(int argc, char** argv, const Command** command) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::Success& asked) {  // --help, --version
      return app_.exit(asked);
    } catch (const CLI::ParseError& error) {
      complain("{}; see \"cmiadm --help\"", printable(error.what()));
      return kUsage;
    }
    if (app_.got_subcommand("help")) {
      fmt::print("{}",
                 app_.get_formatter()->make_help(&app_, "cmiadm", CLI::AppFormatMode::Normal));
      return kFine;
    }
    for (const Command& c : kCommands) {
      if (app_.got_subcommand(c.name)) *command = &c;
    }
    if (*command == nullptr) {
      fmt::print(stderr, "{}", app_.help());
      return kUsage;
    }
    if (!node_.empty()) options_.node = folder_of_node(node_);
    options_.wait = wait_ * kSecond;
    options_.every = every_ * kSecond;
    return std::nullopt;
  }

 private:
  void add_options() {
    constexpr unsigned kMost = 3600;
    app_.add_option("--runtime-dir", options_.runtime_dir, "where the nodes are (/dev/shm/cmi-UID)")
        ->envname("CMI_RUNTIME_DIR")
        ->type_name("DIR")
        ->check(kAbsolute);
    app_.add_option("--node", node_,
                    "this node alone: its CMI_NODE, or the 16 digits that list shows")
        ->type_name("NAME")
        ->check(kNotEmpty);
    app_.add_flag("--json", options_.json, "for programs (list, show, doctor, top, hot, map)");
    app_.add_flag("--ids", options_.ids, "segment ids and nothing else (list)");
    app_.add_option("--wait", wait_, "how long others may take to answer (2); 0: ask no context")
        ->type_name("SECONDS")
        ->check(CLI::Range(0U, kMost, ""));
    app_.add_option("--every", every_, "between two looks (top, 1)")
        ->type_name("SECONDS")
        ->check(CLI::Range(1U, kMost, ""));
    app_.add_option("--svg", options_.svg, "the picture goes into this file (map)")
        ->type_name("FILE")
        ->check(kNotEmpty);
    app_.add_option("--count", options_.count, "looks, then end (top)")
        ->type_name("N")
        ->check(CLI::Range(1U, kMost, ""));
  }

  void add_operands() {
    const auto add_id = [&](const char* command, const char* name, const char* help) {
      return app_.get_subcommand(command)
          ->add_option(name, options_.id, help)
          ->required()
          ->type_name("")
          ->check(CLI::Range(1, INT_MAX, ""));
    };
    add_id("show", "ID", "a segment's id, or the number of a process");
    add_id("quiesce", "SEG", "the id of a segment that has its home here");
    add_id("resume", "SEG", "the id of a segment that has its home here");
    add_id("hot", "SEG", "this segment alone, by its id or that of an import")->required(false);
    add_id("map", "SEG", "the id of a segment or of an import");
    app_.get_subcommand("ping")
        ->add_option("FILE", options_.file, "holds the bytes of a handle")
        ->required()
        ->type_name("")
        ->check(kNotEmpty);
    CLI::App* const of_reservation = app_.get_subcommand("reservation")->require_subcommand(1);
    of_reservation->add_subcommand("delete", "its segments keep their memory until they go")
        ->add_option("KEY", options_.key, "as list shows it")
        ->required()
        ->type_name("")
        ->transform(kKey);
  }

  Options& options_;
  std::string node_;
  unsigned wait_ = 2, every_ = 1;
  CLI::App app_{"Looks after nodes that share memory with CMI.", "cmiadm"};
};

int run(int argc, char** argv) {
  Options options;
  options.runtime_dir = node::default_runtime_dir();
  CommandLine line(&options);
  const Command* command = nullptr;
  if (const auto status = line.parse(argc, argv, &command)) return *status;
  try {
    const int status = command->run(options);
    if (std::fflush(stdout) == 0) return status;
    complain("standard output: {}", std::strerror(errno));
  } catch (const std::system_error& error) {  // by fmt::print()
    complain("standard output: {}", error.code().message());
  }
  return kTrouble;
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
