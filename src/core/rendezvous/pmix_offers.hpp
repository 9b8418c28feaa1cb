// Offers that the PMIx server of a launcher carries from one process of a job to the others:
// PMIx_Put, PMIx_Commit, PMIx_Get, by the rank of who offers, which every launcher with PMIx knows.
// libpmix is loaded by the first use, stays loaded, and is joined once for a context. Built without
// its headers, or where it or a launcher is not there, all calls say kNotSupp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "core/base/clock.hpp"
#include "core/base/lock.hpp"
#include "core/rendezvous/offer.hpp"

namespace cmi::rendezvous {

class PmixOffers {
 public:
  explicit PmixOffers(std::string library = "libpmix.so.2");
  ~PmixOffers();
  PmixOffers(const PmixOffers&) = delete;
  PmixOffers& operator=(const PmixOffers&) = delete;

  // Any thread. `rank`: this process's, or nullopt. kInval: another's rank, or as offer_text();
  // kNotSupp: also where the name was offered before, since servers keep what they have; kHw: the
  // server has refused it.
  Status put(std::optional<uint32_t> rank, const std::string& name, const Offer& offer);
  // Waits for what the process of this rank offers. The server knows whole seconds: at least one.
  // kReconfig: nothing by then; kInval: damaged.
  Result<Offer> find(uint32_t rank, const std::string& name, Deadline deadline);

 private:
  struct Joined;
  Result<Joined*> join() CMI_REQUIRES(mu_);

  const std::string library_;
  Mutex mu_;
  std::unique_ptr<Joined> joined_ CMI_GUARDED_BY(mu_);  // set once; its calls may be made unlocked
  std::set<std::string> names_ CMI_GUARDED_BY(mu_);     // offered
};

}  // namespace cmi::rendezvous
