// See happenings.hpp.
#include "system/happenings.hpp"

#include <poll.h>

#include <algorithm>
#include <cstring>

namespace cmi::test {

std::vector<cmi_seg> Happening::segments() const { return {segs.begin(), segs.begin() + n}; }

std::vector<uint64_t> Happening::lines() const {
  return {addresses.begin(), addresses.begin() + n};
}

bool Happening::names(size_t i, const Flat& address) const {
  return address.size == peers[i].size() &&
         std::memcmp(peers[i].data(), address.bytes.data(), peers[i].size()) == 0;
}

Happening copy_of(const cmi_event* event) {
  Happening h;
  h.error = cmi_get_error(ctxt());
  if (event == nullptr) return h;
  h.type = event->type;
  h.own_context = event->ctxt == ctxt();
  const auto peer = [&h](size_t i, const cmi_naddr* address) {
    if (i < h.peers.size()) std::memcpy(h.peers[i].data(), address, h.peers[i].size());
  };
  switch (event->type) {
    case CMI_EVENT_QUIESCE:
    case CMI_EVENT_RESUME:
      h.seg = event->seg.einfo_seg;
      break;
    case CMI_EVENT_RCTXT_DOWN:
    case CMI_EVENT_HCTXT_DOWN:
      h.n = event->down.einfo_nsegs;
      for (uint32_t i = 0; i < std::min<size_t>(h.n, h.segs.size()); ++i) {
        h.segs[i] = event->down.einfo_segs[i];
      }
      peer(0, event->down.einfo_naddr);
      break;
    case CMI_EVENT_STORE_FAILURE:
    case CMI_EVENT_HW:
      h.seg = event->serr.einfo_seg;
      h.n = event->serr.einfo_naddrs;
      for (uint32_t i = 0; i < std::min<size_t>(h.n, h.addresses.size()); ++i) {
        h.addresses[i] = reinterpret_cast<uint64_t>(event->serr.einfo_addr[i]);
      }
      break;
    case CMI_EVENT_CMAP:
      h.request = event->cmap.einfo_reqid;
      h.n = event->cmap.einfo_nnodes;
      for (uint32_t i = 0; i < h.n; ++i) peer(i, event->cmap.einfo_nodes[i]);
      break;
  }
  return h;
}

Happening next_happening(Process& process) {
  return process.run([] {
    cmi_event* event = CMIFN(ctxt(), 10, evt_get)(ctxt());
    const Happening h = copy_of(event);
    if (event != nullptr) CMIFN(ctxt(), 10, evt_ret)(event, CMI_EVENT_RET_DONE);
    return h;
  });
}

Happening await_happening(Process& process, int seconds) {
  return process
      .start(
          [](int patience) {
            pollfd p{cmi_ofi_evt_fd(ctxt()), POLLIN, 0};
            if (::poll(&p, 1, patience * 1000) <= 0) return Happening{};
            cmi_event* event = CMIFN(ctxt(), 10, evt_get)(ctxt());
            const Happening h = copy_of(event);
            if (event != nullptr) CMIFN(ctxt(), 10, evt_ret)(event, CMI_EVENT_RET_DONE);
            return h;
          },
          seconds)
      .get(seconds + 5);
}

std::string types_waiting(Process& process) {
  std::string types;
  for (Happening h = next_happening(process); h.type != 0; h = next_happening(process)) {
    types += (types.empty() ? "" : " ") + std::to_string(h.type);
  }
  return types;
}

}  // namespace cmi::test
