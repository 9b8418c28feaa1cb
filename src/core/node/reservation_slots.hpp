// The slots and files of reservations, for the code that makes them and the code that uses memory:
// each has a slot in the registry and a file that holds what is promised and not used. What is used
// is not kept anywhere: it is summed over the segments that name the key. So a death between any
// two steps loses nothing: the next reaper sets each file to what it should hold
// (settle_reservations_locked). Threads: any, under the exclusive lock.
#pragma once

#include <optional>

#include "core/base/fd.hpp"
#include "core/base/status.hpp"
#include "core/node/registry.hpp"

namespace cmi::node {

// Reservations are shared by the processes of one effective user, whose the node's folder is.
bool of_this_user(const Registry& r);
// Null: there is none with this key.
Reservation_shm* reservation_locked(Registry& r, uint64_t key);
uint64_t used_locked(Registry& r, uint64_t key);
bool any_reservation(const Registry& r);
// Has each reservation hold what is promised and not used, as far as there is memory.
void settle_reservations_locked(Registry& r, const Exclusive& lock);
// Frees up to `bytes` of what it holds beyond what is promised and not used.
void release_locked(Registry& r, const Exclusive& lock, uint64_t key, uint64_t bytes);
// Frees the slot, and with it what its file holds.
void clear_reservation_locked(Registry& r, const Exclusive& lock, Reservation_shm* rsv);

// The file of a slot; kReconfig: it is not there.
Result<Fd> open_hold(Registry& r, const Reservation_shm* rsv, int flags);
void unlink_hold(Registry& r, const Reservation_shm* rsv);
uint64_t held_by(int fd);  // bytes
// Makes the file hold `want` bytes. Where there is not enough memory, as much as there is.
Status hold(int fd, uint64_t want);

// Bytes that are promised and not used.
uint64_t promised_rest(uint64_t size, uint64_t used);
// Whole pages; none: more than there can be.
std::optional<uint64_t> whole_pages(uint64_t size);

}  // namespace cmi::node
