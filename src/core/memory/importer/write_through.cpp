// Write-through imports: nothing is cached, each load and each store is a request to the home,
// which makes it in its own memory and answers then. Runs in the SIGBUS handler of the thread that
// accesses, all signals blocked.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/base/log.hpp"
#include "core/memory/importer/importer.hpp"
#include "core/segment/map_file.hpp"

namespace cmi::memory {

namespace {

constexpr size_t kMostRuns = 32;  // a masked store has no more; what is longer is one run

}  // namespace

// Mapped from an empty file: whoever touches it gets SIGBUS, whatever takes the faults of other
// views, and there is nothing that could be mapped.
Result<std::shared_ptr<const View>> Importer::attach_write_through(
    const std::shared_ptr<Import>& imp, void* addr, bool read_only) {
  const size_t size = size_t{imp->pages} * kPageSize;
  const Fd empty(static_cast<int>(syscall(SYS_memfd_create, "cmi-through", 1u)));  // MFD_CLOEXEC
  if (!empty) return Status::kNoMem;
  std::byte* const at =
      segment::map_aligned(empty.get(), addr, size, access::page_size_of(imp->rseg.flags));
  if (at == nullptr) return Status::kNoMem;
  Mapping map(at, size);
  madvise(at, size, MADV_DONTFORK);
  auto view = std::make_shared<View>();
  view->addr = at;
  view->len = size;
  view->read_only = read_only;
  view->write_through = true;
  view->segment = imp->id;
  view->import = imp;
  {
    Guard g(imp->views.mu);
    imp->views.list.push_back(view);
  }
  parts_.views.insert(view);
  map.release();
  return std::shared_ptr<const View>(view);
}

Exception Importer::may_write_through(const View& view, uint64_t offset, size_t len, bool read,
                                      bool write, Deadline deadline) {
  Import& imp = *view.import;
  if (write && view.read_only) return Exception::kAccess;
  const auto first = static_cast<uint32_t>(offset / kPageSize);
  const auto last = static_cast<uint32_t>((offset + len - 1) / kPageSize);
  for (;;) {
    const Exception e = usable(imp, false, first);
    if (e == Exception::kToken && adopt_token(view.import, deadline)) continue;
    if (e != Exception::kNone && e != Exception::kAccess) {
      return imp.grant.state() == ImportState::kRemoved ? explain(imp, deadline) : e;
    }
    const uint32_t needed = (read ? fabric::kRead : 0u) | (write ? fabric::kWrite : 0u);
    if (!imp.grant.has(needed) || !imp.allows(first) || !imp.allows(last)) {
      return Exception::kAccess;
    }
    if (last < imp.brk.load(std::memory_order_seq_cst)) return Exception::kNone;
    return past_break(imp, last, deadline);
  }
}

// kNone: *reply is what follows the status. What must happen once has `owed`.
Exception Importer::ask_write_through(const std::shared_ptr<Import>& owner, RequestType type,
                                      Bytes payload, PendingStore* pending,
                                      std::vector<std::byte>* reply, Deadline deadline) {
  Import& imp = *owner;
  for (;;) {
    Exception e = Exception::kNone;
    auto session = imp.link->session(deadline);
    fabric::RemoteKey key;
    // The home takes accesses of those alone who have presented a token.
    if (session != nullptr && session_key(imp, *session, &key, deadline)) {
      const uint64_t token = imp.token.presented_id.load(std::memory_order_acquire);
      std::shared_ptr<fabric::Request> request;
      if (pending != nullptr && pending->request != nullptr) {
        // One that has ended without an answer has no more to say, and is made again.
        const bool lost =
            pending->request->answered() && pending->request->op().cause() != fabric::Cause::kOk;
        const bool same = !lost && pending->import == owner && pending->type == type &&
                          std::equal(payload.begin(), payload.end(), pending->payload.begin(),
                                     pending->payload.end());
        if (same) {
          request = pending->request;
        } else {
          pending->import->link->forget(pending->request);
        }
        pending->request = nullptr;
      }
      if (request == nullptr) {
        request = imp.link->start(static_cast<uint16_t>(type), payload);
      }
      if (imp.link->await(request, deadline) == fabric::Cause::kOk) {
        const auto answer = split_reply(request->reply());
        if (!answer) return Exception::kTransient;
        const WireStatus status = answer->status;
        switch (status) {
          case WireStatus::kOk:
            reply->assign(answer->body.begin(), answer->body.end());
            return Exception::kNone;
          case WireStatus::kRights:
            return Exception::kAccess;
          case WireStatus::kInFlux:
            return Exception::kConsist;
          case WireStatus::kRange:
            return Exception::kSegBrk;
          case WireStatus::kBroken:
            return Exception::kUe;
          case WireStatus::kRemoved:
            return explain(imp, deadline);
          case WireStatus::kNotPresented:
            imp.key.close();  // it has forgotten us
            break;
          default:
            if (refused(imp, status, token) == ImportState::kUsable)
              break;  // under another one now
            return imp.grant.state() == ImportState::kGone ? Exception::kSinval : Exception::kToken;
        }
      } else {
        e = explain(imp, Deadline::in(50 * kMilli));
        if (pending != nullptr && (e == Exception::kNone || e == Exception::kTransient)) {
          pending->import = owner;
          pending->request = std::move(request);
          pending->type = type;
          pending->payload.assign(payload.begin(), payload.end());
        } else {
          imp.link->forget(request);
        }
        return e == Exception::kNone ? Exception::kTransient : e;
      }
    } else {
      e = explain(imp, deadline);
    }
    if (e != Exception::kNone) return e;
    if (deadline.passed()) return Exception::kTransient;
  }
}

Exception Importer::load_write_through(const View& view, uint64_t offset, std::byte* to, size_t len,
                                       Deadline deadline) {
  if (Exception e = may_write_through(view, offset, len, true, false, deadline);
      e != Exception::kNone)
    return e;
  count(parts_.stats.load_misses);
  count(view.import->stats.load_misses);
  while (len > 0) {
    const size_t n = std::min(len, kMaxWriteThrough);
    const LoadRequest m{view.import->rseg.uid, view.import->instance, offset,
                        static_cast<uint32_t>(n)};
    std::vector<std::byte> reply;
    const Exception e =
        ask_write_through(view.import, RequestType::kLoad, Encoded(m), nullptr, &reply, deadline);
    if (e != Exception::kNone) return e;
    if (reply.size() != n) return Exception::kTransient;
    std::memcpy(to, reply.data(), n);
    count(parts_.stats.bytes_fetched, n);
    count(view.import->stats.bytes_fetched, n);
    offset += n;
    to += n;
    len -= n;
  }
  return Exception::kNone;
}

Exception Importer::store_write_through(const View& view, uint64_t offset, const std::byte* from,
                                        size_t len, const uint8_t* written, PendingStore* pending,
                                        Deadline deadline) {
  if (Exception e = may_write_through(view, offset, len, false, true, deadline);
      e != Exception::kNone)
    return e;
  count(parts_.stats.store_misses);
  count(view.import->stats.store_misses);
  std::array<std::byte, kWireSize<StoreRequest> + kMaxWriteThrough + kMostRuns * 4> buf;
  for (size_t done = 0; done < len;) {
    const size_t n = std::min(len - done, kMaxWriteThrough);
    Writer out(buf);
    StoreRequest m{view.import->rseg.uid, view.import->instance, offset + done, 0, {}};
    encode(m, out);
    uint32_t runs = 0;
    size_t i = 0;
    while (i < n) {
      const auto stored = [&](size_t k) { return written == nullptr || written[done + k] != 0; };
      size_t end = i;
      while (end < n && stored(end)) ++end;
      if (end == i) {
        ++i;
        continue;
      }
      if (runs == kMostRuns) break;  // the rest goes in another message
      StoreRequest::put(out, {static_cast<uint16_t>(i), {from + done + i, end - i}});
      ++runs;
      i = end;
    }
    m.runs = runs;
    Writer head(buf);  // now that the number of runs is known
    encode(m, head);
    if (runs != 0) {
      std::vector<std::byte> reply;
      const Exception e = ask_write_through(view.import, RequestType::kStore, out.done(), pending,
                                            &reply, deadline);
      if (e != Exception::kNone) return e;
    }
    done += i;
  }
  return Exception::kNone;
}

Exception Importer::swap_write_through(const View& view, uint64_t offset, const std::byte* expected,
                                       const std::byte* desired, size_t len, std::byte* found,
                                       PendingStore* pending, Deadline deadline) {
  if (Exception e = may_write_through(view, offset, len, true, true, deadline);
      e != Exception::kNone)
    return e;
  std::array<std::byte, kWireSize<SwapRequest> + 2 * SwapRequest::kMost> buf;
  Writer out(buf);
  encode(
      SwapRequest{
          view.import->rseg.uid, view.import->instance, offset, static_cast<uint8_t>(len), {}},
      out);
  out.bytes({expected, len});
  out.bytes({desired, len});
  std::vector<std::byte> reply;
  const Exception e =
      ask_write_through(view.import, RequestType::kSwap, out.done(), pending, &reply, deadline);
  if (e != Exception::kNone) return e;
  if (reply.size() != len) return Exception::kTransient;
  std::memcpy(found, reply.data(), len);
  return Exception::kNone;
}

Exception Importer::settle_swap(const View& view, uint64_t offset, std::byte* old, size_t len,
                                PendingStore& pending, bool* happened, Deadline deadline) {
  *happened = false;
  if (pending.request == nullptr || pending.type != RequestType::kSwap) return Exception::kNone;
  // What is known here to be over is not waited for.
  if (Exception e = may_write_through(view, offset, len, true, true, deadline);
      e != Exception::kNone)
    return e;
  std::array<std::byte, kWireSize<SwapRequest>> head;
  Writer out(head);
  encode(
      SwapRequest{
          view.import->rseg.uid, view.import->instance, offset, static_cast<uint8_t>(len), {}},
      out);
  const bool same = pending.import == view.import &&
                    pending.payload.size() == head.size() + 2 * len &&
                    std::equal(head.begin(), head.end(), pending.payload.begin());
  if (same && view.import->link->await(pending.request, deadline) == fabric::Cause::kOk) {
    const std::byte* expected = pending.payload.data() + head.size();
    const Bytes reply = pending.request->reply();
    *happened = reply.size() == len + 1 && reply[0] == std::byte{0} &&
                std::memcmp(reply.data() + 1, expected, len) == 0;
    if (*happened) {
      std::memcpy(old, expected, len);
      return Exception::kNone;
    }
  } else if (same && !pending.request->answered()) {
    const Exception e = explain(*view.import, Deadline::in(50 * kMilli));
    return e == Exception::kNone ? Exception::kTransient : e;
  }
  // Not this one, or it has not taken effect, or nobody will ever know.
  pending.import->link->forget(pending.request);
  pending.request = nullptr;
  return Exception::kNone;
}

}  // namespace cmi::memory
