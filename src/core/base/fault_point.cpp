// The table behind the fault points. Filled once by arm_fault_points, read-only afterwards but for
// the passage counters.
#include "core/base/fault_point.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>

#include "core/base/fault_count.hpp"
#include "core/base/schedule.hpp"

namespace cmi {

std::atomic<bool> g_fault_points_armed{false};

namespace {
enum class Act { kKill, kStop, kExit, kDelay, kAcquire, kFail };
constexpr long kHeldAtMost = 60000;  // looks for the file, 1 ms apart: its test is over by then
struct Point {
  char name[64] = {};
  Act act = Act::kKill;
  long micros = 0;
  char file[256] = {};
  long nth = 0;  // 0: at each passage
  bool later_too = false;
  std::atomic<long> passed{0};
};
struct Table {
  std::array<Point, 8> points;
  int count = 0;
  // Where passages are counted, and by which point: names are literals, compared by their
  // addresses.
  FaultCount* counts = nullptr;
  std::array<std::atomic<const char*>, kFaultCounts>* counted = nullptr;
};
Table table;

void sleep_micros(long micros) {
  if (Schedule* s = schedule(); s != nullptr) {
    for (const int64_t end = s->now() + micros * 1000; s->now() < end;) s->idle(end - s->now());
    return;
  }
  timespec t{micros / 1000000, micros % 1000000 * 1000};
  while (nanosleep(&t, &t) != 0) {
  }
}

void count_passage(const char* name) {
  if (table.counts == nullptr) return;
  for (size_t i = 0; i < kFaultCounts; ++i) {
    auto& mine = (*table.counted)[i];
    const char* whose = mine.load(std::memory_order_relaxed);
    if (whose == nullptr && mine.compare_exchange_strong(whose, name)) {
      FaultCount& count = table.counts[i];
      std::strncpy(count.name.data(), name, count.name.size() - 1);
      whose = name;
    }
    if (whose != name) continue;
    table.counts[i].passed.fetch_add(1, std::memory_order_relaxed);
    return;
  }
}

void map_counts(const char* path) {
  const int file = ::open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  constexpr size_t kBytes = kFaultCounts * sizeof(FaultCount);
  if (file >= 0 && ::ftruncate(file, kBytes) == 0) {
    void* at = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at != MAP_FAILED) {
      table.counted = new std::array<std::atomic<const char*>, kFaultCounts>{};  // for good
      table.counts = static_cast<FaultCount*>(at);
    }
  }
  if (file >= 0) ::close(file);
}

bool due(Point& p) {
  long n = p.passed.fetch_add(1, std::memory_order_relaxed) + 1;
  return p.nth == 0 || p.nth == n || (p.later_too && n > p.nth);
}

void parse_one(const std::string& item) {
  size_t eq = item.find('=');
  if (eq == std::string::npos || table.count == static_cast<int>(table.points.size())) return;
  Point& p = table.points[static_cast<size_t>(table.count)];
  std::string name = item.substr(0, eq), act = item.substr(eq + 1);
  p.nth = 0;
  p.later_too = name.ends_with('+');
  if (size_t hash = name.find('#'); hash != std::string::npos) {
    p.nth = std::atol(name.c_str() + hash + 1);
    name.resize(hash);
  }
  if (name.size() >= sizeof p.name) return;
  std::memcpy(p.name, name.c_str(), name.size() + 1);
  p.passed = 0;
  if (act == "kill") {
    p.act = Act::kKill;
  } else if (act == "stop") {
    p.act = Act::kStop;
  } else if (act == "exit") {
    p.act = Act::kExit;
  } else if (act == "fail") {
    p.act = Act::kFail;
  } else if (act.rfind("delay:", 0) == 0) {
    p.act = Act::kDelay;
    p.micros = std::atol(act.c_str() + 6);
  } else if (act.rfind("hold:", 0) == 0 && act.size() - 5 < sizeof p.file) {
    p.act = Act::kAcquire;
    std::memcpy(p.file, act.c_str() + 5, act.size() - 4);
  } else {
    return;
  }
  ++table.count;
}
}  // namespace

void arm_fault_points() {
  table.count = 0;
  const char* spec = secure_getenv("CMI_FAULT_POINT");
  if (spec != nullptr) {
    std::string s(spec);
    for (size_t at = 0; at <= s.size();) {
      size_t end = std::min(s.find(';', at), s.size());
      parse_one(s.substr(at, end - at));
      at = end + 1;
    }
  }
  const char* path = secure_getenv("CMI_FAULT_COUNT");
  if (path != nullptr && table.counts == nullptr) map_counts(path);
  // In a simulation they are where others may go first, whether any is set or not.
  g_fault_points_armed.store(table.count > 0 || table.counts != nullptr || schedule() != nullptr,
                             std::memory_order_release);
}

std::span<std::byte> fault_point_table() {
  return {reinterpret_cast<std::byte*>(&table), sizeof table};
}

void fault_point_reached(const char* name) {
  if (Schedule* s = schedule(); s != nullptr) {
    s->pass(name);
    if (!s->faults_here()) return;
  }
  count_passage(name);
  for (int i = 0; i < table.count; ++i) {
    Point& p = table.points[static_cast<size_t>(i)];
    if (std::strcmp(p.name, name) != 0 || p.act == Act::kFail || !due(p)) continue;
    switch (p.act) {
      case Act::kKill:
        ::kill(getpid(), SIGKILL);
        break;
      case Act::kStop:
        // To this thread, which then stops before it goes on; another would stop it a little later.
        ::tgkill(getpid(), gettid(), SIGSTOP);
        break;
      case Act::kExit:
        _exit(77);
      case Act::kDelay:
        sleep_micros(p.micros);
        break;
      case Act::kAcquire:
        for (long look = 0; look < kHeldAtMost && ::access(p.file, F_OK) != 0; ++look) {
          sleep_micros(1000);
        }
        break;
      case Act::kFail:
        break;
    }
  }
}

bool fault_point_fails_slow(const char* name) {
  if (Schedule* s = schedule(); s != nullptr && !s->faults_here()) return false;
  count_passage(name);
  bool fails = false;  // each item counts the passage, whatever the others say
  for (int i = 0; i < table.count; ++i) {
    Point& p = table.points[static_cast<size_t>(i)];
    if (std::strcmp(p.name, name) == 0 && p.act == Act::kFail && due(p)) fails = true;
  }
  return fails;
}

}  // namespace cmi
