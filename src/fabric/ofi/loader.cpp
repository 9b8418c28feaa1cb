// See loader.hpp.
#include "fabric/ofi/loader.hpp"

#include <dlfcn.h>
#include <rdma/fi_errno.h>

#include <cstdlib>
#include <cstring>

#include "core/base/log.hpp"
#include "fabric/ofi/call_table.hpp"
#include "fabric/ofi/kernel_symbols.hpp"
#include "fabric/ofi/send_guard.hpp"
#include "fabric/ofi/settings.hpp"

namespace cmi::fabric::ofi {

namespace {
constexpr const char* kNoHandlers = "IPATH_NO_BACKTRACE";

template <class F>
bool find(void* lib, const char* name, F& to) {
  to = reinterpret_cast<F>(dlsym(lib, name));
  return to != nullptr;
}

// The provider plugins, and with them the libraries that take signals, come with the first query,
// and read their variables in it. Without a device the query is for one provider: each of the
// others would list the network interfaces several times, and none of them can serve.
void first_query(const Libfabric& l, bool no_device) {
  const WithoutKernelSymbols quick(reinterpret_cast<const void*>(l.getinfo), no_device);
  fi_info* hints = no_device ? l.dupinfo(nullptr) : nullptr;
  if (hints != nullptr) hints->fabric_attr->prov_name = strdup("net");  // freed with the hints
  fi_info* infos = nullptr;
  if (l.getinfo(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), nullptr, nullptr, 0, hints,
                &infos) == 0) {
    l.freeinfo(infos);
  }
  if (hints != nullptr) l.freeinfo(hints);
}

Libfabric load() {
  KeepSignalHandlers keep;
  Settings settings;
  // rxm fills pools with buffers of this size for each endpoint: with its 16 KiB a link costs 87 MB
  // and a fifth of a second, with this a quarter of both. What is longer goes in several.
  settings.propose("FI_OFI_RXM_BUFFER_SIZE", "4096");
  // How many peers an endpoint of rxm makes room for. A link has one and a listener needs little
  // room for each; with the 256 that rxm assumes its queues are longer than some verbs devices have
  // them (Soft-RoCE), and take pinned memory with each link.
  settings.propose("FI_UNIVERSE_SIZE", "16");
  // The pool of receive buffers that all connections of an endpoint share (see answer_queries) has
  // 4096 otherwise.
  settings.propose("FI_OFI_RXM_MSG_RX_SIZE", "128");
  // The cache of registrations (verbs has it on) registers everything with all rights and keeps
  // what was closed: a revoked key would go on opening memory.
  settings.hold("FI_MR_CACHE_MONITOR", "disabled");
  // libinfinipath's handlers are not installed then.
  settings.propose(kNoHandlers, "1");
  settings.propose("HFI_NO_BACKTRACE", "1");
  // Before Linux 5.12 a fork would take pinned pages away from the parent.
  settings.propose("RDMAV_FORK_SAFE", "1");
  void* so = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (so == nullptr) {
    alert(kFacIni, "libfabric cannot be loaded: {}", dlerror());
    return {};
  }
  Libfabric l;
  if (!find(so, "fi_version", l.version) || !find(so, "fi_getinfo", l.getinfo) ||
      !find(so, "fi_freeinfo", l.freeinfo) || !find(so, "fi_dupinfo", l.dupinfo) ||
      !find(so, "fi_fabric", l.fabric) || !find(so, "fi_strerror", l.strerror)) {
    alert(kFacIni, "libfabric lacks a function: {}", dlerror());
    return {};
  }
  // The headers we were built with say what the objects look like; libfabric keeps them compatible
  // for callers that name an older version, not for newer callers.
  if (FI_VERSION_LT(l.version(), FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION))) {
    alert(kFacIni, "libfabric {}.{} is older than the {}.{} this library was built for",
          FI_MAJOR(l.version()), FI_MINOR(l.version()), FI_MAJOR_VERSION, FI_MINOR_VERSION);
    return {};
  }
  const bool patch = may_patch_calls(l.version());
  if (!patch || !guard_sends(reinterpret_cast<const void*>(l.getinfo))) {
    trace(kFacIni, kWarn, "the sends of libfabric {}.{} are not guarded against broken memory",
          FI_MAJOR(l.version()), FI_MINOR(l.version()));
  }
  if (!patch || !answer_queries(reinterpret_cast<const void*>(l.getinfo))) {
    trace(kFacIni, kWarn,
          "over verbs this libfabric needs FI_OFI_RXM_USE_SRX=1 in the environment");
  }
  first_query(l, patch && !has_rdma_device());
  return l;
}
}  // namespace

const Libfabric* libfabric() {
  static const Libfabric lib = load();
  return lib.getinfo != nullptr ? &lib : nullptr;
}

void process_ends() { setenv(kNoHandlers, "1", 0); }

const char* error_text(int err) {
  const Libfabric* lib = libfabric();
  return lib != nullptr ? lib->strerror(std::abs(err)) : "libfabric not loaded";
}

KeepSignalHandlers::KeepSignalHandlers() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], nullptr, &before_[i]);
}

KeepSignalHandlers::~KeepSignalHandlers() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
}

}  // namespace cmi::fabric::ofi
