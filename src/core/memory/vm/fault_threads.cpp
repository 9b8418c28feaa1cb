// Reading faults, serving them, and taking poison away again.
#include "core/memory/vm/fault_threads.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <iterator>

#include "core/base/fault_point.hpp"
#include "core/base/library_thread.hpp"

namespace cmi::memory {

namespace {
constexpr int kFree = 4;      // wait for faults at the same time; each of them looks at each
constexpr size_t kMost = 64;  // with those that are held up, and spare ones
constexpr Nanos kHeldUp = 5 * kMilli;  // for so long nobody is free before a spare one comes in
constexpr Nanos kPoisonedFor = 100 * kMilli;
// The handler of the thread whose fault failed comes so soon; a later one is another access.
constexpr Nanos kPromptly = 10 * kMilli;

uintptr_t page_of(const std::byte* addr) { return reinterpret_cast<uintptr_t>(addr) / kPageSize; }

// Once, after `span`; 0: not at all.
void set_timer(const Fd& timer, Nanos span) {
  itimerspec once{};
  once.it_value = {span / kSecond, span % kSecond};
  timerfd_settime(timer.get(), 0, &once, nullptr);
}
}  // namespace

FaultThreads::FaultThreads(ImportFaults& importer, FaultTarget& target)
    : importer_(importer), target_(target) {}

Status FaultThreads::start() {
  stop_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  due_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  held_up_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!stop_ || !due_ || !held_up_) return Status::kNoMem;
  for (int i = 0; i < kFree; ++i) {
    if (!add_thread(Part::kFree)) return because(Status::kNoMem, kNoThread);
  }
  return add_thread(Part::kSpare) ? Status::kOk : because(Status::kNoMem, kNoThread);
}

FaultThreads::~FaultThreads() {
  eventfd_write(stop_.get(), 1);
  std::vector<std::thread> threads;
  for (;;) {  // one of them may be starting another
    {
      Guard g(threads_mu_);
      threads.swap(threads_);
    }
    if (threads.empty()) return;
    for (std::thread& t : threads) t.join();
    threads.clear();
  }
}

bool FaultThreads::add_thread(Part part) {
  const SignalsBlocked inherited_by_the_thread;
  Guard g(threads_mu_);
  if (threads_.size() == kMost) return false;
  std::atomic<int>& count = part == Part::kFree ? free_ : spare_;
  count.fetch_add(1);
  try {
    threads_.emplace_back(&FaultThreads::run, this, part);
  } catch (const std::exception&) {
    count.fetch_sub(1);
    return false;
  }
  return true;
}

void FaultThreads::run(Part part) {
  pthread_setname_np(pthread_self(), "cmi-fault");
  const LibraryThread here;
  while (part != Part::kOver) {
    part = part == Part::kFree ? wait_for_fault() : wait_for_need();
  }
}

FaultThreads::Part FaultThreads::wait_for_fault() {
  pollfd waiting[] = {
      {stop_.get(), POLLIN, 0}, {importer_.userfault().fd(), POLLIN, 0}, {due_.get(), POLLIN, 0}};
  ::poll(waiting, std::size(waiting), -1);
  if (waiting[0].revents != 0) return Part::kOver;
  // Before a fault is served, which may take as long as an access may.
  if (waiting[2].revents != 0) unpoison_old();
  {
    Served served(*this);
    if (!next_fault(&served)) return Part::kFree;
    if (free_.fetch_sub(1) == 1) set_timer(held_up_, kHeldUp);
    serve(served);
  }
  int now_free = free_.load();
  while (now_free < kFree) {
    if (free_.compare_exchange_weak(now_free, now_free + 1)) return Part::kFree;
  }
  spare_.fetch_add(1);
  return Part::kSpare;
}

FaultThreads::Part FaultThreads::wait_for_need() {
  pollfd waiting[] = {{stop_.get(), POLLIN, 0}, {held_up_.get(), POLLIN, 0}};
  ::poll(waiting, std::size(waiting), -1);
  if (waiting[0].revents != 0) return Part::kOver;
  // The timer is for one of the spare threads. Whoever is free by now serves what has come, and
  // sets it again when he is so no more.
  uint64_t expired;
  if (::read(held_up_.get(), &expired, sizeof expired) != sizeof expired) return Part::kSpare;
  if (free_.load() > 0) return Part::kSpare;
  free_.fetch_add(1);
  // Without another one all may be held up once more, as they are where there are kMost.
  if (spare_.fetch_sub(1) == 1) (void)add_thread(Part::kSpare);
  return Part::kFree;
}

bool FaultThreads::next_fault(Served* served) {
  Guard g(mu_);
  served->cleaned = importer_.cleaned();
  if (!importer_.userfault().next_fault(&served->fault)) return false;
  for (Served* s : served_) {
    s->of_before = s->of_before || s->fault.thread == served->fault.thread;
  }
  served_.push_back(served);
  return true;
}

FaultThreads::Served::~Served() {
  Guard g(by.mu_);
  std::erase(by.served_, this);
}

void FaultThreads::serve(const Served& served) {
  const Userfault::Fault& fault = served.fault;
  fault_point("mutation_fault_read");
  // A thread whose view has ended is woken by the end of detach(). Another view may be there now.
  const auto view = target_.view_at(fault.addr);
  if (view == nullptr || view->import == nullptr || view->write_through) {
    return fault_point("mutation_fault_of_no_view");
  }
  const auto seen = importer_.snapshot(*view, fault.addr, served.cleaned);
  fault_point("mutation_fault_begun");
  t_access_enabled = importer_.begin_serving(fault.thread);  // in its name
  const Nanos begun = now();
  // Nothing is known of the page as it was when its thread was waiting: it may be waiting no more.
  const Exception e = fault.write && !seen ? Exception::kNone
                                           : target_.try_access(*view, fault.addr, fault.write,
                                                                seen ? &*seen : nullptr);
  importer_.end_serving();
  if (e == Exception::kNone) {
    // Whatever made the page accessible may have been another fault, before this one waited.
    const auto in_page = reinterpret_cast<uintptr_t>(fault.addr) % kPageSize;
    fault_point("mutation_fault_served");
    importer_.userfault().wake(fault.addr - in_page, kPageSize);
    return;
  }
  const Nanos over = now();
  fault_point("mutation_fault_failed");
  const bool in_vain = e == Exception::kTransient && over - begun >= importer_.reconf_timeout();
  Guard g(mu_);
  // Reported now, the next access of its thread would take the failure for its own.
  if (served.of_before) return;
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
  Nanos left = 0;  // not at all
  if (!poisoned_.empty()) {
    left = std::max<Nanos>(poisoned_.front().since + kPoisonedFor - now(), 1);
  }
  set_timer(due_, left);
}

}  // namespace cmi::memory
