#include "core/context/reservation.hpp"

namespace cmi::context {

Status Reservation::reserve(cmi_cfg_mreq* request) {
  Guard g(mu_);
  uint64_t key = key_.load();
  Status status = Status::kOk;
  if (key == 0) {
    auto made = node_.reservations().make(request->mem_reserve);
    status = made.status();
    if (made) {
      key = request->rsv_key = *made;
      key_.store(key);
    }
  } else {
    status = node_.reservations().resize(key, request->mem_reserve);
  }
  request->mem_allocd = 0;
  if (key != 0) {
    if (auto now = node_.reservations().find(key); now) request->mem_allocd = now->used;
  }
  return status;
}

Status Reservation::use(uint64_t key) {
  Guard g(mu_);
  if (key != 0) {
    if (auto found = node_.reservations().find(key); !found) return found.status();
  }
  key_.store(key);
  return Status::kOk;
}

Status Reservation::remove() {
  Guard g(mu_);
  const uint64_t key = key_.load();
  if (key == 0) return Status::kInval;
  if (Status s = node_.reservations().remove(key); !ok(s)) return s;
  key_.store(0);
  return Status::kOk;
}

}  // namespace cmi::context
