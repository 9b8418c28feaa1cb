// Beginning and ending write-backs.
#include "core/memory/importer/write_backs.hpp"

#include <algorithm>

#include "core/base/fault_point.hpp"

namespace cmi::memory {

WriteBackPtr WriteBacks::begin(const std::shared_ptr<Import>& imp) {
  fault_point("write_back_begun");
  auto b = std::make_shared<WriteBack>();
  b->import = imp;
  b->token = imp->token.taken();
  b->done.begin();
  Guard g(mu_);
  b->seq = next_++;
  open_.push_back(b);
  count_.fetch_add(1, std::memory_order_seq_cst);
  return b;
}

bool WriteBacks::end_part(const WriteBackPtr& write_back) {
  if (write_back->parts.fetch_sub(1, std::memory_order_acq_rel) != 1) return false;
  Guard g(mu_);
  open_.erase(std::find(open_.begin(), open_.end(), write_back));
  count_.fetch_sub(1, std::memory_order_seq_cst);
  return true;
}

std::vector<WriteBackPtr> WriteBacks::open() {
  Guard g(mu_);
  return {open_.begin(), open_.end()};
}

}  // namespace cmi::memory
