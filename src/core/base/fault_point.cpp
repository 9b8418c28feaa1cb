// The table behind the fault points. Filled once by arm_fault_points, read-only afterwards but for
// the passage counters.
#include "core/base/fault_point.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>

namespace cmi {

std::atomic<bool> g_fault_points_armed{false};

namespace {
enum class Act { kKill, kStop, kExit, kDelay, kFail };
struct Point {
  char name[64] = {};
  Act act = Act::kKill;
  long micros = 0;
  long nth = 0;  // 0: at each passage
  bool later_too = false;
  std::atomic<long> passed{0};
};
std::array<Point, 8> points;
int count = 0;

// For "*=note:FILE": the file, -1 for none, and whose names are in it. A place that is taken stays
// so: entries are set once, by compare-and-swap.
int notes = -1;
std::array<std::atomic<const char*>, 512> noted;

// Writes a name once for each place that has it.
void note(const char* name) {
  for (std::atomic<const char*>& entry : noted) {
    const char* found = entry.load(std::memory_order_relaxed);
    if (found == nullptr && entry.compare_exchange_strong(found, name)) {
      char line[sizeof(Point::name) + 1];
      const size_t length = std::min(std::strlen(name), sizeof line - 1);
      std::memcpy(line, name, length);
      line[length] = '\n';
      (void)!::write(notes, line, length + 1);
      return;
    }
    if (found == name) return;
  }
}

bool due(Point& p) {
  long n = p.passed.fetch_add(1, std::memory_order_relaxed) + 1;
  return p.nth == 0 || p.nth == n || (p.later_too && n > p.nth);
}

void parse_one(const std::string& item) {
  size_t eq = item.find('=');
  if (eq == std::string::npos) return;
  if (item.starts_with("*=note:")) {
    const char* path = item.c_str() + item.find(':') + 1;
    if (notes < 0) notes = ::open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    return;
  }
  if (count == static_cast<int>(points.size())) return;
  Point& p = points[static_cast<size_t>(count)];
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
  } else {
    return;
  }
  ++count;
}
}  // namespace

void arm_fault_points() {
  count = 0;
  if (notes >= 0) ::close(notes);
  notes = -1;
  for (std::atomic<const char*>& entry : noted) entry.store(nullptr);
  const char* spec = std::getenv("CMI_FAULT_POINT");
  if (spec != nullptr) {
    std::string s(spec);
    for (size_t at = 0; at <= s.size();) {
      size_t end = std::min(s.find(';', at), s.size());
      parse_one(s.substr(at, end - at));
      at = end + 1;
    }
  }
  g_fault_points_armed.store(count > 0 || notes >= 0, std::memory_order_release);
}

void fault_point_reached(const char* name) {
  if (notes >= 0) note(name);
  for (int i = 0; i < count; ++i) {
    Point& p = points[static_cast<size_t>(i)];
    if (std::strcmp(p.name, name) != 0 || p.act == Act::kFail || !due(p)) continue;
    switch (p.act) {
      case Act::kKill:
        ::kill(getpid(), SIGKILL);
        break;
      case Act::kStop:
        // To this thread, which then stops before it goes on; another would stop it a little later.
        ::syscall(SYS_tgkill, getpid(), gettid(), SIGSTOP);
        break;
      case Act::kExit:
        _exit(77);
      case Act::kDelay: {
        timespec t{p.micros / 1000000, p.micros % 1000000 * 1000};
        while (nanosleep(&t, &t) != 0) {
        }
        break;
      }
      case Act::kFail:
        break;
    }
  }
}

bool fault_point_fails_slow(const char* name) {
  if (notes >= 0) note(name);
  for (int i = 0; i < count; ++i) {
    Point& p = points[static_cast<size_t>(i)];
    if (std::strcmp(p.name, name) == 0 && p.act == Act::kFail && due(p)) return true;
  }
  return false;
}

}  // namespace cmi
