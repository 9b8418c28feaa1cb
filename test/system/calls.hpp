// The calls of the library, made in a child process of nodes.hpp on behalf of the test: one
// function each, with the call's result and the thread's error as answer. And what most tests begin
// with: a segment exported by one process and imported by another.
#pragma once

#include <cmi.h>
#include <cmi/ofi/cmi_impl.h>

#include <array>
#include <cstdint>
#include <ostream>

#include "system/guard.hpp"
#include "system/nodes.hpp"

namespace cmi::test {

inline constexpr uint64_t kPage = 4096;
inline constexpr cmi_acc kAllRights = CMI_ACC_READ | CMI_ACC_WRITE | CMI_ACC_ATOMIC;

// What a call returned (an id, an address, 0 or -1) and what cmi_get_error() said then.
struct Answer {
  int64_t value = 0;
  cmi_error error = CMI_ERR_NONE;
  bool ok() const { return value != -1 && error == CMI_ERR_NONE; }
  bool failed(cmi_error why) const { return !ok() && error == why; }
  cmi_seg seg() const { return static_cast<cmi_seg>(value); }
  uint64_t at() const { return static_cast<uint64_t>(value); }
};
std::ostream& operator<<(std::ostream& out, const Answer& answer);

// A copy of a handle, a token or a node address; of the size that attr_get() tells.
struct alignas(16) Flat {
  uint32_t size = 0;
  cmi_error error = CMI_ERR_NONE;  // size 0: why there is none
  std::array<unsigned char, 2048> bytes{};
  bool ok() const { return size != 0; }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(bytes.data());
  }
};

// ---- In the child ---------------------------------------------------------------------------

// The process's context, for CMIFN(); null before start_context().
cmi_ctxt* ctxt();
Answer start_context(uint16_t verno);
// Finishes the calling thread's registration, if it has one.
Answer finish_context();
// The calling thread's error, and `value`; value is made -1 where it says failure.
Answer answer(int64_t value, bool failed);
// A copy of an object of the library's.
Flat copy_of(const void* object, cmi_seg seg, int32_t size_attribute);
// The process's counters.
cmi_ofi_stats stats();
// An epoch of the main thread, for open_fb() below.
cmi_fb& epoch();

// ---- On behalf of the test ------------------------------------------------------------------

Answer ini(Process& process, uint16_t verno = CMI_VERNO);
Answer fini(Process& process);
Answer seg_get(Process& process, size_t size, int32_t flags = 0);
Answer seg_at(Process& process, cmi_seg seg, uint64_t address = 0, int32_t flags = 0);
Answer seg_dt(Process& process, cmi_seg seg, uint64_t address);
Answer seg_rm(Process& process, cmi_seg seg);
Answer set_token(Process& process, cmi_seg seg, const Flat& token);
Answer seg_brk(Process& process, cmi_seg seg, uint64_t size);
Answer set_cache(Process& process, cmi_seg seg, size_t bytes);
Answer cache_of(Process& process, cmi_seg seg);  // bytes
Answer rseg_del(Process& process, const Flat& handle);
Answer seg_imp(Process& process, const Flat& handle);
Answer tok_del(Process& process, const Flat& token);
Answer cmi_enb(Process& process, int enable);
Flat seg_exp(Process& process, cmi_seg seg, int32_t attributes = 0);
Flat tok_new(Process& process, cmi_seg seg, cmi_acc rights);  // for any node
// For a part of a segment, and any node.
Flat tok_newva(Process& process, cmi_seg seg, uint64_t at, uint64_t size, cmi_acc rights);
Flat tok_new_for(Process& process, cmi_seg seg, const Flat& address, cmi_acc rights);
Flat node_address(Process& process);

struct Status {
  Answer answer;
  cmi_ds_status status;
};
Status seg_status(Process& process, cmi_seg seg);
struct Recovery {
  Answer answer;
  uint64_t at, size;
};
Recovery seg_check(Process& process, cmi_seg seg, uint64_t at, uint64_t size);
Answer seg_reco(Process& process, cmi_seg seg, uint64_t at, uint64_t size);
struct Info {
  Answer answer;
  cmi_ds_info info;
};
Info seg_info(Process& process, cmi_seg seg);
struct Limits {
  Answer answer;
  cmi_cfg_info info;
};
Limits ctl_info(Process& process);

Access load(Process& process, uint64_t address);  // a word
Access store(Process& process, uint64_t address, uint64_t value);
// A store and the barrier after it; false if either failed.
bool publish(Process& process, uint64_t address, uint64_t value);
// Loads until the word has the value or the time is over; the word.
uint64_t load_until(Process& process, uint64_t address, uint64_t value, int seconds = 10);

struct Swap {
  Answer answer;
  uint64_t old;
  Fault fault;
  bool swapped;
};
Swap atm_cas(Process& process, uint64_t address, uint64_t compare, uint64_t swap);
Answer wmb(Process& process);
// Barriers until no page of the process's imports is hot: none stays writable over its write-backs.
Answer cool(Process& process);
Answer mb(Process& process);
Answer rmb(Process& process);
Answer open_fb(Process& process);
Answer flush_fb(Process& process);
Answer close_fb(Process& process);
Answer cflush(Process& process, uint64_t address);
// The type of the next event, 0 for none, -1 for a failure; the event is returned.
int next_event(Process& process);

// ---- Scenes ---------------------------------------------------------------------------------

struct Export {
  cmi_seg seg = 0;
  uint64_t at = 0;  // a view in the home process
  size_t size = 0;
  Flat handle;
  Flat token;  // for any node
};
struct Import {
  cmi_seg seg = 0;
  uint64_t at = 0;
};

// A segment of one process, attached there, exported, with a token. The test ends if that fails.
Export export_segment(Process& home, size_t size = 16 * kPage, cmi_acc rights = kAllRights,
                      int32_t flags = 0);
// Imports it, sets the token, enables access, attaches. The test ends if that fails.
Import import_segment(Process& peer, const Export& exported);
// The same without a token and without enabling.
Import import_bare(Process& peer, const Export& exported, int32_t flags = 0);

// What the importer is called as a user of the memory there; 0: it has none.
uint64_t name_of(Process& process, uint64_t at);
// Where pages are mapped a barrier of the home's may wait for nobody, so a death that it would have
// found is waited for here: until the home says that the user is gone.
void await_gone(Process& home, uint64_t at, uint64_t name);

}  // namespace cmi::test
