// Trace lines: where they go and how the specification string of CMI_TRACE is read.
#include "core/base/log.hpp"

#include <strings.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>
#include <ctime>

#include "core/base/schedule.hpp"
#include "core/base/trace_node.hpp"

namespace cmi {

namespace {

constinit std::atomic<uint64_t> g_trace_node{0};

// Time of the day (UTC), thread and node, so that lines of several processes can be put in order.
// In signal handlers, too.
char* put_origin(char* to, size_t room) {
  timespec t{};
  ::clock_gettime(CLOCK_REALTIME, &t);
  const auto second = t.tv_sec % (24 * 3600);
  auto r = fmt::format_to_n(to, room, "cmi[{}] {:02}:{:02}:{:02}.{:06} thread {} node ", getpid(),
                            second / 3600, second / 60 % 60, second % 60, t.tv_nsec / 1000,
                            thread_number());
  const uint64_t node = g_trace_node.load(std::memory_order_relaxed);
  const size_t left = room - static_cast<size_t>(r.out - to);
  return node == 0 ? fmt::format_to_n(r.out, left, "- ").out
                   : fmt::format_to_n(r.out, left, "{:016x} ", node).out;
}

}  // namespace

void set_trace_node(uint64_t node) { g_trace_node.store(node, std::memory_order_relaxed); }

constinit thread_local bool t_in_fault_handler = false;

constinit Trace Trace::trace_;

void Trace::configure(uint32_t facilities, uint32_t level, TraceSink sink) {
  mask_.store(0, std::memory_order_release);
  sink_ = sink;
  // Pairs with nothing stronger than the relaxed load in on(): contexts configure before other
  // threads of theirs exist.
  mask_.store(uint64_t{level} << 32 | facilities, std::memory_order_release);
}

static const char* facility_name(Facility f) {
  switch (f) {
    case kFacIni:
      return "ini";
    case kFacCtrl:
      return "ctrl";
    case kFacSeg:
      return "seg";
    case kFacTok:
      return "tok";
    case kFacEvt:
      return "evt";
    case kFacMem:
      return "mem";
    default:
      return "all";
  }
}

void Trace::line(Facility f, Level l, const char* text) {
  static const char* const kLevels[] = {"none", "error", "warn", "info", "debug", "highest"};
  char buf[640];
  char* const at = put_origin(buf, sizeof buf - 2);
  auto r = fmt::format_to_n(at, sizeof buf - 2 - static_cast<size_t>(at - buf), "{} {}: {}",
                            facility_name(f), kLevels[l <= kHighest ? l : kHighest], text);
  *r.out = '\0';
  auto sink = l == kError ? sink_.alert : sink_.log;
  if (sink != nullptr && !t_in_fault_handler) {
    sink(sink_.arg, buf);
    return;
  }
  *r.out = '\n';
  // One write per line keeps lines of several threads apart; a failing trace sink is nobody's
  // error.
  [[maybe_unused]] ssize_t n = ::write(sink_.fd, buf, static_cast<size_t>(r.out - buf) + 1);
}

bool Trace::parse(const std::string& spec, uint32_t* facilities, uint32_t* level) {
  static constexpr struct {
    const char* name;
    uint32_t bit;
  } kFac[] = {{"ini", kFacIni}, {"ctrl", kFacCtrl}, {"seg", kFacSeg}, {"tok", kFacTok},
              {"evt", kFacEvt}, {"mem", kFacMem},   {"all", kFacAll}};
  static constexpr struct {
    const char* name;
    uint32_t level;
  } kLvl[] = {{"none", kNone}, {"error", kError}, {"warn", kWarn},
              {"info", kInfo}, {"debug", kDebug}, {"highest", kHighest}};
  size_t colon = spec.rfind(':');
  if (colon == std::string::npos || colon == 0) return false;
  uint32_t fac = 0, lvl = UINT32_MAX;
  for (size_t at = 0; at < colon;) {
    size_t end = std::min(spec.find(',', at), colon);
    std::string name = spec.substr(at, end - at);
    bool found = false;
    for (auto& f : kFac) {
      if (strcasecmp(f.name, name.c_str()) == 0) {
        fac |= f.bit;
        found = true;
      }
    }
    if (!found || end + 1 == colon) return false;
    at = end + 1;
  }
  std::string name = spec.substr(colon + 1);
  for (auto& l : kLvl) {
    if (strcasecmp(l.name, name.c_str()) == 0) lvl = l.level;
  }
  if (name.size() == 1 && name[0] >= '0' && name[0] <= '5')
    lvl = static_cast<uint32_t>(name[0] - '0');
  if (fac == 0 || lvl == UINT32_MAX) return false;
  *facilities = fac;
  *level = lvl;
  return true;
}

}  // namespace cmi
