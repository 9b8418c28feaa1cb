// See send_guard.hpp. The calls go through the library's own table of addresses, which the dynamic
// linker has filled and, where the library asks for that, made read-only.
#include "fabric/ofi/send_guard.hpp"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <initializer_list>

#include "core/base/careful_copy.hpp"
#include "core/base/clock.hpp"

namespace cmi::fabric::ofi {

namespace {

// After a copy that could not read all of its source, nobody knows which socket the rest is waiting
// for: until then every one that is used is cut. They are made anew.
constexpr Nanos kCutAll = 100 * kMilli;
std::atomic<Nanos> g_cut_all_until{0};

bool cut(int socket) {
  ::shutdown(socket, SHUT_RDWR);
  errno = EFAULT;
  return false;
}

bool may_send(int socket) {
  const Nanos until = g_cut_all_until.load(std::memory_order_acquire);
  return until == 0 || now() > until || cut(socket);
}

ssize_t guarded_send(int socket, const void* bytes, size_t length, int flags) {
  if (!may_send(socket)) return -1;
  const ssize_t sent = ::send(socket, bytes, length, flags);
  if (sent < 0 && errno == EFAULT) cut(socket);
  return sent;
}

ssize_t guarded_sendmsg(int socket, const msghdr* message, int flags) {
  if (!may_send(socket)) return -1;
  const ssize_t sent = ::sendmsg(socket, message, flags);
  if (sent < 0 && errno == EFAULT) cut(socket);
  return sent;
}

// Headers and the like, for which the careful way takes longer; no payload ends in so small a
// piece.
constexpr size_t kSmall = 128;

void* guarded_memcpy(void* to, const void* from, size_t n) {
  if (n <= kSmall) return std::memcpy(to, from, n);
  const uint64_t before = g_incomplete_writes.load(std::memory_order_relaxed);
  const size_t left = careful_copy(to, from, n);
  // Where only the destination is broken, it is asked for when the write is announced.
  if (left != 0 && g_incomplete_writes.load(std::memory_order_relaxed) == before) {
    g_cut_all_until.store(now() + kCutAll, std::memory_order_release);
  }
  return to;
}

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

class Table {
 public:
  explicit Table(const Module& module) : module_(module) {
    for (const ElfW(Dyn)* d = module.dynamic; d != nullptr && d->d_tag != DT_NULL; ++d) {
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

  // How many entries lead to `replacement` now.
  int replace(const char* name, void* replacement) {
    int replaced = 0;
    if (symbols_ == nullptr || names_ == nullptr) return 0;
    for (const Relocations& all : {calls_, data_}) {
      for (size_t i = 0; all.first != nullptr && i < all.count; ++i) {
        const ElfW(Rela)& r = all.first[i];
        const auto type = ELF64_R_TYPE(r.r_info);
        if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) continue;
        if (std::strcmp(names_ + symbols_[ELF64_R_SYM(r.r_info)].st_name, name) != 0) continue;
        replaced += write(module_.base + r.r_offset, replacement);
      }
    }
    return replaced;
  }

 private:
  struct Relocations {
    const ElfW(Rela) * first = nullptr;
    size_t count = 0;
  };

  bool write(uintptr_t entry, void* value) {
    const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    void* const around = reinterpret_cast<void*>(entry & ~(page - 1));
    const bool read_only = module_.relro != nullptr &&
                           entry - module_.base - module_.relro->p_vaddr < module_.relro->p_memsz;
    if (read_only && ::mprotect(around, page, PROT_READ | PROT_WRITE) != 0) return false;
    __atomic_store_n(reinterpret_cast<void**>(entry), value, __ATOMIC_RELEASE);
    if (read_only) ::mprotect(around, page, PROT_READ);
    return true;
  }

  const Module module_;
  const ElfW(Sym) * symbols_ = nullptr;
  const char* names_ = nullptr;
  Relocations calls_, data_;
};

}  // namespace

bool guard_sends(const void* function) {
  Module module{function};
  if (::dl_iterate_phdr(is_it, &module) == 0 || module.dynamic == nullptr) return false;
  Table table(module);
  const int sends = table.replace("send", reinterpret_cast<void*>(&guarded_send));
  const int messages = table.replace("sendmsg", reinterpret_cast<void*>(&guarded_sendmsg));
  table.replace("memcpy", reinterpret_cast<void*>(&guarded_memcpy));
  return sends > 0 && messages > 0;
}

}  // namespace cmi::fabric::ofi
