// Support of the node's tests. The walk reads the file's bytes by the numbers of
// doc/design/registry.md, not through the library's structures.
#include "node_support.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "core/base/clock.hpp"
#include "core/base/fd.hpp"

namespace cmi::test {

namespace fs = std::filesystem;

NodeFolder::NodeFolder() {
  char name[] = "/dev/shm/cmi-node-test-XXXXXX";
  REQUIRE(mkdtemp(name) != nullptr);
  top_ = name;
  dir_ = top_ + "/run";
}

NodeFolder::~NodeFolder() {
  std::error_code ignored;
  fs::remove_all(top_, ignored);
}

node::Config NodeFolder::config(const std::string& name) const {
  node::Config c;
  c.runtime_dir = dir_;
  c.name = name;
  c.mem_max = 64 << 20;
  return c;
}

std::string NodeFolder::node_dir(const std::string& name) const {
  char hex[17];
  std::snprintf(hex, sizeof hex, "%016llx",
                static_cast<unsigned long long>(node::node_id_of(name).hi));
  return dir_ + "/" + hex;
}

std::string NodeFolder::registry_path(const std::string& name) const {
  return node_dir(name) + "/registry";
}

namespace {
std::vector<std::string> names_in(const std::string& dir) {
  std::vector<std::string> out;
  std::error_code none;
  for (auto& e : fs::directory_iterator(dir, none)) out.push_back(e.path().filename());
  std::sort(out.begin(), out.end());
  return out;
}
}  // namespace

std::vector<std::string> NodeFolder::files(const std::string& name) const {
  return names_in(node_dir(name));
}

bool NodeFolder::empty() const {
  std::error_code none;
  return fs::directory_iterator(dir_, none) == fs::directory_iterator();
}

Child::Child(const std::function<void(Child&)>& body) {
  int down[2], up[2];
  REQUIRE(pipe2(down, O_CLOEXEC) == 0);
  REQUIRE(pipe2(up, O_CLOEXEC) == 0);
  std::fflush(nullptr);
  pid_t parent = getpid();
  pid_ = fork();
  REQUIRE(pid_ >= 0);
  in_child_ = pid_ == 0;
  in_ = in_child_ ? down[0] : up[0];
  out_ = in_child_ ? up[1] : down[1];
  close(in_child_ ? down[1] : up[1]);
  close(in_child_ ? up[0] : down[0]);
  if (!in_child_) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(2);
  signal(SIGPIPE, SIG_DFL);
  body(*this);
  _exit(0);
}

Child::~Child() {
  if (!ended_) kill();
  close(in_);
  close(out_);
}

void Child::say(int64_t v) {
  bool written = write(out_, &v, sizeof v) == sizeof v;
  if (in_child_) {
    CHILD_CHECK(written);
  } else {
    CHECK(written);
  }
}

int64_t Child::hear() {
  int64_t v = -1;
  pollfd p{in_, POLLIN, 0};
  bool heard = poll(&p, 1, 30000) == 1 && read(in_, &v, sizeof v) == sizeof v;
  if (in_child_) {
    CHILD_CHECK(heard);
  } else {
    REQUIRE(heard);
  }
  return v;
}

void Child::kill() {
  ::kill(pid_, SIGKILL);
  wait();
}

int Child::wait() {
  Deadline deadline = Deadline::in(60 * kSecond);
  while (!ended_) {
    int raw = 0;
    pid_t got = waitpid(pid_, &raw, WNOHANG);
    if (got == pid_) {
      ended_ = true;
      status_ = WIFSIGNALED(raw) ? -WTERMSIG(raw) : WEXITSTATUS(raw);
    } else if (deadline.passed()) {
      std::fprintf(stderr, "child %d does not end, killed\n", pid_);
      ::kill(pid_, SIGKILL);
      waitpid(pid_, &raw, 0);
      ended_ = true;
      status_ = -1000;
    } else {
      usleep(200);
    }
  }
  return status_;
}

bool eventually(const std::function<bool()>& condition) {
  Deadline deadline = Deadline::in(30 * kSecond);
  while (!condition()) {
    if (deadline.passed()) return false;
    usleep(500);
  }
  return true;
}

namespace {
constexpr size_t kContextsAt = 128, kSegmentsAt = kContextsAt + 256 * 32, kSegmentBytes = 128,
                 kAttachmentsAt = kSegmentsAt + 4096 * kSegmentBytes,
                 kReservationsAt = kAttachmentsAt + 32768 * 8,
                 kRegistrySize = kReservationsAt + 64 * 32;
constexpr off_t kLockByte = off_t{1} << 40;

bool byte_lock(int fd, int cmd, short type, off_t at, short* found = nullptr) {
  struct flock l {};
  l.l_type = type;
  l.l_whence = SEEK_SET;
  l.l_start = at;
  l.l_len = 1;
  bool done = fcntl(fd, cmd, &l) == 0;
  if (found != nullptr) *found = l.l_type;
  return done;
}

struct Walk {
  std::vector<char> file;
  std::string wrong;

  uint64_t word(size_t at) const {
    uint64_t v;
    std::memcpy(&v, file.data() + at, sizeof v);
    return v;
  }
  void expect(bool cond, const std::string& what) {
    if (!cond) wrong += what + "\n";
  }
};
}  // namespace

std::string walk_registry(const NodeFolder& folder, bool settled, const std::string& name) {
  return walk_registry_in(folder.node_dir(name), settled);
}

std::string walk_registry_in(const std::string& node_dir, bool settled) {
  Walk w;
  Fd fd(open((node_dir + "/registry").c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) return "no registry\n";
  if (!eventually([&] { return byte_lock(fd.get(), F_OFD_SETLK, F_WRLCK, kLockByte); })) {
    return "lock not had\n";
  }
  struct stat st;
  fstat(fd.get(), &st);
  if (st.st_nlink == 0) return "";  // its last member left meanwhile
  w.file.resize(static_cast<size_t>(st.st_size));
  w.expect(pread(fd.get(), w.file.data(), w.file.size(), 0) == st.st_size, "short read");
  w.expect(w.file.size() == kRegistrySize, "size");
  if (!w.wrong.empty()) return w.wrong;
  uint64_t segments_high = w.word(56), attachments_high = w.word(64);

  std::set<std::string> expected{"registry"};
  std::set<size_t> members;
  for (size_t c = 0; c < 256; ++c) {
    size_t at = kContextsAt + c * 32;
    short lock = F_UNLCK;
    byte_lock(fd.get(), F_OFD_GETLK, F_WRLCK, kLockByte + 1 + static_cast<off_t>(c), &lock);
    w.expect(w.word(at) <= 1, "context state " + std::to_string(c));
    if (w.word(at) != 1) continue;
    members.insert(c);
    expected.insert("bus-" + std::to_string(c));
    w.expect((w.word(at + 8) | w.word(at + 16)) != 0, "context without id");
    if (settled) w.expect(lock != F_UNLCK, "dead context " + std::to_string(c));
  }

  std::map<size_t, int> attached;  // by segment id
  std::map<size_t, size_t> states;
  for (size_t i = 0; i < 4096; ++i) {
    size_t at = kSegmentsAt + i * kSegmentBytes;
    uint64_t s = w.word(at);
    if (s == 0) continue;
    std::string label = "segment " + std::to_string(i) + ": ";
    size_t id = s & 0x7fffffff, state = s >> 32 & 3, owner = s >> 40 & 255;
    w.expect(i < segments_high, label + "above the highest");
    w.expect((id & 4095) == i && id >> 12 != 0 && s >> 48 == 0 && state != 0, label + "word");
    w.expect((w.word(at + 8) & 0xffffffff) == id >> 12, label + "generation");
    states[id] = state;
    std::string file = "seg-" + std::to_string(id);
    if (state != 3) {
      w.expect(members.count(owner) == 1, label + "owned by nobody");
      w.expect(w.word(at + 32) == w.word(kContextsAt + owner * 32 + 8), label + "owner's id");
    }
    if (settled) w.expect(state != 1, label + "still in the making");
    struct stat fst;
    bool there = stat((node_dir + "/" + file).c_str(), &fst) == 0;
    if (state == 2 || settled) w.expect(there, label + "no file");
    if (there && state == 2 && (s >> 31 & 1) == 0) {
      // An extensible one's file ends at its break, which the death of its owner may leave unsaid.
      const bool extensible = w.word(at + 56) != UINT64_MAX;
      const uint64_t end = extensible ? w.word(at + 56) : w.word(at + 16);
      w.expect(static_cast<uint64_t>(fst.st_size) == end || (extensible && !settled),
               label + "file size");
    }
    expected.insert(file);
  }

  for (size_t i = 0; i < 32768; ++i) {
    uint64_t a = w.word(kAttachmentsAt + i * 8);
    if (a == 0) continue;
    std::string label = "attachment " + std::to_string(i) + ": ";
    size_t id = a & 0x7fffffff, context = a >> 32;
    w.expect(i < attachments_high, label + "above the highest");
    w.expect((a >> 31 & 1) == 1, label + "word");
    w.expect(members.count(context) == 1, label + "of no member");
    short lock = F_UNLCK;
    byte_lock(fd.get(), F_OFD_GETLK, F_WRLCK, kLockByte + 1 + static_cast<off_t>(context), &lock);
    // The attachments of the dead do not keep a segment.
    if (settled || lock != F_UNLCK) {
      w.expect(states.count(id) == 1 && states[id] != 1, label + "to no segment");
    }
    ++attached[id];
  }
  if (settled) {
    for (auto [id, state] : states) {
      w.expect(state != 3 || attached[id] > 0, "removed, not attached, not deleted");
    }
  }
  for (size_t i = 0; i < 64; ++i) {
    if (w.word(kReservationsAt + i * 32) == 0) continue;
    expected.insert("rsv-" + std::to_string(i));
  }
  for (auto& f : names_in(node_dir)) {
    bool known = expected.count(f) == 1;
    // A dying joiner's socket has no slot yet.
    if (!settled && (f.starts_with("bus-") || f.starts_with("rsv-"))) known = true;
    w.expect(known, "litter: " + f);
  }
  return w.wrong;
}

}  // namespace cmi::test
