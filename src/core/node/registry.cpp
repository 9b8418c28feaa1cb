// Opening, making and checking the registry file. Any thread; everything is done under the lock of
// the file that is being opened.
#include "core/node/registry.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/cause.hpp"
#include "core/base/fault_point.hpp"

namespace cmi::node {

namespace {
constexpr const char* kAnotherVersion =
    "its registry is of another version of the library that is still in use";
constexpr const char* kDamaged =
    "its registry is damaged, and a process of the node still uses it: end that one";
constexpr const char* kDamagedUnused = "its registry is damaged; the next cmi_ini makes it anew";
}  // namespace

Status Registry::open_locked(const Config& config, Open how, Deadline deadline,
                             std::unique_ptr<Registry>& out, std::optional<Exclusive>& lock) {
  for (;;) {
    lock.reset();
    out.reset();
    Result<Folder> folder = open_folder(config, how == Open::kCreate, deadline);
    if (!folder) return folder.status();
    if (!folder->dir) return Status::kOk;
    // O_CREAT in both cases: the lock of an empty folder is what lets us remove it.
    Result<Fd> fd = open_file(*folder, kRegistryName, O_RDWR | O_CREAT);
    if (!fd && fd.status() != Status::kReconfig) return fd.status();
    if (fd) {
      fault_point("node.join.registry_made");
      out = std::make_unique<Registry>();
      out->folder_ = folder.take();
      out->node_id_ = node_id_of(config);
      out->name_ = config.name;
      out->fd_ = fd.take();
      out->lock_.fd = out->fd_.get();
      lock.emplace(out->lock_, deadline);
      if (!*lock) {
        return because(Status::kReconfig,
                       "a process of the node holds its registry and does not run");
      }
      struct stat st;
      if (fstat(out->fd_.get(), &st) == 0 && st.st_nlink != 0) return out->prepare_locked(how);
    }
    // Removed by the last member between our steps.
    if (deadline.passed()) return Status::kReconfig;
  }
}

Status Registry::prepare_locked(Open how) {
  struct stat st;
  if (fstat(fd_.get(), &st) != 0) return status_of_errno(errno);
  uint64_t magic = 0;
  if (st.st_size > 0 && pread(fd_.get(), &magic, sizeof magic, 0) < 0) return Status::kInval;
  if (magic != 0) {  // somebody finished making it
    if (st.st_size == sizeof(Registry_shm)) {
      if (Status s = map(); !ok(s)) return s;
      if (valid(node_id_)) return Status::kOk;
    }
    if (Status s = renew_locked(how, st.st_size); !ok(s)) return s;
  }
  if (how == Open::kExisting) return Status::kOk;
  // Nobody ever was a member: the magic comes last. Allocated before it is mapped, so that a full
  // file system is an error here and never a SIGBUS later.
  Status s = allocate_file(fd_.get(), 0, sizeof(Registry_shm));
  if (ok(s) && ftruncate(fd_.get(), sizeof(Registry_shm)) != 0) s = status_of_errno(errno);
  fault_point("node.init.sized");
  if (ok(s)) s = map();
  if (!ok(s)) {
    sweep_folder(
        folder_, [](void*, char, uint32_t) { return false; }, nullptr);
    remove_folder(folder_);
    return s;
  }
  fill(node_id_, name_);
  return Status::kOk;
}

// A registry that cannot be used. A living member holds a lock on it, of whatever version it is.
// Without any member it is emptied, as if it had just been made.
Status Registry::renew_locked(Open how, off_t size) {
  const bool of_its_size = shm_ != nullptr;
  const bool another = of_its_size &&
                       shm_->header.magic.load(std::memory_order_acquire) == kRegistryMagic &&
                       shm_->header.version != kRegistryVersion;
  shm_ = nullptr;
  map_ = Mapping();
  const bool used = locked_elsewhere(fd_.get());
  note(kFacIni, kError, "node: the registry, of {} bytes, is {}; {}", size,
       another ? "of another version" : "damaged",
       used                     ? "a process uses it"
       : how == Open::kExisting ? "no process uses it"
                                : "no process uses it, and it is made anew");
  if (used) return because(Status::kInval, another ? kAnotherVersion : kDamaged);
  if (how == Open::kExisting) return because(Status::kInval, kDamagedUnused);
  sweep_folder(
      folder_, [](void*, char, uint32_t) { return false; }, nullptr);
  return ftruncate(fd_.get(), 0) == 0 ? Status::kOk : status_of_errno(errno);
}

Status Registry::map() {
  void* p = mmap(nullptr, sizeof(Registry_shm), PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (p == MAP_FAILED) return status_of_errno(errno);
  map_ = Mapping(p, sizeof(Registry_shm));
  if (madvise(p, sizeof(Registry_shm), MADV_DONTFORK) != 0) return status_of_errno(errno);
  shm_ = static_cast<Registry_shm*>(p);
  return Status::kOk;
}

void Registry::fill(NodeId id, const std::string& name) {
  std::memset(static_cast<void*>(shm_), 0, sizeof *shm_);
  Header_shm& h = shm_->header;
  h.version = kRegistryVersion;
  h.header_bytes = sizeof(Header_shm);
  h.contexts = kMaxContexts;
  h.segments = kMaxSegments;
  h.attachments = kMaxAttachments;
  h.reservations = kMaxReservations;
  h.context_bytes = sizeof(Context_shm);
  h.segment_bytes = sizeof(Segment_shm);
  h.node_hi = id.hi;
  h.node_lo = id.lo;
  std::memcpy(h.name, name.data(), std::min(name.size(), sizeof h.name));
  // An id that outlived the last registry should mean nothing in this one.
  uint32_t start = static_cast<uint32_t>(random_u64() % kMaxGeneration);
  for (Segment_shm& s : shm_->segments) s.generation = start;
  fault_point("node.init.filled");
  // Dies before: the next opener finds magic 0 and makes it again. After: a registry without
  // members.
  h.magic.store(kRegistryMagic, std::memory_order_release);
  fault_point("node.init.magic_stored");
}

bool Registry::valid(NodeId id) const {
  const Header_shm& h = shm_->header;
  return h.magic.load(std::memory_order_acquire) == kRegistryMagic &&
         h.version == kRegistryVersion && h.header_bytes == sizeof(Header_shm) &&
         h.contexts == kMaxContexts && h.segments == kMaxSegments &&
         h.attachments == kMaxAttachments && h.reservations == kMaxReservations &&
         h.context_bytes == sizeof(Context_shm) && h.segment_bytes == sizeof(Segment_shm) &&
         h.node_hi == id.hi && h.node_lo == id.lo;
}

bool Registry::member(uint32_t slot) const {
  return slot < kMaxContexts &&
         shm_->contexts[slot].state.load(std::memory_order_acquire) == kContextMember;
}

bool Registry::member(uint32_t slot, ContextId id) const {
  if (!member(slot)) return false;
  // The id is written before the state says member, and a context id never comes twice: a mixture
  // of two contexts' ids matches neither.
  const Context_shm& c = shm_->contexts[slot];
  return c.id_hi.load(std::memory_order_relaxed) == id.hi &&
         c.id_lo.load(std::memory_order_relaxed) == id.lo;
}

uint32_t Registry::segments_end() const {
  return static_cast<uint32_t>(
      std::min<uint64_t>(shm_->header.segments_high.load(std::memory_order_relaxed), kMaxSegments));
}

uint32_t Registry::attachments_end() const {
  return static_cast<uint32_t>(std::min<uint64_t>(
      shm_->header.attachments_high.load(std::memory_order_relaxed), kMaxAttachments));
}

void Registry::forget_in_child() {
  // Addresses of the mapping are free in the child, or someone else's by now.
  map_.release();
  shm_ = nullptr;
  fd_.reset();
  lock_.fd = -1;
  folder_.dir.reset();
  folder_.parent.reset();
}

}  // namespace cmi::node
