// The memory reservation that this context makes its segments in.
#include "core/context/context.hpp"

namespace cmi::context {

Status Context::reserve_memory(cmi_cfg_mreq* request) {
  Guard g(reservation_mu_);
  uint64_t key = reservation_.load();
  Status status = Status::kOk;
  if (key == 0) {
    auto made = node_->reserve(request->mem_reserve);
    status = made.status();
    if (made) {
      key = request->rsv_key = *made;
      reservation_.store(key);
    }
  } else {
    status = node_->resize_reservation(key, request->mem_reserve);
  }
  request->mem_allocd = 0;
  if (key != 0) {
    if (auto now = node_->find_reservation(key); now) request->mem_allocd = now->used;
  }
  return status;
}

Status Context::use_reservation(uint64_t key) {
  Guard g(reservation_mu_);
  if (key != 0) {
    if (auto found = node_->find_reservation(key); !found) return found.status();
  }
  reservation_.store(key);
  return Status::kOk;
}

Status Context::delete_reservation() {
  Guard g(reservation_mu_);
  const uint64_t key = reservation_.load();
  if (key == 0) return Status::kInval;
  if (Status s = node_->delete_reservation(key); !ok(s)) return s;
  reservation_.store(0);
  return Status::kOk;
}

}  // namespace cmi::context
