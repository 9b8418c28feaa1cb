#include "core/memory/home/sharer_table.hpp"

#include "core/base/fault_point.hpp"

namespace cmi::memory {

Sharer* SharerTable::find(const ContextId& client, uint32_t instance) {
  return const_cast<Sharer*>(std::as_const(*this).find(client, instance));
}

const Sharer* SharerTable::find(const ContextId& client, uint32_t instance) const {
  const auto it = index_.find(Key{client, instance});
  return it == index_.end() ? nullptr : &sharers_[it->second];
}

const Sharer* SharerTable::any_of(const ContextId& client) const {
  const auto it = index_.lower_bound(Key{client, 0});
  return it == index_.end() || it->first.first != client ? nullptr : &sharers_[it->second];
}

Sharer* SharerTable::add(const SharerId& id) {
  if (sharers_.size() >= kMaxSharers || fault_point_fails("sharers_full")) return nullptr;
  index_[Key{id.client, id.instance}] = sharers_.size();
  Sharer& sharer = sharers_.emplace_back();
  static_cast<SharerId&>(sharer) = id;
  return &sharer;
}

void SharerTable::clear() {
  sharers_.clear();
  index_.clear();
}

void SharerTable::index_again() {
  index_.clear();
  for (size_t i = 0; i < sharers_.size(); ++i) {
    index_[Key{sharers_[i].client, sharers_[i].instance}] = i;
  }
}

}  // namespace cmi::memory
