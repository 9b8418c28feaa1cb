// Finds libfabric at run time, once per process, and keeps it: its providers leave threads,
// handlers and sockets behind that would not survive an unload. Everything else that libfabric
// offers is reached through its inline functions and the objects these entries return. Any thread.
#pragma once

#include <rdma/fabric.h>
#include <signal.h>

#include <array>
#include <string>

#include "core/base/status.hpp"

namespace cmi::fabric::ofi {

struct Libfabric {
  uint32_t (*version)() = nullptr;
  int (*getinfo)(uint32_t, const char*, const char*, uint64_t, const fi_info*, fi_info**) = nullptr;
  void (*freeinfo)(fi_info*) = nullptr;
  fi_info* (*dupinfo)(const fi_info*) = nullptr;
  int (*fabric)(fi_fabric_attr*, fid_fabric**, void*) = nullptr;
  const char* (*strerror)(int) = nullptr;
};

// Null when it is missing or too old; said in the trace the first time.
const Libfabric* libfabric();

// To be called before the destructors of the libraries below libfabric run. That of libinfinipath
// puts the dispositions of signals back to what they were when it was loaded, unless its variable
// is set: threads that still run would lose their handlers.
void process_ends();

// Why a libfabric call failed, for traces. Takes the negative or the positive number.
const char* error_text(int err);

// Puts the dispositions of the signals that libraries below libfabric like to take (libinfinipath
// when it is loaded, the shm provider with each endpoint) back to what they were. A handler that
// another thread installs in between is lost: the span must stay short.
class KeepSignalHandlers {
 public:
  KeepSignalHandlers();
  ~KeepSignalHandlers();
  KeepSignalHandlers(const KeepSignalHandlers&) = delete;
  KeepSignalHandlers& operator=(const KeepSignalHandlers&) = delete;

 private:
  static constexpr std::array kSignals{SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGINT, SIGTERM};
  std::array<struct sigaction, kSignals.size()> before_;
};

}  // namespace cmi::fabric::ofi
