// A home that answers swaps wrongly: each call ends, with the right error, after one question or
// two, and keeps no page from others. Or late, when the page's epochs have come round. And what
// counts as the use of an intent that a swap brought.
#include <cmi.h>
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/clock.hpp"
#include "core/base/fault_point.hpp"
#include "core/memory/wire/replies.hpp"
#include "fuzz/contexts.hpp"
#include "node/node_support.hpp"

namespace cmi::test::lying_swaps_test {

namespace {

constexpr uint32_t kPages = 16, kPage = 5;

enum class Answer : uint8_t { kTrue, kLate, kNotMade, kRefused, kCut, kEmpty };

// Answers swaps as it is told to.
class Lying final : public Context {
 public:
  using Context::Context;
  void on_request(const fabric::ClientInfo& client, uint64_t number, uint16_t type,
                  Reader payload) override {
    const bool asks_intent = note_intents(type, payload);
    Answer how = Answer::kTrue;
    if (type == static_cast<uint16_t>(RequestType::kSwapFetch)) {
      ++fetching;
      how = of_fetching.load();
    } else if (type == static_cast<uint16_t>(RequestType::kCas)) {
      ++alone;
      how = of_alone.load();
    }
    if (how == Answer::kLate) {
      const Bytes bytes = payload.rest();
      late_ = Late{client, number, {bytes.begin(), bytes.end()}};
      return;
    }
    if (late_ && asks_intent && of_fetching != Answer::kLate) {
      const Late late = *std::exchange(late_, std::nullopt);
      Context::on_request(late.client, late.number, static_cast<uint16_t>(RequestType::kSwapFetch),
                          Reader(late.payload));
    }
    if (how == Answer::kTrue) return Context::on_request(client, number, type, payload);
    std::byte bytes[64];
    Writer out(bytes);
    const bool says_alone = type == static_cast<uint16_t>(RequestType::kCas);
    if (how == Answer::kNotMade) {
      const auto not_made = static_cast<uint8_t>(WireStatus::kNotPresented);
      out.put(says_alone ? not_made : static_cast<uint8_t>(WireStatus::kOk));
      if (says_alone) encode(CasReply{7}, out);
      if (!says_alone) encode(SwapFetchReply{not_made, 7, 0, {}}, out);
    }
    if (how == Answer::kRefused) {
      out.put(static_cast<uint8_t>(WireStatus::kRights));
      if (says_alone) encode(CasReply{7}, out);
    }
    if (how == Answer::kCut) out.put(static_cast<uint8_t>(WireStatus::kOk));
    server->reply(client.id, number, out.done());
  }
  std::atomic<Answer> of_fetching{Answer::kTrue}, of_alone{Answer::kTrue};
  std::atomic<int> fetching{0}, alone{0};
  // How often the intent of kPage was asked for, and given back, under each epoch: by stores.
  std::array<std::atomic<int>, 256> asked{}, given_back{};

 private:
  struct Late {
    fabric::ClientInfo client;
    uint64_t number;
    std::vector<std::byte> payload;
  };

  // Whether it asks for one.
  bool note_intents(uint16_t type, Reader payload) {
    const bool back = type == static_cast<uint16_t>(RequestType::kDropIntent);
    if (!back && type != static_cast<uint16_t>(RequestType::kDirtyIntent) &&
        type != static_cast<uint16_t>(RequestType::kFetchWithIntent)) {
      return false;
    }
    DirtyIntentRequest m;
    if (!decode(payload.rest(), &m)) return false;
    for (size_t i = 0; i < m.intents().size(); ++i) {
      const DirtyIntent intent = m.intents()[i];
      if (intent.page == kPage) ++(back ? given_back : asked)[intent.epoch];
    }
    return !back;
  }

  // A swap that is answered when the next intent is asked for, once of_fetching says so: what was
  // given back before has come by then.
  std::optional<Late> late_;
};

// A segment of the home, imported by the peer; the page's region is in use.
class Shared {
 public:
  Shared() {
    const auto made = home.home->create(kPages * kPageSize, 0, 0);
    REQUIRE(made);
    const auto attached =
        home.home->views().attach(*made, kPages * kPageSize, nullptr, false, Deadline::in(kSecond));
    REQUIRE(attached);
    at_home = static_cast<std::byte*>(*attached);
    const auto handle = home.home->exports().export_segment(*made, 0, 0);
    const auto token = home.home->exports().new_token(
        *made, true, {}, fabric::kRead | fabric::kWrite | fabric::kAtomic, nullptr);
    REQUIRE(handle);
    REQUIRE(token);
    serving_ = service_threads_of(home, peer);
    auto imported = peer.importer->joining().import(*handle, 1, false, {soon, soon});
    REQUIRE(imported);
    imp = *imported;
    REQUIRE(ok(peer.importer->tokens().set(imp, *token, soon)));
    REQUIRE(ok(peer.importer->views().prepare(*imp, false)));
    auto attached_there = peer.importer->views().attach(imp, nullptr, false);
    REQUIRE(attached_there);
    view_ = *attached_there;
    REQUIRE(access(3, false) == Exception::kNone);
  }
  ~Shared() { peer.importer->views().detach(view_, soon); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  Exception access(uint32_t page, bool write) {
    return peer.importer->faults().serve(*view_, view_->addr + size_t{page} * kPageSize, write,
                                         nullptr, soon);
  }
  // Of the page's first word, by a message whose answer is to bring the page.
  Exception swap(uint64_t* found, bool* unknown) {
    Page& page = imp->page(kPage);
    page.lock();
    page.swaps.swapped(true, true);
    page.swaps.missed();
    page.unlock();
    PendingSwap pending;
    const Exception e = peer.importer->swaps().cas(*view_, view_->addr + size_t{kPage} * kPageSize,
                                                   0, 1, found, &pending, unknown, soon);
    CHECK(pending.request == nullptr);
    return e;
  }
  // The same, of which the caller gives up the answer. The epoch of the intent that it may bring.
  uint8_t swap_in_vain(PendingSwap* pending) {
    home.of_fetching = Answer::kLate;
    Page& page = imp->page(kPage);
    page.lock();
    page.swaps.swapped(true, true);
    page.swaps.missed();
    page.swaps.asked_intent();
    page.unlock();
    uint64_t found = 0;
    bool unknown = false;
    CHECK(peer.importer->swaps().cas(*view_, view_->addr + size_t{kPage} * kPageSize, 0, 1, &found,
                                     pending, &unknown,
                                     Deadline::in(60 * kMilli)) == Exception::kTransient);
    REQUIRE(pending->sent != nullptr);
    return pending->sent->epoch;
  }
  // A store that changes nothing, and its barrier: the intent is asked for and given back.
  void store_and_publish() {
    REQUIRE(access(kPage, true) == Exception::kNone);
    LossMark mark;
    REQUIRE(ok(peer.importer->publishing().barrier(mark, {soon})));
  }
  uint64_t word_at_home() const {
    return __atomic_load_n(reinterpret_cast<uint64_t*>(at_home + size_t{kPage} * kPageSize),
                           __ATOMIC_SEQ_CST);
  }

  NodeFolder folder;
  std::shared_ptr<fabric::FakeNet> net = fabric::FakeNet::make({});
  Lying home{*net, folder.config("home")};
  Context peer{*net, folder.config("peer")};
  const Deadline soon = Deadline::in(20 * kSecond);
  std::byte* at_home = nullptr;
  std::shared_ptr<Import> imp;

 private:
  std::shared_ptr<const View> view_;
  std::jthread serving_;
};

struct Case {
  const char* what;
  Answer fetching, alone;
  Exception ends;
  int asked_alone;
};

TEST_CASE("a_swap_that_a_home_answers_wrongly_ends_with_the_right_error") {
  const Case cases[] = {
      {"the truth", Answer::kTrue, Answer::kTrue, Exception::kNone, 0},
      {"not made at first", Answer::kNotMade, Answer::kTrue, Exception::kNone, 1},
      {"never made", Answer::kNotMade, Answer::kNotMade, Exception::kToken, 1},
      {"then refused", Answer::kNotMade, Answer::kRefused, Exception::kAccess, 1},
      {"then garbage", Answer::kNotMade, Answer::kCut, Exception::kTransient, 1},
      {"refused", Answer::kRefused, Answer::kTrue, Exception::kAccess, 0},
      {"cut off", Answer::kCut, Answer::kTrue, Exception::kTransient, 0},
      {"empty", Answer::kEmpty, Answer::kTrue, Exception::kTransient, 0},
  };
  for (const Case& c : cases) {
    CAPTURE(c.what);
    Shared shared;
    shared.home.of_fetching = c.fetching;
    shared.home.of_alone = c.alone;
    uint64_t found = 9;
    bool unknown = false;
    CHECK(shared.swap(&found, &unknown) == c.ends);
    CHECK_FALSE(unknown);
    CHECK(shared.home.fetching == 1);
    CHECK(shared.home.alone == c.asked_alone);
    const bool made = c.ends == Exception::kNone;
    CHECK(found == (made ? 0 : 9));
    CHECK(shared.word_at_home() == (made ? 1 : 0));
    CHECK(shared.access(kPage, false) == Exception::kNone);  // nobody keeps the page
    CHECK_FALSE(shared.imp->page(kPage).intent.asked());
  }
}

// How many of 130 stores ask for their intent under the epoch that a swap may still bring, whose
// caller has gone on. Its answer gives it back then: the store's would go with it, and the page not
// be in flux if the importer died.
int stores_under_the_epoch_of_a_late_swap(bool broken) {
  ::setenv("CMI_FAULT_POINT", broken ? "mutate_late_epoch_reused=fail" : "", 1);
  arm_fault_points();
  int stores = 0;
  {
    Shared shared;
    PendingSwap pending;
    const uint8_t epoch = shared.swap_in_vain(&pending);
    REQUIRE(epoch != 0);
    for (int i = 0; i < 130; ++i) shared.store_and_publish();
    stores = shared.home.asked[epoch];
    // The answer comes, and gives it back; from then on the epoch is one as others.
    shared.home.of_fetching = Answer::kTrue;
    shared.store_and_publish();
    const auto answered = [&] { return pending.request->answered(); };
    while (!answered() && !shared.soon.passed()) std::this_thread::yield();
    CHECK(answered());
    CHECK(pending.sent->intent);
    for (int i = 0; i < 64; ++i) shared.store_and_publish();
    CHECK(shared.home.given_back[epoch] >= 1 + stores);
    CHECK(shared.home.asked[epoch] > stores);
  }
  ::unsetenv("CMI_FAULT_POINT");
  arm_fault_points();
  return stores;
}

TEST_CASE("no_intent_is_asked_for_under_the_epoch_that_a_late_swap_may_bring") {
  CHECK(stores_under_the_epoch_of_a_late_swap(false) == 0);
}

TEST_CASE("a_store_is_under_the_epoch_that_a_late_swap_may_bring_when_epochs_are_reused") {
  CHECK(stores_under_the_epoch_of_a_late_swap(true) > 0);
}

// Before Linux 6.4 a load maps the page as a store would, for a moment.
TEST_CASE("only_a_store_uses_the_intent_that_a_swap_has_brought") {
  Shared shared;
  Page& page = shared.imp->page(3);
  page.lock();
  (void)page.swaps.brought_intent();
  page.unlock();
  REQUIRE(shared.access(3, false) == Exception::kNone);  // mapped now, at the latest
  CHECK(page.swaps.unused());
  REQUIRE(shared.access(3, true) == Exception::kNone);
  CHECK_FALSE(page.swaps.unused());
}

}  // namespace

}  // namespace cmi::test::lying_swaps_test
