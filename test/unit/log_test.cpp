// The specification string of traces, and which lines go where.
#include "core/base/log.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <regex>
#include <string>
#include <vector>

#include "core/base/trace_node.hpp"

namespace cmi::test::log_test {

namespace {

struct Spec {
  uint32_t facilities = 0xdead, level = 0xbeef;
  bool good = false;
};

Spec parsed(const std::string& text) {
  Spec s;
  s.good = Trace::parse(text, &s.facilities, &s.level);
  return s;
}

// What a test configures must not outlive it.
struct Quiet {
  ~Quiet() { Trace::get().configure(0, kNone, {}); }
};

struct Lines {
  std::vector<std::string> alerts, logs;
  TraceSink sink() {
    TraceSink s;
    s.arg = this;
    s.alert = [](void* a, const char* m) { static_cast<Lines*>(a)->alerts.emplace_back(m); };
    s.log = [](void* a, const char* m) { static_cast<Lines*>(a)->logs.emplace_back(m); };
    return s;
  }
};

// Counts how often it was made into text.
struct Costly {
  int* times;
};

}  // namespace

}  // namespace cmi::test::log_test

template <>
struct fmt::formatter<cmi::test::log_test::Costly> : fmt::formatter<int> {
  template <class Context>
  auto format(const cmi::test::log_test::Costly& c, Context& out) const {
    return fmt::formatter<int>::format(++*c.times, out);
  }
};

namespace cmi::test::log_test {

TEST_CASE("a_trace_specification_names_facilities_and_a_level") {
  struct Good {
    const char* text;
    uint32_t facilities, level;
  };
  const Good goods[] = {
      {"ini:error", kFacIni, kError},
      {"ctrl:warn", kFacCtrl, kWarn},
      {"seg:info", kFacSeg, kInfo},
      {"tok:debug", kFacTok, kDebug},
      {"evt:highest", kFacEvt, kHighest},
      {"mem:none", kFacMem, kNone},
      {"all:debug", kFacAll, kDebug},
      {"mem,seg:info", kFacMem | kFacSeg, kInfo},
      {"seg,seg:info", kFacSeg, kInfo},
      {"ini,ctrl,seg,tok,evt,mem:warn", kFacAll, kWarn},
      {"MEM,Seg:DeBuG", kFacMem | kFacSeg, kDebug},
      {"all:0", kFacAll, kNone},
      {"all:5", kFacAll, kHighest},
  };
  for (const Good& g : goods) {
    CAPTURE(g.text);
    const Spec s = parsed(g.text);
    CHECK(s.good);
    CHECK(s.facilities == g.facilities);
    CHECK(s.level == g.level);
  }
}

TEST_CASE("a_malformed_trace_specification_is_refused_and_sets_nothing") {
  for (const char* text : {"",
                           ":",
                           "all",
                           "all:",
                           ":debug",
                           "debug:all",
                           "all:6",
                           "all:-1",
                           "all:55",
                           "all:loud",
                           "foo:debug",
                           "mem,foo:debug",
                           "mem,:debug",
                           ",mem:debug",
                           "mem,,seg:debug",
                           ",:debug",
                           "mem seg:debug",
                           " mem:debug",
                           "mem:debug ",
                           "mem :debug",
                           "mem:debug,seg",
                           "mem::debug",
                           "mem:seg:debug",
                           "me:debug",
                           "memory:debug"}) {
    CAPTURE(text);
    const Spec s = parsed(text);
    CHECK_FALSE(s.good);
    CHECK(s.facilities == 0xdead);
    CHECK(s.level == 0xbeef);
  }
}

TEST_CASE("only_lines_of_the_chosen_facilities_and_levels_are_on") {
  Quiet quiet;
  Lines lines;
  Trace::get().configure(kFacMem | kFacSeg, kInfo, lines.sink());
  CHECK(Trace::get().on(kFacMem, kInfo));
  CHECK(Trace::get().on(kFacSeg, kError));
  CHECK_FALSE(Trace::get().on(kFacMem, kDebug));
  CHECK_FALSE(Trace::get().on(kFacTok, kError));
  trace(kFacMem, kInfo, "page {}", 7);
  trace(kFacMem, kDebug, "not wanted");
  trace(kFacTok, kError, "not wanted");
  REQUIRE(lines.logs.size() == 1);
  CHECK(lines.logs[0].find("mem info: page 7") != std::string::npos);
  CHECK(lines.alerts.empty());
}

TEST_CASE("a_line_says_when_and_in_which_thread_of_which_node_it_was_written") {
  Quiet quiet;
  Lines lines;
  Trace::get().configure(kFacMem, kInfo, lines.sink());
  trace(kFacMem, kInfo, "one");
  set_trace_node(0xabc);
  trace(kFacMem, kInfo, "two");
  set_trace_node(0);
  REQUIRE(lines.logs.size() == 2);
  const std::string origin = "cmi\\[" + std::to_string(getpid()) +
                             "\\] [0-2]\\d:[0-5]\\d:[0-5]\\d\\.\\d{6} thread " +
                             std::to_string(gettid()) + " node ";
  CHECK(std::regex_match(lines.logs[0], std::regex(origin + "- mem info: one")));
  CHECK(std::regex_match(lines.logs[1], std::regex(origin + "0000000000000abc mem info: two")));
}

TEST_CASE("a_line_that_is_off_is_not_even_made") {
  Quiet quiet;
  Lines lines;
  int times = 0;
  Trace::get().configure(kFacMem, kInfo, lines.sink());
  trace(kFacMem, kDebug, "{}", Costly{&times});
  trace(kFacTok, kInfo, "{}", Costly{&times});
  CHECK(times == 0);
  trace(kFacMem, kInfo, "{}", Costly{&times});
  CHECK(times == 1);
  CHECK(lines.logs.size() == 1);
}

TEST_CASE("errors_go_to_the_alert_callback_and_the_rest_to_the_log") {
  Quiet quiet;
  Lines lines;
  Trace::get().configure(kFacAll, kHighest, lines.sink());
  trace(kFacIni, kError, "an error");
  trace(kFacIni, kWarn, "a warning");
  alert(kFacIni, "an alert");
  REQUIRE(lines.alerts.size() == 2);
  REQUIRE(lines.logs.size() == 1);
  CHECK(lines.logs[0].find("a warning") != std::string::npos);
}

TEST_CASE("an_alert_is_written_though_traces_are_off") {
  Quiet quiet;
  Lines lines;
  Trace::get().configure(0, kNone, lines.sink());
  trace(kFacIni, kError, "not wanted");
  alert(kFacIni, "machine {}", "too old");
  REQUIRE(lines.alerts.size() == 1);
  CHECK(lines.alerts[0].find("machine too old") != std::string::npos);
}

TEST_CASE("a_line_too_long_is_cut_and_one_write_ends_it") {
  Quiet quiet;
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  TraceSink sink;
  sink.fd = ends[1];
  Trace::get().configure(kFacAll, kHighest, sink);
  trace(kFacMem, kInfo, "{}", std::string(5000, 'x'));
  char buf[4096];
  const ssize_t n = read(ends[0], buf, sizeof buf);
  close(ends[0]);
  close(ends[1]);
  REQUIRE(n > 400);
  CHECK(n <= 640);
  CHECK(buf[n - 1] == '\n');
  CHECK(std::string(buf, static_cast<size_t>(n)).find('\0') == std::string::npos);
}

TEST_CASE("no_callback_runs_in_a_fault_handler") {
  Quiet quiet;
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  Lines lines;
  TraceSink sink = lines.sink();
  sink.fd = ends[1];
  Trace::get().configure(kFacAll, kHighest, sink);
  t_in_fault_handler = true;
  trace(kFacMem, kInfo, "from the handler");
  t_in_fault_handler = false;
  char buf[256];
  const ssize_t n = read(ends[0], buf, sizeof buf);
  close(ends[0]);
  close(ends[1]);
  CHECK(lines.logs.empty());
  REQUIRE(n > 0);
  CHECK(std::string(buf, static_cast<size_t>(n)).find("from the handler\n") != std::string::npos);
}

}  // namespace cmi::test::log_test
