// An importer opens a segment: it becomes a sharer, without a token yet.
#include "core/memory/home/access_check.hpp"
#include "core/memory/home/quiescing.hpp"
#include "core/memory/home/requests/handlers.hpp"
#include "core/memory/home/sharing.hpp"

namespace cmi::memory {

void on_open(HomeCore& home, const fabric::ClientInfo& client, uint64_t number,
             const OpenRequest& m, bool write_through) {
  std::byte buf[48];
  Writer out(buf);
  WireStatus status = WireStatus::kOk;
  Finished done;
  {
    Guard g(home.mu);
    Segment* s = home.segments.find_uid(m.uid);
    Sharer* h = s != nullptr ? s->sharers.find(client.id, m.instance) : nullptr;
    if (s == nullptr || !s->exported.any || s->removed) {
      status = why_gone(home, s);
    } else if (h == nullptr ? !may_import(*s, write_through) : h->write_through != write_through) {
      status = WireStatus::kImportedOtherwise;
    } else if (h == nullptr &&
               (h = add_sharer(home, *s, client, m.instance, write_through)) == nullptr) {
      status = WireStatus::kNoMem;
    } else {
      if (s->quiesce.on && h->quiesce.notified != s->quiesce.round)
        notify_quiesce(home, *s, *h, &done);
      OpenReply answer;
      answer.size = s->size;
      answer.flags = s->flags;
      answer.lifeline_port = home.parts.watch.port();
      // A lifeline is for a process that has an import here.
      answer.lifeline_secret = home.parts.watch.expect(client.id);
      encode(answer, out);
      if (access::extensible(s->flags)) encode(BreakPart{s->brk}, out);
    }
  }
  run(done);
  reply(home.parts.server, client.id, number, status, out.done());
}

}  // namespace cmi::memory
