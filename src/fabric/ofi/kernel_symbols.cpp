// See kernel_symbols.hpp.
#include "fabric/ofi/kernel_symbols.hpp"

#include <dirent.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "fabric/ofi/call_table.hpp"

namespace cmi::fabric::ofi {

namespace {

std::FILE* open_but_symbols(const char* path, const char* mode) {
  if (std::strcmp(path, "/proc/kallsyms") != 0) return std::fopen(path, mode);
  errno = ENOENT;
  return nullptr;
}

bool has_entry(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(folder.c_str()), &::closedir);
  if (dir == nullptr) return errno != ENOENT;  // one that cannot be read may have any
  while (const dirent* e = ::readdir(dir.get())) {
    // rdma_cm is there wherever the module is loaded, with or without a device.
    if (e->d_name[0] != '.' && std::strcmp(e->d_name, "rdma_cm") != 0) return true;
  }
  return false;
}

}  // namespace

bool has_rdma_device(const std::string& sys, const std::string& dev) {
  return has_entry(sys) || has_entry(dev);
}

WithoutKernelSymbols::WithoutKernelSymbols(const void* function, bool hide)
    : function_(function),
      hidden_(hide && CallTable(function).replace(
                          "fopen", reinterpret_cast<void*>(&open_but_symbols)) > 0) {}

WithoutKernelSymbols::~WithoutKernelSymbols() {
  if (hidden_) CallTable(function_).replace("fopen", reinterpret_cast<void*>(&std::fopen));
}

}  // namespace cmi::fabric::ofi
