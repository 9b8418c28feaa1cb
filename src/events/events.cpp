// See events.hpp.
#include "events/events.hpp"

#include <cstdlib>
#include <new>

#include "core/base/log.hpp"
#include "events/connectivity_map.hpp"
#include "events/context_down.hpp"
#include "events/quiesce_event.hpp"
#include "events/store_failure.hpp"

namespace cmi::events {

Result<std::unique_ptr<Events>> Events::open(Host& host) {
  auto queue = Queue::open();
  if (!queue) return queue.status();
  return std::unique_ptr<Events>(new Events(host, queue.take()));
}

Events::~Events() {
  for (auto& [event, out] : out_) host_.release(event);
}

Result<cmi_event*> Events::get() {
  for (size_t room; queue_->next(&room);) {
    // Before the event leaves the queue, so that none is lost for want of memory.
    void* block = host_.allocate(sizeof(cmi_event) + room);
    if (block == nullptr) return Status::kNoMem;
    auto* out = new (block) cmi_event{};
    std::unique_ptr<Event> event;
    int32_t segment = 0;
    {
      SignalsBlocked quiet;
      Guard g(mu_);
      event = queue_->take(room);
      if (event != nullptr) {
        segment = event->view_of();
        // In one step with the taking: a loss from here on makes no further event.
        if (segment != 0) failed_.insert(segment);
        out_[out] = {event->type, std::move(event->returned)};
      }
    }
    if (event == nullptr) {
      host_.release(block);
      continue;
    }
    out->type = event->type;
    out->ctxt = host_.client_handle();
    event->fill(out, Block(static_cast<std::byte*>(block) + sizeof(cmi_event)),
                segment != 0 ? host_.lowest_view(segment) : nullptr, out->ctxt->base.verno);
    return out;
  }
  return static_cast<cmi_event*>(nullptr);
}

bool Events::give_back(cmi_event* event, cmi_event_ret status) {
  Out out{};
  {
    SignalsBlocked quiet;
    Guard g(mu_);
    auto it = out_.find(event);
    if (it == out_.end()) return false;
    out = std::move(it->second);
    out_.erase(it);
  }
  if (out.type == CMI_EVENT_QUIESCE && status != CMI_EVENT_RET_DONE) {
    trace(kFacEvt, kError, "evt_ret: the client could not quiesce segment {}: the process ends",
          event->seg.einfo_seg);
    std::abort();
  }
  if (out.returned) {
    SignalsBlocked quiet;
    out.returned();
  }
  host_.release(event);
  return true;
}

void Events::map(uint64_t request, const std::vector<access::NaddrInfo>& cut_off) {
  queue_->push(std::make_unique<ConnectivityMap>(request, cut_off));
}

void Events::recovered(int32_t segment) {
  Guard g(mu_);
  failed_.erase(segment);
}

void Events::forget(int32_t segment) {
  Guard g(mu_);
  failed_.erase(segment);
  queue_->forget(segment);
}

void Events::context_down(cmi_event_type type, const access::NaddrInfo& who,
                          std::vector<int32_t> segments) {
  trace(kFacEvt, kInfo, "context {:016x} is down, {} segments", who.context.hi, segments.size());
  queue_->push(std::make_unique<ContextDown>(type, who, std::move(segments)));
  Guard g(mu_);
  cut_off_.erase(who.context);  // it does not come back
}

void Events::importer_down(const access::NaddrInfo& who, std::vector<int32_t> segments) {
  context_down(CMI_EVENT_RCTXT_DOWN, who, std::move(segments));
}

void Events::home_down(const access::NaddrInfo& who, std::vector<int32_t> segments) {
  context_down(CMI_EVENT_HCTXT_DOWN, who, std::move(segments));
}

void Events::stores_lost(int32_t segment, std::vector<uint32_t> pages, bool local) {
  trace(kFacEvt, kWarn, "segment {}: stores to {} pages are lost", segment, pages.size());
  auto event = std::make_unique<StoreFailure>(segment, std::move(pages), local);
  Guard g(mu_);
  if (!failed_.contains(segment)) queue_->push(std::move(event));
}

void Events::unreachable(const access::NaddrInfo& who) {
  trace(kFacEvt, kWarn, "context {:016x} cannot be reached", who.context.hi);
  {
    Guard g(mu_);
    if (!cut_off_.insert(who.context).second) return;
  }
  map(0, {who});
}

void Events::quiesced(int32_t segment, std::function<void()> returned) {
  auto event = std::make_unique<Quiesce>(CMI_EVENT_QUIESCE, segment);
  event->returned = std::move(returned);
  queue_->push(std::move(event));
}

void Events::resumed(int32_t segment) {
  queue_->push(std::make_unique<Quiesce>(CMI_EVENT_RESUME, segment));
}

}  // namespace cmi::events
