// For cases of one process: a node of its own in a private runtime folder, a context, and checks at
// the end that nothing is left behind. Each case makes its context itself, from its own thread, and
// the destructor ends what is still open, also when the case has failed half way.
#pragma once

#include <cmi.h>
#include <dirent.h>
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csetjmp>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

// An entry of the function table, called with the fixture's context.
#define CALL(fn, ...) (CMIFN(ctxt, 11, fn)(ctxt __VA_OPT__(, ) __VA_ARGS__))

// The call gives its failure value, and cmi_get_error() the cause.
#define CHECK_FAILS(call, failure, cause)     \
  do {                                        \
    CHECK((call) == (failure));               \
    CHECK(cmi_get_error(nullptr) == (cause)); \
  } while (false)

namespace cmi::one_process {

using Flat = std::vector<std::byte>;  // the bytes of a handle, a token or an address

// Runs f in a thread of its own and waits for its end. In there use CHECK, not REQUIRE.
template <class F>
void in_thread(F&& f) {
  std::thread(std::forward<F>(f)).join();
}

class Process {
 public:
  Process() {
    for (const char* name : {"CMI_TRACE", "CMI_TRACE_FILE", "CMI_MEM_MAX"}) ::unsetenv(name);
    folder_ = "/dev/shm/cmi-test-XXXXXX";
    REQUIRE(::mkdtemp(folder_.data()) != nullptr);
    ::setenv("CMI_RUNTIME_DIR", folder_.c_str(), 1);
    ::setenv("CMI_NODE", "alone", 1);
  }

  ~Process() {
    if (ctxt != nullptr) CHECK(CALL(fini) == 0);
    const std::vector<std::string> left = folder_entries();
    CHECK_MESSAGE(left.empty(), "left in the runtime folder: ", left.empty() ? "" : left[0]);
    if (left.empty()) {
      ::rmdir(folder_.c_str());
    } else {
      const std::string remove = "rm -rf '" + folder_ + "'";
      if (std::system(remove.c_str()) != 0) std::perror("rm");
    }
  }

  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Makes the context, or ends the case.
  void ini(uint16_t verno = CMI_VERNO, cmi_cbs* callbacks = nullptr) {
    ctxt = cmi_ini(verno, callbacks);
    REQUIRE_MESSAGE(ctxt != nullptr, "cmi_ini failed, error ", static_cast<int>(error()));
  }

  // Deregisters this thread, the last one of the context.
  void end() {
    CHECK(CALL(fini) == 0);
    ctxt = nullptr;
  }

  static cmi_error error() { return cmi_get_error(nullptr); }

  cmi_cfg_info info() {
    cmi_ctl_cfg cfg;
    std::memset(&cfg, 0, sizeof cfg);
    REQUIRE(CALL(cmi_ctl, CMI_CTL_INFO, &cfg) == 0);
    return cfg.info;
  }
  size_t unit() { return info().prot_units; }

  // A segment of one protection unit or more; ends the case when there is none.
  cmi_seg segment(size_t units = 1, int32_t flags = 0) {
    const cmi_seg seg = CALL(seg_get, units * unit(), flags);
    REQUIRE_MESSAGE(seg > 0, "seg_get failed, error ", static_cast<int>(error()));
    return seg;
  }
  std::byte* attach(cmi_seg seg, int32_t flags = 0) {
    void* view = CALL(seg_at, seg, nullptr, flags);
    REQUIRE_MESSAGE(view != nullptr, "seg_at failed, error ", static_cast<int>(error()));
    return static_cast<std::byte*>(view);
  }
  uint32_t status_flags(cmi_seg seg) {
    cmi_ds ds;
    std::memset(&ds, 0, sizeof ds);
    CHECK(CALL(seg_ctl, seg, CMI_SEG_STATUS, &ds) == 0);
    return ds.status.st_flags;
  }

  size_t size_of(cmi_seg seg, int32_t attribute) {
    size_t size = 0;
    size_t length = sizeof size;
    REQUIRE(CALL(attr_get, seg, attribute, &size, &length) == 0);
    return size;
  }
  // Copies of what the library allocates, as a client would send them.
  Flat copy_of(cmi_seg seg, const cmi_rseg* rseg) {
    return bytes_of(rseg, size_of(seg, CMI_ATTR_RSEG_SIZE));
  }
  Flat copy_of(cmi_seg seg, const cmi_token* tok) {
    return bytes_of(tok, size_of(seg, CMI_ATTR_TOKEN_SIZE));
  }
  Flat copy_of(const cmi_naddr* naddr) {
    return bytes_of(naddr, size_of(0, CMI_ATTR_NODEADDR_SIZE));
  }

  Flat export_segment(cmi_seg seg) {
    cmi_rseg* rseg = CALL(seg_exp, seg, 0);
    REQUIRE_MESSAGE(rseg != nullptr, "seg_exp failed, error ", static_cast<int>(error()));
    return copy_of(seg, rseg);
  }
  cmi_token* token(cmi_seg seg, cmi_acc rights = CMI_ACC_READ | CMI_ACC_WRITE | CMI_ACC_ATOMIC) {
    cmi_token* tok = CALL(tok_new, seg, CMI_NADDR_ANY, rights);
    REQUIRE_MESSAGE(tok != nullptr, "tok_new failed, error ", static_cast<int>(error()));
    return tok;
  }

  // The segment imported by the process that made it, a remote segment like any other, with a token
  // set; `rights` of 0: with none.
  cmi_seg import_own(cmi_seg home, cmi_acc rights = CMI_ACC_READ | CMI_ACC_WRITE | CMI_ACC_ATOMIC) {
    Flat handle = export_segment(home);
    const cmi_seg seg = CALL(seg_imp, reinterpret_cast<cmi_rseg*>(handle.data()));
    REQUIRE_MESSAGE(seg > 0, "seg_imp failed, error ", static_cast<int>(error()));
    if (rights != 0) {
      cmi_ds ds;
      ds.token.tok = token(home, rights);
      REQUIRE(CALL(seg_ctl, seg, CMI_SEG_TOKEN, &ds) == 0);
    }
    return seg;
  }

  // Names in the runtime folder, those inside the node's own folder included.
  std::vector<std::string> folder_entries() const {
    std::vector<std::string> names;
    list(folder_, &names);
    return names;
  }
  const std::string& folder() const { return folder_; }

  cmi_ctxt* ctxt = nullptr;

 private:
  template <class T>
  static Flat bytes_of(const T* object, size_t size) {
    const auto* first = reinterpret_cast<const std::byte*>(object);
    return Flat(first, first + size);
  }
  static void list(const std::string& path, std::vector<std::string>* names) {
    DIR* dir = ::opendir(path.c_str());
    if (dir == nullptr) return;
    while (const dirent* entry = ::readdir(dir)) {
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      names->push_back(name);
      list(path + "/" + name, names);
    }
    ::closedir(dir);
  }

  std::string folder_;
};

// A Process with something of the client's beside it that the library may use to the very end, such
// as the argument of callbacks.
template <class T>
struct Owner {
  T client;
};
template <class T>
struct ProcessWith : Owner<T>, Process {
  using Owner<T>::client;
};

// ---- Faults

struct Fault {
  bool caught = false;
  int code = 0;
  int cause = 0;  // si_errno
  void* address = nullptr;
  int segment = 0;  // si_id, when code is SEGV_CMI
  bool is_cmi(int wanted) const { return caught && code == SEGV_CMI && cause == wanted; }
};

namespace detail {
inline thread_local sigjmp_buf escape;
inline thread_local Fault last;

inline void on_segv(int /*signo*/, siginfo_t* info, void* /*context*/) {
  last = {true, info->si_code, info->si_errno, info->si_addr,
          info->si_code == SEGV_CMI ? info->si_id : 0};
  siglongjmp(escape, 1);
}
// Accesses that the sanitizers are not to report before they fault.
#define CMI_RAW_ACCESS __attribute__((no_sanitize("address"), no_sanitize("undefined"), noinline))
CMI_RAW_ACCESS inline void load(const void* at) { (void)*static_cast<const volatile char*>(at); }
CMI_RAW_ACCESS inline void store(void* at) { *static_cast<volatile char*>(at) = 1; }
#undef CMI_RAW_ACCESS
}  // namespace detail

// Does the access and tells the SIGSEGV that it got. `access` must own nothing: it is jumped out
// of.
template <class F>
Fault fault_of(F access) {
  struct sigaction handler {};
  struct sigaction former {};
  handler.sa_sigaction = detail::on_segv;
  handler.sa_flags = SA_SIGINFO;
  ::sigemptyset(&handler.sa_mask);
  ::sigaction(SIGSEGV, &handler, &former);
  detail::last = {};
  if (sigsetjmp(detail::escape, 1) == 0) access();
  ::sigaction(SIGSEGV, &former, nullptr);
  return detail::last;
}

inline Fault load_fault(const void* at) {
  return fault_of([at] { detail::load(at); });
}
inline Fault store_fault(void* at) {
  return fault_of([at] { detail::store(at); });
}

}  // namespace cmi::one_process
