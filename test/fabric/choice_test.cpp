// Which provider is tried first, told from what libfabric answers: a stand-in for it has what no
// machine of a test has, a device. And what happens to one that fails its trial.
#include <rdma/fi_errno.h>

#include <algorithm>

#include "fabric/ofi/first.hpp"
#include "fabric/ofi/info.hpp"
#include "fabric/world.hpp"
#include "support/skip.hpp"

namespace cmi::test::choice_test {
namespace {

namespace ofi = fabric::ofi;
using Names = std::vector<std::string>;

constexpr const char* kDeviceAddress = "192.0.2.1";
Names offered;  // by the stand-in; verbs at the address of its device only
Names asked_for;

int answer(uint32_t, const char* node, const char*, uint64_t, const fi_info* hints,
           fi_info** list) {
  const std::string asked = hints->fabric_attr->prov_name;
  asked_for.push_back(asked);
  const auto at = std::find(offered.begin(), offered.end(), asked);
  const bool device = asked.find("verbs") != asked.npos;
  if (at == offered.end() || (device && node != std::string(kDeviceAddress))) return -FI_ENODATA;
  *list = ofi::libfabric()->dupinfo(hints);
  return *list != nullptr ? 0 : -FI_ENOMEM;
}

// Null without libfabric.
std::unique_ptr<ofi::Libfabric> stand_in(const Names& has) {
  if (ofi::libfabric() == nullptr) return nullptr;
  offered = has;
  auto lib = std::make_unique<ofi::Libfabric>(*ofi::libfabric());
  lib->getinfo = answer;
  return lib;
}

// The names, each with a blank behind it.
std::string order(const ofi::Libfabric& lib, const std::string& provider,
                  const std::string& address) {
  std::string names;
  for (const ofi::Info& i : ofi::candidates(provider, address, lib)) {
    names += std::string(i->fabric_attr->prov_name) + " ";
  }
  return names;
}

TEST_CASE("where_there_is_a_device_verbs_is_tried_before_tcp") {
  for (const std::string native : {"net", "tcp"}) {  // up to libfabric 1.17, and after it
    CAPTURE(native);
    const auto lib = stand_in({"sockets", "tcp;ofi_rxm", native, "verbs;ofi_rxm"});
    if (lib == nullptr) return skip("there is no libfabric on this machine");
    CHECK(order(*lib, "", kDeviceAddress) == "verbs;ofi_rxm " + native + " tcp;ofi_rxm ");
    CHECK(order(*lib, "", "127.0.0.1") == native + " tcp;ofi_rxm ");
    // Who asks for tcp gets tcp.
    CHECK(order(*lib, "tcp", kDeviceAddress) == native + " tcp;ofi_rxm ");
    CHECK(order(*lib, "verbs;ofi_rxm", kDeviceAddress) == "verbs;ofi_rxm ");
    CHECK(order(*lib, "verbs;ofi_rxm", "127.0.0.1") == "");
    CHECK(order(*lib, "sockets", kDeviceAddress) == "sockets ");
  }
}

// A question takes libfabric milliseconds: it has its layered providers ask in their turn.
TEST_CASE("a_provider_that_is_not_there_is_asked_for_once") {
  const auto lib = stand_in({"net"});
  if (lib == nullptr) return skip("there is no libfabric on this machine");
  asked_for.clear();
  CHECK(order(*lib, "", "127.0.0.1") == "net ");
  for (const std::string absent : {"verbs;ofi_rxm", "tcp", "tcp;ofi_rxm"}) {
    CAPTURE(absent);
    CHECK(std::count(asked_for.begin(), asked_for.end(), absent) == 1);
  }
  // Once with all that it may ask of us, once with the least.
  CHECK(std::count(asked_for.begin(), asked_for.end(), "net") == 2);
}

TEST_CASE("without_a_native_tcp_provider_rxm_is_the_first") {
  const auto lib = stand_in({"sockets", "tcp;ofi_rxm"});
  if (lib == nullptr) return skip("there is no libfabric on this machine");
  CHECK(order(*lib, "", "127.0.0.1") == "tcp;ofi_rxm ");
  CHECK(order(*stand_in({"sockets"}), "", "127.0.0.1") == "");
}

// Told apart by whether they have swaps.
TEST_CASE("a_provider_that_fails_its_trial_gives_way_to_the_next") {
  if (ofi::libfabric() == nullptr) return skip("there is no libfabric on this machine");
  fabric::ProviderModes unsafe, deaf, good;
  unsafe.keeps_closed_keys = true;
  deaf.wait_fd = false;
  good.atomics = false;
  const auto first = fabric::FakeProvider::make(unsafe), second = fabric::FakeProvider::make(deaf),
             third = fabric::FakeProvider::make(good);
  const auto open = [&](const std::vector<fabric::FakeProvider*>& in_order) {
    std::vector<ofi::Info> found;
    for (fabric::FakeProvider* p : in_order) found.push_back(p->describe());
    return ofi::open_first(std::move(found), {}, "", fabric::open_fabric_of);
  };
  const auto f = open({first.get(), second.get(), third.get()});
  REQUIRE(f);
  CHECK((*f)->traits().wait_fd);
  CHECK(!(*f)->traits().cas);
  CHECK(open({first.get(), second.get()}).status() == Status::kNotSupp);
  // And one that keeps what it says does not.
  std::vector<ofi::Info> found;
  found.push_back(fabric::FakeProvider::make({})->describe());
  found.push_back(third->describe());
  fid_fabric* const unopened = found.back()->fabric_attr->fabric;
  const auto best = ofi::open_first(std::move(found), {}, "", fabric::open_fabric_of);
  REQUIRE(best);
  CHECK((*best)->traits().cas);
  CHECK(fi_close(&unopened->fid) == 0);
}

}  // namespace
}  // namespace cmi::test::choice_test
