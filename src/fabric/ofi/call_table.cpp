// See call_table.hpp.
#include "fabric/ofi/call_table.hpp"

#include <dlfcn.h>
#include <rdma/fabric.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <initializer_list>

namespace cmi::fabric::ofi {

namespace {

// Of the kinds of relocation and of the addresses that the loader leaves in a table, what has been
// tried. Elsewhere no table is changed, and calls go where they always went.
#if defined(__x86_64__) && defined(__GLIBC__)
constexpr bool kPatched = true;
constexpr uint32_t kJumpSlot = R_X86_64_JUMP_SLOT, kGlobalData = R_X86_64_GLOB_DAT;
#else
constexpr bool kPatched = false;
constexpr uint32_t kJumpSlot = 0, kGlobalData = 0;
#endif

struct Module {
  const void* inside;
  uintptr_t base = 0;
  const ElfW(Dyn) * dynamic = nullptr;
  const ElfW(Phdr) * relro = nullptr;
};

int is_it(dl_phdr_info* info, size_t, void* wanted) {
  auto* module = static_cast<Module*>(wanted);
  const auto at = reinterpret_cast<uintptr_t>(module->inside);
  bool here = false;
  Module found{module->inside};
  found.base = info->dlpi_addr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_LOAD) here = here || (at >= begin && at - begin < part.p_memsz);
    if (part.p_type == PT_GNU_RELRO) found.relro = &part;
    if (part.p_type == PT_DYNAMIC) {
      found.dynamic = reinterpret_cast<const ElfW(Dyn)*>(begin);
    }
  }
  if (here) *module = found;
  return here ? 1 : 0;
}

}  // namespace

bool may_patch_calls(uint32_t version) {
  for (const uint32_t known : {FI_VERSION(1, 17), FI_VERSION(2, 1)}) {
    if (FI_MAJOR(version) == FI_MAJOR(known) && FI_MINOR(version) == FI_MINOR(known)) return true;
  }
  return false;
}

CallTable::CallTable(const void* function) {
  Module module{function};
  if (::dl_iterate_phdr(is_it, &module) == 0) return;
  base_ = module.base;
  relro_ = module.relro;
  if (kPatched && module.dynamic != nullptr) read(module.dynamic);
}

void CallTable::read(const ElfW(Dyn) * dynamic) {
  for (const ElfW(Dyn)* d = dynamic; d->d_tag != DT_NULL; ++d) {
    const auto at = static_cast<uintptr_t>(d->d_un.d_ptr);
    switch (d->d_tag) {
      case DT_SYMTAB:
        symbols_ = reinterpret_cast<const ElfW(Sym)*>(at);
        break;
      case DT_STRTAB:
        names_ = reinterpret_cast<const char*>(at);
        break;
      case DT_JMPREL:
        calls_.first = reinterpret_cast<const ElfW(Rela)*>(at);
        break;
      case DT_PLTRELSZ:
        calls_.count = d->d_un.d_val / sizeof(ElfW(Rela));
        break;
      case DT_RELA:
        data_.first = reinterpret_cast<const ElfW(Rela)*>(at);
        break;
      case DT_RELASZ:
        data_.count = d->d_un.d_val / sizeof(ElfW(Rela));
        break;
      default:
        break;
    }
  }
}

int CallTable::replace(const char* name, void* replacement) {
  int replaced = 0;
  if (symbols_ == nullptr || names_ == nullptr) return 0;
  for (const Relocations& all : {calls_, data_}) {
    for (size_t i = 0; all.first != nullptr && i < all.count; ++i) {
      const ElfW(Rela)& r = all.first[i];
      const auto type = ELF64_R_TYPE(r.r_info);
      if (type != kJumpSlot && type != kGlobalData) continue;
      if (std::strcmp(names_ + symbols_[ELF64_R_SYM(r.r_info)].st_name, name) != 0) continue;
      replaced += write(base_ + r.r_offset, replacement);
    }
  }
  return replaced;
}

bool CallTable::write(uintptr_t entry, void* value) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  void* const around = reinterpret_cast<void*>(entry & ~(page - 1));
  const bool read_only = relro_ != nullptr && entry - base_ - relro_->p_vaddr < relro_->p_memsz;
  if (read_only && ::mprotect(around, page, PROT_READ | PROT_WRITE) != 0) return false;
  __atomic_store_n(reinterpret_cast<void**>(entry), value, __ATOMIC_RELEASE);
  if (read_only) ::mprotect(around, page, PROT_READ);
  return true;
}

}  // namespace cmi::fabric::ofi
