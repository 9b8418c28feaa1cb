// Keeps libfabric's verbs provider from reading all symbols of the kernel, twice, when libfabric is
// loaded: 10,000 system calls and most of the time of a process's first cmi_ini. It looks there for
// drivers of GPU memory, which matters to its own devices alone, and reads them before it looks for
// devices and whatever FI_PROVIDER says.
#pragma once

#include <string>

namespace cmi::fabric::ofi {

// Whether the kernel shows a device of verbs below these folders.
bool has_rdma_device(const std::string& sys = "/sys/class/infiniband",
                     const std::string& dev = "/dev/infiniband");

// While it lives, the library that `function` belongs to finds no /proc/kallsyms, and opens every
// other file as before. Not for two threads at a time.
class WithoutKernelSymbols {
 public:
  // Without effect where `hide` is false, or where the library does not open files by a table that
  // can be changed.
  WithoutKernelSymbols(const void* function, bool hide);
  ~WithoutKernelSymbols();
  WithoutKernelSymbols(const WithoutKernelSymbols&) = delete;
  WithoutKernelSymbols& operator=(const WithoutKernelSymbols&) = delete;

 private:
  const void* const function_;
  const bool hidden_;
};

}  // namespace cmi::fabric::ofi
