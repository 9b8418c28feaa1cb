// See client.hpp.
#include "reliability/client.hpp"

#include <poll.h>

#include <array>
#include <thread>
#include <vector>

namespace cmi::reliability {

using test::Board;
using test::called_back;
using test::ctxt;
using test::Fault;

namespace {

void note_event(Board::Word* words, int type) {
  const uint64_t n = words[kEvents].load();
  if (kEventFirst + 2 * n + 1 < kEventLast) {
    words[kEventFirst + 2 * n].store(static_cast<uint64_t>(type));
    words[kEventFirst + 2 * n + 1].store(static_cast<uint64_t>(now()));
  }
  words[kEvents].store(n + 1);
}

void take_events(Board::Word* words) {
  pollfd p{cmi_ofi_evt_fd(ctxt()), POLLIN, 0};
  if (::poll(&p, 1, 5) <= 0) return;
  while (cmi_event* event = CMIFN(ctxt(), 10, evt_get)(ctxt())) {
    note_event(words, event->type);
    CMIFN(ctxt(), 10, evt_ret)(event, CMI_EVENT_RET_DONE);
  }
}

struct Named {
  int number;
  const char* name;
};
constexpr std::array<Named, 7> kCauses{{{CMI_ERROR_TRANSIENT, "TRANSIENT"},
                                        {CMI_ERROR_SINVAL, "SINVAL"},
                                        {CMI_ERROR_TOKEN, "TOKEN"},
                                        {CMI_ERROR_ACCESS, "ACCESS"},
                                        {CMI_ERROR_CONSIST, "CONSIST"},
                                        {CMI_ERROR_UE, "UE"},
                                        {CMI_ERROR_ENABLE, "ENABLE"}}};
constexpr std::array<Named, 2> kErrors{
    {{CMI_ERR_STORE, "CMI_ERR_STORE"}, {CMI_ERR_HW, "CMI_ERR_HW"}}};
constexpr std::array<Named, 7> kTypes{{{CMI_EVENT_RCTXT_DOWN, "RCTXT_DOWN"},
                                       {CMI_EVENT_HCTXT_DOWN, "HCTXT_DOWN"},
                                       {CMI_EVENT_STORE_FAILURE, "STORE_FAILURE"},
                                       {CMI_EVENT_HW, "HW"},
                                       {CMI_EVENT_CMAP, "CMAP"},
                                       {CMI_EVENT_QUIESCE, "QUIESCE"},
                                       {CMI_EVENT_RESUME, "RESUME"}}};
template <class All>
std::string name_of(const All& all, int number) {
  for (const Named& n : all) {
    if (n.number == number) return n.name;
  }
  return std::to_string(number);
}

}  // namespace

void use(const Board::Name& board, uint64_t at, Round round, useconds_t rest) {
  Board::Word* words = Board::open(board);
  std::atomic<bool> over{false};
  std::thread listener([&] {
    CMIFN(ctxt(), 10, ini_th)(ctxt());
    while (!over.load()) take_events(words);
    take_events(words);
    CMIFN(ctxt(), 10, fini)(ctxt());
  });
  bool ill = false;
  for (uint64_t n = 1; !called_back(); ++n) {
    const Nanos began = now();
    int cause;
    test::Answer flushed;
    if (round == Round::kStore) {
      cause = test::store64(at, n).cause();
      const int result = CMIFN(ctxt(), 10, wmb_fn)(ctxt());
      flushed = test::answer(result, result != 0);
      if (cause == Fault::kNone) cause = test::load64(at).cause();
    } else {
      uint64_t old = 0;
      auto swap = [&] {
        CMIFN(ctxt(), 10, atm_cas)(ctxt(), reinterpret_cast<uint64_t*>(at), n - 1, n, &old);
      };
      cause = test::guarded(swap).cause();
      if (cause == Fault::kNone) n = old == n - 1 ? n : old;
    }
    const auto t = static_cast<uint64_t>(now());
    if (cause != Fault::kNone && words[kCauseAt].load() == 0) {
      words[kCause].store(static_cast<uint64_t>(cause));
      words[kCauseAt].store(t);
    }
    if (!flushed.ok() && words[kStoreAt].load() == 0) {
      words[kStoreError].store(static_cast<uint64_t>(flushed.error));
      words[kStoreAt].store(t);
    }
    const bool well = cause == Fault::kNone && flushed.ok();
    if (well && ill && words[kWellAt].load() == 0) words[kWellAt].store(t);
    ill = ill || !well;
    if (well) {
      words[kSpans + words[kRounds].fetch_add(1) % (kWords - kSpans)].store(
          static_cast<uint64_t>(static_cast<Nanos>(t) - began));
    } else {
      ::usleep(500);
    }
    if (rest != 0) ::usleep(rest);
  }
  over.store(true);
  listener.join();
}

void wait_for_events(const Board::Name& board) {
  Board::Word* words = Board::open(board);
  while (!called_back()) take_events(words);
}

std::string noticed(Board& board) {
  std::vector<std::string> all;
  if (board[kCauseAt] != 0) all.push_back(name_of(kCauses, static_cast<int>(board[kCause])));
  if (board[kStoreAt] != 0) {
    all.push_back(name_of(kErrors, static_cast<int>(board[kStoreError])));
  }
  for (size_t i = kEventFirst; i + 1 < kEventLast && board[i + 1] != 0; i += 2) {
    all.push_back(name_of(kTypes, static_cast<int>(board[i])));
  }
  std::string text;
  for (const std::string& one : all) text += (text.empty() ? "" : ", ") + one;
  return text.empty() ? "nothing" : text;
}

uint64_t event_at(Board& board, int type) {
  for (size_t i = kEventFirst; i + 1 < kEventLast; i += 2) {
    if (board[i + 1] != 0 && board[i] == static_cast<uint64_t>(type)) return board[i + 1];
  }
  return 0;
}

}  // namespace cmi::reliability
