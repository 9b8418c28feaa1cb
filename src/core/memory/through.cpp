// Write-through imports: nothing is cached, each load and each store is a request to the home,
// which makes it in its own memory and answers then. Runs in the SIGBUS handler of the thread that
// accesses, all signals blocked.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/log.hpp"
#include "core/memory/importer.hpp"
#include "core/segment/map_file.hpp"

namespace cmi::memory {

namespace {

constexpr size_t kHead = sizeof(uint64_t) + sizeof(uint32_t) + sizeof(uint64_t);
constexpr size_t kMostRuns = 32;  // a masked store has no more; what is longer is one run

// Of the calling thread alone, for ever: the kernel gives its own numbers again.
uint64_t thread_serial() {
  static std::atomic<uint64_t> last{0};
  thread_local uint64_t mine = 0;
  if (mine == 0) mine = last.fetch_add(1, std::memory_order_relaxed) + 1;
  return mine;
}

void put_head(Writer& out, const Import& imp, uint64_t offset) {
  out.put(imp.rseg.uid);
  out.put(imp.instance);
  out.put(offset);
}

}  // namespace

// Mapped from an empty file: whoever touches it gets SIGBUS, whatever takes the faults of other
// views, and there is nothing that could be mapped.
Result<std::shared_ptr<const View>> Importer::attach_through(const std::shared_ptr<Import>& imp,
                                                             void* addr, bool read_only) {
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
  view->through = true;
  view->segment = imp->id;
  view->import = imp;
  {
    Guard g(imp->views_mu);
    imp->views.push_back(view);
  }
  parts_.views.insert(view);
  map.release();
  return std::shared_ptr<const View>(view);
}

Exception Importer::may_through(const View& view, uint64_t offset, size_t len, bool read,
                                bool write, Deadline deadline) {
  Import& imp = *view.import;
  if (write && view.read_only) return Exception::kAccess;
  const auto first = static_cast<uint32_t>(offset / kPageSize);
  const auto last = static_cast<uint32_t>((offset + len - 1) / kPageSize);
  for (;;) {
    const Exception e = usable(imp, false, first);
    if (e == Exception::kToken && adopt_token(view.import, deadline)) continue;
    if (e != Exception::kNone && e != Exception::kAccess) {
      return imp.state.load() == ImportState::kRemoved ? explain(imp, deadline) : e;
    }
    const uint32_t needed = (read ? fabric::kRead : 0u) | (write ? fabric::kWrite : 0u);
    if ((imp.rights.load(std::memory_order_acquire) & needed) != needed || !imp.allows(first) ||
        !imp.allows(last)) {
      return Exception::kAccess;
    }
    if (last < imp.brk.load(std::memory_order_seq_cst)) return Exception::kNone;
    return past_break(imp, last, deadline);
  }
}

// kNone: *reply is what follows the status. What must happen once has `owed`.
Exception Importer::ask_through(const std::shared_ptr<Import>& holder, RequestType type,
                                Bytes payload, OwedStore* owed, std::vector<std::byte>* reply,
                                Deadline deadline) {
  Import& imp = *holder;
  for (;;) {
    Exception e = Exception::kNone;
    auto session = imp.link->session(deadline);
    fabric::RemoteKey key;
    // The home takes accesses of those alone who have presented a token.
    if (session != nullptr && session_key(imp, *session, &key, deadline)) {
      const uint64_t token = imp.presented_id.load(std::memory_order_acquire);
      std::shared_ptr<fabric::Request> request;
      if (owed != nullptr && owed->request != nullptr) {
        // One that has ended without an answer has no more to say, and is made again.
        const bool lost =
            owed->request->answered() && owed->request->op().cause() != fabric::Cause::kOk;
        const bool same =
            !lost && owed->import == holder && owed->type == type &&
            std::equal(payload.begin(), payload.end(), owed->payload.begin(), owed->payload.end());
        if (same) {
          request = owed->request;
        } else {
          owed->import->link->forget(owed->request);
        }
        owed->request = nullptr;
      }
      if (request == nullptr) {
        request = imp.link->start(static_cast<uint16_t>(type), payload);
      }
      if (imp.link->await(request, deadline) == fabric::Cause::kOk) {
        Reader in(request->reply());
        const auto status = static_cast<WireStatus>(in.get<uint8_t>());
        const Bytes rest = in.rest();
        if (!in.ok()) return Exception::kTransient;
        switch (status) {
          case WireStatus::kOk:
            reply->assign(rest.begin(), rest.end());
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
            imp.key_generation.store(0, std::memory_order_release);  // it has forgotten us
            break;
          default:
            if (refused(imp, status, token) == ImportState::kUsable)
              break;  // under another one now
            return imp.state.load() == ImportState::kGone ? Exception::kSinval : Exception::kToken;
        }
      } else {
        e = explain(imp, Deadline::in(50 * kMilli));
        if (owed != nullptr && (e == Exception::kNone || e == Exception::kTransient)) {
          owed->import = holder;
          owed->request = std::move(request);
          owed->type = type;
          owed->payload.assign(payload.begin(), payload.end());
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

Exception Importer::load_through(const View& view, uint64_t offset, std::byte* to, size_t len,
                                 Deadline deadline) {
  if (Exception e = may_through(view, offset, len, true, false, deadline); e != Exception::kNone)
    return e;
  count(parts_.stats.load_misses);
  count(view.import->stats.load_misses);
  while (len > 0) {
    const size_t n = std::min(len, kMaxThrough);
    std::array<std::byte, kHead + sizeof(uint32_t)> buf;
    Writer out(buf);
    put_head(out, *view.import, offset);
    out.put(static_cast<uint32_t>(n));
    std::vector<std::byte> reply;
    const Exception e =
        ask_through(view.import, RequestType::kLoad, out.done(), nullptr, &reply, deadline);
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

Exception Importer::store_through(const View& view, uint64_t offset, const std::byte* from,
                                  size_t len, const uint8_t* written, OwedStore* owed,
                                  Deadline deadline) {
  if (Exception e = may_through(view, offset, len, false, true, deadline); e != Exception::kNone)
    return e;
  count(parts_.stats.store_misses);
  count(view.import->stats.store_misses);
  std::array<std::byte, kHead + sizeof(uint32_t) + kMaxThrough + kMostRuns * 4> buf;
  for (size_t done = 0; done < len;) {
    const size_t n = std::min(len - done, kMaxThrough);
    Writer out(buf);
    put_head(out, *view.import, offset + done);
    std::byte* const runs_at = out.reserve(sizeof(uint32_t));
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
      out.put(static_cast<uint16_t>(i));
      out.put(static_cast<uint16_t>(end - i));
      out.bytes({from + done + i, end - i});
      ++runs;
      i = end;
    }
    std::memcpy(runs_at, &runs, sizeof runs);
    if (runs != 0) {
      std::vector<std::byte> reply;
      const Exception e =
          ask_through(view.import, RequestType::kStore, out.done(), owed, &reply, deadline);
      if (e != Exception::kNone) return e;
    }
    done += i;
  }
  return Exception::kNone;
}

Exception Importer::swap_through(const View& view, uint64_t offset, const std::byte* expected,
                                 const std::byte* desired, size_t len, std::byte* found,
                                 OwedStore* owed, Deadline deadline) {
  if (Exception e = may_through(view, offset, len, true, true, deadline); e != Exception::kNone)
    return e;
  std::array<std::byte, kHead + 1 + 32> buf;
  Writer out(buf);
  put_head(out, *view.import, offset);
  out.put(static_cast<uint8_t>(len));
  out.bytes({expected, len});
  out.bytes({desired, len});
  std::vector<std::byte> reply;
  const Exception e =
      ask_through(view.import, RequestType::kSwap, out.done(), owed, &reply, deadline);
  if (e != Exception::kNone) return e;
  if (reply.size() != len) return Exception::kTransient;
  std::memcpy(found, reply.data(), len);
  return Exception::kNone;
}

Exception Importer::settle_swap(const View& view, uint64_t offset, std::byte* old, size_t len,
                                OwedStore& owed, bool* happened, Deadline deadline) {
  *happened = false;
  if (owed.request == nullptr || owed.type != RequestType::kSwap) return Exception::kNone;
  // What is known here to be over is not waited for.
  if (Exception e = may_through(view, offset, len, true, true, deadline); e != Exception::kNone)
    return e;
  std::array<std::byte, kHead + 1> head;
  Writer out(head);
  put_head(out, *view.import, offset);
  out.put(static_cast<uint8_t>(len));
  const bool same = owed.import == view.import && owed.payload.size() == head.size() + 2 * len &&
                    std::equal(head.begin(), head.end(), owed.payload.begin());
  if (same && view.import->link->await(owed.request, deadline) == fabric::Cause::kOk) {
    const std::byte* expected = owed.payload.data() + head.size();
    const Bytes reply = owed.request->reply();
    *happened = reply.size() == len + 1 && reply[0] == std::byte{0} &&
                std::memcmp(reply.data() + 1, expected, len) == 0;
    if (*happened) {
      std::memcpy(old, expected, len);
      return Exception::kNone;
    }
  } else if (same && !owed.request->answered()) {
    const Exception e = explain(*view.import, Deadline::in(50 * kMilli));
    return e == Exception::kNone ? Exception::kTransient : e;
  }
  // Not this one, or it has not taken effect, or nobody will ever know.
  owed.import->link->forget(owed.request);
  owed.request = nullptr;
  return Exception::kNone;
}

OwedStore Importer::take_owed() {
  if (owed_count_.load(std::memory_order_relaxed) == 0) return {};  // else it would be ours
  Guard g(owed_mu_);
  auto it = owed_.find(thread_serial());
  if (it == owed_.end()) return {};
  OwedStore owed = std::move(it->second);
  owed_.erase(it);
  owed_count_.fetch_sub(1);
  return owed;
}

void Importer::leave_owed(OwedStore owed) {
  owed.tid = gettid();
  owed.since = now();
  Guard g(owed_mu_);
  // Threads that have ended do not come back for theirs.
  for (auto it = owed_.begin(); it != owed_.end();) {
    if (syscall(SYS_tgkill, getpid(), it->second.tid, 0) == 0 || errno != ESRCH) {
      ++it;
      continue;
    }
    drop_owed(it->second);
    it = owed_.erase(it);
    owed_count_.fetch_sub(1);
  }
  if (owed_.insert_or_assign(thread_serial(), std::move(owed)).second) owed_count_.fetch_add(1);
}

void Importer::drop_owed(OwedStore& owed) {
  if (owed.request != nullptr) owed.import->link->forget(owed.request);
  owed = {};
}

}  // namespace cmi::memory
