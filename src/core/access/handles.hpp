// Wire form of what clients copy around: remote segment handles, tokens and node addresses. Flat,
// little-endian, self-checking bytes; decoding trusts nothing.
// Any thread, without locks: the caller's pointer may lie in a segment, and is read once, into a
// copy on the stack, before anything is looked at twice. Whether what an object names is alive, and
// whether its secret is right, is for others to say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/ids.hpp"
#include "core/base/status.hpp"
#include "fabric/fabric.hpp"

namespace cmi::access {

// CMI_SEG_WRITE_THROUGH, in attributes of an export.
inline constexpr int32_t kWriteThrough = 0x1000;

// Bytes of each object, always in full: CMI_ATTR_RSEG_SIZE, _TOKEN_SIZE, _NODEADDR_SIZE.
inline constexpr size_t kRsegSize = 768;
inline constexpr size_t kTokenSize = 256;
inline constexpr size_t kNaddrSize = 64;

inline constexpr size_t kMaxListeners = 8;  // of a handle; also the keys of a token
inline constexpr size_t kMaxProvider = 63;  // bytes of a provider's name, at least 1, printable
inline constexpr size_t kMaxListenerAddress = 255;  // bytes of a listener's address, at least 1

// Where a context's listener listens, for one provider.
using FabricAddress = fabric::ListenerAddress;

struct RsegInfo {
  uint64_t uid = 0;      // random, names the segment in the whole cluster; never 0
  int32_t home_seg = 0;  // its id on the home node; > 0
  uint64_t size = 0;     // bytes; at most 2^32 pages
  int32_t flags = 0;     // of seg_get, no others
  int32_t attrib = 0;    // of seg_exp, no others
  NodeId home_node;
  ContextId home;
  uint64_t machine = 0;                  // of the home; see node::machine_id()
  std::vector<FabricAddress> listeners;  // at most kMaxListeners
  uint64_t boot = 0;                     // the same; see node::boot_id(). 0: an older library's
  bool operator==(const RsegInfo&) const = default;
};

// Whether seg_get was told, with these flags, that the client keeps its data consistent itself:
// then nothing is kept on pages in flux.
bool client_consistent(int32_t flags);
// Whether the segment has a break.
bool extensible(int32_t flags);
bool large_pages(int32_t flags);
// Of the memory at home: what a view's address is a multiple of. Protocol and caches know pages of
// kPageSize alone.
size_t page_size_of(int32_t flags);
// Whether its memory is set aside when it is made or grows.
bool reserved(int32_t flags);

struct TokenKey {
  std::string provider;
  fabric::RemoteKey key;
};

// Which bytes of a segment a token is for: whole pages.
struct TokenPart {
  uint64_t offset = 0, size = 0;  // size 0: all of it
  bool operator==(const TokenPart&) const = default;
};

struct TokenInfo {
  uint64_t uid = 0;     // of the segment
  uint64_t id = 0;      // random, names the token at its home; never 0
  uint64_t secret = 0;  // random
  uint32_t rights = 0;  // fabric::Right, at least one
  bool any_node = false;
  NodeId node;  // the only node that may use it; all zero if, and only if, any_node
  ContextId home;
  std::vector<TokenKey> keys;  // at most kMaxListeners
  TokenPart part;
};

struct NaddrInfo {
  NodeId node;
  ContextId context;  // all zero where the node alone is meant
  bool operator==(const NaddrInfo&) const = default;
};

// Each fills `out`, which must have exactly the object's size. `verno` is what base.verno says: the
// version of the context that makes the object. kNoMem: does not fit (too many listeners, too long
// names); kInval: a field is outside what is said above.
Status encode_rseg(const RsegInfo& info, std::span<std::byte> out, uint16_t verno = 10);
Status encode_token(const TokenInfo& info, std::span<std::byte> out, uint16_t verno = 10);
Status encode_naddr(const NaddrInfo& info, std::span<std::byte> out, uint16_t verno = 10);

// Any of the three, as bytes.
enum class ObjectKind : uint8_t { kRseg, kToken, kNaddr };
struct ObjectBytes {
  ObjectKind kind;
  std::vector<std::byte> bytes;  // as long as the object says
  size_t content = 0;            // of the bytes: what precedes the filler at the end
};
// A copy of an object of any kind, which is looked at as decode_ does below. kInval: as there.
Result<ObjectBytes> copy_object(const void* object);
// The reverse: the object of this kind whose content this is. kInval: there is none.
Result<ObjectBytes> complete_object(ObjectKind kind, Bytes content);

// Each reads the 8 bytes of the base, then 16 more, then as many as these claim and the kind
// allows. kInval: not such an object, damaged, truncated, or of a version this library does not
// know.
Result<RsegInfo> decode_rseg(const void* rseg);
Result<TokenInfo> decode_token(const void* token);
Result<NaddrInfo> decode_naddr(const void* naddr);

}  // namespace cmi::access
