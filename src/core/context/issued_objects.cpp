#include "core/context/issued_objects.hpp"

#include <algorithm>
#include <cstring>

namespace cmi::context {

IssuedObjects::~IssuedObjects() {
  Guard g(mu_);
  for (const Issued& i : issued_) allocator_.put(i.object);
}

std::byte* IssuedObjects::issue(Kind kind, size_t size) {
  auto* object = static_cast<std::byte*>(allocator_.get(size));
  if (object == nullptr) return nullptr;
  std::memset(object, 0, size);
  Guard g(mu_);
  issued_.push_back({object, kind});
  return object;
}

bool IssuedObjects::take_back(Kind kind, const void* object, Bytes content) {
  std::byte* found = nullptr;
  {
    Guard g(mu_);
    auto it = std::find_if(issued_.begin(), issued_.end(),
                           [&](const Issued& i) { return i.kind == kind && i.object == object; });
    if (it == issued_.end()) {
      it = std::find_if(issued_.begin(), issued_.end(), [&](const Issued& i) {
        return i.kind == kind && std::memcmp(i.object, content.data(), content.size()) == 0;
      });
    }
    if (it == issued_.end()) return false;
    found = it->object;
    issued_.erase(it);
  }
  allocator_.put(found);
  return true;
}

}  // namespace cmi::context
