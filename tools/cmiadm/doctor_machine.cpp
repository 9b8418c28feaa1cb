// The machine as cmiadm doctor sees it: kernel, memory, limits, and the nodes that there are.
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "cluster_limits.hpp"
#include "core/memory/page/twin_pool.hpp"
#include "core/memory/vm/userfault.hpp"
#include "core/memory/wire/limits.hpp"
#include "core/node/node_types.hpp"
#include "doctor.hpp"
#include "text.hpp"

namespace cmi::adm {

using memory::Userfault;

namespace {
bool proc_is_there() { return access("/proc/thread-self/pagemap", F_OK) == 0; }
constexpr const char* kMountProc = "mount -t proc proc /proc";
}  // namespace

void examine_proc(Report& report) {
  if (proc_is_there()) return;
  report.push_back({Health::kBroken, "/proc",
                    "is not mounted, or shows nothing of this process: sockets of the node are "
                    "reached through it, and stores at home are noted there",
                    kMountProc});
}

void examine_kernel(Report& report, uint32_t newest) {
  utsname name{};
  uname(&name);
  unsigned major = 0, minor = 0;
  const bool parsed = std::sscanf(name.release, "%u.%u", &major, &minor) == 2;
  const bool old = parsed && memory::kernel_version(major, minor) < memory::kOldestKernel;
  report.push_back({old ? Health::kBroken : Health::kGood, "kernel",
                    fmt::format("{} {}", name.sysname, name.release),
                    old ? "boot Linux 5.19 or later" : ""});

  if (!Userfault::pages_fit()) {
    report.push_back(
        {Health::kBroken, "pages",
         fmt::format("the kernel's have {} bytes, the protocol's 4096", ::sysconf(_SC_PAGESIZE)),
         kMendPages});
  }
  Userfault::probe(newest);
  const memory::KernelFeatures& has = Userfault::features();
  const char* why = "";
  const auto opened = [&](Userfault::Kind kind) {
    why = "";
    return static_cast<bool>(Userfault::open(kind, &why));
  };
  if (opened(Userfault::Kind::kImport)) {
    report.push_back(
        {Health::kGood, "userfaultfd", "faults on imported segments can be taken", ""});
  } else {
    report.push_back(
        {Health::kBroken, "userfaultfd", why,
         !descriptors_left(4)
             ? kMoreFiles
             : "in a container: docker run --device /dev/userfaultfd (Linux 6.1), or allow "
               "userfaultfd in its seccomp profile (--security-opt seccomp=...); elsewhere: "
               "boot a kernel with CONFIG_USERFAULTFD"});
  }
  const auto feature = [&](bool there, const char* what, const char* with, const char* without) {
    const char* mend = "boot Linux 6.7 or later; unset CMI_KERNEL";
    if (!proc_is_there()) mend = kMountProc;
    if (!descriptors_left(4)) mend = kMoreFiles;
    report.push_back({there ? Health::kGood : Health::kLimited, what, there ? with : without,
                      there ? "" : mend});
  };
  feature(has.async_tracking && opened(Userfault::Kind::kTracked), "stores at home",
          "noted by the kernel at no cost",
          "the first store to a page at home costs a fault, and system calls that write there fail "
          "with EFAULT while the segment is imported (Linux before 6.7)");
  feature(has.continue_protected, "read-only mapping", "in one step",
          "imported pages are mapped and protected in two steps (Linux before 6.4)");
  if (opened(Userfault::Kind::kThreads)) {
    report.push_back({Health::kGood, "CMI_FAULT=thread", "possible", ""});
  } else {
    report.push_back(
        {Health::kLimited, "CMI_FAULT=thread", why,
         has.poison ? "sysctl vm.unprivileged_userfaultfd=1" : "boot Linux 6.6 or later"});
  }
}

namespace {

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos || slash == 0 ? "/" : path.substr(0, slash);
}

uint64_t number_in(const char* path) {
  Fd fd(open(path, O_RDONLY | O_CLOEXEC));
  char text[32];
  const ssize_t n = fd ? read(fd.get(), text, sizeof text) : 0;
  uint64_t value = 0;
  std::from_chars(text, text + (n > 0 ? n : 0), value);
  return value;
}

// CMI_SEG_LARGE_PAGES.
void examine_large_pages(Report& report) {
  const std::string pool = "/sys/kernel/mm/hugepages/hugepages-2048kB/";
  if (::access(pool.c_str(), F_OK) != 0) {
    report.push_back({Health::kLimited, "large pages", "this kernel has none of 2 MiB",
                      "boot one with CONFIG_HUGETLBFS"});
    return;
  }
  const uint64_t all = number_in((pool + "nr_hugepages").c_str());
  const uint64_t free = number_in((pool + "free_hugepages").c_str());
  const std::string found = fmt::format("{} free of {}, of 2 MiB each", free, all);
  if (free != 0) {
    report.push_back({Health::kGood, "large pages", found, ""});
  } else {
    report.push_back({Health::kLimited, "large pages", found,
                      fmt::format("sysctl vm.nr_hugepages={}", all + 64)});
  }
}

}  // namespace

// Whether imports of homes on this machine would map their pages.
void examine_local(Report& report, const context::Environment& env) {
  const char* const what = "homes of this machine";
  if (!env.local) {
    report.push_back(
        {Health::kGood, what, "their pages are cached: CMI_LOCAL or CMI_PROVIDER says so", ""});
  } else if (env.fault == context::Environment::FaultMode::kThread) {
    report.push_back({Health::kGood, what, "their pages are cached: CMI_FAULT=thread", ""});
  } else if (!Userfault::features().continue_protected) {
    report.push_back({Health::kLimited, what, "their pages are cached (Linux before 6.4)",
                      "boot Linux 6.4 or later"});
  } else if (node::machine_id() == 0) {
    report.push_back({Health::kLimited, what,
                      "their pages are cached: /proc/sys/kernel/random/boot_id is not to be read",
                      kMountProc});
  } else {
    report.push_back({Health::kGood, what, "their pages are mapped", ""});
  }
}

void examine_memory(Report& report, const context::Environment& env) {
  const std::string& dir = env.runtime_dir;
  struct stat st;
  std::string there = dir;  // the nearest folder that exists
  while (there != "/" && stat(there.c_str(), &st) != 0) there = parent_of(there);
  if (there == dir) {
    lstat(dir.c_str(), &st);
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid()) {
      const std::string owner =
          st.st_uid == geteuid() ? " is no folder" : fmt::format(" belongs to user {}", st.st_uid);
      report.push_back({Health::kBroken, "runtime folder", dir + owner,
                        "name another with CMI_RUNTIME_DIR, or remove it"});
    } else if ((st.st_mode & 077) != 0) {
      report.push_back(
          {Health::kBroken, "runtime folder", dir + " is open to other users", "chmod 700 " + dir});
    } else {
      report.push_back({Health::kGood, "runtime folder", dir, ""});
    }
  } else if (there != parent_of(dir) || access(there.c_str(), W_OK | X_OK) != 0) {
    report.push_back({Health::kBroken, "runtime folder",
                      fmt::format("{} is not there and cannot be made", dir),
                      "mkdir -p -m 700 " + dir});
  } else {
    report.push_back({Health::kGood, "runtime folder", dir + " (not made yet)", ""});
  }

  examine_large_pages(report);
  struct statfs fs {};
  if (statfs(there.c_str(), &fs) != 0) {
    report.push_back({Health::kBroken, "shared memory",
                      fmt::format("{}: {}", there, std::strerror(errno)), "mount a tmpfs there"});
    return;
  }
  const auto block = static_cast<uint64_t>(fs.f_bsize);
  const uint64_t size = fs.f_blocks * block, free = fs.f_bavail * block;
  const std::string found = fmt::format(
      "{}: {} free of {}; CMI_MEM_MAX is {}, and a process has {} for copies of pages "
      "with stores",
      there, human_bytes(free), human_bytes(size), human_bytes(env.mem_max),
      human_bytes(memory::TwinPool::chunks_of(env.mem_max) *
                  uint64_t{memory::TwinPool::kChunkSize}));
  if (fs.f_type != TMPFS_MAGIC) {
    report.push_back({Health::kBroken, "shared memory",
                      found + "; it is no tmpfs, whose pages alone can be shared",
                      "name a folder in a tmpfs with CMI_RUNTIME_DIR"});
  } else if (free < env.mem_max) {
    // A size that leaves CMI_MEM_MAX beside what is there already.
    const std::string mend =
        fmt::format("mount -o remount,size={}M $(findmnt -no TARGET -T {})",
                    (size - free + env.mem_max + (uint64_t{1} << 20) - 1) >> 20, there);
    const bool full = free < (uint64_t{1} << 20);
    report.push_back(
        {full ? Health::kBroken : Health::kLimited, "shared memory",
         found + (full ? ": full" : ": segments end there sooner"),
         mend + (full ? "; or remove files from it" : "; or set CMI_MEM_MAX to what there is")});
  } else {
    report.push_back({Health::kGood, "shared memory", found, ""});
  }
}

void examine_limits(Report& report) {
  // A context keeps kDescriptorsOfContext, and some for each peer and each segment.
  constexpr rlim_t kFewFiles = 1024;
  rlimit files{}, space{}, largest{};
  getrlimit(RLIMIT_NOFILE, &files);
  getrlimit(RLIMIT_AS, &space);
  getrlimit(RLIMIT_FSIZE, &largest);
  const bool few = files.rlim_cur < kFewFiles;
  report.push_back({few ? Health::kLimited : Health::kGood, "open files",
                    fmt::format("{} for each process", files.rlim_cur), few ? kMoreFiles : ""});
  const uint64_t importers = importers_for_files(files.rlim_cur);
  const uint64_t most = fabric::kMaxClients;
  report.push_back(
      {Health::kGood, "importers",
       importers == most
           ? fmt::format("{} of one process at once; have more import from other processes", most)
           : fmt::format("{} of one process at once, for its open files; {} with ulimit -n {}",
                         importers, most, files_for_importers(most)),
       ""});
  report.push_back({Health::kGood, "imports",
                    fmt::format("{} of one segment at once, of all nodes together; have fewer "
                                "processes import it, or share several segments in its place",
                                memory::kMaxSharers),
                    ""});
  const bool bound = space.rlim_cur != RLIM_INFINITY || largest.rlim_cur != RLIM_INFINITY;
  report.push_back(
      {bound ? Health::kLimited : Health::kGood, "address space",
       bound ? fmt::format(
                   "mappings end at {}, files at {}",
                   space.rlim_cur == RLIM_INFINITY ? "no limit" : human_bytes(space.rlim_cur),
                   largest.rlim_cur == RLIM_INFINITY ? "no limit" : human_bytes(largest.rlim_cur))
             : "no limit",
       bound ? "ulimit -v unlimited -f unlimited" : ""});
  constexpr uint64_t kFewMaps = 65530;  // the kernel's own default
  if (!proc_is_there()) return;
  const uint64_t maps = number_in("/proc/sys/vm/max_map_count");
  report.push_back({maps < kFewMaps ? Health::kLimited : Health::kGood, "mappings",
                    fmt::format("{} for each process", maps),
                    maps < kFewMaps ? "sysctl vm.max_map_count=65530" : ""});
}

void examine_nodes(Report& report, const Survey& survey) {
  if (!survey.trouble.empty()) return;  // said with the runtime folder
  for (const NodeRow& node : survey.nodes) {
    const std::string what = "node " + node.name;
    if (!node.trouble.empty()) {
      report.push_back({Health::kBroken, what, node.trouble,
                        fmt::format("cmiadm reap; if that does not help and no process uses it: rm "
                                    "-r {}/{}",
                                    survey.runtime_dir, node.name)});
    } else if (node.locked) {
      report.push_back({Health::kBroken, what, "its registry stays locked",
                        "kill -CONT the stopped process that \"cmiadm list\" shows, or end it"});
    } else if (node.dead() > 0 || node.damaged > 0) {
      report.push_back(
          {Health::kLimited, what,
           fmt::format("{}, with {} of memory in {} that nobody uses; {}",
                       counted(node.dead(), "dead context"), human_bytes(node.held_by_dead()),
                       counted(node.left_by_dead(), "segment"),
                       counted(node.damaged, "damaged slot")),
           "cmiadm reap"});
    } else {
      report.push_back({Health::kGood, what,
                        counted(node.contexts.size(), "context") + ", " +
                            counted(node.segments.size(), "segment"),
                        ""});
    }
  }
}

}  // namespace cmi::adm
