// See ways.hpp.
#include "fabric/local_interface.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "core/base/log.hpp"
#include "fabric/ofi/address.hpp"

namespace cmi::fabric {

namespace {

// Empty items stay: they are refused by whoever looks at them.
std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> items;
  for (size_t at = 0;;) {
    const size_t comma = list.find(',', at);
    std::string item = list.substr(at, comma == list.npos ? comma : comma - at);
    if (std::find(items.begin(), items.end(), item) == items.end()) items.push_back(item);
    if (comma == list.npos) return items;
    at = comma + 1;
  }
}

struct Address {
  std::string text;
  bool found = false;  // by `auto`: it need not work
};

Result<std::vector<Address>> addresses_of(const std::string& list) {
  std::vector<Address> all;
  const auto add = [&](const std::string& text, bool found) {
    const auto same = [&](const Address& a) { return a.text == text; };
    if (std::none_of(all.begin(), all.end(), same)) all.push_back({text, found});
  };
  for (const std::string& wish : split(list)) {
    if (wish == "auto") {
      auto found = ofi::reachable_addresses();
      if (!found) return found.status();
      for (const std::string& text : *found) add(text, true);
      continue;
    }
    auto address = ofi::local_address(wish);
    if (!address) return address.status();
    add(*address, false);
  }
  return all;
}

bool is_device(const std::string& provider) { return provider.find("verbs") != provider.npos; }

// What one start of a context has opened.
class Opening {
 public:
  Result<std::string> open(const std::string& provider, const std::string& address) {
    Config config{provider, address, {}};
    // What holds of one address holds of all where the kernel moves the bytes; devices differ.
    for (auto& [name, cas] : tried_) {
      if (!is_device(name)) config.tried.push_back(name);
    }
    auto serving = open_fabric(config);
    if (!serving) return serving.status();
    const std::string name = (*serving)->traits().provider;
    const auto found = tried_.try_emplace(name, (*serving)->traits().cas).first;
    // The best at an address may be one that was asked for by name as well.
    if (!opened_.insert({name, address}).second) return name;
    auto linking = open_fabric({name, address, {name}});
    if (!linking) return linking.status();
    const bool cas = found->second && (*serving)->traits().cas && (*linking)->traits().cas;
    interfaces_.push_back({serving.take(), linking.take(), cas});
    return name;
  }
  std::vector<LocalInterface> take() { return std::move(interfaces_); }
  size_t size() const { return interfaces_.size(); }

 private:
  std::vector<LocalInterface> interfaces_;
  std::map<std::string, bool> tried_;  // provider: its swaps are good
  std::set<std::pair<std::string, std::string>> opened_;
};

}  // namespace

Result<std::vector<LocalInterface>> open_ways(const std::string& providers,
                                              const std::string& addresses) {
  auto at = addresses_of(addresses);
  if (!at) return at.status();
  std::vector<std::string> wanted = split(providers);
  const bool several = at->size() > 1 || wanted.size() > 1;
  Opening opening;
  std::set<std::string> works;  // addresses
  Status why = Status::kNotSupp;
  // One list after the other, so that all ways of the better provider come first.
  for (size_t k = 0; k < wanted.size(); ++k) {
    bool any = false, device = false;
    for (const Address& a : *at) {
      // What was only found may be left out; and it leaves a place for loopback, the last one
      // found.
      if (opening.size() >= (a.found && &a != &at->back() ? kMaxWays - 1 : kMaxWays)) {
        if (!a.found) {
          alert(kFacIni, "more than {} ways to be reached: fewer in CMI_PROVIDER or CMI_ADDRESS",
                kMaxWays);
          return Status::kInval;
        }
        trace(kFacIni, kWarn, "more than {} ways to be reached: not at {}", kMaxWays, a.text);
        works.insert(a.text);
        any = true;
        continue;
      }
      auto opened = opening.open(wanted[k], a.text);
      if (!opened) {
        why = opened.status();
        if (why == Status::kNoMem || !several) return why;
        continue;
      }
      any = true;
      device = device || is_device(*opened);
      works.insert(a.text);
    }
    if (!any) return why;
    // Not everybody has such a device.
    if (wanted[k].empty() && device && several) wanted.emplace_back("tcp");
  }
  for (const Address& a : *at) {
    if (works.count(a.text) != 0) continue;
    if (!a.found) return why;
    trace(kFacIni, kWarn, "no provider works at {}: nobody reaches us there", a.text);
  }
  return opening.take();
}

}  // namespace cmi::fabric
