// From a request's type to its handler. Each request is decoded and checked before its handler
// runs.
#include "core/memory/wire/dispatch.hpp"

#include "core/memory/home/access_check.hpp"
#include "core/memory/home/home.hpp"
#include "core/memory/home/requests/handlers.hpp"

namespace cmi::memory {

namespace {
using Table = DispatchTable<size_t{static_cast<uint16_t>(RequestType::kLast)} + 1, HomeCore,
                            const ClientInfo&, uint64_t>;

// A handler that is given a flag beside the message.
template <class Message, auto handler, bool flag>
void with(HomeCore& home, const ClientInfo& client, uint64_t number, const Message& m) {
  handler(home, client, number, m, flag);
}

void on_alive(HomeCore& home, const ClientInfo& client, uint64_t number, const AliveRequest&) {
  reply(home.parts.server, client.id, number, WireStatus::kOk);
}

constexpr Table kTable = [] {
  using Type = RequestType;
  Table t;
  t.on<OpenRequest, with<OpenRequest, on_open, false>>(Type::kOpen);
  t.on<OpenRequest, with<OpenRequest, on_open, true>>(Type::kOpenWriteThrough);
  t.on<PresentTokenRequest, with<PresentTokenRequest, on_present_token, false>>(
      Type::kPresentToken);
  t.on<PresentTokenRequest, with<PresentTokenRequest, on_present_token, true>>(
      Type::kPresentTokenWriteThrough);
  t.on<LeaveRequest, on_leave>(Type::kLeave);
  t.on<PublishRequest, on_publish>(Type::kPublish);
  t.on<AnnounceRequest, on_announce>(Type::kAnnounce);
  t.on<RepairRequest, on_repair>(Type::kRepair);
  t.on<CasRequest, on_cas>(Type::kCas);
  t.on<PublishSwapRequest, on_publish_swap>(Type::kPublishSwap);
  t.on<SwapFetchRequest, on_swap_fetch>(Type::kSwapFetch);
  t.on<CauseRequest, on_cause>(Type::kCause);
  t.on<AcquireRequest, on_acquire>(Type::kAcquire);
  t.on<DirtyIntentRequest, with<DirtyIntentRequest, on_dirty_intent, true>>(Type::kDirtyIntent);
  t.on<DirtyIntentRequest, with<DirtyIntentRequest, on_dirty_intent, false>>(Type::kDropIntent);
  t.on<AskFluxRequest, on_ask_flux>(Type::kAskFlux);
  t.on<FetchWithIntentRequest, on_fetch_with_intent>(Type::kFetchWithIntent);
  t.on<AcquireFetchRequest, on_acquire_fetch>(Type::kAcquireFetch);
  t.on<EnterPagesRequest, on_enter_pages>(Type::kEnterPages);
  t.on<AskHolderRequest, on_ask_holder>(Type::kAskHolder);
  t.on<LocalOfferRequest, on_local_offer>(Type::kLocalOffer);
  t.on<SubscribeRequest, on_subscribe>(Type::kSubscribe);
  t.on<GoodbyeRequest, on_goodbye>(Type::kGoodbye);
  t.on<ReturnedRequest, on_returned>(Type::kReturned);
  t.on<AliveRequest, on_alive>(Type::kAlive);
  t.on<LoadRequest, on_load>(Type::kLoad);
  t.on<StoreRequest, on_store>(Type::kStore);
  t.on<SwapRequest, on_swap>(Type::kSwap);
  return t;
}();
}  // namespace

void Home::on_request(const fabric::ClientInfo& client, uint64_t number, uint16_t type, Reader in) {
  SignalsBlocked quiet;
  if (kTable.dispatch(type, core_, client, number, in) == Dispatched::kHandled) return;
  reply(core_.parts.server, client.id, number, WireStatus::kMalformed);
}

}  // namespace cmi::memory
