// What importers ask of a home: a function for each message, each in the file of its name. Every
// field was checked when the message was decoded, but for what only the home knows; nothing here
// waits. Each answers the request, or leaves that to the end of an invalidation round.
#pragma once

#include "core/memory/home/home_core.hpp"
#include "core/memory/wire/requests.hpp"

namespace cmi::memory {

using fabric::ClientInfo;

void on_open(HomeCore& home, const ClientInfo& client, uint64_t number, const OpenRequest& m,
             bool write_through);
void on_present_token(HomeCore& home, const ClientInfo& client, uint64_t number,
                      const PresentTokenRequest& m, bool write_through);
void on_leave(HomeCore& home, const ClientInfo& client, uint64_t number, const LeaveRequest& m);
void on_goodbye(HomeCore& home, const ClientInfo& client, uint64_t number, const GoodbyeRequest& m);
void on_publish(HomeCore& home, const ClientInfo& client, uint64_t number, const PublishRequest& m);
void on_announce(HomeCore& home, const ClientInfo& client, uint64_t number,
                 const AnnounceRequest& m);
void on_repair(HomeCore& home, const ClientInfo& client, uint64_t number, const RepairRequest& m);
void on_cas(HomeCore& home, const ClientInfo& client, uint64_t number, const CasRequest& m);
void on_publish_swap(HomeCore& home, const ClientInfo& client, uint64_t number,
                     const PublishSwapRequest& m);
void on_swap_fetch(HomeCore& home, const ClientInfo& client, uint64_t number,
                   const SwapFetchRequest& m);
void on_cause(HomeCore& home, const ClientInfo& client, uint64_t number, const CauseRequest& m);
void on_acquire(HomeCore& home, const ClientInfo& client, uint64_t number, const AcquireRequest& m);
void on_dirty_intent(HomeCore& home, const ClientInfo& client, uint64_t number,
                     const DirtyIntentRequest& m, bool set);
void on_fetch_with_intent(HomeCore& home, const ClientInfo& client, uint64_t number,
                          const FetchWithIntentRequest& m);
void on_acquire_fetch(HomeCore& home, const ClientInfo& client, uint64_t number,
                      const AcquireFetchRequest& m);
void on_enter_pages(HomeCore& home, const ClientInfo& client, uint64_t number,
                    const EnterPagesRequest& m);
void on_ask_flux(HomeCore& home, const ClientInfo& client, uint64_t number,
                 const AskFluxRequest& m);
void on_ask_holder(HomeCore& home, const ClientInfo& client, uint64_t number,
                   const AskHolderRequest& m);
void on_local_offer(HomeCore& home, const ClientInfo& client, uint64_t number,
                    const LocalOfferRequest& m);
void on_subscribe(HomeCore& home, const ClientInfo& client, uint64_t number,
                  const SubscribeRequest& m);
void on_returned(HomeCore& home, const ClientInfo& client, uint64_t number,
                 const ReturnedRequest& m);
void on_load(HomeCore& home, const ClientInfo& client, uint64_t number, const LoadRequest& m);
void on_store(HomeCore& home, const ClientInfo& client, uint64_t number, const StoreRequest& m);
void on_swap(HomeCore& home, const ClientInfo& client, uint64_t number, const SwapRequest& m);

}  // namespace cmi::memory
