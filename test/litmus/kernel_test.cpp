// The Linux kernel's litmus tests (kernel.hpp), a node a thread: nothing is seen that the memory
// model forbids. They lie in the folder CMI_LITMUS_FOLDER, in files NAME.litmus at any depth; none
// are in this tree (doc/design/testing.md).
#include "litmus/kernel.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "litmus/lab.hpp"
#include "litmus/outcomes.hpp"
#include "litmus/scene.hpp"
#include "support/long_run.hpp"
#include "support/skip.hpp"

namespace cmi::test::kernel_test {

namespace {

// Written for this, in the kernel's way.
constexpr const char* kStoreBuffering = R"(C SB+mbs
(* Result: Never *)
{ }
P0(int *x, int *y)
{
	int r0;

	WRITE_ONCE(*x, 1);
	smp_mb();
	r0 = READ_ONCE(*y);
}

P1(int *x, int *y)
{
	WRITE_ONCE(*y, 1);
	smp_mb(); /* no less */
	int r0 = READ_ONCE(*x);
}
exists (0:r0=0 /\ 1:r0=0)
)";
constexpr const char* kStoreBufferingWithout = R"(C SB
{ x=0; int y = 0; }
P0(int *x, int *y) { WRITE_ONCE(*x, 1); int r0 = READ_ONCE(*y); }
P1(int *x, int *y) { WRITE_ONCE(*y, 1); int r0 = READ_ONCE(*x); }
exists (0:r0=0 /\ 1:r0=0)
)";
constexpr const char* kMessage = R"(C MP+release+pointer
{ p=z; }
P0(int *x, int *p) { WRITE_ONCE(*x, 1); rcu_assign_pointer(*p, x); }
P1(int *p) { int *r1 = rcu_dereference(*p); int r2 = READ_ONCE(*r1); }
exists (1:r1=x /\ 1:r2=0)
)";
constexpr const char* kControl = R"(C LB+if+data
{ }
P0(int *x, int *y) { int r1 = READ_ONCE(*x); if (r1 == 1) { WRITE_ONCE(*y, 1); } else WRITE_ONCE(*y, 2); }
P1(int *x, int *y) { int r1 = READ_ONCE(*y); int r2 = (r1 ^ r1) + 1; WRITE_ONCE(*x, r2); }
exists (0:r1=1 /\ 1:r1=1)
)";
constexpr const char* kLock = R"(C MP+lock
{ atomic_t n = ATOMIC_INIT(3); }
P0(int *x, int *y, spinlock_t *l, atomic_t *n)
{
  spin_lock(l); WRITE_ONCE(*x, 1); WRITE_ONCE(*y, 1); spin_unlock(l);
  atomic_inc(n);
}
P1(int *x, int *y, spinlock_t *l, atomic_t *n)
{
  int r0; int r1; int r2;
  spin_lock(l); r0 = READ_ONCE(*x); r1 = READ_ONCE(*y); spin_unlock(l);
  r2 = atomic_add_return(2, n);
}
exists (~0:r9=0 \/ ~1:r0=0 /\ 1:r1=0 \/ 1:r0=0 /\ 1:r1=1 \/ ~n=6 \/ 1:r2=4)
)";
constexpr const char* kChain = R"(C WRC
(* Result: Never *)
{ }
P0(int *x) { WRITE_ONCE(*x, 1); }
P1(int *x, int *y) { int r0 = READ_ONCE(*x); smp_mb(); WRITE_ONCE(*y, 1); }
P2(int *x, int *y) { int r0 = smp_load_acquire(y); int r1 = READ_ONCE(*x); }
exists (1:r0=1 /\ 2:r0=1 /\ 2:r1=0)
)";

bool allows(const KernelTest& test) {
  const Outcomes outcomes = outcomes_of(test.program);
  REQUIRE(outcomes.not_judged.empty());
  REQUIRE(!outcomes.allowed.empty());
  return std::any_of(outcomes.allowed.begin(), outcomes.allowed.end(), test.exists);
}

std::string why_not(const std::string& text) {
  try {
    (void)read_kernel_test(text);
  } catch (const NotPlayed& why) {
    return why.what();
  }
  return "";
}

std::string with_body(const std::string& body) {
  return "C T\n{ }\nP0(int *x) { " + body + " }\nexists (x=1)\n";
}

constexpr uint32_t kRounds = 16;  // of a test in each scene

struct Played {
  std::string file;
  KernelTest test;
  Outcomes outcomes;
};

std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".litmus") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// By the number of threads. What is left out is counted by its reason.
std::map<uint8_t, std::vector<Played>> read_all(const std::vector<std::string>& files,
                                                std::map<std::string, int>* left_out) {
  std::map<uint8_t, std::vector<Played>> all;
  for (const std::string& file : files) {
    std::ifstream in(file);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    try {
      Played p{file, read_kernel_test(text), {}};
      p.outcomes = outcomes_of(p.test.program);
      if (!p.outcomes.not_judged.empty()) throw NotPlayed(p.outcomes.not_judged);
      all[p.test.program.count].push_back(std::move(p));
    } catch (const NotPlayed& why) {
      ++(*left_out)[why.what()];
      MESSAGE(file, ": left out: ", std::string(why.what()));
    }
  }
  return all;
}

// How the outcomes that a test's condition names went.
struct Counts {
  int forbidden = 0, seen = 0, allowed = 0, only_kernel_forbids = 0;
  uint64_t rounds = 0;
};

void play_in(const Scene& scene, const std::vector<Played>& all, std::vector<bool>* seen,
             Counts* counts) {
  std::unique_ptr<Lab> lab;
  for (size_t i = 0; i < all.size(); ++i) {
    if (i % (kMaxRounds / kRounds) == 0) {
      lab.reset();
      lab = std::make_unique<Lab>(scene.where, scene.faults);
    }
    const Played& p = all[i];
    Program program = p.test.program;
    program.one_page = scene.one_page;
    program.again = scene.again;
    const Histogram found = lab->run(program, kRounds);
    counts->rounds += found.rounds();
    const uint64_t bad =
        found.count([&](const Outcome& o) { return !p.outcomes.allowed.contains(o); });
    CHECK_MESSAGE(bad == 0, p.file, ", ", scene.name, ": ", found);
    if (found.count(p.test.exists) != 0) (*seen)[i] = true;
  }
}

TEST_SUITE("kernel_litmus") {
  TEST_CASE("a_litmus_test_of_the_kernel_is_read_as_a_program_that_the_axioms_judge") {
    CHECK_FALSE(allows(read_kernel_test(kStoreBuffering)));
    CHECK(allows(read_kernel_test(kStoreBufferingWithout)));
    CHECK_FALSE(allows(read_kernel_test(kMessage)));
    CHECK_FALSE(allows(read_kernel_test(kControl)));
    CHECK_FALSE(allows(read_kernel_test(kLock)));
    // The kernel forbids it, and here the first store races: memory-model.md, Races.
    CHECK(allows(read_kernel_test(kChain)));
    CHECK(read_kernel_test(kChain).result == "Never");
    CHECK(read_kernel_test(kStoreBufferingWithout).result.empty());
  }

  TEST_CASE("what_a_litmus_test_of_the_kernel_has_and_we_do_not_is_named") {
    CHECK(why_not(kStoreBuffering).empty());
    CHECK(why_not(with_body("rcu_read_lock();")) == "it has RCU");
    CHECK(why_not(with_body("while (1) { }")) == "it has a loop");
    CHECK(why_not(with_body("frob(x);")) == "it calls frob");
    CHECK(why_not(with_body("WRITE_ONCE(*x, 200);")) == "200 is too large a number");
    CHECK(why_not(with_body("WRITE_ONCE(*x, 1)")) == "\"}\" stands where \";\" is expected");
    CHECK(why_not("X86 T\n{ }\n") == "it is not written in C");
    CHECK(why_not("C T\n{ }\nP0(int *x) {") == "it ends too early");
    CHECK(why_not("C T\n{ a=0; b=0; c=0; d=0; e=0; f=0; }\n") == "it has too many variables");
  }

  TEST_CASE("programs_in_the_kernels_way_end_as_the_memory_model_allows") {
    std::vector<Played> all;
    for (const char* const text :
         {kStoreBuffering, kStoreBufferingWithout, kMessage, kControl, kLock}) {
      Played p{"", read_kernel_test(text), {}};
      p.file = p.test.name;
      p.outcomes = outcomes_of(p.test.program);
      all.push_back(std::move(p));
    }
    Counts counts;
    std::vector<bool> seen(all.size());
    for (const Scene& scene : scenes_of(2)) play_in(scene, all, &seen, &counts);
    CHECK(counts.rounds == all.size() * 4 * kRounds);
    CHECK(seen[1]);
  }

  TEST_CASE("a_litmus_test_of_the_kernel_shows_a_barrier_that_does_not_wait_for_its_answers") {
    const KernelTest test = read_kernel_test(kStoreBuffering);
    const Outcomes outcomes = outcomes_of(test.program);
    const auto forbidden = [&](const Outcome& o) { return !outcomes.allowed.contains(o); };
    Lab broken({3, {2}}, "mutate_answer_not_awaited=fail");
    CHECK(broken.run(test.program, 2000, forbidden).count(forbidden) > 0);
  }

  TEST_CASE("no_litmus_test_of_the_kernel_ends_as_the_memory_model_forbids") {
    const char* const folder = std::getenv("CMI_LITMUS_FOLDER");
    if (folder == nullptr) {
      return skip("CMI_LITMUS_FOLDER names no folder of the kernel's litmus tests");
    }
    std::map<std::string, int> left_out;
    const auto all = read_all(files_below(folder), &left_out);
    REQUIRE(!all.empty());
    Counts counts;
    for (const auto& [threads, tests] : all) {
      std::vector<bool> seen(tests.size());
      for (const Scene& scene : scenes_of(std::max<int>(threads, 2)))
        play_in(scene, tests, &seen, &counts);
      for (size_t i = 0; i < tests.size(); ++i) {
        const Played& p = tests[i];
        const bool allowed =
            std::any_of(p.outcomes.allowed.begin(), p.outcomes.allowed.end(), p.test.exists);
        ++(!allowed ? counts.forbidden : seen[i] ? counts.seen : counts.allowed);
        if (!allowed || p.test.result != "Never") continue;
        ++counts.only_kernel_forbids;
        MESSAGE(p.file, ": the kernel forbids it, our model does not");
      }
    }
    MESSAGE(counts.rounds, " rounds; exists: ", counts.forbidden, " forbidden, ", counts.seen,
            " allowed and seen, ", counts.allowed, " allowed and not seen; ",
            counts.only_kernel_forbids, " of the allowed the kernel forbids");
    for (const auto& [why, count] : left_out) MESSAGE(count, " left out: ", why);
  }
}

}  // namespace

}  // namespace cmi::test::kernel_test
