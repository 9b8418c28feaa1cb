// Preloaded into a program that knows nothing of CMI: its large blocks are memory of an import.
//
// The segment is that of program_home, whose file CMI_PROGRAM_EXPORT names. Blocks of 1 MiB or more
// that the program itself, or the library of sqlite3, takes by malloc() and the like or by mmap()
// of private anonymous memory come from it, each at an offset of its own in the whole run. None is
// used twice, so that each is zero at first. All else goes to the C library. A process imports the
// segment when it takes its first block; a forked child does so anew.
#include <cmi.h>
#include <cmi/ofi/cmi_impl.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "program_export.hpp"

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
}

namespace {

using cmi::test::ProgramExport;

constexpr size_t kLarge = size_t{1} << 20, kPage = 4096, kMostBlocks = 4096;

struct Block {
  std::byte* at;
  size_t size;
};

// Of this process. One thread of it takes large blocks, the one that imported the segment.
struct Import {
  pid_t process = 0, thread = 0;
  ProgramExport* exported = nullptr;
  std::byte* at = nullptr;
  Block blocks[kMostBlocks];
  size_t count = 0;
  bool importing = false;
};
Import g_import;

pid_t thread_id() { return static_cast<pid_t>(syscall(SYS_gettid)); }

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "import_memory: %s failed with error %d\n", what,
               static_cast<int>(cmi_get_error(nullptr)));
  _exit(99);
}

// The library's own threads, and its calls in the program's thread, take ordinary memory.
bool is_the_programs(const void* caller) {
  Dl_info info;
  if (dladdr(caller, &info) == 0 || info.dli_fname == nullptr) return false;
  static const char* const own = [] {
    Dl_info self;
    return dladdr(reinterpret_cast<void*>(&is_the_programs), &self) != 0 ? self.dli_fname : "";
  }();
  if (std::strcmp(info.dli_fname, own) == 0) return false;
  return std::strstr(info.dli_fname, ".so") == nullptr ||
         std::strstr(info.dli_fname, "libsqlite3.so") != nullptr;
}

void import_segment(const char* path) {
  g_import = Import{};
  g_import.importing = true;
  const int file = open(path, O_RDWR | O_CLOEXEC);
  void* const memory =
      file < 0 ? MAP_FAILED
               : reinterpret_cast<void*>(syscall(SYS_mmap, nullptr, sizeof(ProgramExport),
                                                 PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  if (memory == MAP_FAILED) give_up("the file of the export");
  close(file);
  auto* const exported = static_cast<ProgramExport*>(memory);
  cmi_cbs callbacks{};
  callbacks.alert = [](void*, const char* line) { std::fprintf(stderr, "libcmi: %s\n", line); };
  setenv("CMI_NODE", "program", 1);
  cmi_ctxt* const ctxt = cmi_ini(10, &callbacks);
  if (ctxt == nullptr || CMIFN(ctxt, 10, cmi_enb)(ctxt, 1) != 0) give_up("cmi_ini");
  alignas(8) std::byte handle[sizeof exported->handle], token[sizeof exported->token];
  std::memcpy(handle, exported->handle, sizeof handle);
  std::memcpy(token, exported->token, sizeof token);
  const cmi_seg segment = CMIFN(ctxt, 10, seg_imp)(ctxt, reinterpret_cast<cmi_rseg*>(handle));
  cmi_ds set{};
  set.op.token.tok = reinterpret_cast<cmi_token*>(token);
  if (segment == CMI_SEG_INVALID ||
      CMIFN(ctxt, 10, seg_ctl)(ctxt, segment, CMI_SEG_TOKEN, &set) != 0) {
    give_up("seg_imp");
  }
  g_import.at = static_cast<std::byte*>(CMIFN(ctxt, 10, seg_at)(ctxt, segment, nullptr, 0));
  if (g_import.at == nullptr) give_up("seg_at");
  g_import.exported = exported;
  g_import.process = getpid();
  g_import.thread = thread_id();
  g_import.importing = false;
}

// Null: the block is the C library's to give.
void* take(size_t size, size_t alignment, const void* caller) {
  if (size < kLarge || g_import.importing || !is_the_programs(caller)) return nullptr;
  const char* const path = getenv("CMI_PROGRAM_EXPORT");
  if (path == nullptr) return nullptr;
  if (g_import.process != getpid()) import_segment(path);
  if (g_import.thread != thread_id() || g_import.count == kMostBlocks) return nullptr;
  if (alignment < kPage) alignment = kPage;
  const size_t room = (size + kPage - 1) / kPage * kPage + alignment;
  const uint64_t from = g_import.exported->taken.fetch_add(room);
  if (from + room > g_import.exported->size) return nullptr;
  const auto begin = reinterpret_cast<uintptr_t>(g_import.at) + from;
  const auto at = reinterpret_cast<std::byte*>((begin + alignment - 1) / alignment * alignment);
  g_import.blocks[g_import.count++] = {at, size};
  g_import.exported->blocks.fetch_add(1);
  return at;
}

// Null: not one of ours. A child has those of its parent no more.
Block* block_of(const void* at) {
  for (size_t i = 0; i < g_import.count; ++i) {
    Block& b = g_import.blocks[i];
    if (at >= b.at && at < b.at + b.size) return &b;
  }
  return nullptr;
}

}  // namespace

extern "C" {

size_t malloc_usable_size(void* at) {
  if (const Block* const b = block_of(at); b != nullptr) return b->size;
  static auto* const next =
      reinterpret_cast<size_t (*)(void*)>(dlsym(RTLD_NEXT, "malloc_usable_size"));
  return next(at);
}

// What a worker has stored comes home before it ends, however short its life on a busy machine.
[[noreturn]] void _exit(int status) {
  if (g_import.process == getpid() && g_import.thread == thread_id()) (void)cmi_wmb();
  syscall(SYS_exit_group, status);
  __builtin_unreachable();
}

void* malloc(size_t size) {
  void* const at = take(size, 1, __builtin_return_address(0));
  return at != nullptr ? at : __libc_malloc(size);
}

void* calloc(size_t count, size_t size) {
  size_t all = 0;
  if (__builtin_mul_overflow(count, size, &all)) return __libc_calloc(count, size);
  void* const at = take(all, 1, __builtin_return_address(0));
  return at != nullptr ? at : __libc_calloc(count, size);
}

void free(void* at) {
  if (at != nullptr && block_of(at) == nullptr) __libc_free(at);
}

void* realloc(void* old, size_t size) {
  const Block* const b = old != nullptr ? block_of(old) : nullptr;
  void* const at = take(size, 1, __builtin_return_address(0));
  if (b == nullptr && at == nullptr) return __libc_realloc(old, size);
  void* const to = at != nullptr ? at : __libc_malloc(size);
  if (to == nullptr || old == nullptr) return to;
  const size_t had = b != nullptr ? b->size : malloc_usable_size(old);
  std::memcpy(to, old, had < size ? had : size);
  free(old);
  return to;
}

int posix_memalign(void** to, size_t alignment, size_t size) {
  void* at = take(size, alignment, __builtin_return_address(0));
  if (at == nullptr) at = __libc_memalign(alignment, size);
  if (at == nullptr) return ENOMEM;
  *to = at;
  return 0;
}

void* aligned_alloc(size_t alignment, size_t size) {
  void* const at = take(size, alignment, __builtin_return_address(0));
  return at != nullptr ? at : __libc_memalign(alignment, size);
}

void* mmap(void* wanted, size_t size, int rights, int flags, int file, off_t offset) {
  constexpr int kOurs = MAP_PRIVATE | MAP_ANONYMOUS;
  if ((flags & kOurs) == kOurs && (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) == 0 &&
      rights == (PROT_READ | PROT_WRITE)) {
    if (void* const at = take(size, 1, __builtin_return_address(0)); at != nullptr) return at;
  }
  return reinterpret_cast<void*>(syscall(SYS_mmap, wanted, size, rights, flags, file, offset));
}
void* mmap64(void*, size_t, int, int, int, off_t) __attribute__((alias("mmap")));

int munmap(void* at, size_t size) {
  return block_of(at) != nullptr ? 0 : static_cast<int>(syscall(SYS_munmap, at, size));
}

// What programs advise of memory, or lock, is a hint: an import has its own ways.
int madvise(void* at, size_t size, int advice) {
  return block_of(at) != nullptr ? 0 : static_cast<int>(syscall(SYS_madvise, at, size, advice));
}
int mlock(const void* at, size_t size) {
  return block_of(at) != nullptr ? 0 : static_cast<int>(syscall(SYS_mlock, at, size));
}
int munlock(const void* at, size_t size) {
  return block_of(at) != nullptr ? 0 : static_cast<int>(syscall(SYS_munlock, at, size));
}

}  // extern "C"
