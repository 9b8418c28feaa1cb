// Reading faults, serving them, and taking poison away again.
#include "core/memory/fault_threads.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <system_error>

#include "core/base/library_thread.hpp"

namespace cmi::memory {

namespace {
constexpr int kThreads = 4;
constexpr Nanos kPoisonedFor = 100 * kMilli;
// The handler of who has been waited for comes so soon; what comes later is another access.
constexpr Nanos kPromptly = 10 * kMilli;

uintptr_t page_of(const std::byte* addr) { return reinterpret_cast<uintptr_t>(addr) / kPageSize; }
}  // namespace

FaultThreads::FaultThreads(Importer& importer, FaultTarget& target)
    : importer_(importer), target_(target) {}

Status FaultThreads::start() {
  stop_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  due_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!stop_ || !due_) return Status::kNoMem;
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
  pollfd waiting[] = {
      {stop_.get(), POLLIN, 0}, {importer_.userfault().fd(), POLLIN, 0}, {due_.get(), POLLIN, 0}};
  for (;;) {
    ::poll(waiting, std::size(waiting), -1);
    if (waiting[0].revents != 0) return;
    // Before a fault is served, which may take as long as an access may.
    if (waiting[2].revents != 0) unpoison_old();
    Userfault::Fault fault;
    if (importer_.userfault().next_fault(&fault)) serve(fault);
  }
}

void FaultThreads::serve(const Userfault::Fault& fault) {
  // Who is not in a view any more is woken by the end of detach().
  const auto view = target_.view_at(fault.addr);
  if (view == nullptr) return;
  t_access_enabled = importer_.begin_serving(fault.thread);  // in its name
  const Nanos begun = now();
  const Exception e = target_.try_access(*view, fault.addr, fault.write);
  importer_.end_serving();
  if (e == Exception::kNone) {
    // Whatever made the page accessible may have been another fault, before this one waited.
    const auto in_page = reinterpret_cast<uintptr_t>(fault.addr) % kPageSize;
    importer_.userfault().wake(fault.addr - in_page, kPageSize);
    return;
  }
  const Nanos over = now();
  const bool in_vain = e == Exception::kTransient && over - begun >= importer_.reconf_timeout();
  Guard g(mu_);
  // The end of an earlier poison must not be that of this one; what another thread has not heard of
  // yet stays.
  std::erase_if(poisoned_, [&](Poisoned& p) {
    if (page_of(p.addr) != page_of(fault.addr)) return false;
    p.view.reset();
    return p.in_vain == 0 || p.in_vain == fault.thread;
  });
  poisoned_.push_back({view, fault.addr, over, in_vain ? fault.thread : 0, fault.write});
  any_poisoned_.store(true);
  importer_.poison(*view, fault.addr);
  if (poisoned_.size() == 1) end_first_in_time();
}

bool FaultThreads::waited_in_vain(const std::byte* addr, bool write) {
  if (!any_poisoned_.load()) return false;
  const pid_t self = gettid();
  Guard g(mu_);
  for (Poisoned& p : poisoned_) {
    if (p.in_vain != self || page_of(p.addr) != page_of(addr)) continue;
    p.in_vain = 0;
    return p.write == write && now() - p.since < kPromptly;
  }
  return false;
}

void FaultThreads::unpoison_old() {
  for (bool more = true; more;) {
    std::shared_ptr<const View> view;  // let go without the lock
    Guard g(mu_);
    more = !poisoned_.empty() && poisoned_.front().since + kPoisonedFor <= now();
    if (more) {
      view = poisoned_.front().view.lock();
      if (view != nullptr) importer_.unpoison(*view, poisoned_.front().addr);
      poisoned_.erase(poisoned_.begin());
    } else {
      any_poisoned_.store(!poisoned_.empty());
      end_first_in_time();
    }
  }
}

void FaultThreads::end_first_in_time() {
  itimerspec span{};  // none
  if (!poisoned_.empty()) {
    const Nanos left = std::max<Nanos>(poisoned_.front().since + kPoisonedFor - now(), 1);
    span.it_value = {left / kSecond, left % kSecond};
  }
  timerfd_settime(due_.get(), 0, &span, nullptr);
}

}  // namespace cmi::memory
