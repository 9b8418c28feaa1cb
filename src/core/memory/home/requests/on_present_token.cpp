// An importer presents a token for an import: it gets a session key of its own.
#include "core/base/fault_point.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/home/access_check.hpp"
#include "core/memory/home/local_grants.hpp"
#include "core/memory/home/requests/handlers.hpp"
#include "core/memory/home/segment_lock.hpp"
#include "core/memory/home/session_keys.hpp"
#include "core/memory/home/sharing.hpp"

namespace cmi::memory {

namespace {
constexpr size_t kMaxGrant = 68 + fabric::kMaxRawKey;  // bytes, no more than reply() takes

WireStatus find_token(HomeCore& home, const fabric::ClientInfo& client,
                      const PresentTokenRequest& m, Segment* s, Token** token) {
  if (s == nullptr || !s->exported.any || s->removed) return why_gone(home, s);
  Token* const t = s->tokens.in_force(m.token, m.secret);
  if (t == nullptr) return WireStatus::kToken;
  const NodeId node{m.node_hi, m.node_lo};
  if (!t->info.any_node && (t->info.node != node || node != client.node)) return WireStatus::kNode;
  *token = t;
  return WireStatus::kOk;
}

PageRange pages_of(const Segment& s, const access::TokenPart& part) {
  return {static_cast<uint32_t>(part.offset / kPageSize),
          static_cast<uint32_t>((part.size != 0 ? part.size : s.size) / kPageSize)};
}

// From here on it is notified of every invalidation round; its key goes out after that. The views
// are armed in the same step, under their lock: one that is attached later finds it shared.
void enter(HomeCore& home, Segment& s, Sharer& h, const access::TokenInfo& token)
    CMI_EXCLUDES(home.mu) {
  bool begins = false;
  std::vector<PageRange> held;
  {
    Guard g(home.mu);
    const bool was_shared = s.shared();
    // Before it presents another token it has dropped what it had mapped under the one before.
    if (h.token != token.id) h.local.reset();
    h.ever.presented = true;
    h.token = token.id;
    h.granted.rights = token.rights;
    h.granted.pages = pages_of(s, token.part);
    h.ever.could_write = h.ever.could_write || (h.granted.rights & fabric::kWrite) != 0;
    tell_if_alone(home, s);
    begins = !was_shared && s.shared();
    if (begins) {
      home.shared_segments.add();
      held = s.directory.shared(s.pages());
    }
  }
  if (begins && !mutated("mutate_late_arming")) home.tracker.arm(s, held);
}

// A sharer of this segment, as it was or new.
WireStatus sharer_for(HomeCore& home, Segment& s, const fabric::ClientInfo& client,
                      uint32_t instance, bool write_through, Sharer** sharer,
                      bool* break_unacknowledged) CMI_EXCLUDES(home.mu) {
  Guard g(home.mu);
  Sharer* h = s.sharers.find(client.id, instance);
  // One that has been forgotten comes back as what it was.
  if (h == nullptr ? !may_import(s, write_through) : h->write_through != write_through) {
    return WireStatus::kToken;
  }
  if (h == nullptr) h = add_sharer(home, s, client, instance, write_through);
  if (h == nullptr) return WireStatus::kNoMem;
  h->session.region.reset();
  *break_unacknowledged = !write_through && low_of(s, *h) < s.brk.bytes;
  *sharer = h;
  return WireStatus::kOk;
}

void encode_grant(const Segment& s, const Sharer& h, const access::TokenInfo& token, Writer& out) {
  const fabric::RemoteKey key =
      h.session.region != nullptr ? h.session.region->key() : fabric::RemoteKey{};
  const PageRange pages = pages_of(s, token.part);
  PresentTokenReply answer;
  answer.key = key.key;
  answer.base = key.base - token.part.offset;  // of the segment's first byte, reachable or not
  answer.rights = token.rights;
  answer.first = pages.first;
  answer.count = pages.count;
  answer.body = h.session.region != nullptr ? h.session.region->raw_key() : Bytes();
  answer.raw_key_size = static_cast<uint16_t>(answer.body.size());
  encode(answer, out);
  if (access::extensible(s.flags)) encode(BreakPart{s.brk}, out);
}

// What is in flux is known to the importer before it gets its key.
void grant_when_listed(HomeCore& home, Segment& s, Sharer& h, uint64_t number, Bytes granted,
                       Finished* done) CMI_EXCLUDES(home.mu) {
  Guard g(home.mu);
  const RoundPtr listed = begin_round();
  listed->finished = [server = &home.parts.server, id = h.client, number,
                      copy = std::vector(granted.begin(), granted.end())] {
    reply(*server, id, number, WireStatus::kOk, copy);
  };
  if (!mutated("mutate_new_importer_not_notified")) {
    home.rounds.notify_ranges(listed, s, h, NotificationType::kInFlux, s.flux.pages.all());
  }
  home.rounds.settle(listed, done);
}

// *granted: the answer goes out with `done` or later. Else it is the status, with *out if kOk.
// Registering the memory may take long, which the segment's locks alone are held over.
WireStatus grant(HomeCore& home, const fabric::ClientInfo& client, uint64_t number,
                 const PresentTokenRequest& m, bool write_through, Segment* s, Writer& out,
                 Finished* done, bool* granted) CMI_EXCLUDES(home.mu) {
  Token* t = nullptr;
  WireStatus status = find_token(home, client, m, s, &t);
  if (status != WireStatus::kOk) return status;
  Sharer* h = nullptr;
  bool break_unacknowledged = false;
  status = sharer_for(home, *s, client, m.instance, write_through, &h, &break_unacknowledged);
  if (status != WireStatus::kOk) return status;
  if (break_unacknowledged) {
    enter(home, *s, *h, t->info);  // its token is good, and only the key has to wait
    return WireStatus::kBreakUnacknowledged;
  }
  auto region = register_for(home, *s, t->info, random_u64(), &client.id);
  if (!region) return WireStatus::kNoMem;
  note_key(home, *s, client.id);
  {
    Guard g(home.mu);
    h->session.region = region.take();
    h->session.end = s->brk.bytes;
    encode_grant(*s, *h, t->info, out);
  }
  enter(home, *s, *h, t->info);
  if (s->flux.pages.empty()) return WireStatus::kOk;
  grant_when_listed(home, *s, *h, number, out.done(), done);
  *granted = true;
  return WireStatus::kOk;
}
}  // namespace

void on_present_token(HomeCore& home, const ClientInfo& client, uint64_t number,
                      const PresentTokenRequest& m, bool write_through) {
  std::byte buf[kMaxGrant];
  Writer out(buf);
  WireStatus status = WireStatus::kOk;
  Finished done;
  bool granted = false;
  {
    const SegmentLock s(home, Uid{m.uid}, SegmentLock::kBoth);
    status = grant(home, client, number, m, write_through, s.get(), out, &done, &granted);
  }
  fault_point("present_before_reply");
  if (!granted) return reply(home.parts.server, client.id, number, status, out.done());
  run(done);
}

}  // namespace cmi::memory
