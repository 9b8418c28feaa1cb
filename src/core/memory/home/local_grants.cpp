// See local_grants.hpp.
#include "core/memory/home/local_grants.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/home/segment_lock.hpp"

namespace cmi::memory {

namespace {
// Another description of the same file: without `writable` nothing can be stored through it. What
// an importer does to its description (a read that never ends holds its position's lock) is no
// matter for the home's.
Fd open_again(const Fd& file, bool writable) {
  char path[48];
  std::snprintf(path, sizeof path, "/proc/thread-self/fd/%d", file.get());
  return Fd(::open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC));
}

// Null: nobody in this segment was given the ticket.
Sharer* holder_of(Segment& s, const LocalImporter::Ticket& ticket) {
  const auto it = std::find_if(s.sharers.begin(), s.sharers.end(), [&](const Sharer& h) {
    return h.local != nullptr && h.local->may_take(ticket);
  });
  return it != s.sharers.end() ? &*it : nullptr;
}

// The token may have been revoked since the offer: then nothing is passed.
void grant(HomeCore& home, Segment& s, Sharer& h, const LocalAsk& m, Fd watch,
           node::LocalChannel& channel) CMI_EXCLUDES(home.mu) {
  if (s.removed || h.token == 0 || h.granted.pages.count != s.pages()) {
    (void)channel.send(Encoded(LocalGranted{}), {});
    return;
  }
  const bool writable = (h.granted.rights & fabric::kWrite) != 0;
  auto control = LocalControl::make(s.pages());
  const Fd file = open_again(s.file, writable);
  if (!control || !file || fault_point_fails("local_grant_lacks")) {
    (void)channel.send(Encoded(LocalGranted{0, LocalGranted::kLacking}), {});
    return;
  }
  std::vector<uint64_t> views;
  for (Reader in(m.body); in.left() != 0;) views.push_back(in.get<uint64_t>());
  const std::array<int, 2> fds{file.get(), control->file()};
  // Known before the importer can have mapped anything.
  h.local->take(control.take(), Userfault::of(std::move(watch)), std::move(views), s.size);
  {
    Guard g(home.mu);
    tell_if_alone(home, s);
  }
  (void)channel.send(Encoded(LocalGranted{static_cast<uint8_t>(writable), LocalGranted::kNothing}),
                     fds);
}

// The message proves its sender by the secret of a session that this home serves.
void take_rings(HomeCore& home, node::LocalChannel::Message& message) {
  RingAsk m;
  if (!home.parts.local || !decode(Bytes(message.bytes), &m)) return;
  auto& fds = message.fds;
  (void)home.parts.server.take_rings({{m.client_hi, m.client_lo}, m.secret},
                                     {std::move(fds[0]), std::move(fds[1])},
                                     {std::move(fds[2]), std::move(fds[3])});
}
}  // namespace

void on_local_channel(HomeCore& home, node::LocalChannel channel) {
  const SignalsBlocked quiet;
  auto message = channel.of_this_user() ? channel.receive(Deadline{}) : Status::kPerm;
  if (message && message->fds.size() == RingAsk::kFds) return take_rings(home, *message);
  LocalAsk m;
  if (!message || message->fds.size() > 1 || !decode(Bytes(message->bytes), &m)) {
    return trace(kFacTok, kWarn, "a process of this machine asks for pages, and not as it should");
  }
  const LocalImporter::Ticket ticket{m.ticket_hi, m.ticket_lo};
  for (SegmentPtr s = home.segments.first(); s != nullptr; s = home.segments.after(s->id)) {
    if (!s->owned) continue;
    const SegmentLock locked(home, s, SegmentLock::kMemory);
    Sharer* const h = locked ? holder_of(*locked, ticket) : nullptr;
    if (h == nullptr) continue;
    Fd watch = message->fds.empty() ? Fd() : std::move(message->fds[0]);
    return grant(home, *locked, *h, m, std::move(watch), channel);
  }
  (void)channel.send(Encoded(LocalGranted{0, LocalGranted::kStranger}), {});
}

// Write-through imports cache nothing either.
void tell_if_alone(HomeCore& /*home*/, Segment& s) {
  const auto caches = [](const Sharer& h) {
    return h.loads() && !h.write_through && (h.local == nullptr || !h.local->maps());
  };
  const bool alone = std::none_of(s.sharers.begin(), s.sharers.end(), caches) ||
                     mutated("mutate_mapped_alone_for_ever");
  for (Sharer& h : s.sharers) {
    if (h.local != nullptr) h.local->set_alone(alone);
  }
}

void cut_off_local(Segment& s, const ContextId& client, uint32_t instance) {
  for (auto& h : s.sharers) {
    if (h.client != client || (instance != 0 && h.instance != instance)) continue;
    if (h.local != nullptr) h.local->cut_off();
  }
}

Fd take_passed_file(const HomeCore& home, Segment& s) {
  if (!home.parts.local || !s.tokens.ever() || access::large_pages(s.flags)) return {};
  return std::move(s.file);
}

void empty_passed_file(const HomeCore& home, int32_t id, Fd file, uint32_t own) {
  if (!file || mutated("mutate_removed_memory_stays_mapped")) return;
  const auto info = home.parts.node.segments().find(id);
  if (info ? info->attachments > own : info.status() != Status::kInval) return;
  if (::ftruncate(file.get(), 0) != 0) alert(kFacSeg, "segment {}: its file cannot be emptied", id);
}

}  // namespace cmi::memory
