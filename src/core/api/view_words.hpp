// The memory of the client's views, for the locks and the arena of core/locks, and their outcomes
// as results of the C calls.
//
// Loads and swaps may raise exceptions, whose handlers may jump out of the call: nothing with a
// destructor lives across them.
#pragma once

#include <cmi/ofi/cmi_sync.h>
#include <time.h>

#include <algorithm>

#include "core/api/calls.hpp"
#include "core/api/entry.hpp"
#include "core/base/clock.hpp"
#include "core/base/fault_point.hpp"
#include "core/base/spin.hpp"
#include "core/base/word_sleep.hpp"
#include "core/locks/words.hpp"
#include "core/memory/importer/import_access.hpp"

namespace cmi::api {

class ViewWords final : public locks::Words {
 public:
  ViewWords(cmi_ctxt* ctxt, context::Context* c, const void* at) : ctxt_(ctxt), c_(c), at_(at) {}

  // False, with a cause: there is no lock at this address.
  Status find() {
    if (reinterpret_cast<uintptr_t>(at_) % sizeof(uint64_t) != 0) {
      return because(Status::kInval, "the address is not a multiple of 8");
    }
    SignalsBlocked quiet;
    const auto self = c_->holders().own(at_);
    if (self) self_ = *self;
    const auto view = c_->engine().views().find(at_);
    at_home_ = view != nullptr && view->import == nullptr;
    mapped_ = view != nullptr && view->import != nullptr && view->import->views.local.local();
    return self.status();
  }

  int swap(uint64_t* at, uint64_t expected, uint64_t desired, uint64_t* found) override {
    return atm_cas(ctxt_, at, expected, desired, found);
  }
  uint64_t load(const uint64_t* at) override { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
  bool at_hand(const uint64_t* at) override {
    SignalsBlocked quiet;
    const auto view = c_->engine().views().find(at);
    return view == nullptr || view->import == nullptr ||
           memory::is_at_hand(*view, reinterpret_cast<const std::byte*>(at));
  }
  uint64_t self() override { return self_; }
  int gone(uint64_t holder) override {
    const auto gone = c_->holders().gone(at_, holder, kAnswer);
    return gone ? static_cast<int>(*gone) : -1;
  }
  Nanos time() override { return now(); }
  void pause(uint32_t n, Nanos left, const locks::Awaited& awaited) override {
    const Nanos t = now();
    if (n == 0) spin_.begin(t);
    if (spin_.again(t)) return;
    Nanos nap = std::min(left, kNap << std::min(n / kNapsOfOneLength, kLongestNap));
    const uint64_t* const word = sleeping_place(awaited.at);
    if (word != nullptr && fault_point_fails("lock_naps_are_long")) nap = left;
    if (word != nullptr && early_ < kEarlyInARow && sleep_at_word(word, awaited.seen, nap)) {
      early_ = now() - t < nap ? early_ + 1 : 0;
      return;
    }
    early_ = 0;  // a word that changes all the time, or a peer that lies, keeps no waiter running
    const timespec span{nap / kSecond, nap % kSecond};
    nanosleep(&span, nullptr);
  }
  // At home each swap wakes; what is awaited over the network is found by looking.
  void wake(const uint64_t* at, locks::Woken who) override {
    if (mapped_) wake_at_word(at, who == locks::Woken::kAll);
  }

 private:
  // Null: nobody wakes there. At home it is the library's own view: of the client's the kernel
  // would note that the page was stored to.
  const uint64_t* sleeping_place(const uint64_t* at) {
    if (at == nullptr || mapped_) return at;
    if (!at_home_) return nullptr;
    SignalsBlocked quiet;
    return c_->engine().home().views().library_word(at);
  }

  static constexpr Nanos kAnswer = kSecond;  // a home that takes longer is asked again
  static constexpr Nanos kNap = 50 * kMicro;
  static constexpr uint32_t kEarlyInARow = 8;
  static constexpr uint32_t kNapsOfOneLength = 64, kLongestNap = 5;  // 1.6 ms

  cmi_ctxt* ctxt_;
  context::Context* c_;
  const void* at_;
  uint64_t self_ = 0;
  uint32_t early_ = 0;                     // naps in a row that ended before their time
  bool at_home_ = false, mapped_ = false;  // the view: of a home, of an import that maps pages
  SpinThenSleep spin_;
};

inline int result(locks::Outcome outcome, const char* call, const void* at) {
  switch (outcome) {
    case locks::Outcome::kDone:
      return 0;
    case locks::Outcome::kOwnerDead:
      return CMI_OFI_OWNER_DEAD;
    case locks::Outcome::kTimedOut:
      return CMI_OFI_TIMED_OUT;
    case locks::Outcome::kFailed:
      return -1;
    case locks::Outcome::kBad:
      fail(kFacMem, CMI_ERR_INVAL, "{}({}): CMI_ERR_INVAL, no such lock lies there", call,
           fmt::ptr(at));
      return -1;
    case locks::Outcome::kNotOwner:
      fail(kFacMem, CMI_ERR_PERM, "{}({}): CMI_ERR_PERM, it is not the caller's, or no longer",
           call, fmt::ptr(at));
      return -1;
  }
  return -1;
}

template <class Body>
int with_words(cmi_ctxt* ctxt, const void* at, const char* call, Body body) {
  context::Context* const c = enter(ctxt, kFacMem, call);
  if (c == nullptr) return -1;
  ViewWords words(ctxt, c, at);
  const int found = finish(
      kFacMem, [&] { return words.find(); }, "{}({})", call, fmt::ptr(at));
  if (found != 0) return -1;
  return result(body(words), call, at);
}

}  // namespace cmi::api
