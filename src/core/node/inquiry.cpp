// See inquiry.hpp. The file of a question: empty, or where a map is asked for, behind the head u64
// kMapAsked, the home's context, i32 segment, u8 whether the home is asked. That of an answer: u64
// kAnswered, u64 bytes of the report, the report. The first word is written last.
#include "core/node/inquiry.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "core/node/bus.hpp"

namespace cmi::node {

namespace {
constexpr uint64_t kAnswered = 0x3179656b73616d63ull;
constexpr uint64_t kMapAsked = 0x3170616d73616d63ull;
constexpr size_t kMapQuestion = 8 + 16 + 4 + 1;
constexpr uint64_t kMaxReport = uint64_t{64} << 20;
constexpr off_t kHead = 16;
}  // namespace

Result<Inquiry> Inquiry::send(const Folder& folder, uint32_t slot, const MapQuestion* map) {
  Fd file(memfd_create("cmi-inquiry", MFD_CLOEXEC));
  if (!file) return Status::kNoMem;
  if (map != nullptr) {
    std::byte bytes[kMapQuestion];
    Writer out(bytes);
    out.put(kMapAsked);
    out.put(map->home.hi);
    out.put(map->home.lo);
    out.put(map->segment);
    out.put<uint8_t>(map->at_home ? 1 : 0);
    if (!write_all(file.get(), bytes, sizeof bytes, kHead)) return Status::kNoMem;
  }
  if (Status s = send_question(folder, slot, file.get()); !ok(s)) return s;
  return Inquiry(std::move(file));
}

Result<ContextReport> Inquiry::look() const {
  uint64_t head[2] = {};
  if (pread(file_.get(), head, sizeof head, 0) != sizeof head || head[0] != kAnswered) {
    return Status::kReconfig;
  }
  if (head[1] > kMaxReport) return Status::kInval;
  std::vector<std::byte> bytes(head[1]);
  if (pread(file_.get(), bytes.data(), bytes.size(), kHead) != static_cast<ssize_t>(bytes.size())) {
    return Status::kInval;
  }
  return decode_report(bytes);
}

std::optional<MapQuestion> map_asked(int fd) {
  std::byte bytes[kMapQuestion];
  if (fcntl(fd, F_GET_SEALS) < 0 || pread(fd, bytes, sizeof bytes, kHead) != sizeof bytes) {
    return std::nullopt;
  }
  Reader in{Bytes(bytes)};
  if (in.get<uint64_t>() != kMapAsked) return std::nullopt;
  MapQuestion q;
  q.home.hi = in.get<uint64_t>();
  q.home.lo = in.get<uint64_t>();
  q.segment = in.get<int32_t>();
  q.at_home = in.get<uint8_t>() != 0;
  return q;
}

void answer(int fd, const ContextReport& report) {
  if (fcntl(fd, F_GET_SEALS) < 0) return;
  const std::vector<std::byte> bytes = encode_report(report);
  const uint64_t size = bytes.size(), answered = kAnswered;
  if (size <= kMaxReport && write_all(fd, bytes.data(), bytes.size(), kHead) &&
      write_all(fd, &size, sizeof size, sizeof answered)) {
    (void)write_all(fd, &answered, sizeof answered, 0);
  }
}

}  // namespace cmi::node
