// The soak: nodes that share memory while processes are killed, stopped and restarted at random,
// and the network parts and heals, where there may be networks. What was flushed is kept in a file
// that no process takes along when it dies: no flushed store is ever lost while its home lives, and
// no older value comes back over it, whoever looks; and in the memory that a dead home leaves each
// flushed store has arrived as well. Of each store that did not arrive its writer was told: it met
// an exception, or its barrier failed and an event named it.
//
// CMI_SOAK_SECONDS says how long at least (5, in a long run 90), CMI_TEST_SEED with which choices,
// the number of nodes among them; both are printed. Timing differs from run to run, the choices do
// not. However short it is, one partition heals before the verdict and one after it.
#include <doctest/doctest.h>

#include <csignal>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "fault/left_memory.hpp"
#include "fault/network.hpp"
#include "fault/soak_writer.hpp"
#include "support/long_run.hpp"

namespace cmi::test::soak_test {

namespace {

using namespace soak;

constexpr uint32_t kFewest = 4;              // nodes
constexpr uint64_t kKnock = kSlots * kPage;  // the home's own word
constexpr size_t kSize = kKnock + kPage;
constexpr int kRoundDeadline = 60;  // seconds; then a node hangs
constexpr int kVerdict = 5;         // seconds of silence
constexpr int kOutlastingRound = 2;

uint64_t number_from(const char* variable, uint64_t usual) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 0) : usual;
}

class Soak {
 public:
  Soak(uint64_t seed, int seconds)
      : random_(seed),
        nodes_(kFewest + static_cast<uint32_t>(random_() % (kMost - kFewest + 1))),
        seconds_(seconds),
        network_(cluster_),
        board_(cluster_) {
    for (uint32_t n = 0; n < nodes_; ++n) {
      if (partable_) network_.join(name(n));
    }
    for (uint32_t n = 0; n < nodes_; ++n) start(n);
    for (uint32_t n = 0; n < nodes_; ++n) import_all(n);
  }

  void run() {
    const Deadline end = Deadline::in(seconds_ * kSecond);
    const auto first = static_cast<int>(random_() % 4);
    const auto all_seen = [&] { return !partable_ || (partings_ > outlasted_ && outlasted_ > 0); };
    for (int round = 0; !end.passed() || !all_seen(); ++round) {
      CAPTURE(round);
      // Each kind of trouble in turn; one partition in a while outlasts the verdict.
      play(round % 16 == kOutlastingRound ? Trouble::kOutlast
                                          : static_cast<Trouble>((first + round) % 4));
      repair();
      judge();
    }
    CHECK(work_.flushes > 0);
    MESSAGE(work_.flushes, " flushes, ", work_.losses, " that failed, ", work_.told,
            " places named by events, ", work_.exceptions, " exceptions, ", kills_, " kills, ",
            stops_, " stops, ", partings_, " partitions, ", outlasted_,
            " of them longer than the verdict, ", recoveries_, " recoveries on ", nodes_, " nodes");
  }

 private:
  static std::string name(uint32_t node) { return "node" + std::to_string(node); }
  uint32_t some_node() { return static_cast<uint32_t>(random_() % nodes_); }

  void start(uint32_t n) {
    processes_[n] = &cluster_.spawn(name(n), {{"CMI_DEAD_AFTER", std::to_string(kVerdict * 1000)}});
    exports_[n] = export_segment(*processes_[n], kSize);
    memory_[n] = LeftMemory(processes_[n]->pid(), exports_[n].at);
    views_[n] = {nodes_, {}, {}, mapped()};
    views_[n].seg[n] = exports_[n].seg;
    views_[n].at[n] = exports_[n].at;
    imports_[n] = {};
    // Nothing of its old segment is promised any more.
    for (uint32_t writer = 0; writer < nodes_; ++writer) {
      for (uint32_t slot = 0; slot < kSlots; ++slot) {
        for (const Note what : {kBegun, kFlushed, kUntold}) board_[note(what, n, writer, slot)] = 0;
      }
    }
  }
  void import_one(uint32_t n, uint32_t segment) {
    const Import import = import_segment(*processes_[n], exports_[segment]);
    imports_[n][segment] = import;
    views_[n].seg[segment] = import.seg;
    views_[n].at[segment] = import.at;
  }
  void import_all(uint32_t n) {
    for (uint32_t segment = 0; segment < nodes_; ++segment) {
      if (segment != n) import_one(n, segment);
    }
  }

  enum class Trouble { kKill, kStop, kStopAndKill, kPart, kOutlast };

  // All write, and something happens to one of them.
  void play(Trouble trouble) {
    std::vector<Pending<Work>> writing;
    for (uint32_t n = 0; n < nodes_; ++n) {
      writing.push_back(
          processes_[n]->start([](Board::Name board, uint32_t self, uint64_t seed,
                                  Views views) { return write(board, self, seed, views); },
                               board_.name(), n, random_(), views_[n]));
    }
    const auto before = static_cast<useconds_t>(random_() % 300'000);
    const auto lasts = static_cast<useconds_t>(50'000 + random_() % 1'500'000);
    const uint32_t one = some_node(),
                   other = (one + 1 + static_cast<uint32_t>(random_() % (nodes_ - 1))) % nodes_;
    ::usleep(before);
    switch (trouble) {
      case Trouble::kKill:
        processes_[one]->kill();
        ++kills_;
        break;
      case Trouble::kStop:
        processes_[one]->stop();
        ::usleep(lasts);
        processes_[one]->signal(SIGCONT);
        ++stops_;
        break;
      case Trouble::kStopAndKill:
        processes_[one]->stop();
        ::usleep(lasts / 2);
        processes_[one]->kill();
        ++kills_;
        break;
      case Trouble::kPart:
        if (!partable_) break;
        if (random_() % 2 == 0) {
          network_.drop(name(one), name(other));
        } else {
          network_.part({name(one)}, {name(other), name((other + 1) % nodes_)});
        }
        ::usleep(lasts);
        network_.heal();
        ++partings_;
        break;
      case Trouble::kOutlast:
        // Goes on writing to both sides' memory all the time; what the others have declared dead
        // starts anew in the end.
        if (!partable_) break;
        for (uint32_t n = 0; n < nodes_; ++n) {
          if (n != one) network_.part({name(one)}, {name(n)});
        }
        ::sleep(kVerdict + 2);
        network_.heal();
        ::usleep(lasts);
        ++partings_;
        ++outlasted_;
        break;
    }
    ::usleep(before / 2);
    for (uint32_t n = 0; n < nodes_; ++n) {
      if (processes_[n]->ended()) continue;
      const Work work = writing[n].finish(kRoundDeadline);
      work_.flushes += work.flushes;
      work_.losses += work.losses;
      work_.told += work.told;
      work_.exceptions += work.exceptions;
    }
    if (trouble == Trouble::kOutlast) processes_[one]->kill();
  }

  // Who was killed comes back at once, under its old name; the others import its new segment.
  void repair() {
    for (uint32_t n = 0; n < nodes_; ++n) {
      if (!processes_[n]->ended()) continue;
      judge_left(n);
      start(n);
      import_all(n);
      for (uint32_t peer = 0; peer < nodes_; ++peer) {
        if (peer == n || processes_[peer]->ended()) continue;
        const Import old = imports_[peer][n];
        if (old.seg != 0) {
          seg_rm(*processes_[peer], old.seg);
          seg_dt(*processes_[peer], old.seg, old.at);
        }
        import_one(peer, n);
      }
    }
    for (uint32_t n = 0; n < nodes_; ++n) recover(n);
  }

  // What the dead had not flushed is in flux at their homes. A barrier there misses whoever is
  // dead; after that the home takes the pages as they are: whatever was flushed must still be in
  // them.
  void recover(uint32_t home) {
    const uint64_t at = exports_[home].at;
    CHECK(store(*processes_[home], at + kKnock, ++knocks_).cause() == Fault::kNone);
    Answer barrier = wmb(*processes_[home]);
    // The end of a home whose pages are mapped is told of pages that a barrier has covered, too.
    if (mapped() && barrier.failed(CMI_ERR_STORE)) barrier = wmb(*processes_[home]);
    CHECK_MESSAGE(barrier.ok(), barrier);
    const Recovery found = seg_check(*processes_[home], exports_[home].seg, at, kSize);
    CHECK(found.answer.ok());
    if (found.size == 0) return;
    ++recoveries_;
    CHECK(seg_reco(*processes_[home], exports_[home].seg, at, kSize).ok());
  }

  struct Misfit {
    uint32_t count, writer, slot;
    int cause;
    uint64_t value;
  };
  void check(const Misfit& found, uint32_t segment, const std::string& where) {
    const auto noted = [&](Note what) {
      return board_[note(what, segment, found.writer, found.slot)].load();
    };
    CHECK_MESSAGE(found.count == 0, found.count, " words of segment ", segment, " wrong ", where,
                  "; of writer ", found.writer, ", slot ", found.slot, ": cause ", found.cause,
                  ", ", found.value, ", flushed ", noted(kFlushed), ", lost unless there ",
                  noted(kUntold), ", begun ", noted(kBegun));
  }

  // What a home that died had in its memory.
  void judge_left(uint32_t home) {
    Misfit found{};
    for (uint32_t writer = 0; writer < nodes_; ++writer) {
      for (uint32_t slot = 0; slot < kSlots; ++slot) {
        const uint64_t value = memory_[home].word(offset_of(writer, slot));
        if (value < board_[note(kFlushed, home, writer, slot)] ||
            value < board_[note(kUntold, home, writer, slot)] ||
            value > board_[note(kBegun, home, writer, slot)]) {
          found = {found.count + 1, writer, slot, Fault::kNone, value};
        }
      }
    }
    check(found, home, "in what its home left");
  }

  // Every word at every node that can see it, and what the nodes were told.
  void judge() {
    for (uint32_t n = 0; n < nodes_; ++n) {
      const auto told = [&](Wrong what) { return board_[wrong(what, n)].load(); };
      CHECK_MESSAGE(told(kCause) == 0, "node ", n, " met exceptions that have no cause");
      CHECK_MESSAGE(told(kError) == 0, "node ", n, ": a barrier failed for another reason");
      CHECK_MESSAGE(told(kNamed) == 0, "node ", n, ": an event named what was not lost, ",
                    told(kNamed) - 1, " from the begin of the segment");
      CHECK_MESSAGE(told(kUseless) == 0, "node ", n, ": an event named no store");
    }
    for (uint32_t n = 0; n < nodes_; ++n) {
      for (uint32_t segment = 0; segment < nodes_; ++segment) {
        // What was stored in vain, though nobody was told, must be at home; the others see what
        // is flushed.
        const Misfit found = processes_[n]->run(
            [](Board::Name board_name, uint32_t nodes, uint32_t seg, bool at_home, uint64_t at) {
              Board::Word* board = Board::open(board_name);
              Misfit m{};
              for (uint32_t writer = 0; writer < nodes; ++writer) {
                for (uint32_t slot = 0; slot < kSlots; ++slot) {
                  const Access access = load64(at + offset_of(writer, slot));
                  const bool right =
                      access.cause() == Fault::kNone &&
                      access.value >= board[note(kFlushed, seg, writer, slot)] &&
                      (!at_home || access.value >= board[note(kUntold, seg, writer, slot)]) &&
                      access.value <= board[note(kBegun, seg, writer, slot)];
                  if (!right) m = {m.count + 1, writer, slot, access.cause(), access.value};
                }
              }
              return m;
            },
            board_.name(), nodes_, segment, segment == n, views_[n].at[segment]);
        check(found, segment, "at node " + std::to_string(n));
      }
    }
  }

  std::mt19937_64 random_;
  const uint32_t nodes_;
  const int seconds_;
  Cluster cluster_;
  Network network_;
  // Nodes on networks of their own map nothing of each other's.
  const bool partable_ = network_.here() && !mapped();
  Board board_;
  Process* processes_[kMost] = {};
  Export exports_[kMost];
  LeftMemory memory_[kMost];
  Views views_[kMost] = {};
  std::array<Import, kMost> imports_[kMost];
  Work work_;
  uint64_t kills_ = 0, stops_ = 0, partings_ = 0, outlasted_ = 0, knocks_ = 0, recoveries_ = 0;
};

TEST_SUITE("soak") {
  TEST_CASE("no_flushed_store_is_lost_while_its_home_lives_whatever_happens_to_others") {
    const uint64_t seed = number_from("CMI_TEST_SEED", 1);
    const int seconds = static_cast<int>(number_from("CMI_SOAK_SECONDS", long_run() ? 90 : 5));
    CAPTURE(seed);
    CAPTURE(seconds);
    MESSAGE("CMI_TEST_SEED=", seed, " CMI_SOAK_SECONDS=", seconds);
    Soak soak(seed, seconds);
    soak.run();
  }
}

}  // namespace

}  // namespace cmi::test::soak_test
