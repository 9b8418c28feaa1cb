// A thread has touched a write-through view: its instruction is executed here, with what it reads
// and writes of such views fetched from and sent to their homes. Memory that is not write-through
// is reached with system calls, which fail where an access would fault; pages of other views are
// then made accessible as a fault would have done it.
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/arch/arch.hpp"
#include "core/base/log.hpp"
#include "core/base/usdt.hpp"
#include "core/memory/engine/engine.hpp"

namespace cmi::memory {

namespace {

using emulate::Stop;

class WriteThroughMemory final : public emulate::Memory {
 public:
  WriteThroughMemory(Importer& importer, FaultTarget& target, const ucontext_t& at,
                     Deadline deadline)
      : importer_(importer),
        target_(target),
        deadline_(deadline),
        pending_(importer.write_through().pending_stores().take()) {
    const emulate::ThreadState thread = emulate::thread_state(at);
    if (pending_.thread != thread || is_stale(pending_)) PendingStores::drop(pending_);
    pending_.thread = thread;
    again_ = std::move(pending_.read);
    written_again_ = std::exchange(pending_.written, 0);
  }
  ~WriteThroughMemory() override {
    if (pending_.request == nullptr && pending_.written == 0) return;
    if (pending_.import != nullptr && pending_.import->grant.state() == ImportState::kGone) {
      PendingStores::drop(pending_);
      return;
    }
    pending_.read.assign(read_, read_ + read_len_);
    importer_.write_through().pending_stores().leave(std::move(pending_));
  }

  Stop read(uint64_t addr, std::byte* to, size_t len, const uint8_t* wanted) override {
    // As it was when the instruction was tried first: it may have stored since.
    const bool had = !again_.empty() && pending_.read_at == addr && again_.size() == len;
    if (had) {
      std::memcpy(to, again_.data(), len);
    } else if (Stop s = read_now(addr, to, len, wanted)) {
      return s;
    }
    pending_.read_at = addr;
    read_len_ = std::min(len, sizeof read_);
    std::memcpy(read_, to, read_len_);
    return {};
  }

  Stop write(uint64_t addr, const std::byte* from, size_t len, const uint8_t* written) override {
    // Nothing is stored if it is known that not all may be.
    Stop s = pieces(addr, len, written, [&](const View* view, uint64_t at, size_t, size_t n) {
      if (view == nullptr) return Stop{};
      return stop(
          importer_.write_through().may(*view, at - begin(*view), n, false, true, deadline_), at);
    });
    pending_.written = std::exchange(written_again_, 0);
    if (s) return s;
    s = pieces(addr, len, written, [&](const View* view, uint64_t at, size_t skip, size_t n) {
      if (skip + n <= pending_.written) return Stop{};
      const Stop failed =
          write_piece(view, at, from + skip, n, written == nullptr ? nullptr : written + skip);
      if (!failed) pending_.written = skip + n;
      return failed;
    });
    if (!s) pending_.written = 0;
    return s;
  }

  Stop read_for_swap(uint64_t addr, std::byte* to, size_t len) override {
    if (const auto view = write_through_view(addr, len); view != nullptr) {
      bool happened = false;
      const Exception e = importer_.write_through().settle_swap(*view, addr - begin(*view), to, len,
                                                                pending_, &happened, deadline_);
      if (e != Exception::kNone) return stop(e, addr);
      if (happened) return {};  // swap() will ask for the same, and have its answer
    }
    return read_now(addr, to, len, nullptr);
  }

  Stop swap(uint64_t addr, const std::byte* expected, const std::byte* desired, std::byte* found,
            size_t len) override {
    const auto view = write_through_view(addr, len);
    if (view == nullptr) return Stop::cannot(addr);
    return stop(importer_.write_through().swap(*view, addr - begin(*view), expected, desired, len,
                                               found, &pending_, deadline_),
                addr);
  }

 private:
  // A thread that has left the instruction by a jump may come to it again with the same registers,
  // and mean another store. A plain one that has arrived is made again after this: at worst twice.
  // What has computed on what it read is not.
  static constexpr Nanos kSameTry = 100 * kMilli;

  static bool is_stale(const PendingStore& pending) {
    const bool arrived = pending.request == nullptr ||
                         (pending.type == RequestType::kStore && pending.request->answered());
    return arrived && pending.read.empty() && now() - pending.since > kSameTry;
  }
  static uint64_t begin(const View& view) { return reinterpret_cast<uint64_t>(view.addr); }
  static Stop stop(Exception e, uint64_t addr) {
    return e == Exception::kNone ? Stop{} : Stop::exception(static_cast<int>(e), addr);
  }

  // The write-through view that all of it lies in, or null.
  std::shared_ptr<const View> write_through_view(uint64_t addr, size_t len) {
    auto view = target_.view_at(reinterpret_cast<const void*>(addr));
    if (view == nullptr || !view->write_through || addr + len > begin(*view) + view->len)
      return nullptr;
    return view;
  }

  Stop read_now(uint64_t addr, std::byte* to, size_t len, const uint8_t* wanted) {
    return pieces(addr, len, wanted, [&](const View* view, uint64_t at, size_t from, size_t n) {
      return view != nullptr ? stop(importer_.write_through().load(*view, at - begin(*view),
                                                                   to + from, n, deadline_),
                                    at)
                             : elsewhere(at, to + from, n, false);
    });
  }

  Stop write_piece(const View* view, uint64_t at, const std::byte* from, size_t n,
                   const uint8_t* mask) {
    if (view != nullptr) {
      return stop(importer_.write_through().store(*view, at - begin(*view), from, n, mask,
                                                  &pending_, deadline_),
                  at);
    }
    for (size_t i = 0; i < n;) {
      size_t end = i;
      while (end < n && (mask == nullptr || mask[end] != 0)) ++end;
      if (end > i) {
        auto* bytes = const_cast<std::byte*>(from + i);
        if (Stop failed = elsewhere(at + i, bytes, end - i, true)) return failed;
      }
      i = end + 1;
    }
    return {};
  }

  // Calls `one` for each part of the range that lies in one write-through view (else null), without
  // the bytes at either end that are not chosen.
  template <class F>
  Stop pieces(uint64_t addr, size_t len, const uint8_t* chosen, F one) {
    for (size_t done = 0; done < len;) {
      const uint64_t at = addr + done;
      const auto view = target_.view_at(reinterpret_cast<const void*>(at));
      const bool write_through = view != nullptr && view->write_through;
      const uint64_t end =
          write_through ? begin(*view) + view->len : (at / kPageSize + 1) * kPageSize;
      const size_t n = std::min<uint64_t>(len - done, end - at);
      size_t from = done, to = done + n;
      while (chosen != nullptr && from < to && chosen[from] == 0) ++from;
      while (chosen != nullptr && from < to && chosen[to - 1] == 0) --to;
      if (from < to) {
        if (Stop s = one(write_through ? view.get() : nullptr, addr + from, from, to - from))
          return s;
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
          target_.try_access(*view, reinterpret_cast<const std::byte*>(addr), write, nullptr);
      if (e == Exception::kNotOurs) return Stop::signal(SIGBUS, BUS_ADRERR, addr);
      if (e != Exception::kNone) return stop(e, addr);
      if (deadline_.passed()) return stop(Exception::kTransient, addr);
    }
  }

  Importer& importer_;
  FaultTarget& target_;
  const Deadline deadline_;
  PendingStore pending_;  // of the try before, then of this one
  // Of the try before: what it read, and how much of what it wrote is stored.
  std::vector<std::byte> again_;
  size_t written_again_ = 0;
  std::byte read_[emulate::Bench::kPage];  // what this try read last
  size_t read_len_ = 0;
};

}  // namespace

// One instruction, once.
Stop Engine::step_write_through(const std::byte* addr, ucontext_t& uc, Deadline deadline) {
  const auto at = reinterpret_cast<uint64_t>(addr);
  emulate::Bench* const bench = benches_.take(deadline);
  if (bench == nullptr) return Stop::exception(static_cast<int>(Exception::kTransient), at);
  const uint64_t instruction = arch::program_counter(uc);
  WriteThroughMemory memory(*importer_, *this, uc, deadline);
  const Stop s = emulate::step(uc, memory, *bench);
  benches_.give(bench);
  if (s.why != Stop::Why::kCannot) return s;
  uint8_t code[8] = {};  // the next page may not be there
  std::memcpy(code, reinterpret_cast<const void*>(instruction),
              std::min<size_t>(sizeof code, kPageSize - instruction % kPageSize));
  trace(kFacMem, kError,
        "the instruction at {:#x} ({:02x} {:02x} {:02x} {:02x} {:02x} {:02x} {:02x} {:02x}) "
        "cannot be used on a write-through segment",
        instruction, code[0], code[1], code[2], code[3], code[4], code[5], code[6], code[7]);
  return Stop::exception(static_cast<int>(Exception::kAccess), at);
}

Stop Engine::on_write_through(const View& view, const std::byte* addr, ucontext_t& uc) {
  const auto at = reinterpret_cast<uint64_t>(addr);
  const auto exception = [&](Exception e) { return Stop::exception(static_cast<int>(e), at); };
  Stop s;
  Deadline deadline;
  do {
    deadline = Deadline::in(importer_->reconf_timeout().get());
    s = t_access_enabled ? step_write_through(addr, uc, deadline) : exception(Exception::kEnable);
    // Tried again, it goes on with what it has sent: see PendingStore.
  } while (s.why == Stop::Why::kException && s.code == static_cast<int>(Exception::kTransient) &&
           deadline.passed() && view.import != nullptr && importer_->waits_on(*view.import));
  if (s.why == Stop::Why::kException) {
    count(stats_.exceptions);
    if (view.import != nullptr) count(view.import->stats.exceptions);
    CMI_PROBE3(exception, view.segment, static_cast<const void*>(addr), s.code);
    trace(kFacMem, kDebug, "exception {} at {} segment {}", s.code, static_cast<const void*>(addr),
          view.segment);
  }
  return s;
}

}  // namespace cmi::memory
