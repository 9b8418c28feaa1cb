// Which of a home's listeners a link takes, and what it does about those that do not answer.

#include "fabric/link_world.hpp"

namespace cmi::test::link_routes_test {
namespace {

using namespace link_world;
using fabric::FakeNet;
using fabric::Link;

CMI_CONTRACT(a_listener_that_does_not_answer_gives_way_to_the_next, world) {
  Two two(world);
  Buffer gone;
  {
    Party former(world.open());
    gone = former.listener();
  }
  const auto route = [&](const Buffer& listener) {
    return fabric::Route{two.client.fabric.get(), 0, false, two.client.listener(), listener};
  };
  std::vector<Buffer> taken;
  Link link({route(gone), route(two.home.listener())}, two.client.identity(), two.home.id, kLong,
            [&](const fabric::Route& r) {
              taken.push_back(r.home_listener);
              return true;
            });
  auto asked = link.start(7, buffer(41));  // before there is any session
  CHECK(link.await(asked, Deadline::in(kLong)) == Cause::kOk);
  CHECK(word(asked->reply()) == 42);
  CHECK(link.home_listener().blob == two.home.listener());
  CHECK(link.home_listeners().size() == 2);
  CHECK(taken.size() >= 2);
  CHECK(taken.front() == gone);
  CHECK(taken.back() == two.home.listener());
  CHECK(two.home.handler.most_often() == 1);
}

// A provider whose address or device has gone.
class NoEndpoints final : public Fabric {
 public:
  explicit NoEndpoints(const Traits& traits) : traits_(traits) {}
  const Traits& traits() const override { return traits_; }
  Result<std::unique_ptr<Endpoint>> open_endpoint(fabric::Receiver&, Endpoint*) override {
    return Status::kHw;
  }
  Result<std::unique_ptr<Region>> register_memory(void*, size_t, uint32_t, uint64_t,
                                                  Endpoint*) override {
    return Status::kNoMem;
  }

 private:
  const Traits traits_;
};

CMI_CONTRACT(a_way_that_opens_no_endpoint_any_more_gives_way_to_the_next, world) {
  Two two(world);
  NoEndpoints none(two.client.fabric->traits());
  const auto route = [&](Fabric& fabric) {
    return fabric::Route{&fabric, 0, false, two.client.listener(), two.home.listener()};
  };
  Link link({route(none), route(*two.client.fabric)}, two.client.identity(), two.home.id, kLong,
            {});
  auto asked = link.start(7, buffer(41));
  CHECK(link.await(asked, Deadline::in(kLong)) == Cause::kOk);
  CHECK(word(asked->reply()) == 42);
  CHECK_FALSE(link.health().local_fault());
  Link cut_off({route(none), route(none)}, two.client.identity(), two.home.id, kLong, {});
  CHECK(cut_off.session(Deadline::in(20 * kMilli)) == nullptr);
  CHECK(cut_off.health().local_fault());
}

// So many that with half a second each it would take twelve.
TEST_CASE("many_listeners_that_are_silent_share_the_time_of_a_few") {
  constexpr size_t kSilent = 24;
  auto net = FakeNet::make({});
  Two two(*net);
  Inbox nobody;
  std::vector<std::unique_ptr<Endpoint>> silent;
  std::vector<fabric::Route> routes;
  const auto add = [&](Bytes listener) {
    routes.push_back({two.client.fabric.get(),
                      0,
                      false,
                      two.client.listener(),
                      {listener.begin(), listener.end()}});
  };
  for (size_t i = 0; i < kSilent; ++i) {
    auto ep = two.home.fabric->open_endpoint(nobody);
    REQUIRE(ep);
    net->vanish((*ep)->address());
    add((*ep)->address());
    silent.push_back(ep.take());
  }
  add(two.home.listener());
  Link link(routes, two.client.identity(), two.home.id, kLong, {});
  CHECK(link.session(Deadline::in(slowness() * 8 * kSecond)) != nullptr);
  CHECK(link.home_listener().blob == two.home.listener());
}

CMI_CONTRACT(listeners_that_are_no_addresses_are_passed_over, world) {
  Two two(world);
  const Buffer none(3, std::byte{7});
  const auto route = [&](const Buffer& listener) {
    return fabric::Route{two.client.fabric.get(), 0, false, two.client.listener(), listener};
  };
  Link link({route(none), route(two.home.listener())}, two.client.identity(), two.home.id, kLong,
            {});
  CHECK(link.session(Deadline::in(kLong)) != nullptr);
  CHECK_FALSE(link.routes().without_listener());
  Link lost({route(none), route(none)}, two.client.identity(), two.home.id, kLong, {});
  CHECK(comes_true([&] { return lost.advance(), lost.routes().without_listener(); }));
  Link refused({route(two.home.listener())}, two.client.identity(), two.home.id, kLong,
               [](const fabric::Route&) { return false; });
  CHECK(comes_true([&] { return refused.advance(), refused.routes().without_listener(); }));
}

}  // namespace
}  // namespace cmi::test::link_routes_test
