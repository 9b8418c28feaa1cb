// The context of an importer ends.
#include "core/memory/home/access_check.hpp"
#include "core/memory/home/requests/handlers.hpp"
#include "core/memory/home/sharing.hpp"

namespace cmi::memory {

void on_goodbye(HomeCore& home, const fabric::ClientInfo& client, uint64_t number,
                const GoodbyeRequest&) {
  Finished done;
  access::NaddrInfo who;
  std::vector<int32_t> segments;
  {
    Guard g(home.mu);
    segments = imported_by(home, client.id, &who);
  }
  forget_client(home, client.id, &done);
  run(done);
  if (!segments.empty()) home.parts.observer.importer_down(who, std::move(segments));
  reply(home.parts.server, client.id, number, WireStatus::kOk);
}

}  // namespace cmi::memory
