// Reading and checking the CMI_ variables.
#include "core/context/environment.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "core/base/log.hpp"
#include "core/context/start_stage.hpp"
#include "core/memory/vm/userfault.hpp"
#include "core/node/node.hpp"
#include "core/rendezvous/place.hpp"
#include "core/segment/placement.hpp"

namespace cmi::context {

constinit thread_local Stage t_stage = Stage::kArguments;

namespace {

constexpr size_t kMaxNodeName = 255;

// One line that names the variable. The value is cut and cleaned: it may hold anything.
Status bad_value(const char* variable, std::string_view value, const char* wanted) {
  constexpr size_t kShown = 100;
  std::string shown(value.substr(0, kShown));
  for (char& c : shown) {
    if (c < ' ' || c > '~') c = '?';
  }
  alert(kFacIni, "{}={}{}: {}", variable, shown, value.size() > kShown ? "..." : "", wanted);
  return Status::kInval;
}

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

// Of a list with commas between its items.
bool empty_item(std::string_view list) {
  return list.empty() || list.front() == ',' || list.back() == ',' ||
         list.find(",,") != std::string_view::npos;
}

// Decimal digits, then at most one of K, M, G, T. Nullopt: malformed, zero, or beyond 64 bits.
std::optional<uint64_t> parse_bytes(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number == 0) return std::nullopt;
  const std::string_view suffix(end, static_cast<size_t>(text.data() + text.size() - end));
  if (suffix.empty()) return number;
  constexpr std::string_view kUnits = "KMGT";
  const size_t unit = suffix.size() == 1 ? kUnits.find(suffix[0]) : std::string_view::npos;
  if (unit == std::string_view::npos) return std::nullopt;
  const unsigned shift = 10 * (static_cast<unsigned>(unit) + 1);
  if (number > UINT64_MAX >> shift) return std::nullopt;
  return number << shift;
}

// Whole milliseconds, decimal digits and nothing else. Nullopt: malformed, or out of the bounds.
std::optional<Nanos> parse_millis(std::string_view text, Nanos least, Nanos most) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  const Nanos span = number * kMilli;
  return span >= least && span <= most ? std::optional<Nanos>(span) : std::nullopt;
}

// MAJOR.MINOR, and nothing else.
std::optional<uint32_t> parse_kernel(std::string_view text) {
  uint16_t major = 0, minor = 0;
  const char* const end = text.data() + text.size();
  const auto [dot, error] = std::from_chars(text.data(), end, major);
  if (error != std::errc{} || dot == end || *dot != '.') return std::nullopt;
  const auto [rest, error2] = std::from_chars(dot + 1, end, minor);
  if (error2 != std::errc{} || rest != end || minor > 999) return std::nullopt;
  return memory::kernel_version(major, minor);
}

// Not blocking, so that a pipe that nobody reads fails now, and a full one loses lines later rather
// than holding up the client.
Fd open_for_appending(const std::string& path) {
  return Fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
                   0600));
}

// `local`, and `shm` as another name for it, say that pages of homes on this machine are mapped;
// what else is in the list are providers, and without one the best is taken. Sets `*named` where
// one of the two is there. libfabric's shm is `ofi:shm`, so that nobody meets it by accident.
std::string without_local(std::string_view list, bool* named) {
  std::string providers;
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), item.size() + 1));
    if (item == "local" || item == "shm") {
      *named = true;
    } else {
      providers.append(providers.empty() ? "" : ",").append(item == "ofi:shm" ? "shm" : item);
    }
  }
  return providers;
}

// A provider by name keeps to the network, unless `local` is named beside it or CMI_LOCAL says so.
Status read_network(Environment& env) {
  bool named = false;
  if (auto v = variable("CMI_PROVIDER")) {
    if (empty_item(*v)) return bad_value("CMI_PROVIDER", *v, "not the name of a provider");
    env.provider = without_local(*v, &named);
    env.local = named;
  }
  if (auto v = variable("CMI_LOCAL")) {
    if (*v != "on" && *v != "off") return bad_value("CMI_LOCAL", *v, "neither on nor off");
    if (*v == "off" && named) return bad_value("CMI_LOCAL", *v, "CMI_PROVIDER names local or shm");
    env.local = *v == "on";
  }
  if (auto v = variable("CMI_ADDRESS")) {
    if (empty_item(*v)) {
      return bad_value("CMI_ADDRESS", *v, "not an address, an interface or auto");
    }
    env.address = std::move(*v);
  }
  return Status::kOk;
}

Status read_faults(Environment& env) {
  if (auto v = variable("CMI_FAULT"); !v || *v == "signal") {
    env.fault = Environment::FaultMode::kSignal;
  } else if (*v == "thread") {
    env.fault = Environment::FaultMode::kThread;
  } else {
    return bad_value("CMI_FAULT", *v, "neither signal nor thread");
  }

  if (auto v = variable("CMI_KERNEL")) {
    const auto version = parse_kernel(*v);
    if (!version || *version < memory::kOldestKernel) {
      return bad_value("CMI_KERNEL", *v, "not a version of Linux of the form 6.1, from 5.19 on");
    }
    env.kernel = *version;
  }
  return Status::kOk;
}

Status read_node(Environment& env) {
  if (auto v = variable("CMI_NODE")) {
    if (v->empty() || v->size() > kMaxNodeName) {
      return bad_value("CMI_NODE", *v, "not a name of 1 to 255 bytes");
    }
    env.node_name = std::move(*v);
  } else {
    env.node_name = node::default_node_name();
  }

  if (auto v = variable("CMI_RUNTIME_DIR")) {
    if (!v->starts_with('/')) return bad_value("CMI_RUNTIME_DIR", *v, "not an absolute path");
    env.runtime_dir = std::move(*v);
  } else {
    env.runtime_dir = node::default_runtime_dir();
    env.default_dir = true;
  }

  if (auto v = variable("CMI_MEM_MAX")) {
    const auto bytes = parse_bytes(*v);
    if (!bytes) {
      return bad_value("CMI_MEM_MAX", *v,
                       "not a number of bytes above 0, with K, M, G or T or none");
    }
    env.mem_max = *bytes;
  } else {
    env.mem_max = segment::machine().ram_bytes / 2;
  }
  return Status::kOk;
}

Status read_times(Environment& env) {
  if (auto v = variable("CMI_DEAD_AFTER")) {
    const auto span = parse_millis(*v, kSecond, 3600 * kSecond);
    if (!span) {
      return bad_value("CMI_DEAD_AFTER", *v, "not a number of milliseconds from 1000 to 3600000");
    }
    env.dead_after = *span;
  }

  if (auto v = variable("CMI_JOIN_TIMEOUT")) {
    const auto span = parse_millis(*v, kSecond, 3600 * kSecond);
    if (!span) {
      return bad_value("CMI_JOIN_TIMEOUT", *v, "not a number of milliseconds from 1000 to 3600000");
    }
    env.join_timeout = *span;
  }
  return Status::kOk;
}

// Its value is not shown, whatever it is.
Status read_secret(Environment& env) {
  auto v = variable("CMI_SECRET");
  if (!v) return Status::kOk;
  if (v->empty() || v->size() > rendezvous::kMaxSecret) {
    return bad_value("CMI_SECRET", "", "a secret has 1 to 1024 bytes");
  }
  env.secret = std::move(*v);
  return Status::kOk;
}

Status read_trace(Environment& env) {
  if (auto v = variable("CMI_FATAL_LINE"); v && *v != "on") {
    if (*v != "off") return bad_value("CMI_FATAL_LINE", *v, "neither on nor off");
    env.fatal_line = false;
  }

  if (auto v = variable("CMI_TRACE")) {
    Environment::TraceWish wish;
    if (!Trace::parse(*v, &wish.facilities, &wish.level)) {
      return bad_value("CMI_TRACE", *v, "not of the form facility[,facility]:level");
    }
    env.trace = wish;
  }
  // Last, so that no file is made when another variable is wrong.
  if (auto v = variable("CMI_TRACE_FILE")) {
    env.trace_fd = open_for_appending(*v);
    if (!env.trace_fd) {
      const int cause = errno;
      return bad_value("CMI_TRACE_FILE", *v, std::strerror(cause));
    }
  }
  return Status::kOk;
}

}  // namespace

Result<Environment> read_environment() {
  Environment env;
  for (const auto read :
       {read_network, read_faults, read_node, read_times, read_secret, read_trace}) {
    if (Status s = read(env); !ok(s)) return s;
  }
  return env;
}

}  // namespace cmi::context
