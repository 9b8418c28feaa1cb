#include "core/access/text_form.hpp"

#include <array>
#include <optional>

namespace cmi::access {

namespace {

static_assert(kRsegSize % 3 == 0 && kRsegSize >= kTokenSize && kRsegSize >= kNaddrSize);

constexpr std::string_view kVersion = "cmi1-";
constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
static_assert(kDigits.size() == 64);

struct KindName {
  ObjectKind kind;
  std::string_view name;
};
constexpr std::array kKinds = {KindName{ObjectKind::kRseg, "rseg-"},
                               KindName{ObjectKind::kToken, "token-"},
                               KindName{ObjectKind::kNaddr, "naddr-"}};

void append_base64(Bytes bytes, std::string* out) {
  uint32_t held = 0;
  unsigned bits = 0;
  for (const std::byte b : bytes) {
    held = held << 8 | std::to_integer<uint32_t>(b);
    for (bits += 8; bits >= 6; bits -= 6) *out += kDigits[held >> (bits - 6) & 63];
  }
  if (bits > 0) *out += kDigits[held << (6 - bits) & 63];
}

// One spelling of each content: what is left of the last character must be zero.
std::optional<std::vector<std::byte>> from_base64(std::string_view text) {
  std::vector<std::byte> out;
  out.reserve(text.size() * 3 / 4);
  uint32_t held = 0;
  unsigned bits = 0;
  for (const char c : text) {
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    held = held << 6 | static_cast<uint32_t>(digit);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    out.push_back(static_cast<std::byte>(held >> bits & 255));
  }
  if (bits >= 6 || (held & ((1u << bits) - 1)) != 0) return std::nullopt;
  return out;
}

}  // namespace

Result<std::string> to_text(const void* object) {
  const auto copy = copy_object(object);
  if (!copy) return copy.status();
  std::string text(kVersion);
  for (const KindName& k : kKinds) {
    if (k.kind == copy->kind) text += k.name;
  }
  append_base64(Bytes(copy->bytes).first(copy->content), &text);
  return text;
}

bool is_of_other_version(std::string_view text) {
  const std::string_view name = kVersion.substr(0, kVersion.find('1'));
  if (!text.starts_with(name)) return false;
  const size_t end = text.find_first_not_of("0123456789", name.size());
  return end != std::string_view::npos && end > name.size() && text[end] == '-' &&
         !text.starts_with(kVersion);
}

Result<ObjectBytes> from_text(std::string_view text) {
  if (text.size() > kMaxText || !text.starts_with(kVersion)) return Status::kInval;
  text.remove_prefix(kVersion.size());
  for (const KindName& k : kKinds) {
    if (!text.starts_with(k.name)) continue;
    const auto content = from_base64(text.substr(k.name.size()));
    return content ? complete_object(k.kind, *content) : Result<ObjectBytes>(Status::kInval);
  }
  return Status::kInval;
}

}  // namespace cmi::access
