// What processes of one node tell each other, as random datagrams handed straight to the home that
// takes them apart, while another node imports its segment.
#include <cmi.h>
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "core/base/clock.hpp"
#include "core/memory/wire/wire.hpp"
#include "core/node/quiesce.hpp"
#include "fuzz/contexts.hpp"
#include "fuzz/targets.hpp"
#include "node/node_support.hpp"

namespace cmi::test {

namespace {

constexpr size_t kPages = 16, kSize = kPages * kPageSize;
constexpr std::byte kCanary{0x11};

class Datagrams {
 public:
  Datagrams(Choices& choices, int32_t segment, const void* view)
      : choices_(choices), segment_(segment), view_(reinterpret_cast<uint64_t>(view)) {}

  node::Bus::Datagram next() {
    constexpr uint8_t kKnown[] = {kBusView,   kBusUnview,       kBusBarrier, kBusPublish,
                                  kBusStored, kBusLook,         kBusInFlux,  kBusInFluxSeen,
                                  kBusFile,   kBusLost,         kBusToken,   kBusShrunk,
                                  kBusAnswer, node::kBusQuiesce};
    const uint8_t what = choices_.one_in(20) ? static_cast<uint8_t>(choices_.below(256))
                                             : kKnown[choices_.below(std::size(kKnown))];
    std::byte bytes[512];
    Writer out(bytes);
    out.put(what);
    out.put(choices_.one_in(10) ? static_cast<int32_t>(word()) : segment_);
    out.put(choices_.one_in(2) ? choices_.below(8) : choices_.any());  // a question
    const uint64_t a = word();
    // Accesses to a quiesced segment stand still, as whoever asks for that wants them to.
    out.put(what == node::kBusQuiesce && a == 1 ? uint64_t{0} : a);
    out.put(word());
    const uint64_t ranges = choices_.one_in(4) ? choices_.below(20) : std::min<uint64_t>(a, 20);
    for (uint64_t i = 0; i < 2 * ranges; ++i) out.put(static_cast<uint32_t>(word()));
    size_t size = out.size();
    if (choices_.one_in(8)) size = choices_.below(size + 1);
    node::Bus::Datagram datagram;
    datagram.from = static_cast<node::ContextSlot>(choices_.one_in(4) ? choices_.any() : 0);
    datagram.bytes.assign(bytes, bytes + size);
    if (choices_.one_in(3)) datagram.fd = Fd(::memfd_create("bus", MFD_CLOEXEC));
    if (datagram.fd && choices_.one_in(2)) {
      const uint64_t words[] = {word(), word(), word(), choices_.any()};
      REQUIRE(::write(datagram.fd.get(), words, sizeof words) == sizeof words);
    }
    return datagram;
  }

 private:
  uint64_t word() {
    const uint64_t borders[] = {0,
                                1,
                                2,
                                3,
                                kPages - 1,
                                kPages,
                                kPages + 1,
                                kPageSize,
                                kSize,
                                kSize + 1,
                                kSize - 1,
                                view_,
                                view_ + 1,
                                UINT32_MAX,
                                INT32_MAX,
                                ~uint64_t{0},
                                uint64_t{1} << 32};
    return choices_.one_in(8) ? choices_.any() : borders[choices_.below(std::size(borders))];
  }

  Choices& choices_;
  const int32_t segment_;
  const uint64_t view_;
};

}  // namespace

void play_datagrams(Choices& choices, uint64_t most) {
  NodeFolder folder;
  auto net = fabric::FakeNet::make({});
  Context home(*net, folder.config("home")), peer(*net, folder.config("peer"));
  const auto made = home.home->create(kSize, 0, 0);
  REQUIRE(made);
  const auto attached =
      home.home->views().attach(*made, kSize, nullptr, false, Deadline::in(kSecond));
  REQUIRE(attached);
  auto* const at_home = static_cast<std::byte*>(*attached);
  std::fill_n(at_home, kSize, kCanary);
  const auto handle = home.home->exports().export_segment(*made, 0, 0);
  const auto token =
      home.home->exports().new_token(*made, true, {}, fabric::kRead | fabric::kWrite, nullptr);
  REQUIRE(handle);
  REQUIRE(token);

  const std::jthread serving = service_threads_of(home, peer);
  const Deadline soon = Deadline::in(60 * kSecond);
  auto imported = peer.importer->joining().import(*handle, 1, false, {soon, soon});
  REQUIRE(imported);
  REQUIRE(ok(peer.importer->tokens().set(*imported, *token, soon)));
  REQUIRE(ok(peer.importer->views().prepare(**imported, false)));
  auto view = peer.importer->views().attach(*imported, nullptr, false);
  REQUIRE(view);
  const auto loaded = [&](uint32_t page) {
    const std::byte* const at = (*view)->addr + size_t{page} * kPageSize;
    REQUIRE(peer.importer->faults().serve(**view, at, false, nullptr, soon) == Exception::kNone);
    return (*imported)->page_data(page)[7];
  };

  Datagrams datagrams(choices, *made, at_home);
  for (uint64_t i = 0; i < most && !choices.over(); ++i) {
    home.home->on_datagram(datagrams.next());
    // A page that is held, so that there is somebody to be told.
    if (i % 64 == 0) REQUIRE(loaded(static_cast<uint32_t>(choices.below(kPages))) == kCanary);
  }

  CHECK(std::all_of(at_home, at_home + kSize, [](std::byte b) { return b == kCanary; }));
  // Nothing that was told is waited for, and what is stored arrives still.
  CHECK(ok(home.home->barriers().barrier(20 * kSecond)));
  for (uint32_t page = 0; page < kPages; ++page) {
    std::byte* const at = (*view)->addr + size_t{page} * kPageSize;
    REQUIRE(peer.importer->faults().serve(**view, at, true, nullptr, soon) == Exception::kNone);
    (*imported)->page_data(page)[7] = std::byte(page + 1);
  }
  LossMark mark;
  CHECK(ok(peer.importer->publishing().barrier(mark, {soon})));
  for (uint32_t page = 0; page < kPages; ++page) {
    CHECK(at_home[page * kPageSize + 7] == std::byte(page + 1));
  }
  peer.importer->views().detach(*view, soon);
}

namespace {

TEST_CASE("random_datagrams_of_a_process_of_the_node_do_no_harm") {
  const uint64_t seed = number_from("CMI_TEST_SEED", 5);
  CAPTURE(seed);
  Choices choices(seed);
  play_datagrams(choices, fuzz_count(200'000));
}

}  // namespace

}  // namespace cmi::test
