// See trial.hpp.
#include "fabric/ofi/trial.hpp"

#include <cstring>

#include "core/base/descriptors_left.hpp"
#include "core/base/fd.hpp"
#include "core/base/ids.hpp"
#include "core/base/log.hpp"

namespace cmi::fabric::ofi {

namespace {
// With what must happen. Where much else runs, time passes without anybody having looked: there
// must have been so many looks, too.
constexpr Nanos kFirstContact = 10 * kSecond, kPatience = 2 * kSecond;
constexpr int kLooks = 200;
constexpr int kOfConnection = 3;          // descriptors, both sides
constexpr Nanos kNothing = 100 * kMilli;  // with what must not: some never say that it did not
constexpr uint64_t kWord = 0x0123456789abcdef;

// What operations work on; freed after both endpoints.
struct Words {
  Op read, swap, late;
  uint64_t found = 0, expected = kWord, desired = ~kWord, swapped = 0, stolen = 0;
};

template <class PostOp>
bool done_well(Endpoint& from, Endpoint& at, Op& op, Nanos patience, PostOp post) {
  const Deadline deadline = Deadline::in(patience);
  int looks = 0;
  for (bool posted = false; !op.done(); ++looks) {
    if (looks >= kLooks && deadline.passed()) return false;
    if (!posted) {
      const Post p = post();
      if (p == Post::kFailed) return false;
      posted = p == Post::kPosted;
    }
    if (from.poll() + at.poll() == 0) op.nap(20 * kMicro);
  }
  return op.cause() == Cause::kOk;
}

Status unfit(const Fabric& fabric, const char* what) {
  alert(kFacIni, "provider {}: {}", fabric.traits().provider, what);
  return Status::kNotSupp;
}
}  // namespace

Result<Findings> try_out(Fabric& fabric, bool may_cas) {
  NobodyListens nobody;
  void* page = mmap(nullptr, kPageSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return Status::kNoMem;
  const Mapping memory(page, kPageSize);
  auto* word = reinterpret_cast<uint64_t*>(memory.data());
  __atomic_store_n(word, kWord, __ATOMIC_SEQ_CST);
  Words w;
  auto target = fabric.open_endpoint(nobody);
  if (!target) return target.status();
  auto initiator = fabric.open_endpoint(nobody);
  if (!initiator) return initiator.status();
  Endpoint& from = **initiator;
  Endpoint& at = **target;
  auto region = fabric.register_memory(page, kPageSize, kRead | kWrite, random_u64(), &at);
  if (!region) return region.status();
  const Result<RemoteKey> key = fabric.map_key((*region)->key(), (*region)->raw_key());
  if (!key) return key.status();
  const Result<Peer> peer = from.add_peer(at.address());
  if (!peer) return unfit(fabric, "it does not take its own address");
  // Else it would be waited for, and the provider be blamed.
  if (!descriptors_left(kOfConnection)) return Status::kNoMem;

  if (!done_well(from, at, w.read, kFirstContact,
                 [&] { return from.read(w.read, *peer, &w.found, 8, *key, 0); }) ||
      w.found != kWord) {
    return unfit(fabric, "a read does not bring the bytes");
  }
  Findings findings;
  if (may_cas) {
    findings.cas =
        done_well(from, at, w.swap, kPatience,
                  [&] {
                    return from.cas(w.swap, *peer, &w.swapped, &w.expected, &w.desired, *key, 0);
                  }) &&
        w.swapped == kWord && __atomic_load_n(word, __ATOMIC_SEQ_CST) == ~kWord;
  }
  region->reset();
  // What is not over stays in flight until the endpoints are closed, and then has still not read.
  const bool read = done_well(from, at, w.late, kNothing,
                              [&] { return from.read(w.late, *peer, &w.stolen, 8, *key, 0); });
  initiator->reset();
  if (read || w.stolen != 0)
    return unfit(fabric, "a key still opens its memory after the registration was closed");
  return findings;
}

}  // namespace cmi::fabric::ofi
