// See ways.hpp.
#include "fabric/local_interface.hpp"

#include <algorithm>
#include <map>
#include <optional>
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
    std::string item = list.substr(at, comma == std::string::npos ? comma : comma - at);
    if (std::find(items.begin(), items.end(), item) == items.end()) items.push_back(item);
    if (comma == std::string::npos) return items;
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

bool is_device(const std::string& provider) { return provider.find("verbs") != std::string::npos; }

// What one start of a context has opened.
class Opening {
 public:
  Result<std::string> open(const std::string& provider, const std::string& address, bool may_fail) {
    Config config{provider, address, {}, may_fail};
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
    auto linking = open_fabric({name, address, {name}, may_fail});
    if (!linking) return linking.status();
    // A software provider's swap whose answer is lost is one of unknown fate, and by its atomics
    // the home's CPU makes it all the same: by message it is made exactly once.
    const bool cas =
        is_device(name) && found->second && (*serving)->traits().cas && (*linking)->traits().cas;
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

// What came of one provider at all addresses.
struct Tried {
  bool any = false;           // it works somewhere
  bool device = false;        // on a device that not every node has
  std::optional<Status> why;  // the last failure
  bool fatal = false;         // the failure ends the opening
};

// An address that was only found may be left out; and it leaves a place for loopback, which is the
// last one found.
bool has_place(const Opening& opening, const Address& a, const Address& last) {
  return opening.size() < (a.found && &a != &last ? kMaxWays - 1 : kMaxWays);
}

// `works`: the addresses at which a provider works, or for which there is no place.
Tried open_at_each(Opening& opening, const std::string& provider, const std::vector<Address>& at,
                   bool several, std::set<std::string>& works) {
  Tried tried;
  for (const Address& a : at) {
    if (!has_place(opening, a, at.back())) {
      if (!a.found) {
        alert(kFacIni, "more than {} ways to be reached: fewer in CMI_PROVIDER or CMI_ADDRESS",
              kMaxWays);
        return {.why = Status::kInval, .fatal = true};
      }
      trace(kFacIni, kWarn, "more than {} ways to be reached: not at {}", kMaxWays, a.text);
    } else {
      auto opened = opening.open(provider, a.text, a.found && several);
      if (!opened) {
        tried.why = opened.status();
        tried.fatal = opened.status() == Status::kNoMem || !several;
        if (tried.fatal) return tried;
        continue;
      }
      tried.device = tried.device || is_device(*opened);
    }
    works.insert(a.text);
    tried.any = true;
  }
  return tried;
}

}  // namespace

Result<std::vector<LocalInterface>> open_ways(const std::string& providers,
                                              const std::string& addresses) {
#ifdef CMI_FAULT_POINTS
  if (g_simulated_ways != nullptr) return g_simulated_ways();
#endif
  auto at = addresses_of(addresses);
  if (!at) return at.status();
  std::vector<std::string> wanted = split(providers);
  const bool several = at->size() > 1 || wanted.size() > 1;
  Opening opening;
  std::set<std::string> works;
  Status why = Status::kNotSupp;
  // One provider after the other, so that all ways of the better one come first.
  for (size_t k = 0; k < wanted.size(); ++k) {
    const Tried tried = open_at_each(opening, wanted[k], *at, several, works);
    if (tried.why) why = *tried.why;
    if (tried.fatal || !tried.any) return why;
    // Not every node has such a device.
    if (wanted[k].empty() && tried.device && several) wanted.emplace_back("tcp");
  }
  for (const Address& a : *at) {
    if (works.count(a.text) != 0) continue;
    if (!a.found) return why;
    trace(kFacIni, kWarn, "no provider works at {}: nobody reaches us there", a.text);
  }
  return opening.take();
}

}  // namespace cmi::fabric
