// atm_cas on an imported segment: executed at the home, never on cached values; then the caller's
// own cached copy takes the result (protocol rule 12).
#include <cstring>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/memory/importer.hpp"

namespace cmi::memory {

namespace {
// One word through the service view, whole: a thread of the client may be reading it.
void store_word(std::byte* at, uint64_t value) {
  __atomic_store_n(reinterpret_cast<uint64_t*>(at), value, __ATOMIC_SEQ_CST);
}
}  // namespace

Exception Importer::cas(const View& view, const std::byte* addr, uint64_t expected,
                        uint64_t desired, uint64_t* found, Deadline deadline) {
  SignalsBlocked quiet;
  const std::shared_ptr<Import>& holder = view.import;
  Import& imp = *holder;
  if (view.read_only) return Exception::kAccess;
  if (Exception e = usable(imp, false); e == Exception::kSinval || e == Exception::kToken) {
    return imp.state.load() == ImportState::kRemoved ? explain(imp, deadline) : e;
  }
  if ((imp.rights.load() & fabric::kAtomic) == 0) return Exception::kAccess;
  const auto offset = static_cast<uint64_t>(addr - view.addr);
  const auto index = static_cast<uint32_t>(offset / kPageSize);
  Page& page = imp.table[index];

  page.lock();
  const bool quiet_page =
      (page.state == PageState::kClean || page.state == PageState::kDirty) && !page.in_flight;
  const uint32_t generation = page.generation;
  page.unlock();

  // The home must know the import before it takes its swaps.
  auto session = imp.link->session(deadline);
  fabric::RemoteKey key;
  if (session == nullptr || !session_key(imp, *session, &key, deadline)) {
    const Exception e = explain(imp, deadline);
    return e == Exception::kNone ? Exception::kTransient : e;
  }
  if ((imp.rights.load() & fabric::kAtomic) == 0) return Exception::kAccess;
  session.reset();

  std::byte buf[64];
  Writer out(buf);
  out.put(imp.rseg.uid);
  out.put(imp.instance);
  out.put(offset);
  out.put(expected);
  out.put(desired);
  fault_point("cas_before_send");
  auto request = imp.link->start(static_cast<uint16_t>(RequestType::kCas), out.done());
  // Its number makes it happen once, however often the link is rebuilt; only a home that stays away
  // leaves its fate open, and then it is not repeated but reported.
  if (imp.link->await(request, deadline) != fabric::Cause::kOk) {
    imp.link->forget(request);
    const Exception e = explain(imp, Deadline::in(50 * kMilli));
    return e == Exception::kNone ? Exception::kTransient : e;
  }
  Reader in(request->reply());
  const auto status = static_cast<WireStatus>(in.get<uint8_t>());
  switch (status) {
    case WireStatus::kOk:
      break;
    case WireStatus::kRights:
      return Exception::kAccess;
    case WireStatus::kGone:
      return Exception::kSinval;
    case WireStatus::kRemoved:
      return explain(imp, deadline);
    default:
      return Exception::kToken;
  }
  *found = in.get<uint64_t>();
  if (!in.ok()) return Exception::kTransient;
  const uint64_t word = *found == expected ? desired : *found;
  if (*found != expected) count(parts_.stats.cas_lost);

  const size_t in_page = offset % kPageSize;
  page.lock();
  const bool same = quiet_page && page.generation == generation && !page.in_flight;
  if (same && page.state == PageState::kClean) {
    store_word(imp.page_data(index) + in_page, word);
    ++page.generation;
    page.unlock();
  } else if (same && page.state == PageState::kDirty) {
    // Bytes that a thread of ours stored since are newer than the swap; the twin always takes it.
    std::byte* cached = imp.page_data(index) + in_page;
    std::byte* twin = twins_.at(page.twin) + in_page;
    std::byte fresh[8];
    std::memcpy(fresh, &word, 8);
    if (std::memcmp(cached, twin, 8) == 0) {
      store_word(cached, word);
    } else {
      for (int i = 0; i < 8; ++i) {
        if (cached[i] == twin[i]) cached[i] = fresh[i];
      }
    }
    std::memcpy(twin, fresh, 8);
    ++page.generation;
    page.unlock();
  } else {
    const bool absent = page.state == PageState::kAbsent;
    page.unlock();
    if (!absent) invalidate(holder, {index, 1});
  }
  return Exception::kNone;
}

}  // namespace cmi::memory
