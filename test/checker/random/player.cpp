// The threads of a random program.
#include "checker/random/player.hpp"

#include <cmi.h>
#include <cmi/ofi/cmi_impl.h>

#include <atomic>
#include <cstdio>
#include <thread>
#include <unordered_map>
#include <vector>

#include "checker/random/record.hpp"
#include "core/base/clock.hpp"
#include "system/calls.hpp"
#include "system/guard.hpp"

namespace cmi::checker {

namespace {

constexpr int32_t kUnknown = -1;  // why a segment is left alone: what came of a swap is not known

constexpr Nanos kGatePatience = 20 * kSecond;
// A thread begins no further operation after this long: slow machines play less of each program.
constexpr Nanos kPlayTime = 2 * kSecond;
// Where somebody may die: then a home is given up that only says that it cannot be reached for now,
// about once a second.
constexpr uint32_t kMostTransients = 8;
constexpr Nanos kReadTime = 60 * kSecond;  // whoever waits for it gives up sooner

// Loads before it are done, and none after it has begun, when the clock is read. Stores may still
// be on their way to the cache: a full fence would hide the one that barriers must have.
Time stamp() {
#if defined(__x86_64__)
  __builtin_ia32_lfence();
  const Time t = now();
  __builtin_ia32_lfence();
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const Time t = now();
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  return t;
}

template <class T>
T volatile* as(std::byte* at) {
  return reinterpret_cast<T volatile*>(at);
}
uint64_t load(std::byte* at, uint8_t width) {
  switch (width) {
    case 1:
      return *as<uint8_t>(at);
    case 2:
      return *as<uint16_t>(at);
    case 4:
      return *as<uint32_t>(at);
    default:
      return *as<uint64_t>(at);
  }
}
void store(std::byte* at, uint8_t width, uint64_t value) {
  switch (width) {
    case 1:
      *as<uint8_t>(at) = static_cast<uint8_t>(value);
      break;
    case 2:
      *as<uint16_t>(at) = static_cast<uint16_t>(value);
      break;
    case 4:
      *as<uint32_t>(at) = static_cast<uint32_t>(value);
      break;
    default:
      *as<uint64_t>(at) = value;
  }
}

// Of the thread that an exception is raised in, while it plays.
thread_local ThreadRecord* t_record = nullptr;
thread_local bool t_mortal = false;
thread_local uint32_t t_transients = 0;  // in this operation

class Player {
 public:
  Player(const Part& part, const std::vector<Op>& ops, Nanos patience, ThreadRecord& record,
         Event* events)
      : part_(part),
        ops_(ops),
        record_(record),
        events_(events),
        deadline_(Deadline::in(patience)) {}

  // Goes on where it stands: an exception may have ended it in the middle of an operation.
  void play() {
    while (next_ < ops_.size()) {
      if (record_.failure[0] != 0 || deadline_.passed()) break;
      const Op& op = ops_[next_++];
      record_.ops.fetch_add(1, std::memory_order_relaxed);
      t_transients = 0;
      if (!left(op)) perform(op);
    }
    if (epoch_ != nullptr) perform({OpKind::kClose, 0, 0, 0});
    done_ = true;
  }

  // What an exception ended is not repeated, and its segment is left alone from then on. False when
  // the thread must not go on: it was none that a death explains.
  bool go_on(const test::Fault& fault) {
    if (part_.mortal == 0 || fault.cause() <= 0 || next_ == 0) return false;
    const uint32_t segment = ops_[next_ - 1].at / kSegmentSpan;
    if (fault.address - part_.views[segment] >= kSegmentSpan) return false;
    record_.left[segment].store(fault.cause(), std::memory_order_relaxed);
    if (pending_ == Kind::kStore) withdraw();  // it was not made
    pending_ = Kind::kLoad;
    return true;
  }

  bool done() const { return done_; }

 private:
  // Whether it is about a segment that is left alone.
  bool left(const Op& op) const {
    switch (op.kind) {
      case OpKind::kLoad:
      case OpKind::kSpin:
      case OpKind::kStore:
      case OpKind::kSwap:
      case OpKind::kLineFlush:
        return record_.left[op.at / kSegmentSpan].load(std::memory_order_relaxed) != 0;
      default:
        return false;
    }
  }

  std::byte* address(uint32_t at) const {
    return reinterpret_cast<std::byte*>(part_.views[at / kSegmentSpan]) + at % kSegmentSpan;
  }

  // The event's fields are complete; now it counts.
  void keep(const Event& event) {
    const uint32_t n = record_.events.load(std::memory_order_relaxed);
    events_[n] = event;
    record_.events.store(n + 1, std::memory_order_release);
  }
  // Written down before it is made: what it does may be seen though its thread never comes back.
  void intend(Event event) {
    event.end = 0;
    pending_ = event.kind;
    keep(event);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  Event& intended() { return events_[record_.events.load(std::memory_order_relaxed) - 1]; }
  void made() {
    std::atomic_ref(intended().end).store(stamp(), std::memory_order_release);
    pending_ = Kind::kLoad;
  }
  void withdraw() {
    record_.events.fetch_sub(1, std::memory_order_release);
    pending_ = Kind::kLoad;
  }
  Event load_once(uint32_t at, uint8_t width) {
    Event event{Kind::kLoad, width, at, 0, 0, 0, stamp(), 0};
    event.value = load(address(at), width);
    event.end = stamp();
    if (width == 8) seen_[at] = event.value;
    return event;
  }
  uint64_t load_event(uint32_t at, uint8_t width) {
    const Event event = load_once(at, width);
    keep(event);
    return event.value;
  }

  void failed(OpKind kind) {
    std::snprintf(record_.failure.data(), record_.failure.size(), "%s failed with error %d",
                  op_name(kind), cmi_get_error(context_));
  }
  // Whether the call that failed may have, where somebody may die: stores were lost with a home.
  bool excused() {
    const cmi_error error = cmi_get_error(context_);
    if (part_.mortal == 0 || (error != CMI_ERR_STORE && error != CMI_ERR_HW)) return false;
    int32_t none = 0;
    record_.error.compare_exchange_strong(none, error, std::memory_order_relaxed);
    return true;
  }
  // A call that began at `begin_` and has returned. One that says that stores were lost has
  // completed those whose homes live.
  void keep_call(Event event, OpKind kind, int result) {
    event.begin = begin_;
    event.end = stamp();
    if (result == 0 || excused()) return keep(event);
    failed(kind);
  }
  void barrier(OpKind kind, int result) {
    keep_call({Kind::kBarrier, 0, 0, 0, 0, 0, 0, 0}, kind, result);
  }

  void perform(const Op& op) {
    begin_ = stamp();
    switch (op.kind) {
      case OpKind::kLoad:
        load_event(op.at, op.width);
        break;
      case OpKind::kSpin:
        spin(op);
        break;
      case OpKind::kStore:
        intend({Kind::kStore, op.width, op.at, op.value, 0, 0, begin_, 0});
        store(address(op.at), op.width, op.value);
        made();
        break;
      case OpKind::kSwap:
        swap(op);
        break;
      case OpKind::kWmb:
        barrier(op.kind, cmi_wmb());
        break;
      case OpKind::kMb:
        barrier(op.kind, cmi_mb());
        break;
      case OpKind::kRmb:
        cmi_rmb();
        break;
      case OpKind::kOpen:
        epoch_ = CMIFN(context_, 10, open_fb)(context_);
        if (epoch_ == nullptr) failed(op.kind);
        break;
      case OpKind::kFlush:
        barrier(op.kind, CMIFN(context_, 10, flush_fb)(context_, epoch_));
        break;
      case OpKind::kClose:
        barrier(op.kind, CMIFN(context_, 10, close_fb)(context_, epoch_));
        epoch_ = nullptr;
        break;
      case OpKind::kLineFlush: {
        void* line[] = {address(op.at)};
        keep_call({Kind::kLineFlush, 0, op.at, 0, 0, 0, 0, 0}, op.kind,
                  CMIFN(context_, 10, cflush)(context_, line, 1));
        break;
      }
      case OpKind::kPause:
        for (uint64_t i = 0; i < op.value; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
        break;
    }
  }

  void swap(const Op& op) {
    uint64_t& seen = seen_[op.at];
    const uint64_t compare = seen;
    uint64_t found = 0;
    intend({Kind::kSwap, 8, op.at, 0, compare, op.value, begin_, 0});
    const int result = CMIFN(context_, 10, atm_cas)(
        context_, reinterpret_cast<uint64_t*>(address(op.at)), compare, op.value, &found);
    if (result == 0) {
      seen = found == compare ? op.value : found;
      intended().value = found;
      return made();
    }
    const bool unknown = cmi_get_error(context_) == CMI_ERR_HW;
    if (!excused()) return failed(op.kind);
    // Else it was not tried: the stores before it were lost.
    if (!unknown) return withdraw();
    record_.left[op.at / kSegmentSpan].store(kUnknown, std::memory_order_relaxed);
  }

  // The first and the last of the loads are kept.
  void spin(const Op& op) {
    const uint64_t first = load_event(op.at, op.width);
    for (uint64_t i = 0; i < op.value; ++i) {
      const Event event = load_once(op.at, op.width);
      if (event.value == first && i + 1 != op.value) continue;
      keep(event);
      break;
    }
  }

  const Part& part_;
  const std::vector<Op>& ops_;
  ThreadRecord& record_;
  Event* events_;
  const Deadline deadline_;
  cmi_ctxt* context_ = test::ctxt();
  cmi_fb epoch_ = nullptr;
  Time begin_ = 0;
  size_t next_ = 0;  // operation
  bool done_ = false;
  Kind pending_ = Kind::kLoad;                   // kStore, kSwap: written down and not over
  std::unordered_map<uint32_t, uint64_t> seen_;  // words, by place: what a swap is tried with
};

// Says what was raised, unless it is only a delay of the network.
bool on_fault(const test::Fault& fault) {
  if (t_record == nullptr) return false;
  if (fault.cause() == CMI_ERROR_TRANSIENT) {
    t_record->transients.fetch_add(1, std::memory_order_relaxed);
    return !t_mortal || ++t_transients < kMostTransients;
  }
  if (t_mortal && fault.cause() > 0) return false;
  std::snprintf(t_record->failure.data(), t_record->failure.size(),
                "exception %d at address 0x%llx", fault.cause(),
                static_cast<unsigned long long>(fault.address));
  return false;
}

void play(const Part& part, const std::vector<Op>& ops, Nanos patience, ThreadRecord& record,
          Event* events) {
  Player player(part, ops, patience, record, events);
  t_record = &record;
  t_mortal = part.mortal != 0;
  auto body = [&] { player.play(); };
  for (;;) {
    const test::Fault fault = test::guarded(body);
    // Exceptions that the handler returned from were followed by the end of the body.
    if (player.done() || record.failure[0] != 0) break;
    if (player.go_on(fault)) continue;
    std::snprintf(record.failure.data(), record.failure.size(), "exception %d", fault.cause());
    break;
  }
  t_record = nullptr;
  record.ended.store(1, std::memory_order_release);
}

void run_thread(const Part& part, const Program& program, Record& record, uint32_t t) {
  ThreadRecord& mine = record.thread(t);
  auto& arrived = record.gate().arrived;
  arrived.fetch_add(1, std::memory_order_acq_rel);
  const Deadline deadline = Deadline::in(kGatePatience);
  while (arrived.load(std::memory_order_acquire) < program.threads.size() &&
         record.gate().open.load(std::memory_order_acquire) == 0 && !deadline.passed()) {
    std::this_thread::yield();
  }
  play(part, program.threads[t], kPlayTime, mine, record.events(t));
}

void run_new_thread(const Part& part, const Program& program, Record& record, uint32_t t) {
  cmi_ctxt* const context = test::ctxt();
  ThreadRecord& mine = record.thread(t);
  const bool good =
      CMIFN(context, 10, ini_th)(context) == 0 && CMIFN(context, 10, cmi_enb)(context, 1) == 0;
  if (!good) std::snprintf(mine.failure.data(), mine.failure.size(), "ini_th or cmi_enb failed");
  run_thread(part, program, record, t);
  if (CMIFN(context, 10, fini)(context) != 0 && mine.failure[0] == 0) {
    std::snprintf(mine.failure.data(), mine.failure.size(), "fini failed");
  }
}

}  // namespace

test::Pending<void> start_playing(test::Process& process, const Part& part) {
  return process.start(
      [](Part mine) {
        test::set_on_fault(on_fault);
        const Program program = make_program(mine.shape);
        Record record(mine.record.data(), program);
        std::vector<uint32_t> here;
        for (uint32_t t = 0; t < program.threads.size(); ++t) {
          if (program.process_of(t) == mine.process) here.push_back(t);
        }
        // Who has one thread has no other: a barrier then takes another way.
        if (here.size() == 1) return run_thread(mine, program, record, here[0]);
        std::vector<std::thread> threads;
        for (uint32_t t : here) {
          threads.emplace_back([&, t] { run_new_thread(mine, program, record, t); });
        }
        for (std::thread& thread : threads) thread.join();
      },
      part);
}

bool settle(test::Process& process, const Part& part) {
  return process.run(
      [](Part mine) {
        const Program program = make_program(mine.shape);
        Record record(mine.record.data(), program);
        const auto t = static_cast<uint32_t>(program.threads.size()) + mine.process;
        play(mine, {{OpKind::kMb, 0, 0, 0}}, kReadTime, record.thread(t), record.events(t));
        return record.thread(t).failure[0] == 0;
      },
      part);
}

void read_all(test::Process& process, const Part& part) {
  process.run(
      [](Part mine) {
        const Program program = make_program(mine.shape);
        Record record(mine.record.data(), program);
        const auto t = static_cast<uint32_t>(program.threads.size()) + mine.process;
        ThreadRecord& last = record.thread(t);
        // Those of a segment that was left in an earlier reading are loaded again.
        for (auto& cause : last.left) cause = 0;
        std::vector<Op> loads;
        for (const Cell& cell : program.cells) {
          if ((mine.gone >> cell.at / kSegmentSpan & 1) != 0) continue;
          loads.push_back({OpKind::kLoad, cell.width, cell.at, 0});
        }
        play(mine, loads, kReadTime, last, record.events(t));
      },
      part);
}

}  // namespace cmi::checker
