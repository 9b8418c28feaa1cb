// See requests.hpp.
#include "core/memory/wire/requests.hpp"

namespace cmi::memory {

bool StoreRequest::check() const {
  size_t end = 0;
  Reader in(body);
  for (uint32_t i = 0; i < runs; ++i) {
    const Run r = take_run(in);
    if (!in.ok() || r.bytes.empty() || r.at < end) return false;
    end = r.at + r.bytes.size();
    if (end > kMaxWriteThrough) return false;
  }
  return in.done();
}

size_t StoreRequest::end() const {
  size_t end = 0;
  each_run([&](const Run& r) { end = r.at + r.bytes.size(); });
  return end;
}

}  // namespace cmi::memory
