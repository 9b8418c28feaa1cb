// Composition, fault entry and the service thread's loop.
#include "core/memory/engine/engine.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/base/descriptors_left.hpp"
#include "core/base/library_thread.hpp"
#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "core/base/spin.hpp"
#include "core/base/usdt.hpp"
#include "core/memory/vm/store_log.hpp"
#include "core/node/local_channel.hpp"

namespace cmi::memory {

namespace {
constexpr Nanos kTick = 10 * kMilli;  // what no barrier asked for is published within two of these
constexpr Nanos kTickOn = kSecond;
constexpr Nanos kIdleSleep = kSecond;  // nothing is due: woken by traffic or wake()
// Where somebody computes on our processor a home spins for this part of its time for the next
// request of a peer that waits for it, which comes within a round trip.
constexpr Nanos kCrowdedPart = 5;
// What is a system call, or takes the lock of another thread, is done once in so many rounds.
constexpr unsigned kNowAndThen = 16;
// And not later than this where a round takes long: a heartbeat waits for no more requests than are
// handed out at a stretch (Endpoint::kStretch).
constexpr Nanos kNotLater = 200 * kMicro;
// For so long after an event or a wake-up the length of a look counts as news of a read: whatever
// else makes looks longer must not keep the thread awake for ever.
constexpr Nanos kServesFor = 20 * kMilli;
constexpr Nanos kRetrySends = 200 * kMicro;
constexpr unsigned kVainWakes = 64;  // in a row, before the reason is looked for
constexpr Nanos kVainNap = 5 * kMilli;
constexpr Nanos kBlindNap = kMilli;  // where no descriptor of the provider tells when to wake
// Recovery::uncovered() when this thread last tried an access at home once more.
thread_local uint64_t t_uncovered = 0;
constexpr Nanos kReapEvery = 100 * kMilli;  // where memory is missing
constexpr Nanos kSweepEvery = 5 * kSecond, kSweepAfter = 30 * kSecond;
}  // namespace

Result<std::unique_ptr<Engine>> Engine::start(node::Node& node,
                                              std::vector<fabric::LocalInterface> interfaces,
                                              ContextId self, Settings settings,
                                              Observer& observer) {
  (void)kernel_entry();  // before there is a view whose handler could ask for it
  std::unique_ptr<Engine> e(new Engine(node));
  e->interfaces_ = std::move(interfaces);
  std::vector<fabric::Fabric*> serving;
  for (const fabric::LocalInterface& way : e->interfaces_) {
    serving.push_back(way.serving.get());
    e->blind_ = e->blind_ || !way.serving->traits().wait_fd;
  }
  auto server = fabric::Server::open(std::move(serving), self, *e);
  if (!server) return server.status();
  e->server_ = server.take();
  auto watch = Membership::open({node, *e->server_, self, settings.dead_after, observer});
  if (!watch) return watch.status();
  e->watch_ = watch.take();
  e->wake_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  e->wake_set_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!e->wake_ || !e->wake_set_) return Status::kNoMem;
  for (int fd : {e->wake_.get(), node.bus().fd(), e->watch_->descriptor()}) {
    epoll_event event{EPOLLIN, {}};
    if (fd >= 0 && epoll_ctl(e->wake_set_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      return Status::kNoMem;
    }
  }

  fabric::Identity identity;
  identity.id = self;
  identity.node = node.id();
  auto importer =
      Importer::open({node, e->interfaces_, *e->server_, identity, e->views_, e->stats_, *e->watch_,
                      settings.fault_threads, observer, settings.local, settings.mem_max});
  if (!importer) return importer.status();
  e->importer_ = importer.take();
  auto home = Home::open({node, *e->server_, self, node.id(), e->views_, e->stats_, *e->watch_,
                          observer, e->importer_.get(), settings.local});
  if (!home) return home.status();
  e->home_ = home.take();
  e->watch_->start(*e->home_, *e->importer_);

  set_fault_target(e.get());
  if (settings.fault_threads) {
    e->fault_threads_ = std::make_unique<FaultThreads>(e->importer_->faults(), *e);
    if (Status s = e->fault_threads_->start(); !ok(s)) return s;
  }
  SignalsBlocked inherited_by_the_thread;
  if (Status s = start_thread(&e->thread_, &Engine::serve, e.get()); !ok(s)) return s;
  return e;
}

void Engine::stop() {
  stop_.store(true);
  wake();
  if (thread_.joinable()) thread_.join();
  node_.late_reaper().stop();  // which that thread began
  if (importer_ != nullptr) importer_->lease_alarm().stop();
}

Engine::~Engine() {
  if (importer_ != nullptr) importer_->lease_alarm().stop();
  set_fault_target(nullptr);
  fault_threads_.reset();
  stop();
  if (watch_ != nullptr) watch_->stop();
  // Importer first: its links' endpoints are on the ways, its pages are what they write to.
  importer_.reset();
  watch_.reset();
  server_.reset();
  home_.reset();
  interfaces_.clear();
}

// The service thread does the same under the locks of the pages, when it comes to it. What a fault
// maps from here on is mapped after it has looked at the lease.
void Engine::on_lease_alarm() {
  if (mutated("mutate_kept_without_lease")) return;
  const Nanos t = now();  // there may be no other alarm
  views_.each([t](const View& view) {
    if (view.import != nullptr && view.import->lease.is_over_at(t)) zap(view.addr, view.len);
  });
}

// seq_cst, as for a store in try_access().
void Engine::start_ticks() {
  if (!ticking_.load(std::memory_order_seq_cst) && importer_->busy()) wake();
}

void Engine::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] ssize_t n = ::write(wake_.get(), &one, sizeof one);
}

// At home only pages in flux, those past a break and first stores to guarded views fault for us.
Exception Engine::try_home_access(const View& view, const std::byte* addr, bool write) {
  if (view.adopted && write) {
    for (Backoff backoff; home_->views().being_moved(view);) backoff.pause();
  }
  if (home_->breaks().past_break(view, addr)) return Exception::kSegBrk;
  if (home_->recovery().in_flux(view, addr)) return Exception::kConsist;
  // Read after that: uncovering a page is counted before the page is no longer in flux.
  const uint64_t uncovered = home_->recovery().uncovered();
  if (write && view.stores != nullptr) {
    return view.stores->note(addr) ? Exception::kNone : Exception::kUe;
  }
  if (write && view.read_only) return Exception::kAccess;
  // The memory behind the page cannot be had; or it has been given back since it faulted.
  const bool again = std::exchange(t_uncovered, uncovered) != uncovered;
  return again || home_->breaks().may_have_moved(view, addr) ? Exception::kNone
                                                             : Exception::kNotOurs;
}

[[gnu::hot]] Exception Engine::try_access(const View& view, const std::byte* addr, bool write,
                                          const PageSeen* seen) {
  if (view.import == nullptr) return try_home_access(view, addr, write);
  if (!t_access_enabled) return Exception::kEnable;
  Exception e;
  Deadline deadline;
  do {
    deadline = Deadline::in(importer_->reconf_timeout().get());
    e = importer_->faults().serve(view, addr, write, seen, deadline);
  } while (e == Exception::kTransient && deadline.passed() &&
           !view.import->cache.use.lacks_memory() && importer_->waits_on(*view.import));
  // The timer that publishes what no barrier does starts with the first dirty page. seq_cst, as in
  // keep_time(): either it is seen to have stopped here, or it sees the page.
  if (write && !ticking_.load(std::memory_order_seq_cst)) wake();
  return e;
}

[[gnu::hot]] Exception Engine::on_fault(const View& view, const std::byte* addr, bool write,
                                        bool broken) {
  // What is known of a page that has not been touched for long comes from memory: meanwhile the
  // rest is done that does not need it.
  if (view.import != nullptr && view.import->cache.ready()) {
    __builtin_prefetch(&view.import->page(static_cast<uint32_t>((addr - view.addr) / kPageSize)),
                       1);
  }
  // An access to broken memory of its own node is fatal, as it would be without the library. On a
  // view of an import, broken memory may be how fault threads report that an access has failed, or
  // the home's own page.
  const bool mapped = view.import != nullptr && view.import->views.local.local();
  if (broken && !mapped && (view.import == nullptr || fault_threads_ == nullptr)) {
    return Exception::kNotOurs;
  }
  // With fault threads this is a page that one of them has poisoned.
  const bool poisoned = fault_threads_ != nullptr && view.import != nullptr;
  if (poisoned) importer_->faults().unpoison(view, addr);
  Exception e = Exception::kUe;
  if (!broken || !mapped) {
    e = poisoned && t_access_enabled && fault_threads_->waited_in_vain(addr, write)
            ? Exception::kTransient
            : try_access(view, addr, write, nullptr);
  }
  if (e != Exception::kNone && e != Exception::kNotOurs) {
    count(stats_.exceptions);
    if (view.import != nullptr) count(view.import->stats.exceptions);
    CMI_PROBE3(exception, view.segment, static_cast<const void*>(addr), static_cast<int>(e));
    trace(kFacMem, kDebug, "exception {} at {} segment {}", static_cast<int>(e),
          static_cast<const void*>(addr), view.segment);
  }
  return e;
}

void Engine::on_new_session(const fabric::ClientInfo& client) { home_->on_new_session(client); }

void Engine::on_request(const fabric::ClientInfo& client, uint64_t number, uint16_t type,
                        Reader payload) {
  home_->on_request(client, number, type, payload);
}

void Engine::on_notification(const ContextId& home, uint64_t secret, uint64_t number, uint16_t type,
                             Reader payload, const fabric::DirectAck& direct_ack) {
  importer_->notifications().on_notification(home, secret, number, type, payload, direct_ack);
}

void Engine::on_acked_below(const ContextId& client, uint64_t below,
                            std::span<const uint64_t> behind) {
  home_->on_acked_below(client, below, behind);
}

void Engine::on_ack(const ContextId& client, uint64_t number, Reader payload) {
  home_->on_ack(client, number, payload);
}

Nanos Engine::keep_time(Nanos t, bool woken) {
  times_.kept = t;
  const Nanos watch_due = watch_->advance(t, woken);
  // Ticks go on for a while after the last need, so that a rare store need not wake this thread.
  const bool busy = importer_->busy() || home_->busy();
  if (busy) times_.tick_until = t + kTickOn;
  const bool ticking = t < times_.tick_until;
  if (ticking != ticking_.load(std::memory_order_relaxed)) {
    ticking_.store(ticking, std::memory_order_seq_cst);
    if (!ticking && importer_->busy()) return t;  // a store just before saw ticks, and woke nobody
  }
  if (ticking && t - times_.tick >= kTick) {
    times_.tick = t;
    importer_->timer().report_acked_below();
    if (busy) {
      count(stats_.ticks);
      importer_->timer().tick();
      home_->tick(t);
    }
  }
  if (t >= times_.marks_due) times_.marks_due = node_.marks().settle(0) ? 0 : t + kTick;
  if (t - times_.reap > kReapEvery) {
    times_.reap = t;
    node_.late_reaper().begin_if_wanted();
  }
  if (t - times_.sweep > kSweepEvery) {
    times_.sweep = t;
    server_->sweep(kSweepAfter);
  }
  const Nanos next = std::min(ticking ? times_.tick + kTick : t + kIdleSleep, watch_due);
  return times_.marks_due != 0 ? std::min(next, times_.marks_due) : next;
}

// What processes of the node have sent; how many.
int Engine::take_datagrams() {
  int taken = 0;
  for (auto d = node_.bus().receive(); d; d = node_.bus().receive(), ++taken) {
    if (d->question) {
      answer(*d);
    } else if (d->channel) {
      home_->on_channel(node::LocalChannel(std::move(d->fd)));
    } else {
      home_->on_datagram(d.take());
    }
  }
  return taken;
}

// A thread that shares this processor may be the one that waits for what was just sent.
static void give_way(Nanos t) {
  auto& neighbours = SpinThenSleep::neighbours();
  if (neighbours.shared(t)) neighbours.give_way(now());
}

void Engine::serve() {
  pthread_setname_np(pthread_self(), "cmi-service");
  const LibraryThread here;
  const SignalsBlockedAlready for_good;
  SpinThenSleep spin;
  const auto look = [&](Nanos t) {
    spin.begin(t, 0, server_->clients().serves() ? spin.span() / kCrowdedPart : 0);
  };
  look(now());
  unsigned round = 0;
  Nanos due = 0, renewed_until = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    int events = importer_->advance();
    const Nanos before = now();
    events += server_->poll();
    Nanos t = now();
    const bool served = spin.served(t - before) && t < renewed_until && server_->clients().serves();
    const bool now_and_then = round++ % kNowAndThen == 0 || t - times_.kept > kNotLater;
    if (now_and_then) {
      const int others = take_datagrams();
      events += others;
      if (others > 0) t = now();
    }
    if (now_and_then || t >= due) due = keep_time(t, round == 1);
    if (events > 0) {
      renewed_until = t + kServesFor;
      vain_ = 0;
    }
    if (events > 0 || served) {
      look(t);
      give_way(t);
      continue;
    }
    if (spin.again(t)) continue;
    // Others may have made something due since, and woken nobody.
    due = keep_time(now(), false);
    const Nanos asleep_from = now();
    if (due <= asleep_from) continue;
    const bool woken = sleep(due);
    const Nanos awake_from = now();
    spin.slept(awake_from - asleep_from, woken);
    if (woken) {  // by a read, it may be: there is no other event of those
      look(awake_from);
      renewed_until = awake_from + kServesFor;
    }
    round = 0;
  }
}

// A listener that has no descriptor left cannot accept a caller, and stays readable; so does a
// queue of the tcp provider while a message to a peer that cannot be reached waits in it. (Reads
// that the provider serves by itself are no events either.)
bool Engine::nap_if_vain() {
  if (++vain_ % kVainWakes != 0) return false;
  if (!server_->idle()) {
    ::usleep(kBlindNap / kMicro);
  } else if (!descriptors_left(1)) {
    ::usleep(kVainNap / kMicro);
  } else {
    return false;
  }
  --vain_;
  return true;
}

bool Engine::sleep(Nanos until) {
  if (server_->poll(true) > 0) return true;
  if (blind_) until = std::min(until, now() + kBlindNap);
  if (!server_->idle()) {
    until =
        std::min(until, now() + kRetrySends);  // the provider said "again", and does not say when
  } else if (!server_->may_sleep()) {
    sched_yield();
    return false;
  }
  std::vector<int> fds{wake_set_.get()};
  server_->descriptors(&fds);
  until = std::min(until, now() + importer_->descriptors(&fds));
  std::vector<pollfd> polls;
  for (int fd : fds) {
    if (fd >= 0) polls.push_back({fd, POLLIN, 0});
  }
  const Nanos left = std::max<Nanos>(until - now(), 0);
  timespec ts{left / kSecond, left % kSecond};
  bool woken = ppoll(polls.data(), polls.size(), &ts, nullptr) > 0;
  // What has come is looked at before all else: after a sleep nothing is in a cache, and each step
  // in between is microseconds that somebody waits.
  if (woken && server_->poll_listeners() == 0) {
    woken = !nap_if_vain();
  } else {
    vain_ = 0;
  }
  if (polls[0].revents != 0) {
    uint64_t count;
    [[maybe_unused]] ssize_t n = ::read(wake_.get(), &count, sizeof count);
  }
  return woken;
}

}  // namespace cmi::memory
