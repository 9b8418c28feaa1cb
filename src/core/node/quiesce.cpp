// See quiesce.hpp.
#include "core/node/quiesce.hpp"

#include <poll.h>

#include <algorithm>

namespace cmi::node {

Status ask_quiesce(Node& node, int32_t segment, bool on, Deadline deadline) {
  const auto info = node.segments().find(segment);
  if (!info) return info.status();
  if (info->removed || info->kind != SegmentKind::kHome) return Status::kInval;
  const uint64_t question = random_u64();
  std::byte buf[64];
  Writer out(buf);
  out.put(kBusQuiesce);
  out.put(segment);
  out.put(question);
  out.put<uint64_t>(on ? 1 : 0);
  out.put<uint64_t>(0);
  bool sent = false;
  while (!deadline.passed()) {
    if (!sent) {
      const Status s = node.bus().send(info->owner, out.done());
      if (s == Status::kInval) return s;
      sent = ok(s);  // else its queue is full: again
    }
    for (auto d = node.bus().receive(); d; d = node.bus().receive()) {
      Reader in(d->bytes);
      in.get<uint8_t>();
      in.get<int32_t>();
      const auto answered = in.get<uint64_t>();
      const auto status = in.get<uint64_t>();
      in.get<uint64_t>();
      if (!in.done() || d->from != info->owner || answered != question) continue;
      return status <= static_cast<uint64_t>(Status::kReconfig) ? static_cast<Status>(status)
                                                                : Status::kInval;
    }
    pollfd p{node.bus().fd(), POLLIN, 0};
    (void)::poll(&p, 1, sent ? static_cast<int>(std::min(deadline.left(), kSecond) / kMilli) : 1);
  }
  return Status::kReconfig;
}

}  // namespace cmi::node
