// A thread has touched a write-through view: its instruction is executed here, with what it reads
// and writes of such views fetched from and sent to their homes. Memory that is not write-through
// is reached with system calls, which fail where an access would fault; pages of other views are
// then made accessible as a fault would have done it.
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/log.hpp"
#include "core/memory/engine.hpp"

namespace cmi::memory {

namespace {

using emulate::Stop;

class ThroughMemory final : public emulate::Memory {
 public:
  ThroughMemory(Importer& importer, FaultTarget& target, uint64_t instruction, Deadline deadline)
      : importer_(importer), target_(target), deadline_(deadline), owed_(importer.take_owed()) {
    if (owed_.request != nullptr && owed_.instruction != instruction) {
      owed_.import->link->forget(owed_.request);
      owed_ = {};
    }
    owed_.instruction = instruction;
  }
  ~ThroughMemory() override {
    if (owed_.request != nullptr) importer_.leave_owed(std::move(owed_));
  }

  Stop read(uint64_t addr, std::byte* to, size_t len, const uint8_t* wanted) override {
    return pieces(addr, len, wanted, [&](const View* view, uint64_t at, size_t from, size_t n) {
      return view != nullptr
                 ? stop(importer_.load_through(*view, at - begin(*view), to + from, n, deadline_),
                        at)
                 : elsewhere(at, to + from, n, false);
    });
  }

  Stop write(uint64_t addr, const std::byte* from, size_t len, const uint8_t* written) override {
    // Nothing is stored if it is known that not all may be.
    Stop s = pieces(addr, len, written, [&](const View* view, uint64_t at, size_t, size_t n) {
      if (view == nullptr) return Stop{};
      return stop(importer_.may_through(*view, at - begin(*view), n, false, true, deadline_), at);
    });
    if (s) return s;
    return pieces(addr, len, written, [&](const View* view, uint64_t at, size_t skip, size_t n) {
      const uint8_t* mask = written == nullptr ? nullptr : written + skip;
      if (view != nullptr) {
        return stop(importer_.store_through(*view, at - begin(*view), from + skip, n, mask, &owed_,
                                            deadline_),
                    at);
      }
      for (size_t i = 0; i < n;) {
        size_t end = i;
        while (end < n && (mask == nullptr || mask[end] != 0)) ++end;
        if (end > i) {
          auto* bytes = const_cast<std::byte*>(from + skip + i);
          if (Stop failed = elsewhere(at + i, bytes, end - i, true)) return failed;
        }
        i = end + 1;
      }
      return Stop{};
    });
  }

  Stop read_for_swap(uint64_t addr, std::byte* to, size_t len) override {
    // One that was sent when this was tried before: if it has taken effect, that is what happened.
    constexpr size_t kExpectedAt = 21;
    if (owed_.request != nullptr && owed_.type == RequestType::kSwap &&
        owed_.payload.size() == kExpectedAt + 2 * len) {
      if (owed_.import->link->await(owed_.request, deadline_) != fabric::Cause::kOk) {
        return stop(Exception::kTransient, addr);
      }
      std::memcpy(to, owed_.payload.data() + kExpectedAt, len);
      const Bytes reply = owed_.request->reply();
      if (reply.size() == len + 1 && reply[0] == std::byte{0} &&
          std::memcmp(reply.data() + 1, to, len) == 0) {
        return {};  // swap() will ask for the same, and have its answer
      }
    }
    return read(addr, to, len, nullptr);
  }

  Stop swap(uint64_t addr, const std::byte* expected, const std::byte* desired, std::byte* found,
            size_t len) override {
    const auto view = target_.view_at(reinterpret_cast<const void*>(addr));
    if (view == nullptr || !view->through || addr + len > begin(*view) + view->len) {
      return Stop::cannot(addr);
    }
    return stop(importer_.swap_through(*view, addr - begin(*view), expected, desired, len, found,
                                       &owed_, deadline_),
                addr);
  }

 private:
  static uint64_t begin(const View& view) { return reinterpret_cast<uint64_t>(view.addr); }
  static Stop stop(Exception e, uint64_t addr) {
    return e == Exception::kNone ? Stop{} : Stop::exception(static_cast<int>(e), addr);
  }

  // Calls `one` for each part of the range that lies in one write-through view (else null), without
  // the bytes at either end that are not chosen.
  template <class F>
  Stop pieces(uint64_t addr, size_t len, const uint8_t* chosen, F one) {
    for (size_t done = 0; done < len;) {
      const uint64_t at = addr + done;
      const auto view = target_.view_at(reinterpret_cast<const void*>(at));
      const bool through = view != nullptr && view->through;
      const uint64_t end = through ? begin(*view) + view->len : (at / kPageSize + 1) * kPageSize;
      const size_t n = std::min<uint64_t>(len - done, end - at);
      size_t from = done, to = done + n;
      while (chosen != nullptr && from < to && chosen[from] == 0) ++from;
      while (chosen != nullptr && from < to && chosen[to - 1] == 0) --to;
      if (from < to) {
        if (Stop s = one(through ? view.get() : nullptr, addr + from, from, to - from)) return s;
      }
      done += n;
    }
    return {};
  }

  // Within one page.
  Stop elsewhere(uint64_t addr, std::byte* local, size_t len, bool write) {
    const iovec here{local, len};
    const iovec there{reinterpret_cast<void*>(addr), len};
    for (;;) {
      const ssize_t n = write ? process_vm_writev(getpid(), &here, 1, &there, 1, 0)
                              : process_vm_readv(getpid(), &here, 1, &there, 1, 0);
      if (n == static_cast<ssize_t>(len)) return {};
      if (n < 0 && errno != EFAULT) return Stop::cannot(addr);
      const auto view = target_.view_at(reinterpret_cast<const void*>(addr));
      if (view == nullptr) {
        std::byte byte;
        const bool there_at_all = write && !elsewhere(addr, &byte, 1, false);
        return Stop::signal(SIGSEGV, there_at_all ? SEGV_ACCERR : SEGV_MAPERR, addr);
      }
      const Exception e =
          target_.try_access(*view, reinterpret_cast<const std::byte*>(addr), write);
      if (e == Exception::kNotOurs) return Stop::signal(SIGBUS, BUS_ADRERR, addr);
      if (e != Exception::kNone) return stop(e, addr);
      if (deadline_.passed()) return stop(Exception::kTransient, addr);
    }
  }

  Importer& importer_;
  FaultTarget& target_;
  const Deadline deadline_;
  OwedStore owed_;
};

}  // namespace

Stop Engine::on_through(const View& view, const std::byte* addr, ucontext_t& uc) {
  const auto at = reinterpret_cast<uint64_t>(addr);
  const auto exception = [&](Exception e) { return Stop::exception(static_cast<int>(e), at); };
  Stop s;
  if (!t_access_enabled) {
    s = exception(Exception::kEnable);
  } else {
    const Deadline deadline = Deadline::in(importer_->reconf_timeout());
    if (emulate::Bench* bench = benches_.take(deadline); bench != nullptr) {
      const auto instruction = static_cast<uint64_t>(uc.uc_mcontext.gregs[REG_RIP]);
      ThroughMemory memory(*importer_, *this, instruction, deadline);
      s = emulate::step(uc, memory, *bench);
      benches_.give(bench);
      if (s.why == Stop::Why::kCannot) {
        uint8_t code[8] = {};  // the next page may not be there
        std::memcpy(code, reinterpret_cast<const void*>(instruction),
                    std::min<size_t>(sizeof code, kPageSize - instruction % kPageSize));
        trace(kFacMem, kError,
              "the instruction at {:#x} ({:02x} {:02x} {:02x} {:02x} {:02x} {:02x} {:02x} {:02x}) "
              "cannot be used on a write-through segment",
              instruction, code[0], code[1], code[2], code[3], code[4], code[5], code[6], code[7]);
        s = exception(Exception::kAccess);
      }
    } else {
      s = exception(Exception::kTransient);
    }
  }
  if (s.why == Stop::Why::kException) {
    count(stats_.exceptions);
    trace(kFacMem, kDebug, "exception {} at {} segment {}", s.code, static_cast<const void*>(addr),
          view.segment);
  }
  return s;
}

}  // namespace cmi::memory
