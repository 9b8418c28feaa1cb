// The soak: nodes that share memory while processes are killed, stopped and restarted at random,
// and the network parts and heals, where there may be networks. What was flushed is kept in a file
// that no process takes along when it dies: no flushed store is ever lost while its home lives, and
// no older value comes back over it, whoever looks.
//
// CMI_SOAK_SECONDS says how long at least (20; CI: 180), CMI_TEST_SEED with which choices, the
// number of nodes among them; both are printed. Timing differs from run to run, the choices do not.
// However short it is, one partition heals before the verdict and one after it.
#include <doctest/doctest.h>

#include <csignal>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "fault/board.hpp"
#include "fault/network.hpp"
#include "system/calls.hpp"

namespace cmi::test {

namespace {

constexpr uint32_t kFewest = 4, kMost = 8;   // nodes
constexpr uint32_t kSlots = 4;               // words of one writer in one segment, one on each page
constexpr uint64_t kKnock = kSlots * kPage;  // the home's own word
constexpr size_t kSize = kKnock + kPage;
constexpr int kRoundDeadline = 60;  // seconds; then a node hangs
constexpr int kVerdict = 5;         // seconds of silence
constexpr int kOutlastingRound = 2;

// Where the word of a slot lies, and what the board knows of it. A slot has one writer, which
// counts up: so a word is never below what was flushed nor above what was begun.
// The words of all writers for one slot share a page.
uint64_t offset_of(uint32_t writer, uint32_t slot) { return slot * kPage + writer * 8; }
size_t begun(uint32_t segment, uint32_t writer, uint32_t slot) {
  return ((segment * kMost + writer) * kSlots + slot) * 2;
}
size_t flushed(uint32_t segment, uint32_t writer, uint32_t slot) {
  return begun(segment, writer, slot) + 1;
}
static_assert(kMost * kMost * kSlots * 2 <= Board::kWords);

struct Views {
  uint32_t nodes;
  uint64_t at[kMost];
};
struct Work {
  uint64_t rounds = 0, flushes = 0, exceptions = 0, losses = 0;
};

uint64_t number_from(const char* variable, uint64_t usual) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 0) : usual;
}

// In the child: a few stores to anybody's segment, a barrier, and a note of what is flushed by it.
Work write_until_called_back(const Board::Name& name, uint32_t self, uint64_t seed, Views views) {
  Board::Word* board = Board::open(name);
  std::mt19937_64 random(seed);
  Work work;
  while (!called_back()) {
    struct Stored {
      size_t flushed;
      uint64_t value;
    };
    std::vector<Stored> stored;
    for (uint64_t n = 1 + random() % 4; n > 0; --n) {
      const auto segment = static_cast<uint32_t>(random() % views.nodes);
      const auto slot = static_cast<uint32_t>(random() % kSlots);
      if (views.at[segment] == 0) continue;
      const uint64_t value = board[begun(segment, self, slot)].fetch_add(1) + 1;
      const Access access = store64(views.at[segment] + offset_of(self, slot), value);
      if (access.cause() == Fault::kNone) {
        stored.push_back({flushed(segment, self, slot), value});
      } else {
        ++work.exceptions;
      }
      load64(views.at[segment] + offset_of(static_cast<uint32_t>(random() % views.nodes), slot));
    }
    ++work.rounds;
    ::usleep(static_cast<useconds_t>(random() % 2000));  // it runs beside other tests
    if (CMIFN(ctxt(), 10, wmb_fn)(ctxt()) == 0) {
      for (const Stored& s : stored) board[s.flushed].store(s.value);
      ++work.flushes;
    } else {
      ++work.losses;
    }
  }
  return work;
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
      if (network_.here()) network_.join(name(n));
    }
    for (uint32_t n = 0; n < nodes_; ++n) start(n);
    for (uint32_t n = 0; n < nodes_; ++n) import_all(n);
  }

  void run() {
    const Deadline end = Deadline::in(seconds_ * kSecond);
    const auto first = static_cast<int>(random_() % 4);
    const auto all_seen = [&] {
      return !network_.here() || (partings_ > outlasted_ && outlasted_ > 0);
    };
    for (int round = 0; !end.passed() || !all_seen(); ++round) {
      CAPTURE(round);
      // Each kind of trouble in turn; one partition in a while outlasts the verdict.
      play(round % 16 == kOutlastingRound ? Trouble::kOutlast
                                          : static_cast<Trouble>((first + round) % 4));
      repair();
      judge();
    }
    CHECK(work_.flushes > 0);
    MESSAGE(work_.flushes, " flushes, ", work_.losses, " that failed, ", work_.exceptions,
            " exceptions, ", kills_, " kills, ", stops_, " stops, ", partings_, " partitions, ",
            outlasted_, " of them longer than the verdict, ", recoveries_, " recoveries on ",
            nodes_, " nodes");
  }

 private:
  static std::string name(uint32_t node) { return "node" + std::to_string(node); }
  uint32_t some_node() { return static_cast<uint32_t>(random_() % nodes_); }

  void start(uint32_t n) {
    processes_[n] = &cluster_.spawn(name(n), {{"CMI_DEAD_AFTER", std::to_string(kVerdict * 1000)}});
    exports_[n] = export_segment(*processes_[n], kSize);
    views_[n] = {nodes_, {}};
    views_[n].at[n] = exports_[n].at;
    imports_[n] = {};
    // Nothing of its old segment is promised any more.
    for (uint32_t writer = 0; writer < nodes_; ++writer) {
      for (uint32_t slot = 0; slot < kSlots; ++slot) {
        board_[begun(n, writer, slot)] = 0;
        board_[flushed(n, writer, slot)] = 0;
      }
    }
  }
  void import_one(uint32_t n, uint32_t segment) {
    const Import import = import_segment(*processes_[n], exports_[segment]);
    imports_[n][segment] = import;
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
      writing.push_back(processes_[n]->start(
          [](Board::Name board, uint32_t self, uint64_t seed, Views views) {
            return write_until_called_back(board, self, seed, views);
          },
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
        if (!network_.here()) break;
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
        if (!network_.here()) break;
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
      work_.exceptions += work.exceptions;
    }
    if (trouble == Trouble::kOutlast) processes_[one]->kill();
  }

  // Who was killed comes back at once, under its old name; the others import its new segment.
  void repair() {
    for (uint32_t n = 0; n < nodes_; ++n) {
      if (!processes_[n]->ended()) continue;
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
    CHECK(wmb(*processes_[home]).ok());
    const Recovery found = seg_check(*processes_[home], exports_[home].seg, at, kSize);
    CHECK(found.answer.ok());
    if (found.size == 0) return;
    ++recoveries_;
    CHECK(seg_reco(*processes_[home], exports_[home].seg, at, kSize).ok());
  }

  // Every word at every node that can see it.
  void judge() {
    for (uint32_t n = 0; n < nodes_; ++n) {
      for (uint32_t segment = 0; segment < nodes_; ++segment) {
        struct Wrong {
          uint32_t count, writer, slot;
          int cause;
          uint64_t value;
        };
        const Wrong wrong = processes_[n]->run(
            [](Board::Name board_name, uint32_t nodes, uint32_t seg, uint64_t at) {
              Board::Word* board = Board::open(board_name);
              Wrong w{};
              for (uint32_t writer = 0; writer < nodes; ++writer) {
                for (uint32_t slot = 0; slot < kSlots; ++slot) {
                  const Access access = load64(at + offset_of(writer, slot));
                  const bool right = access.cause() == Fault::kNone &&
                                     access.value >= board[flushed(seg, writer, slot)] &&
                                     access.value <= board[begun(seg, writer, slot)];
                  if (!right) w = {w.count + 1, writer, slot, access.cause(), access.value};
                }
              }
              return w;
            },
            board_.name(), nodes_, segment, views_[n].at[segment]);
        CHECK_MESSAGE(wrong.count == 0, wrong.count, " words of segment ", segment,
                      " wrong at node ", n, "; of writer ", wrong.writer, ", slot ", wrong.slot,
                      ": cause ", wrong.cause, ", ", wrong.value, ", flushed ",
                      board_[flushed(segment, wrong.writer, wrong.slot)].load(), ", begun ",
                      board_[begun(segment, wrong.writer, wrong.slot)].load());
      }
    }
  }

  std::mt19937_64 random_;
  const uint32_t nodes_;
  const int seconds_;
  Cluster cluster_;
  Network network_;
  Board board_;
  Process* processes_[kMost] = {};
  Export exports_[kMost];
  Views views_[kMost] = {};
  std::array<Import, kMost> imports_[kMost];
  Work work_;
  uint64_t kills_ = 0, stops_ = 0, partings_ = 0, outlasted_ = 0, knocks_ = 0, recoveries_ = 0;
};

TEST_SUITE("soak") {
  TEST_CASE("no_flushed_store_is_lost_while_its_home_lives_whatever_happens_to_others") {
    const uint64_t seed = number_from("CMI_TEST_SEED", 1);
    const int seconds = static_cast<int>(number_from("CMI_SOAK_SECONDS", 20));
    CAPTURE(seed);
    CAPTURE(seconds);
    MESSAGE("CMI_TEST_SEED=", seed, " CMI_SOAK_SECONDS=", seconds);
    Soak soak(seed, seconds);
    soak.run();
  }
}

}  // namespace

}  // namespace cmi::test
