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

constexpr Nanos kGatePatience = 20 * kSecond;
// A thread begins no further operation after this long: slow machines play less of each program.
constexpr Nanos kPlayTime = 2 * kSecond;

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

class Player {
 public:
  Player(const Part& part, const std::vector<Op>& ops, ThreadRecord& record, Event* events)
      : part_(part), ops_(ops), record_(record), events_(events) {}

  void play() {
    const Deadline deadline = Deadline::in(kPlayTime);
    for (const Op& op : ops_) {
      if (record_.failure[0] != 0 || deadline.passed()) break;
      record_.ops.fetch_add(1, std::memory_order_relaxed);
      perform(op);
    }
    if (epoch_ != nullptr) perform({OpKind::kClose, 0, 0, 0});
  }

  void read(const std::vector<Cell>& cells) {
    for (const Cell& cell : cells) load_event(cell.at, cell.width);
  }

 private:
  std::byte* address(uint32_t at) const {
    return reinterpret_cast<std::byte*>(part_.views[at / kSegmentSpan]) + at % kSegmentSpan;
  }

  // The event's fields are complete; now it counts.
  void keep(const Event& event) {
    const uint32_t n = record_.events.load(std::memory_order_relaxed);
    events_[n] = event;
    record_.events.store(n + 1, std::memory_order_release);
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
  // A call that began at `begin_` and has returned.
  void keep_call(Event event, OpKind kind, int result) {
    event.begin = begin_;
    event.end = stamp();
    if (result == 0) return keep(event);
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
        store(address(op.at), op.width, op.value);
        keep({Kind::kStore, op.width, op.at, op.value, 0, 0, begin_, stamp()});
        break;
      case OpKind::kSwap: {
        Event event{Kind::kSwap, 8, op.at, 0, seen_[op.at], op.value, 0, 0};
        const int result =
            CMIFN(context_, 10, atm_cas)(context_, reinterpret_cast<uint64_t*>(address(op.at)),
                                         event.compare, event.desired, &event.value);
        seen_[op.at] = event.value == event.compare ? event.desired : event.value;
        keep_call(event, op.kind, result);
        break;
      }
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
  cmi_ctxt* context_ = test::ctxt();
  cmi_fb epoch_ = nullptr;
  Time begin_ = 0;
  std::unordered_map<uint32_t, uint64_t> seen_;  // words, by place: what a swap is tried with
};

// The thread that an exception is raised in.
thread_local ThreadRecord* t_record = nullptr;

// Says what was raised, unless it is only a delay of the network.
bool on_fault(const test::Fault& fault) {
  if (fault.cause() == CMI_ERROR_TRANSIENT) {
    t_record->transients.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  std::snprintf(t_record->failure.data(), t_record->failure.size(),
                "exception %d at address 0x%llx", fault.cause(),
                static_cast<unsigned long long>(fault.address));
  return false;
}

template <class F>
void guarded(ThreadRecord& record, F body) {
  t_record = &record;
  test::guarded(body);
  record.ended.store(1, std::memory_order_release);
}

void run_thread(const Part& part, const Program& program, Record& record, uint32_t t) {
  cmi_ctxt* const context = test::ctxt();
  ThreadRecord& mine = record.thread(t);
  const bool good =
      CMIFN(context, 10, ini_th)(context) == 0 && CMIFN(context, 10, cmi_enb)(context, 1) == 0;
  if (!good) std::snprintf(mine.failure.data(), mine.failure.size(), "ini_th or cmi_enb failed");
  auto& arrived = record.gate().arrived;
  arrived.fetch_add(1, std::memory_order_acq_rel);
  const Deadline deadline = Deadline::in(kGatePatience);
  while (arrived.load(std::memory_order_acquire) < program.threads.size() && !deadline.passed()) {
    std::this_thread::yield();
  }
  Player player(part, program.threads[t], mine, record.events(t));
  guarded(mine, [&] { player.play(); });
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
        std::vector<std::thread> threads;
        for (uint32_t i = 0; i < program.shape.threads; ++i) {
          const uint32_t t = mine.node * program.shape.threads + i;
          threads.emplace_back([&, t] { run_thread(mine, program, record, t); });
        }
        for (std::thread& thread : threads) thread.join();
      },
      part);
}

bool settle(test::Process& process) { return test::mb(process).ok(); }

void read_all(test::Process& process, const Part& part) {
  process.run(
      [](Part mine) {
        const Program program = make_program(mine.shape);
        Record record(mine.record.data(), program);
        const auto t = static_cast<uint32_t>(program.threads.size()) + mine.node;
        ThreadRecord& last = record.thread(t);
        const std::vector<Op> nothing;
        Player player(mine, nothing, last, record.events(t));
        guarded(last, [&] { player.read(program.cells); });
      },
      part);
}

}  // namespace cmi::checker
