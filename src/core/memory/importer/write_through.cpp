// Requests for loads, stores and swaps.
#include "core/memory/importer/write_through.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/memory/importer/import_access.hpp"
#include "core/memory/importer/import_break.hpp"
#include "core/memory/importer/tokens.hpp"

namespace cmi::memory {

namespace {

constexpr size_t kMostRuns = 32;  // a masked store has no more; what is longer is one run

}  // namespace

Exception WriteThrough::may(const View& view, uint64_t offset, size_t len, bool read, bool write,
                            Deadline deadline) {
  Import& imp = *view.import;
  if (write && view.read_only) return Exception::kAccess;
  const auto first = static_cast<uint32_t>(offset / kPageSize);
  const auto last = static_cast<uint32_t>((offset + len - 1) / kPageSize);
  for (;;) {
    const Exception e = usable(imp, false, first);
    if (e == Exception::kToken && Tokens(core_).adopt(view.import, deadline)) continue;
    if (e != Exception::kNone && e != Exception::kAccess) {
      return imp.grant.state() == ImportState::kRemoved ? explain(core_, imp, deadline) : e;
    }
    const uint32_t needed = (read ? fabric::kRead : 0u) | (write ? fabric::kWrite : 0u);
    if (!imp.grant.has(needed) || !imp.allows(first) || !imp.allows(last)) {
      return Exception::kAccess;
    }
    if (last < imp.brk.load(std::memory_order_seq_cst)) return Exception::kNone;
    return past_break(core_, imp, last, deadline);
  }
}

// The request that *pending has left, if it is the same; null: there is none. One that has ended
// without an answer has no more to say, and is made again.
std::shared_ptr<fabric::Request> WriteThrough::take_pending(const std::shared_ptr<Import>& imp,
                                                            RequestType type, Bytes payload,
                                                            PendingStore* pending) {
  if (pending == nullptr || pending->request == nullptr) return nullptr;
  auto request = std::exchange(pending->request, nullptr);
  const bool lost = request->answered() && request->op().cause() != fabric::Cause::kOk;
  if (!lost && pending->import == imp && pending->type == type &&
      std::equal(payload.begin(), payload.end(), pending->payload.begin(),
                 pending->payload.end())) {
    return request;
  }
  pending->import->link->forget(request);
  return nullptr;
}

// `token`: that had been presented when it was asked.
WriteThrough::Outcome WriteThrough::take_answer(Import& imp, Bytes answer, uint64_t token,
                                                std::vector<std::byte>* reply, Deadline deadline) {
  const auto parts = split_reply(answer);
  if (!parts) return Exception::kTransient;
  switch (parts->status) {
    case WireStatus::kOk:
      reply->assign(parts->body.begin(), parts->body.end());
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
      return explain(core_, imp, deadline);
    case WireStatus::kNotPresented:
      imp.key.close();  // it has forgotten us
      return std::nullopt;
    default:
      if (refused(core_, imp, parts->status, token) == ImportState::kUsable) {
        return std::nullopt;  // under another one now
      }
      return imp.grant.state() == ImportState::kGone ? Exception::kSinval : Exception::kToken;
  }
}

// There was no answer in time. What may still happen is left in *pending.
Exception WriteThrough::leave_pending(const std::shared_ptr<Import>& imp, RequestType type,
                                      Bytes payload, std::shared_ptr<fabric::Request> request,
                                      PendingStore* pending) {
  const Exception e = explain(core_, *imp, Deadline::in(50 * kMilli));
  if (pending != nullptr && (e == Exception::kNone || e == Exception::kTransient)) {
    pending->import = imp;
    pending->request = std::move(request);
    pending->type = type;
    pending->payload.assign(payload.begin(), payload.end());
  } else {
    imp->link->forget(request);
  }
  return e == Exception::kNone ? Exception::kTransient : e;
}

// kNone: *reply is what follows the status. What must happen once has `pending`.
Exception WriteThrough::ask(const std::shared_ptr<Import>& owner, RequestType type, Bytes payload,
                            PendingStore* pending, std::vector<std::byte>* reply,
                            Deadline deadline) {
  Import& imp = *owner;
  for (;;) {
    auto session = imp.link->session(deadline);
    fabric::RemoteKey key;
    // The home takes accesses only of importers that have presented a token.
    if (session != nullptr && session_key(core_, imp, *session, &key, deadline)) {
      const uint64_t token = imp.token.taken();
      auto request = take_pending(owner, type, payload, pending);
      if (request == nullptr) {
        request = imp.link->start(static_cast<uint16_t>(type), payload);
      }
      if (imp.link->await(request, deadline) != fabric::Cause::kOk) {
        return leave_pending(owner, type, payload, std::move(request), pending);
      }
      const Outcome done = take_answer(imp, request->reply(), token, reply, deadline);
      if (done) return *done;
    } else if (const Exception e = explain(core_, imp, deadline); e != Exception::kNone) {
      return e;
    }
    if (deadline.passed()) return Exception::kTransient;
  }
}

Exception WriteThrough::load(const View& view, uint64_t offset, std::byte* to, size_t len,
                             Deadline deadline) {
  if (Exception e = may(view, offset, len, true, false, deadline); e != Exception::kNone) return e;
  count(core_.parts.stats.load_misses);
  count(view.import->stats.load_misses);
  while (len > 0) {
    const size_t n = std::min(len, kMaxWriteThrough);
    const LoadRequest m{view.import->rseg.uid, view.import->instance, offset,
                        static_cast<uint32_t>(n)};
    std::vector<std::byte> reply;
    const Exception e = ask(view.import, RequestType::kLoad, Encoded(m), nullptr, &reply, deadline);
    if (e != Exception::kNone) return e;
    if (reply.size() != n) return Exception::kTransient;
    std::memcpy(to, reply.data(), n);
    count(core_.parts.stats.bytes_fetched, n);
    count(view.import->stats.bytes_fetched, n);
    offset += n;
    to += n;
    len -= n;
  }
  return Exception::kNone;
}

Exception WriteThrough::store(const View& view, uint64_t offset, const std::byte* from, size_t len,
                              const uint8_t* written, PendingStore* pending, Deadline deadline) {
  if (Exception e = may(view, offset, len, false, true, deadline); e != Exception::kNone) return e;
  count(core_.parts.stats.store_misses);
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
      const Exception e =
          ask(view.import, RequestType::kStore, out.done(), pending, &reply, deadline);
      if (e != Exception::kNone) return e;
    }
    done += i;
  }
  return Exception::kNone;
}

Exception WriteThrough::swap(const View& view, uint64_t offset, const std::byte* expected,
                             const std::byte* desired, size_t len, std::byte* found,
                             PendingStore* pending, Deadline deadline) {
  if (Exception e = may(view, offset, len, true, true, deadline); e != Exception::kNone) return e;
  std::array<std::byte, kWireSize<SwapRequest> + 2 * SwapRequest::kMost> buf;
  Writer out(buf);
  encode(
      SwapRequest{
          view.import->rseg.uid, view.import->instance, offset, static_cast<uint8_t>(len), {}},
      out);
  out.bytes({expected, len});
  out.bytes({desired, len});
  std::vector<std::byte> reply;
  const Exception e = ask(view.import, RequestType::kSwap, out.done(), pending, &reply, deadline);
  if (e != Exception::kNone) return e;
  if (reply.size() != len) return Exception::kTransient;
  std::memcpy(found, reply.data(), len);
  return Exception::kNone;
}

Exception WriteThrough::settle_swap(const View& view, uint64_t offset, std::byte* old, size_t len,
                                    PendingStore& pending, bool* happened, Deadline deadline) {
  *happened = false;
  if (pending.request == nullptr || pending.type != RequestType::kSwap) return Exception::kNone;
  // What is known here to be over is not waited for.
  if (Exception e = may(view, offset, len, true, true, deadline); e != Exception::kNone) return e;
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
    const Exception e = explain(core_, *view.import, Deadline::in(50 * kMilli));
    return e == Exception::kNone ? Exception::kTransient : e;
  }
  // Not this one, or it has not taken effect, or nobody will ever know.
  pending.import->link->forget(pending.request);
  pending.request = nullptr;
  return Exception::kNone;
}

}  // namespace cmi::memory
