// The table of addresses through which a shared library calls functions of others. The dynamic
// linker fills it and, where the library asks for that, makes it read-only. It is changed before
// the library has other threads that call what is replaced.
//
// It is changed in libfabric 1.17 (Debian 12), which has the faults that send_guard.hpp,
// settings.hpp and kernel_symbols.hpp name, and in 2.1 (Debian 13), which the tests were run with.
// In any other version nothing is replaced: it may call these functions for something else.
#pragma once

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstdint>

namespace cmi::fabric::ofi {

// `version` as fi_version() tells it.
bool may_patch_calls(uint32_t version);

class CallTable {
 public:
  // Of the library that `function` belongs to; without one, nothing is ever replaced.
  explicit CallTable(const void* function);

  // Has the library call `replacement` instead of the function `name`. How many entries lead to
  // it now; none: the library does not call it by a table that can be changed.
  int replace(const char* name, void* replacement);

 private:
  struct Relocations {
    const ElfW(Rela) * first = nullptr;
    size_t count = 0;
  };

  void read(const ElfW(Dyn) * dynamic);
  bool write(uintptr_t entry, void* value);

  uintptr_t base_ = 0;
  const ElfW(Phdr) * relro_ = nullptr;
  const ElfW(Sym) * symbols_ = nullptr;
  const char* names_ = nullptr;
  Relocations calls_, data_;
};

}  // namespace cmi::fabric::ofi
