// Reading faults, serving them, and taking poison away again.
#include "core/memory/fault_threads.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <system_error>

#include "core/base/library_thread.hpp"

namespace cmi::memory {

namespace {
constexpr int kThreads = 4;
constexpr Nanos kPoisonedFor = 100 * kMilli;
}  // namespace

FaultThreads::FaultThreads(Importer& importer, FaultTarget& target)
    : importer_(importer), target_(target) {}

Status FaultThreads::start() {
  stop_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop_) return Status::kNoMem;
  SignalsBlocked inherited_by_the_threads;
  try {
    for (int i = 0; i < kThreads; ++i) threads_.emplace_back(&FaultThreads::run, this);
  } catch (const std::system_error&) {
    return Status::kNoMem;
  }
  return Status::kOk;
}

FaultThreads::~FaultThreads() {
  const uint64_t one = 1;
  [[maybe_unused]] ssize_t n = ::write(stop_.get(), &one, sizeof one);
  for (std::thread& t : threads_) t.join();
}

void FaultThreads::run() {
  pthread_setname_np(pthread_self(), "cmi-fault");
  const LibraryThread here;
  pollfd waiting[2] = {{stop_.get(), POLLIN, 0}, {importer_.userfault().fd(), POLLIN, 0}};
  for (;;) {
    const int patience = any_poisoned_.load() ? static_cast<int>(kPoisonedFor / kMilli) : -1;
    ::poll(waiting, 2, patience);
    if (waiting[0].revents != 0) return;
    Userfault::Fault fault;
    if (importer_.userfault().next_fault(&fault)) serve(fault);
    if (any_poisoned_.load()) unpoison_old();
  }
}

void FaultThreads::serve(const Userfault::Fault& fault) {
  // Who is not in a view any more is woken by the end of detach().
  const auto view = target_.view_at(fault.addr);
  if (view == nullptr) return;
  t_access_enabled = importer_.begin_serving(fault.thread);  // in its name
  const Exception e = target_.try_access(*view, fault.addr, fault.write);
  importer_.end_serving();
  if (e == Exception::kNone) {
    // Whatever made the page accessible may have been another fault, before this one waited.
    const auto in_page = reinterpret_cast<uintptr_t>(fault.addr) % kPageSize;
    importer_.userfault().wake(fault.addr - in_page, kPageSize);
    return;
  }
  {
    Guard g(mu_);
    poisoned_.push_back({view, fault.addr, now()});
    any_poisoned_.store(true);
  }
  importer_.poison(*view, fault.addr);
}

void FaultThreads::unpoison_old() {
  const Nanos old = now() - kPoisonedFor;
  for (;;) {
    Poisoned first;
    {
      Guard g(mu_);
      if (poisoned_.empty() || poisoned_.front().since > old) return;
      first = poisoned_.front();
      poisoned_.erase(poisoned_.begin());
      any_poisoned_.store(!poisoned_.empty());
    }
    if (const auto view = first.view.lock()) importer_.unpoison(*view, first.addr);
  }
}

}  // namespace cmi::memory
