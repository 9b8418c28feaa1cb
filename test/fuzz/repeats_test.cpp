// Pages that a peer names thousands of times over in one message: nobody is told of them more than
// once, and nobody drops them more than once.
#include <cmi.h>
#include <doctest/doctest.h>

#include <atomic>
#include <set>
#include <thread>

#include "core/base/clock.hpp"
#include "core/memory/wire/wire.hpp"
#include "fuzz/contexts.hpp"
#include "node/node_support.hpp"

namespace cmi::test::repeats_test {

namespace {

constexpr uint32_t kPages = 16;

// Counts the ranges that it is told to drop. A notification whose answer is late, as under load,
// comes once more under its number, and is the same one (answer_time.hpp).
class Counting final : public Context {
 public:
  using Context::Context;
  void on_notification(const ContextId& from, uint64_t secret, uint64_t number, uint16_t type,
                       Reader payload, const fabric::DirectAck& direct_ack) override {
    Reader in = payload;
    in.get<uint64_t>();
    in.get<uint32_t>();
    const bool drops = type == static_cast<uint16_t>(NotificationType::kInvalidate);
    if (drops && numbers_.insert(number).second) told += in.get<uint16_t>();
    Context::on_notification(from, secret, number, type, payload, direct_ack);
  }
  std::atomic<uint64_t> told{0};

 private:
  std::set<uint64_t> numbers_;
};

TEST_CASE("what_a_peer_announces_thousands_of_times_over_is_told_once") {
  NodeFolder folder;
  auto net = fabric::FakeNet::make({});
  Context home(*net, folder.config("home"));
  Counting peer(*net, folder.config("peer"));
  const auto made = home.home->create(kPages * kPageSize, 0, 0);
  REQUIRE(made);
  REQUIRE(
      home.home->views().attach(*made, kPages * kPageSize, nullptr, false, Deadline::in(kSecond)));
  const auto handle = home.home->exports().export_segment(*made, 0, 0);
  const auto token = home.home->exports().new_token(*made, true, {}, fabric::kRead, nullptr);
  REQUIRE(handle);
  REQUIRE(token);
  const std::jthread serving = service_threads_of(home, peer);
  const Deadline soon = Deadline::in(20 * kSecond);
  auto imported = peer.importer->joining().import(*handle, 1, false, {soon, soon});
  REQUIRE(imported);
  REQUIRE(ok(peer.importer->tokens().set(*imported, *token, soon)));
  REQUIRE(ok(peer.importer->views().prepare(**imported, false)));
  auto view = peer.importer->views().attach(*imported, nullptr, false);
  REQUIRE(view);
  const auto load = [&](uint32_t page) {
    return peer.importer->faults().serve(**view, (*view)->addr + size_t{page} * kPageSize, false,
                                         nullptr, soon);
  };
  REQUIRE(load(3) == Exception::kNone);

  const fabric::ClientInfo liar{random_context_id(), {3, 4}};
  std::vector<std::byte> bytes(fabric::kMaxPayload);
  Writer open(bytes);
  open.put(handle->uid);
  open.put<uint32_t>(1);
  home.on_request(liar, 1, static_cast<uint16_t>(RequestType::kOpen), Reader(open.done()));
  constexpr uint32_t kTimes = 4000;
  Writer out(bytes);
  out.put(handle->uid);
  out.put<uint32_t>(1);
  out.put(kTimes);
  for (uint32_t i = 0; i < kTimes; ++i) {
    out.put<uint32_t>(0);
    out.put(kPages);
  }
  REQUIRE(out.ok());
  home.on_request(liar, 2, static_cast<uint16_t>(RequestType::kAnnounce), Reader(out.done()));
  while (peer.told.load() == 0 && !soon.passed()) std::this_thread::yield();
  CHECK(ok(home.home->barriers().barrier(20 * kSecond)));
  CHECK(peer.told.load() == 1);
  CHECK(load(3) == Exception::kNone);
  peer.importer->views().detach(*view, soon);
}

}  // namespace

}  // namespace cmi::test::repeats_test
