// Encoding and checking of handles, tokens and node addresses.
// Every object starts with: u16 verno, u16 vendor, u32 device (the cmi_base), u32 kind, u32 length,
// u64 checksum of all other bytes up to length. Fields follow, then filler up to length. Objects
// are made at their full size and the filler is not zero, so that the loss of any byte shows.
#include "core/access/handles.hpp"

#include <cmi.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "core/base/codec.hpp"
#include "core/node/large_pages.hpp"

namespace cmi::access {

namespace {

enum class Kind : uint32_t { kRseg = 0x67657372, kToken = 0x6e656b74, kNaddr = 0x7264616e };

constexpr size_t kBaseSize = 8;
constexpr size_t kLengthEnd = 16;  // base, kind, length
constexpr size_t kHeadSize = 24;   // and the checksum
constexpr std::byte kFiller{0xc3};
constexpr uint16_t kOldestVerno = 10;
constexpr uint16_t kNewestVerno = CMI_VERNO;
constexpr int32_t kSegFlags = CMI_SEG_NORESERVE | CMI_SEG_LOCK | CMI_SEG_LARGE_PAGES |
                              CMI_SEG_EXTENSIBLE | CMI_SEG_CLIENT_CONSIST |
                              CMI_SEG_CLIENT_INCONSIST;
constexpr int32_t kExpAttributes = CMI_SEG_WRITE_THROUGH;
constexpr uint8_t kTokenAnyNode = 1, kTokenPart = 2;  // of a token's flags
constexpr uint32_t kAllRights = fabric::kRead | fabric::kWrite | fabric::kAtomic;
constexpr uint64_t kMaxSegmentSize = uint64_t{1} << (32 + kPageShift);  // PageIndex is 32 bits

static_assert(kOldestVerno / 10 == kNewestVerno / 10, "one major version is understood");
static_assert(sizeof(cmi_base) == kBaseSize);
static_assert(kWriteThrough == CMI_SEG_WRITE_THROUGH);
static_assert(fabric::kRead == CMI_ACC_READ && fabric::kWrite == CMI_ACC_WRITE &&
              fabric::kAtomic == CMI_ACC_ATOMIC);

bool known_verno(uint16_t v) { return v >= kOldestVerno && v <= kNewestVerno; }

uint64_t checksum_of(Bytes object) {
  return checksum(object.subspan(kHeadSize), checksum(object.first(kLengthEnd)));
}

// ---- Fields: what is legal, the same for both directions

bool legal_provider(const std::string& name) {
  return !name.empty() && name.size() <= kMaxProvider &&
         std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~'; });
}

bool legal(const RsegInfo& i) {
  constexpr int32_t kBothModes = CMI_SEG_CLIENT_CONSIST | CMI_SEG_CLIENT_INCONSIST;
  return i.uid != 0 && i.home_seg > 0 && i.size > 0 && i.size <= kMaxSegmentSize &&
         (i.flags & ~kSegFlags) == 0 && (i.flags & kBothModes) != kBothModes &&
         (i.attrib & ~kExpAttributes) == 0 && i.home_node && i.home &&
         std::all_of(i.listeners.begin(), i.listeners.end(), [](const FabricAddress& d) {
           return legal_provider(d.provider) && !d.blob.empty() &&
                  d.blob.size() <= kMaxListenerAddress;
         });
}

bool legal(const TokenPart& p) {
  return p.offset % kPageSize == 0 && p.size % kPageSize == 0 && p.size <= kMaxSegmentSize &&
         p.offset <= kMaxSegmentSize - p.size && (p.size != 0 || p.offset == 0);
}

bool legal(const TokenInfo& i) {
  return legal(i.part) && i.uid != 0 && i.id != 0 && i.rights != 0 &&
         (i.rights & ~kAllRights) == 0 && i.any_node == !i.node && i.home &&
         std::all_of(i.keys.begin(), i.keys.end(),
                     [](const TokenKey& k) { return legal_provider(k.provider); });
}

bool legal(const NaddrInfo& i) { return static_cast<bool>(i.node); }

template <class Tag>
void put(Writer& out, const Id128<Tag>& id) {
  out.put(id.hi);
  out.put(id.lo);
}

template <class Id>
Id get_id(Reader& in) {
  Id id;
  id.hi = in.get<uint64_t>();
  id.lo = in.get<uint64_t>();
  return id;
}

void put(Writer& out, const std::string& s) { out.blob(std::as_bytes(std::span(s))); }

std::string get_string(Reader& in) {
  Bytes b = in.blob();
  return {reinterpret_cast<const char*>(b.data()), b.size()};
}

// ---- The frame around the fields

void open_frame(Writer& out, Kind kind, size_t size, uint16_t verno) {
  out.put<uint16_t>(verno);
  out.put<uint16_t>(CMI_VENDOR_OFI);
  out.put<uint32_t>(CMI_DEVICE_SOFT);
  out.put(static_cast<uint32_t>(kind));
  out.put(static_cast<uint32_t>(size));
  out.put<uint64_t>(0);  // the checksum's place
}

Status close_frame(Writer& out, std::span<std::byte> object) {
  if (!out.ok()) {
    std::fill(object.begin(), object.end(), std::byte{0});  // no half-written secret stays behind
    return Status::kNoMem;
  }
  std::fill(object.begin() + static_cast<ptrdiff_t>(out.size()), object.end(), kFiller);
  const uint64_t sum = checksum_of(object);
  std::memcpy(object.data() + kLengthEnd, &sum, sizeof sum);
  return Status::kOk;
}

bool frame_fits(std::span<std::byte> out, size_t size, uint16_t verno) {
  return out.size() == size && known_verno(verno);
}

// A private copy of an object of one kind, with its head checked and the checksum right.
template <size_t kSize>
struct Copy {
  std::array<std::byte, kSize> bytes;
  size_t length = 0;

  // The source may change under our eyes, being the client's: the head is read for the number of
  // bytes to copy, and counts only as it is found in the copy.
  bool take(const void* from, Kind kind) {
    const auto* p = static_cast<const std::byte*>(from);
    if (p == nullptr) return false;
    std::memcpy(bytes.data(), p, kBaseSize);
    if (!base_is_ours()) return false;
    std::memcpy(bytes.data() + kBaseSize, p + kBaseSize, kHeadSize - kBaseSize);
    if (word(8) != static_cast<uint32_t>(kind)) return false;
    length = word(12);
    if (length < kHeadSize || length > kSize) return false;
    std::memcpy(bytes.data(), p, length);
    const Bytes object(bytes.data(), length);
    uint64_t sum;
    std::memcpy(&sum, bytes.data() + kLengthEnd, sizeof sum);
    return base_is_ours() && word(8) == static_cast<uint32_t>(kind) && word(12) == length &&
           sum == checksum_of(object);
  }

  Reader fields() const { return Reader(Bytes(bytes.data(), length).subspan(kHeadSize)); }

 private:
  bool base_is_ours() const {
    cmi_base base;
    std::memcpy(&base, bytes.data(), sizeof base);
    return known_verno(base.verno) && base.vendor == CMI_VENDOR_OFI &&
           base.device == CMI_DEVICE_SOFT;
  }
  uint32_t word(size_t at) const {
    uint32_t w;
    std::memcpy(&w, bytes.data() + at, sizeof w);
    return w;
  }
};

bool is_filler(Bytes rest) {
  return std::all_of(rest.begin(), rest.end(), [](std::byte b) { return b == kFiller; });
}

// After the last field: all was there, and nothing but filler follows.
bool only_filler_left(Reader& in) {
  const Bytes rest = in.rest();
  return in.ok() && is_filler(rest);
}

// A field behind what older libraries write; where it is 0 it is not written either. Nothing: no
// library has written this.
std::optional<uint64_t> take_later_word(Reader& in) {
  Reader peek = in;
  if (is_filler(peek.bytes(std::min(peek.left(), sizeof(uint64_t))))) return 0;
  const auto word = in.get<uint64_t>();
  return word != 0 ? std::optional(word) : std::nullopt;
}

}  // namespace

namespace {

template <size_t kSize>
Result<ObjectBytes> copied(const void* object, Kind kind, ObjectKind as) {
  Copy<kSize> copy;
  if (!copy.take(object, kind)) return Status::kInval;
  ObjectBytes out{as, {copy.bytes.begin(), copy.bytes.begin() + copy.length}, copy.length};
  while (out.content > kHeadSize && out.bytes[out.content - 1] == kFiller) --out.content;
  return out;
}

bool decodes(ObjectKind kind, const void* object) {
  switch (kind) {
    case ObjectKind::kRseg:
      return static_cast<bool>(decode_rseg(object));
    case ObjectKind::kToken:
      return static_cast<bool>(decode_token(object));
    case ObjectKind::kNaddr:
      return static_cast<bool>(decode_naddr(object));
  }
  return false;
}

}  // namespace

Result<ObjectBytes> copy_object(const void* object) {
  auto r = copied<kRsegSize>(object, Kind::kRseg, ObjectKind::kRseg);
  if (!r) r = copied<kTokenSize>(object, Kind::kToken, ObjectKind::kToken);
  if (!r) r = copied<kNaddrSize>(object, Kind::kNaddr, ObjectKind::kNaddr);
  if (r && !decodes(r->kind, r->bytes.data())) return Status::kInval;
  return r;
}

Result<ObjectBytes> complete_object(ObjectKind kind, Bytes content) {
  const size_t most = kind == ObjectKind::kRseg    ? kRsegSize
                      : kind == ObjectKind::kToken ? kTokenSize
                                                   : kNaddrSize;
  if (content.size() < kHeadSize || content.size() > most) return Status::kInval;
  uint32_t length;
  std::memcpy(&length, content.data() + kLengthEnd - sizeof length, sizeof length);
  if (length < content.size() || length > most) return Status::kInval;
  ObjectBytes out{kind, {content.begin(), content.end()}, content.size()};
  out.bytes.resize(length, kFiller);
  if (!decodes(kind, out.bytes.data())) return Status::kInval;
  return out;
}

bool client_consistent(int32_t flags) { return (flags & CMI_SEG_CLIENT_CONSIST) != 0; }
bool extensible(int32_t flags) { return (flags & CMI_SEG_EXTENSIBLE) != 0; }
bool large_pages(int32_t flags) { return (flags & CMI_SEG_LARGE_PAGES) != 0; }
size_t page_size_of(int32_t flags) { return large_pages(flags) ? node::kLargePage : kPageSize; }
bool reserved(int32_t flags) { return (flags & CMI_SEG_NORESERVE) == 0; }

Status encode_rseg(const RsegInfo& info, std::span<std::byte> out, uint16_t verno) {
  if (info.listeners.size() > kMaxListeners) return Status::kNoMem;
  if (!frame_fits(out, kRsegSize, verno) || !legal(info)) return Status::kInval;
  Writer w(out);
  open_frame(w, Kind::kRseg, kRsegSize, verno);
  w.put(info.uid);
  w.put(info.home_seg);
  w.put(info.size);
  w.put(info.flags);
  w.put(info.attrib);
  put(w, info.home_node);
  put(w, info.home);
  w.put(info.machine);
  w.put(static_cast<uint8_t>(info.listeners.size()));
  for (const FabricAddress& listener : info.listeners) {
    put(w, listener.provider);
    w.blob(listener.blob);
  }
  if (info.boot != 0) w.put(info.boot);
  return close_frame(w, out);
}

Result<RsegInfo> decode_rseg(const void* rseg) {
  Copy<kRsegSize> copy;
  if (!copy.take(rseg, Kind::kRseg)) return Status::kInval;
  Reader in = copy.fields();
  RsegInfo info;
  info.uid = in.get<uint64_t>();
  info.home_seg = in.get<int32_t>();
  info.size = in.get<uint64_t>();
  info.flags = in.get<int32_t>();
  info.attrib = in.get<int32_t>();
  info.home_node = get_id<NodeId>(in);
  info.home = get_id<ContextId>(in);
  info.machine = in.get<uint64_t>();
  const size_t listeners = in.get<uint8_t>();
  if (listeners > kMaxListeners) return Status::kInval;
  for (size_t i = 0; i < listeners && in.ok(); ++i) {
    FabricAddress listener;
    listener.provider = get_string(in);
    const Bytes blob = in.blob();
    listener.blob.assign(blob.begin(), blob.end());
    info.listeners.push_back(std::move(listener));
  }
  const auto boot = take_later_word(in);
  if (!boot || !only_filler_left(in) || !legal(info)) return Status::kInval;
  info.boot = *boot;
  return info;
}

Status encode_token(const TokenInfo& info, std::span<std::byte> out, uint16_t verno) {
  if (info.keys.size() > kMaxListeners) return Status::kNoMem;
  if (!frame_fits(out, kTokenSize, verno) || !legal(info)) return Status::kInval;
  Writer w(out);
  open_frame(w, Kind::kToken, kTokenSize, verno);
  w.put(info.uid);
  w.put(info.id);
  w.put(info.secret);
  w.put(info.rights);
  const bool part = info.part.size != 0;
  w.put(static_cast<uint8_t>((info.any_node ? kTokenAnyNode : 0) | (part ? kTokenPart : 0)));
  put(w, info.node);
  put(w, info.home);
  w.put(static_cast<uint8_t>(info.keys.size()));
  for (const TokenKey& k : info.keys) {
    put(w, k.provider);
    w.put(k.key.key);
    w.put(k.key.base);
  }
  if (part) {
    w.put(info.part.offset);
    w.put(info.part.size);
  }
  return close_frame(w, out);
}

Result<TokenInfo> decode_token(const void* token) {
  Copy<kTokenSize> copy;
  if (!copy.take(token, Kind::kToken)) return Status::kInval;
  Reader in = copy.fields();
  TokenInfo info;
  info.uid = in.get<uint64_t>();
  info.id = in.get<uint64_t>();
  info.secret = in.get<uint64_t>();
  info.rights = in.get<uint32_t>();
  const auto flags = in.get<uint8_t>();
  if ((flags & ~(kTokenAnyNode | kTokenPart)) != 0) return Status::kInval;
  info.any_node = (flags & kTokenAnyNode) != 0;
  info.node = get_id<NodeId>(in);
  info.home = get_id<ContextId>(in);
  const size_t keys = in.get<uint8_t>();
  if (keys > kMaxListeners) return Status::kInval;
  for (size_t i = 0; i < keys && in.ok(); ++i) {
    TokenKey k;
    k.provider = get_string(in);
    k.key.key = in.get<uint64_t>();
    k.key.base = in.get<uint64_t>();
    info.keys.push_back(std::move(k));
  }
  if ((flags & kTokenPart) != 0) {
    info.part.offset = in.get<uint64_t>();
    info.part.size = in.get<uint64_t>();
    if (info.part.size == 0) return Status::kInval;
  }
  if (!only_filler_left(in) || !legal(info)) return Status::kInval;
  return info;
}

Status encode_naddr(const NaddrInfo& info, std::span<std::byte> out, uint16_t verno) {
  if (!frame_fits(out, kNaddrSize, verno) || !legal(info)) return Status::kInval;
  Writer w(out);
  open_frame(w, Kind::kNaddr, kNaddrSize, verno);
  put(w, info.node);
  put(w, info.context);
  return close_frame(w, out);
}

Result<NaddrInfo> decode_naddr(const void* naddr) {
  Copy<kNaddrSize> copy;
  if (!copy.take(naddr, Kind::kNaddr)) return Status::kInval;
  Reader in = copy.fields();
  NaddrInfo info;
  info.node = get_id<NodeId>(in);
  info.context = get_id<ContextId>(in);
  if (!only_filler_left(in) || !legal(info)) return Status::kInval;
  return info;
}

}  // namespace cmi::access
