// Where the nodes of a user are if CMI_RUNTIME_DIR says nothing: the rule by which all processes of
// the user find the same folder, whatever other users do.
//
// 1. A folder of the user's that exists is taken. Of several, the first with a living node; else
//    the first. Order: the user's own tmpfs, /dev/shm/cmi-UID, the others by their numbers.
// 2. Where there is none, one is made: under a lock of /dev/shm, after another look. So two
//    processes that start at once never make two.
// 3. It is made in the user's own tmpfs if that has room for segments; else as /dev/shm/cmi-UID;
//    else, where another user has that name, with a number that nobody can guess behind it.
//
// Threads: any; no state.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "core/base/clock.hpp"
#include "core/base/status.hpp"

namespace cmi::node {

class DefaultFolder {
 public:
  struct Places {
    std::string shared;  // everybody's tmpfs, with the sticky bit
    std::string own;     // the user's own tmpfs; need not exist
    uid_t user;
    Nanos patience = kSecond;  // with whoever holds the lock
  };
  static Places places();  // /dev/shm and /run/user/UID

  explicit DefaultFolder(Places where = places()) : where_(std::move(where)) {}

  // The folder that there is, or a name that make() might take.
  std::string find() const;
  // The folder that there is, or a new one. kPerm, kNoMem: there is none, and none can be made.
  Result<std::string> make() const;
  // Whether it is a name that make() gives: the last node takes such a folder away.
  bool named(const std::string& folder) const;

 private:
  std::string existing() const;  // empty: there is none
  std::vector<std::string> all_of_ours() const;
  bool own_has_room() const;
  std::string with_a_number() const;
  std::string stem() const { return "cmi-" + std::to_string(where_.user); }
  std::string in_own() const { return where_.own + "/cmi"; }

  Places where_;
};

}  // namespace cmi::node
