// The node's folder: made, opened and checked; the names of what lies in it; its removal.
// Never follows a symbolic link, and trusts only what belongs to the calling user alone.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/clock.hpp"
#include "core/base/fd.hpp"
#include "core/base/status.hpp"
#include "core/node/node_types.hpp"

namespace cmi::node {

inline constexpr const char* kRegistryName = "registry";

struct FileName {
  char text[24];
};
FileName segment_file_name(int32_t id);  // "seg-ID"
FileName bus_file_name(uint32_t slot);   // "bus-SLOT"
FileName hold_file_name(uint32_t slot);  // "rsv-SLOT"
FileName folder_name(NodeId id);         // 16 hexadecimal digits

struct Folder {
  std::string runtime_dir;
  FileName name{};
  bool default_dir = false;  // runtime_dir goes too when it is empty
  Fd parent;
  Fd dir;  // none: the folder does not exist and was not to be made
};

// kPerm: not ours, open to others, or not a plain folder.
Result<Folder> open_folder(const Config& config, bool create, Deadline deadline);

// Opens a file of the folder; kInval when it is none of ours, kReconfig when the name is not there.
Result<Fd> open_file(const Folder& folder, const char* name, int flags);

// Allocates the file's bytes from `from` to `to`, wherever it ends: kNoMem when there is no room.
Status allocate_file(int fd, uint64_t from, uint64_t to);

// Takes away registry and folder, and the default runtime folder when it is empty. Everything else
// in it has been swept before.
void remove_folder(const Folder& folder);

Status status_of_errno(int err);

// Calls keep(arg, kind, number) for every segment file ('s'), bus socket ('b') and reservation's
// file ('r') and unlinks those that it does not want; unlinks what an interrupted anonymous file
// left. Other names stay.
using KeepFile = bool (*)(void* arg, char kind, uint32_t number);
void sweep_folder(const Folder& folder, KeepFile keep, void* arg);
}  // namespace cmi::node
