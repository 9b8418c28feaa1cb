#include "core/rendezvous/pmix_offers.hpp"

#include "core/base/cause.hpp"

#if __has_include(<pmix.h>)

#include <dlfcn.h>
#include <pmix.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace cmi::rendezvous {

namespace {

constexpr size_t kMaxOffers = 1024;
constexpr Nanos kLongestWait = 5 * kSecond;  // then it is asked again, whatever a server does

std::string key_of(const std::string& name) { return "cmi." + name; }

}  // namespace

struct PmixOffers::Joined {
  decltype(&PMIx_Init) init = nullptr;
  decltype(&PMIx_Finalize) finalize = nullptr;
  decltype(&PMIx_Put) put = nullptr;
  decltype(&PMIx_Commit) commit = nullptr;
  decltype(&PMIx_Get) get = nullptr;
  pmix_proc_t self{};

  // The library stays: its threads and what it has registered with the process would not.
  bool load(const std::string& library) {
    void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (handle == nullptr) return false;
    const auto find = [&](auto* call, const char* name) {
      *call = reinterpret_cast<std::decay_t<decltype(*call)>>(::dlsym(handle, name));
      return *call != nullptr;
    };
    return find(&init, "PMIx_Init") && find(&finalize, "PMIx_Finalize") && find(&put, "PMIx_Put") &&
           find(&commit, "PMIx_Commit") && find(&get, "PMIx_Get");
  }
};

PmixOffers::PmixOffers(std::string library) : library_(std::move(library)) {}

PmixOffers::~PmixOffers() {
  Guard g(mu_);
  if (joined_ != nullptr) joined_->finalize(nullptr, 0);
}

Result<PmixOffers::Joined*> PmixOffers::join() {
  if (joined_ != nullptr) return joined_.get();
  auto joined = std::make_unique<Joined>();
  if (!joined->load(library_)) return because(Status::kNotSupp, "libpmix is not there");
  // Without a server PMIx_Init would look for one.
  if (std::getenv("PMIX_NAMESPACE") == nullptr ||
      joined->init(&joined->self, nullptr, 0) != PMIX_SUCCESS) {
    return because(Status::kNotSupp, "no launcher with PMIx has started this process");
  }
  joined_ = std::move(joined);
  return joined_.get();
}

Status PmixOffers::put(std::optional<uint32_t> rank, const std::string& name, const Offer& offer) {
  auto text = offer_text(offer);
  if (!text) return text.status();
  Guard g(mu_);
  const auto joined = join();
  if (!joined) return joined.status();
  const Joined& pmix = **joined;
  if (rank.value_or(pmix.self.rank) != pmix.self.rank) {
    return because(Status::kInval, "the rank is another process's");
  }
  if (names_.count(name) != 0) {
    return because(Status::kNotSupp, "what is offered with PMIx cannot be changed");
  }
  if (names_.size() >= kMaxOffers) return because(Status::kNoMem, "this process offers too much");
  pmix_value_t value{};
  value.type = PMIX_STRING;
  value.data.string = text->data();  // copied by the call
  if (pmix.put(PMIX_GLOBAL, key_of(name).c_str(), &value) != PMIX_SUCCESS ||
      pmix.commit() != PMIX_SUCCESS) {
    return because(Status::kHw, "the PMIx server does not take it");
  }
  names_.insert(name);
  return Status::kOk;
}

Result<Offer> PmixOffers::find(uint32_t rank, const std::string& name, Deadline deadline) {
  Joined* pmix = nullptr;
  {
    SignalsBlocked quiet;
    Guard g(mu_);
    const auto joined = join();
    if (!joined) return joined.status();
    pmix = *joined;
  }
  pmix_proc_t from = pmix->self;
  from.rank = rank;
  const Nanos wait = std::clamp(deadline.left(), kSecond, kLongestWait);
  pmix_info_t timeout{};
  std::strncpy(timeout.key, PMIX_TIMEOUT, sizeof timeout.key - 1);
  timeout.value.type = PMIX_INT;
  timeout.value.data.integer = static_cast<int>((wait + kSecond - 1) / kSecond);
  pmix_value_t* value = nullptr;
  if (pmix->get(&from, key_of(name).c_str(), &timeout, 1, &value) != PMIX_SUCCESS) {
    return because(Status::kReconfig, "nobody offers it yet");
  }
  std::string text;
  if (value->type == PMIX_STRING && value->data.string != nullptr) {
    text.assign(value->data.string, ::strnlen(value->data.string, kMaxOfferText + 1));
    std::free(value->data.string);
  }
  std::free(value);
  return parse_offer(text);
}

}  // namespace cmi::rendezvous

#else

namespace cmi::rendezvous {

namespace {
Status not_built() { return because(Status::kNotSupp, "libcmi was built without PMIx"); }
}  // namespace

struct PmixOffers::Joined {};
PmixOffers::PmixOffers(std::string library) : library_(std::move(library)) {}
PmixOffers::~PmixOffers() = default;
Result<PmixOffers::Joined*> PmixOffers::join() { return not_built(); }
Status PmixOffers::put(std::optional<uint32_t>, const std::string&, const Offer& offer) {
  // What is wrong with an offer is the same with and without PMIx.
  const auto text = offer_text(offer);
  return text ? not_built() : text.status();
}
Result<Offer> PmixOffers::find(uint32_t, const std::string&, Deadline) { return not_built(); }

}  // namespace cmi::rendezvous

#endif
