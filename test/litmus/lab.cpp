// Litmus programs on processes.
#include "litmus/lab.hpp"

#include <cmi/ofi/cmi_impl.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <thread>

namespace cmi::test {

namespace {

using Path = std::array<char, 128>;

Control* map_control(const Path& path) {
  const Fd file(::open(path.data(), O_RDWR | O_CLOEXEC));
  void* at = ::mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  return at == MAP_FAILED ? nullptr : static_cast<Control*>(at);
}

// ---- In the child ---------------------------------------------------------------------------

Control* g_control = nullptr;

// The library as a client calls it.
class ClientCalls final : public Calls {
 public:
  uint64_t open() override {
    epoch_ = CMIFN(ctxt(), 10, open_fb)(ctxt());
    return epoch_ == nullptr ? 1 : 0;
  }
  uint64_t close() override { return failed(CMIFN(ctxt(), 10, close_fb)(ctxt(), epoch_)); }
  uint64_t flush() override { return failed(CMIFN(ctxt(), 10, flush_fb)(ctxt(), epoch_)); }
  uint64_t wmb() override { return failed(cmi_wmb()); }
  uint64_t mb() override { return failed(cmi_mb()); }
  uint64_t rmb() override { return failed(cmi_rmb()); }
  uint64_t cflush(volatile uint64_t* line) override {
    void* lines[] = {const_cast<uint64_t*>(line)};
    return failed(CMIFN(ctxt(), 10, cflush)(ctxt(), lines, 1));
  }
  uint64_t cas(volatile uint64_t* word, uint64_t expected, uint64_t desired,
               uint64_t* old) override {
    return failed(
        CMIFN(ctxt(), 10, atm_cas)(ctxt(), const_cast<uint64_t*>(word), expected, desired, old));
  }

 private:
  static uint64_t failed(int result) { return result != 0 ? 1 : 0; }

  cmi_fb epoch_ = nullptr;
};

uint64_t play_here(const Program& program, uint32_t me, const Bases& bases, uint32_t first,
                   uint32_t count) {
  ClientCalls calls;
  return play(program, me, bases, first, count, *g_control, calls);
}

// The same in a thread that the library does not know yet.
uint64_t play_in_new_thread(const Program& program, uint32_t me, const Bases& bases, uint32_t first,
                            uint32_t count) {
  uint64_t failed = CMIFN(ctxt(), 10, ini_th)(ctxt()) != 0;
  failed += CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 1) != 0;
  failed += play_here(program, me, bases, first, count);
  return failed + (CMIFN(ctxt(), 10, fini)(ctxt()) != 0);
}

uint64_t run_threads(Program program, uint8_t me, Bases bases, uint32_t first, uint32_t count) {
  std::array<uint64_t, kMaxThreads> failed{};
  std::vector<uint32_t> mine;
  for (uint32_t t = 0; t < program.count; ++t) {
    if (program.threads[t].process == me) mine.push_back(t);
  }
  // Who has one thread has no other: a barrier then takes another way.
  if (mine.size() == 1) return play_here(program, mine[0], bases, first, count);
  std::vector<std::thread> threads;
  for (uint32_t t : mine) {
    threads.emplace_back(
        [&, t] { failed[t] = play_in_new_thread(program, t, bases, first, count); });
  }
  for (auto& thread : threads) thread.join();
  uint64_t all = 0;
  for (uint64_t f : failed) all += f;
  return all;
}

}  // namespace

bool meet_all(uint32_t threads) { return meet_all(*g_control, threads); }

// ---- In the test ----------------------------------------------------------------------------

Lab::Lab(const Placement& where, const std::string& faults, int at) {
  const auto& homes = where.homes;
  const auto is_home = [&](int i) {
    return std::find(homes.begin(), homes.end(), i) != homes.end();
  };
  processes_.resize(static_cast<size_t>(where.processes));
  std::vector<Pending<Answer>> starting;
  for (const bool home : {true, false}) {  // what starts first ends last
    for (int i = 0; i < where.processes; ++i) {
      if (is_home(i) != home) continue;
      Env env;
      if (!faults.empty() && (at == -1 || at == i)) env.emplace_back("CMI_FAULT_POINT", faults);
      const int node = i == where.beside ? homes[0] : i == where.sharing ? 0 : i;
      Process& p = cluster_.spawn_bare("node" + std::to_string(node), env);
      processes_[static_cast<size_t>(i)] = &p;
      starting.push_back(p.start([] { return start_context(CMI_VERNO); }));
    }
  }
  for (auto& pending : starting) REQUIRE(pending.get().ok());
  bases_.resize(processes_.size(), Bases{.segments = static_cast<uint32_t>(homes.size())});
  for (size_t s = 0; s < homes.size(); ++s) {
    const Export e = export_segment(process(homes[s]), kLabBytes);
    cmi_seg of_the_first = 0;  // the import of process 0
    for (int i = 0; i < where.processes; ++i) {
      uint64_t& base = bases_[static_cast<size_t>(i)].at[s];
      if (i == homes[s]) {
        base = e.at;
      } else if (i == where.beside && s == 0) {
        const Answer view = seg_at(process(i), e.seg);
        REQUIRE(view.ok());
        base = view.at();
      } else if (i == where.sharing) {
        const Answer view = seg_at(process(i), of_the_first);
        REQUIRE(view.ok());
        REQUIRE(cmi_enb(process(i), 1).ok());
        base = view.at();
      } else {
        const Import import = import_segment(process(i), e);
        if (i == 0) of_the_first = import.seg;
        base = import.at;
      }
    }
  }

  const std::string file = cluster_.scratch() + "/control";
  Path path{};
  file.copy(path.data(), path.size() - 1);
  const Fd made(::open(path.data(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  REQUIRE(::ftruncate(made.get(), sizeof(Control)) == 0);
  control_ = map_control(path);
  REQUIRE(control_ != nullptr);
  for (Process* p : processes_) {
    REQUIRE(p->run(
        [](Path name) {
          g_control = map_control(name);
          return g_control != nullptr;
        },
        path));
  }
}

Lab::~Lab() { ::munmap(control_, sizeof(Control)); }

Histogram Lab::run(const Program& program, uint32_t rounds, const Predicate& enough) {
  Histogram histogram;
  for (uint32_t left = rounds; left > 0;) {
    const uint32_t n = std::min(left, kRoundsAtOnce);
    const uint32_t first = next_round_;
    REQUIRE(first + n <= kMaxRounds);
    next_round_ += n;
    left -= n;
    for (uint32_t round = first; round < first + n; ++round) control_->clear(program, round);
    std::vector<Pending<uint64_t>> running;
    for (uint8_t i = 0; i < processes_.size(); ++i) {
      const bool takes_part =
          std::any_of(program.threads.begin(), program.threads.begin() + program.count,
                      [&](const Thread& t) { return t.process == i; });
      if (!takes_part) continue;
      running.push_back(
          process(i).start([](Program p, uint8_t me, Bases bases, uint32_t from,
                              uint32_t count) { return run_threads(p, me, bases, from, count); },
                           program, i, bases_[i], first, n));
    }
    for (auto& pending : running) REQUIRE(pending.get(60) == 0);
    bool seen = false;
    for (uint32_t round = first; round < first + n; ++round) {
      const Outcome outcome = control_->outcome(round);
      histogram.add(outcome);
      seen = seen || (enough && enough(outcome));
    }
    if (seen) break;
  }
  return histogram;
}

}  // namespace cmi::test
