// Namespaces by unshare(), capabilities by capset(), and the filter in the kernel's own terms.
#include "system/container.hpp"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "core/base/fd.hpp"

namespace cmi::test {

namespace {

// Of Docker's default profile: what it refuses to a container without capabilities, and is not
// refused for want of them anyway. userfaultfd is apart; clone3 is answered with ENOSYS, because a
// filter cannot see its flags.
constexpr long kRefused[] = {
    SYS_add_key,
    SYS_bpf,
    SYS_fanotify_init,
    SYS_get_mempolicy,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_io_uring_setup,
    SYS_kcmp,
    SYS_keyctl,
    SYS_lookup_dcookie,
    SYS_mbind,
    SYS_mount,
    SYS_move_pages,
    SYS_name_to_handle_at,
    SYS_open_by_handle_at,
    SYS_perf_event_open,
    SYS_pivot_root,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_ptrace,
    SYS_request_key,
    SYS_set_mempolicy,
    SYS_setns,
    SYS_umount2,
    SYS_unshare,
};

bool write_file(const char* path, const std::string& text) {
  const Fd fd(::open(path, O_WRONLY | O_CLOEXEC));
  return fd && ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

}  // namespace

Container::Container(Allowed allowed) {
  if (!enter_namespaces()) return;
  if (allowed == Allowed::kUserfaultDevice) {
    const Fd device(::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
    if (!device && failed("/dev/userfaultfd")) return;
  } else if (::access("/dev/userfaultfd", F_OK) == 0 &&
             ::mount("/dev/null", "/dev/userfaultfd", nullptr, MS_BIND, nullptr) != 0) {
    failed("hiding /dev/userfaultfd");
    return;
  }
  if (drop_privileges()) filter_calls(allowed == Allowed::kUserfaultCall);
}

bool Container::failed(const char* what) {
  reason_ = std::string("no container: ") + what + ": " + std::strerror(errno);
  return true;
}

bool Container::enter_namespaces() {
  if (::geteuid() != 0 || ::unshare(CLONE_NEWNS) != 0) {
    const std::string uid = std::to_string(::geteuid()), gid = std::to_string(::getegid());
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 ||
        !write_file("/proc/self/setgroups", "deny") ||
        !write_file("/proc/self/uid_map", "0 " + uid + " 1") ||
        !write_file("/proc/self/gid_map", "0 " + gid + " 1")) {
      return !failed("namespaces");
    }
  }
  const std::string options = "mode=1777,size=" + std::to_string(kSharedMemory);
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("shm", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options.c_str()) != 0) {
    return !failed("/dev/shm");
  }
  return true;
}

// The bounding set first: emptying it takes a capability.
bool Container::drop_privileges() {
  for (int capability = 0; ::prctl(PR_CAPBSET_READ, capability) >= 0; ++capability) {
    if (::prctl(PR_CAPBSET_DROP, capability) != 0) return !failed("capabilities");
  }
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  if (::syscall(SYS_capset, &header, none) != 0) return !failed("capset");
  return true;
}

bool Container::filter_calls(bool userfault) {
  std::vector<sock_filter> code;
  const auto refuse = [&](long number, int error) {
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 1));
    code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)));
  };
  code.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)));
  code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0));
  code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  code.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
  for (const long number : kRefused) refuse(number, EPERM);
  refuse(SYS_clone3, ENOSYS);
  if (!userfault) refuse(SYS_userfaultfd, EPERM);
  code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0) {
    return !failed("seccomp");
  }
  return true;
}

}  // namespace cmi::test
