// Reading and checking registries; see survey.hpp.
#include "survey.hpp"

#include <cmi.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "core/node/lock_file.hpp"
#include "processes.hpp"

namespace cmi::adm {

using node::AttachmentWord;
using node::kMaxAttachments;
using node::kMaxContexts;
using node::kMaxSegments;
using node::Registry_shm;
using node::SegmentState;
using node::SegmentWord;

namespace {

constexpr int kCopies = 10;
constexpr int kLockLooks = 20;  // 5 ms apart; the lock is held for microseconds

void pause_ms(long ms) {
  timespec t{0, ms * 1000000};
  nanosleep(&t, nullptr);
}

bool is_folder_name(const std::string& name) {
  return name.size() == 16 && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

pid_t checked_pid(uint64_t raw) { return raw > 0 && raw <= INT_MAX ? static_cast<pid_t>(raw) : 0; }

bool copy_file(int fd, Registry_shm& to) {
  auto* at = reinterpret_cast<char*>(&to);
  size_t done = 0;
  while (done < sizeof to) {
    const ssize_t n = pread(fd, at + done, sizeof to - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

const char* trouble_of_header(const Registry_shm& r, const std::string& name) {
  const node::Header_shm& h = r.header;
  if (h.magic.load() != node::kRegistryMagic) return "its registry is none";
  if (h.version != node::kRegistryVersion || h.header_bytes != sizeof h ||
      h.contexts != kMaxContexts || h.segments != kMaxSegments ||
      h.attachments != kMaxAttachments || h.reservations != node::kMaxReservations ||
      h.context_bytes != sizeof(node::Context_shm) ||
      h.segment_bytes != sizeof(node::Segment_shm)) {
    return "its registry is damaged or of another version of the library";
  }
  if (node::folder_name(NodeId{h.node_hi, h.node_lo}).text != name) {
    return "its registry is another node's";
  }
  return nullptr;
}

void read_contexts(const Registry_shm& r, int fd, NodeRow& node) {
  for (uint32_t slot = 0; slot < kMaxContexts; ++slot) {
    const node::Context_shm& from = r.contexts[slot];
    const uint64_t state = from.state.load();
    if (state == node::kContextFree) continue;
    if (state != node::kContextMember) {
      ++node.damaged;
      continue;
    }
    ContextRow c;
    c.slot = slot;
    c.id = {from.id_hi.load(), from.id_lo.load()};
    c.own_pid = checked_pid(from.pid.load());
    c.pid = c.own_pid;
    c.alive = node::byte_locked_elsewhere(fd, node::kLifeByte + slot);
    if (c.alive) {
      const Seen seen = process_that_maps(fd, c.own_pid);
      c.pid = seen.pid;
      c.process = seen.state;
      c.program = seen.program;
    }
    node.contexts.push_back(std::move(c));
  }
}

void read_segments(const Registry_shm& r, NodeRow& node) {
  for (uint32_t i = 0; i < kMaxSegments; ++i) {
    const node::Segment_shm& from = r.segments[i];
    const uint64_t raw = from.state.load();
    if (raw == 0) continue;
    const auto word = SegmentWord::unpack(raw, i);
    if (!word) {
      ++node.damaged;
      continue;
    }
    SegmentRow s;
    s.id = word->id;
    s.kind = word->kind;
    s.state = word->state;
    s.marks = word->marks;
    s.size = from.size;
    s.charged = from.charged;
    s.brk = std::min(from.brk, from.size);
    s.flags = from.flags;
    s.owner = word->owner;
    s.owner_pid = checked_pid(static_cast<uint64_t>(from.owner_pid));
    const ContextRow* owner = node.context(s.owner);
    s.owner_alive =
        owner != nullptr && owner->alive && owner->id == ContextId{from.owner_hi, from.owner_lo};
    if (s.owner_alive) s.owner_pid = owner->pid;
    node.segments.push_back(std::move(s));
  }
}

void read_reservations(const Registry_shm& r, NodeRow& node) {
  for (const node::Reservation_shm& from : r.reservations) {
    ReservationRow row;
    row.key = from.key.load();
    if (row.key == 0) continue;
    row.size = from.size;
    row.maker_pid = checked_pid(static_cast<uint64_t>(from.maker_pid));
    for (const SegmentRow& s : node.segments) {
      row.used += node::charged_to(r.segments[node::index_of(s.id)], row.key);
    }
    node.reservations.push_back(row);
  }
}

void read_attachments(const Registry_shm& r, NodeRow& node) {
  std::vector<SegmentRow*> by_index(kMaxSegments);
  for (SegmentRow& s : node.segments) by_index[node::index_of(s.id)] = &s;
  for (uint32_t i = 0; i < kMaxAttachments; ++i) {
    const uint64_t raw = r.attachments[i].load();
    if (raw == 0) continue;
    const auto word = AttachmentWord::unpack(raw);
    SegmentRow* segment = word ? by_index[node::index_of(word->id)] : nullptr;
    const ContextRow* context = word ? node.context(word->context) : nullptr;
    if (segment == nullptr || segment->id != word->id || context == nullptr) {
      ++node.damaged;
    } else if (!context->alive) {
      ++node.stale;
    } else {
      ++segment->views;
      ++segment->views_of[word->context];
    }
  }
}

void count_for_contexts(NodeRow& node) {
  for (ContextRow& c : node.contexts) {
    for (const SegmentRow& s : node.segments) {
      c.views += s.views_of[c.slot];
      if (s.owner != c.slot) continue;
      ++(s.kind == node::SegmentKind::kHome ? c.segments : c.imports);
    }
  }
}

// Of a process without CMI_NODE nothing that says anything to people was kept.
std::string name_of(const node::Header_shm& h) {
  const std::string name(h.name, strnlen(h.name, sizeof h.name));
  const bool fits = name.size() < sizeof h.name;
  const std::string by_default = node::default_node_name();
  return name == by_default.substr(0, sizeof h.name) ? "" : fits ? name : name + "...";
}

void check_files(const node::Folder& folder, NodeRow& node) {
  for (SegmentRow& s : node.segments) {
    if (s.state == SegmentState::kMaking) continue;
    // Of large pages: its file has no name.
    if (s.kind == node::SegmentKind::kHome && (s.flags & CMI_SEG_LARGE_PAGES) != 0) continue;
    struct stat st {};
    const node::FileName file = node::segment_file_name(s.id);
    const bool there = fstatat(folder.dir.get(), file.text, &st, AT_SYMLINK_NOFOLLOW) == 0;
    s.held = static_cast<uint64_t>(st.st_blocks) * 512;  // stat's unit, whatever the file system
    if (!there) {
      s.trouble = "its file is missing";
    } else if (!S_ISREG(st.st_mode)) {
      s.trouble = "its file is no plain file";
    } else if (s.kind == node::SegmentKind::kHome && static_cast<uint64_t>(st.st_size) != s.brk) {
      s.trouble = "its file has the wrong size";
    }
  }
}

NodeRow read_node(const node::Folder& folder, const std::string& name) {
  NodeRow node;
  node.name = name;
  Result<Fd> file = node::open_file(folder, node::kRegistryName, O_RDONLY);
  if (!file) {
    node.trouble = file.status() == Status::kReconfig ? "no process has joined it"
                                                      : "its registry is not ours to read";
    return node;
  }
  const int fd = file->get();
  struct stat st;
  uint64_t magic = 0;
  if (fstat(fd, &st) != 0 || pread(fd, &magic, sizeof magic, 0) < 0) {
    node.trouble = std::strerror(errno);
    return node;
  }
  if (magic == 0) {
    node.trouble = "no process has joined it";
    return node;
  }
  if (static_cast<uint64_t>(st.st_size) != sizeof(Registry_shm)) {
    node.trouble = "its registry has " + std::to_string(st.st_size) + " bytes instead of " +
                   std::to_string(sizeof(Registry_shm));
    return node;
  }
  auto before = std::make_unique<Registry_shm>(), copy = std::make_unique<Registry_shm>();
  bool whole = copy_file(fd, *copy);
  node.settled = false;
  for (int i = 1; whole && !node.settled && i < kCopies; ++i) {
    std::swap(before, copy);
    whole = copy_file(fd, *copy);
    node.settled = whole && std::memcmp(static_cast<void*>(before.get()),
                                        static_cast<void*>(copy.get()), sizeof *copy) == 0;
    if (!node.settled) pause_ms(2);
  }
  if (const char* why = whole ? trouble_of_header(*copy, name) : "its registry cannot be read") {
    node.trouble = why;
    return node;
  }
  node.id = {copy->header.node_hi, copy->header.node_lo};
  node.cmi_node = name_of(copy->header);
  node.locked = true;
  for (int i = 0; node.locked && i < kLockLooks; ++i) {
    if (i > 0) pause_ms(5);
    node.locked = node::byte_locked_elsewhere(fd, node::kExclusiveByte);
  }
  read_contexts(*copy, fd, node);
  read_segments(*copy, node);
  read_attachments(*copy, node);
  read_reservations(*copy, node);
  count_for_contexts(node);
  check_files(folder, node);
  std::sort(node.segments.begin(), node.segments.end(),
            [](const SegmentRow& a, const SegmentRow& b) { return a.id < b.id; });
  return node;
}

// A folder of ours; kReconfig: not there.
Result<Fd> open_ours(int at, const char* path) {
  Fd fd(openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return errno == ENOENT ? Status::kReconfig : node::status_of_errno(errno);
  struct stat st;
  const bool ours = fstat(fd.get(), &st) == 0 && st.st_uid == geteuid() && (st.st_mode & 077) == 0;
  if (!ours) return Status::kPerm;
  return fd;
}

Result<node::Folder> open_node_folder(const std::string& runtime_dir, const std::string& name) {
  node::Folder f;
  f.runtime_dir = runtime_dir;
  Result<Fd> parent = open_ours(AT_FDCWD, runtime_dir.c_str());
  if (!parent) return parent.status();
  f.parent = parent.take();
  Result<Fd> dir = open_ours(f.parent.get(), name.c_str());
  if (!dir) return dir.status();
  f.dir = dir.take();
  std::snprintf(f.name.text, sizeof f.name.text, "%s", name.c_str());
  return f;
}

}  // namespace

const char* ContextRow::state() const {
  if (!alive) return "dead";
  return stopped() ? "stopped" : "alive";
}

const char* SegmentRow::state_name() const {
  switch (state) {
    case SegmentState::kMaking:
      return "making";
    case SegmentState::kLive:
      return owner_alive ? "live" : "removed";
    default:
      return "removed";
  }
}

const ContextRow* NodeRow::context(uint32_t slot) const {
  for (const ContextRow& c : contexts) {
    if (c.slot == slot) return &c;
  }
  return nullptr;
}

uint32_t NodeRow::dead() const {
  return static_cast<uint32_t>(
      std::count_if(contexts.begin(), contexts.end(), [](const auto& c) { return !c.alive; }));
}

uint64_t NodeRow::held_by_dead() const {
  uint64_t sum = 0;
  for (const SegmentRow& s : segments) sum += s.left() ? s.held : 0;
  return sum;
}

uint32_t NodeRow::left_by_dead() const {
  return static_cast<uint32_t>(
      std::count_if(segments.begin(), segments.end(), [](const auto& s) { return s.left(); }));
}

std::string NodeRow::called() const { return cmi_node.empty() ? name : cmi_node; }

std::string folder_of_node(const std::string& name_or_digits) {
  if (is_folder_name(name_or_digits)) return name_or_digits;
  return node::folder_name(node::node_id_of(name_or_digits)).text;
}

Result<node::Folder> open_node(const std::string& runtime_dir, const NodeRow& node) {
  return open_node_folder(runtime_dir, node.name);
}

Survey survey(const std::string& runtime_dir, const std::string& only) {
  Survey s;
  s.runtime_dir = runtime_dir;
  Result<Fd> top = open_ours(AT_FDCWD, runtime_dir.c_str());
  if (!top) {
    if (top.status() == Status::kPerm) {
      s.trouble = "it belongs to another user, or others may enter it";
    } else if (top.status() != Status::kReconfig) {
      s.trouble = "it cannot be opened as a folder";
    }
    return s;
  }
  std::vector<std::string> names;
  std::unique_ptr<DIR, int (*)(DIR*)> dir(fdopendir(top->get()), closedir);
  if (dir != nullptr) top->release();
  while (dirent* e = dir != nullptr ? readdir(dir.get()) : nullptr) {
    if (is_folder_name(e->d_name) && (only.empty() || only == e->d_name)) {
      names.emplace_back(e->d_name);
    }
  }
  for (const std::string& name : names) {
    Result<node::Folder> folder = open_node_folder(runtime_dir, name);
    if (folder) {
      s.nodes.push_back(read_node(*folder, name));
    } else if (folder.status() != Status::kReconfig) {  // else its last member has just left
      NodeRow node;
      node.name = name;
      node.trouble = "its folder is not ours alone";
      s.nodes.push_back(std::move(node));
    }
  }
  std::sort(s.nodes.begin(), s.nodes.end(), [](const NodeRow& a, const NodeRow& b) {
    return std::pair(a.called(), a.name) < std::pair(b.called(), b.name);
  });
  return s;
}

}  // namespace cmi::adm
