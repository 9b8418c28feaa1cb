// The main function of every doctest program. A run ends with 0 (passed), 1 (failed),
// kSkippedStatus (a case was skipped for a reason that it printed) or 2 (nothing was run, which a
// misspelt --test-case would otherwise pass off as success).
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <atomic>
#include <cstdio>

#include "support/skip.hpp"

namespace cmi::test {

namespace {

// Set by skip(), read after the run.
std::atomic<bool> skipped{false};

// Set when a run ends, read after it: how many cases it ran.
unsigned cases_run = 0;

// Remembers how many cases were run; doctest tells only its listeners.
class CaseCounter : public doctest::IReporter {
 public:
  explicit CaseCounter(const doctest::ContextOptions& /*options*/) {}

  void test_run_end(const doctest::TestRunStats& stats) override {
    cases_run = stats.numTestCasesPassingFilters;
  }

  void report_query(const doctest::QueryData& /*query*/) override {}
  void test_run_start() override {}
  void test_case_start(const doctest::TestCaseData& /*data*/) override {}
  void test_case_reenter(const doctest::TestCaseData& /*data*/) override {}
  void test_case_end(const doctest::CurrentTestCaseStats& /*stats*/) override {}
  void test_case_exception(const doctest::TestCaseException& /*exception*/) override {}
  void subcase_start(const doctest::SubcaseSignature& /*subcase*/) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData& /*assertion*/) override {}
  void log_message(const doctest::MessageData& /*message*/) override {}
  void test_case_skipped(const doctest::TestCaseData& /*data*/) override {}
};

REGISTER_LISTENER("case_counter", 1, CaseCounter);

}  // namespace

void skip(const char* reason) {
  skipped.store(true);
  std::printf("SKIPPED: %s\n", reason);
  std::fflush(stdout);
}

}  // namespace cmi::test

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  const int result = context.run();
  if (result != 0 || context.shouldExit()) return result;
  if (cmi::test::cases_run == 0) {
    std::fprintf(stderr, "no case matches\n");
    return 2;
  }
  return cmi::test::skipped.load() ? cmi::test::kSkippedStatus : 0;
}
