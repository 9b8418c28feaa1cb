// See options.hpp.
#include "options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "bars.hpp"

namespace bench {

namespace {

constexpr int kWrong = 2;  // the command line

bool has_name(const Case& c, const std::string& name) {
  return name == c.name ||
         std::any_of(c.rows.begin(), c.rows.end(), [&](const char* row) { return name == row; });
}

// Empty, or what is wrong with the name.
std::string unknown(const std::string& name) {
  const auto& cases = all_cases();
  const bool known =
      std::any_of(cases.begin(), cases.end(), [&](const Case& c) { return has_name(c, name); });
  return known ? "" : "no case has the name " + name + "; --list shows them";
}

void list_cases() {
  for (const Case& c : all_cases()) {
    fmt::print("{}: {}\n", c.name, fmt::join(c.rows, " "));
  }
}

}  // namespace

std::optional<int> parse(int argc, char** argv, Options* options) {
  Options& o = *options;
  bool list = false;
  CLI::App app{
      "Measures the library beside raw libfabric: same provider, same two processes, in turn.",
      "cmi_bench"};
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_flag("--quick", o.quick, "fewer and smaller measurements");
  app.add_flag("--check", o.check,
               "three runs of the rows that have bars, each of three sittings with processes and "
               "connections of their own, whose medians count; fails where the medians of a row "
               "miss its bar: with status 1, or with 3 where the floor of each such row does so, "
               "too, and the row is near it");
  app.add_option("--only", o.only, "this case, or the one that has this row; may be given again")
      ->type_name("NAME")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false)
      ->check(CLI::Validator([](std::string& name) { return unknown(name); }, ""));
  app.add_option("--json", o.json,
                 "one line for each row: {\"name\",\"unit\",\"value\",\"raw\",\"ratio\","
                 "\"provider\"}, raw and ratio null where there is none; its floor is a row "
                 "NAME_floor; with --check, the medians of the runs")
      ->type_name("FILE");
  app.add_option("--seconds", o.seconds,
                 "bound on the whole run (900; with --quick 240; with --check 2400 for all)")
      ->type_name("N")
      ->check(CLI::Range(0, 1000000, ""));
  app.add_flag("--list", list, "names of cases and rows");
  app.footer(
      "Environment: CMI_PROVIDER, the libfabric provider for both sides; default: the "
      "library's choice.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "cmi_bench: {}; see --help\n", error.what());
    return kWrong;
  }
  if (list) {
    list_cases();
    return 0;
  }
  if (o.seconds == 0) o.seconds = o.check ? 2400 : o.quick ? 240 : 900;
  return std::nullopt;
}

bool wanted(const Options& o, const Case& c) {
  if (c.mapped != o.mapped) return false;
  if (o.only.empty()) {
    return !o.check || std::any_of(c.rows.begin(), c.rows.end(),
                                   [](const char* row) { return bar_of(row) != nullptr; });
  }
  return std::any_of(o.only.begin(), o.only.end(),
                     [&](const std::string& name) { return has_name(c, name); });
}

}  // namespace bench
