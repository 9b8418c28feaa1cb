// What a client does that does not give up: it returns from its handler as long as the exception
// says that the home cannot be reached for now, and repeats its barrier as long as stores are said
// to be under way or lost. One command of a process each; the counts are on a board.
#pragma once

#include "fault/board.hpp"
#include "system/calls.hpp"

namespace cmi::test {

inline constexpr uint64_t kMostTries = 60;

// A segment whose importers may store to what they have cached without a word to the home: so they
// go on while it cannot be reached.
inline Export export_consistent(Process& home, size_t size) {
  return export_segment(home, size, kAllRights, CMI_SEG_CLIENT_CONSIST);
}

// In the child: a handler that counts transient exceptions in words[0] and tries again.
inline void be_patient(Board::Word* words) {
  static Board::Word* transients;
  transients = words;
  set_on_fault([](const Fault& fault) {
    if (fault.error != CMI_ERROR_TRANSIENT || fault.times > kMostTries) return false;
    transients->fetch_add(1);
    return true;
  });
}

// Loads; board[0] counts the exceptions before it succeeds or gives up.
inline Pending<Access> start_patient_load(Process& process, const Board& board, uint64_t at) {
  return process.start(
      [](Board::Name name, uint64_t address) {
        be_patient(Board::open(name));
        const Access access = load64(address);
        set_on_fault(nullptr);
        return access;
      },
      board.name(), at);
}

// Barriers until one does not say CMI_ERR_STORE; board[0] counts those that do.
inline Pending<Answer> start_patient_barrier(Process& process, const Board& board) {
  return process.start(
      [](Board::Name name) {
        Board::Word* failures = Board::open(name);
        Answer last;
        do {
          const int result = CMIFN(ctxt(), 10, wmb_fn)(ctxt());
          last = answer(result, result != 0);
        } while (last.failed(CMI_ERR_STORE) && failures->fetch_add(1) < kMostTries);
        return last;
      },
      board.name());
}

// Stores `value` plus its number into the first word of each page; how many raised something.
inline int store_pages(Process& process, uint64_t at, uint64_t pages, uint64_t value) {
  return process.run(
      [](uint64_t address, uint64_t n, uint64_t first) {
        int raised = 0;
        for (uint64_t i = 0; i < n; ++i) {
          raised += store64(address + i * kPage, first + i).cause() != Fault::kNone;
        }
        return raised;
      },
      at, pages, value);
}

// How many pages do not hold that.
inline int wrong_pages(Process& process, uint64_t at, uint64_t pages, uint64_t value) {
  return process.run(
      [](uint64_t address, uint64_t n, uint64_t first) {
        int wrong = 0;
        for (uint64_t i = 0; i < n; ++i) {
          const Access access = load64(address + i * kPage);
          wrong += access.cause() != Fault::kNone || access.value != first + i;
        }
        return wrong;
      },
      at, pages, value);
}

// Whether a word at home comes to hold the value: looked at from home, so nothing is fetched.
inline bool arrives(Process& home, uint64_t at, uint64_t value) {
  return load_until(home, at, value, kSeconds - 5) == value;
}

}  // namespace cmi::test
