// What importers ask of a home. Every field is checked; nothing here waits.
#include <algorithm>
#include <atomic>

#include "core/base/careful_copy.hpp"
#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/home/home.hpp"
#include "core/memory/home/home_mutations.hpp"
#include "core/memory/page/diff.hpp"
#include "core/memory/vm/guarded_copy.hpp"

namespace cmi::memory {

namespace {
// Takes a diff from `in` and applies it. kBroken: to nothing, for the page is lost.
WireStatus store_diff(Reader& in, std::byte* page) {
  const Reader start = in;
  bool good = false;
  const auto apply = [&] { good = apply_diff(in, page); };
  if (unless_broken(page, kPageSize, apply)) {
    return good ? WireStatus::kOk : WireStatus::kMalformed;
  }
  in = start;
  std::byte nowhere[kPageSize];
  return apply_diff(in, nowhere) ? WireStatus::kBroken : WireStatus::kMalformed;
}

// Of pages that were written one-sided. The provider does not know when it has failed.
WireStatus arrived(const std::byte* pages, uint32_t n) {
  if (g_incomplete_writes.load(std::memory_order_seq_cst) == 0) return WireStatus::kOk;
  for (uint32_t i = 0; i < n; ++i) {
    if (!page_intact(pages + size_t{i} * kPageSize)) return WireStatus::kBroken;
  }
  return WireStatus::kOk;
}
}  // namespace

void Home::reply(fabric::Server& server, const ContextId& client, uint64_t number, WireStatus s,
                 Bytes more) {
  std::byte buf[64 + fabric::kMaxRawKey];
  Writer out(buf);
  out.put(static_cast<uint8_t>(s));
  out.bytes(more);
  server.reply(client, number, out.done());
}

// Whether this import may do this. kOk sets both.
WireStatus Home::check(const ContextId& client, uint64_t uid, uint32_t instance, uint32_t right,
                       Segment** segment, Sharer** sharer) {
  Segment* s = find_uid(uid);
  if (s == nullptr || !s->exported || s->removed) return why_gone(s);
  Sharer* h = find_sharer(*s, client, instance);
  if (h == nullptr || !h->presented) return WireStatus::kNotPresented;
  if (h->token == 0) return WireStatus::kToken;
  if ((h->rights & right) != right) return WireStatus::kRights;
  *segment = s;
  *sharer = h;
  return WireStatus::kOk;
}

void Home::on_request(const fabric::ClientInfo& client, uint64_t number, uint16_t type, Reader in) {
  SignalsBlocked quiet;
  switch (static_cast<RequestType>(type)) {
    case RequestType::kOpen:
    case RequestType::kOpenWriteThrough:
      return on_open(client, number, in,
                     static_cast<RequestType>(type) == RequestType::kOpenWriteThrough);
    case RequestType::kLoad:
      return on_load(client, number, in);
    case RequestType::kStore:
      return on_store(client, number, in);
    case RequestType::kSwap:
      return on_swap(client, number, in);
    case RequestType::kPresentToken:
    case RequestType::kPresentTokenWriteThrough:
      return on_present_token(
          client, number, in,
          static_cast<RequestType>(type) == RequestType::kPresentTokenWriteThrough);
    case RequestType::kPublish:
    case RequestType::kAnnounce:
      return on_publish(client, number, in, static_cast<RequestType>(type));
    case RequestType::kAcquire:
      return on_acquire(client, number, in);
    case RequestType::kDirtyIntent:
    case RequestType::kDropIntent:
      return on_dirty_intent(client, number, in,
                             static_cast<RequestType>(type) == RequestType::kDirtyIntent);
    case RequestType::kFetchWithIntent:
      return on_fetch_with_intent(client, number, in);
    case RequestType::kSubscribe:
      return on_subscribe(client, number, in);
    case RequestType::kAskFlux:
      return on_ask_flux(client, number, in);
    case RequestType::kRepair:
      return on_repair(client, number, in);
    case RequestType::kCas:
      return on_cas(client, number, in);
    case RequestType::kLeave:
      return on_leave(client, number, in);
    case RequestType::kGoodbye:
      return on_goodbye(client, number, in);
    case RequestType::kReturned:
      return on_returned(client, number, in);
    case RequestType::kAlive:
      return reply(parts_.server, client.id, number, WireStatus::kOk);
    case RequestType::kCause:
      return on_cause(client, number, in);
    default:
      return reply(parts_.server, client.id, number, WireStatus::kMalformed);
  }
}

Home::Sharer* Home::add_sharer(Segment& s, const fabric::ClientInfo& client, uint32_t instance,
                               bool write_through) {
  if (s.sharers.size() >= kMaxSharers) return nullptr;
  s.sharers.push_back({});
  Sharer& h = s.sharers.back();
  h.client = client.id;
  h.node = client.node;
  h.instance = instance;
  h.write_through = write_through;
  h.brk_peak = s.brk.bytes;
  parts_.watch.look();
  return &h;
}

void Home::on_open(const fabric::ClientInfo& client, uint64_t number, Reader in,
                   bool write_through) {
  const auto uid = in.get<uint64_t>();
  const auto instance = in.get<uint32_t>();
  std::byte buf[48];
  Writer out(buf);
  WireStatus status = in.done() && instance != 0 ? WireStatus::kOk : WireStatus::kMalformed;
  Finished done;
  if (status == WireStatus::kOk) {
    Guard g(mu_);
    Segment* s = find_uid(uid);
    Sharer* h = s != nullptr ? find_sharer(*s, client.id, instance) : nullptr;
    if (s == nullptr || !s->exported || s->removed) {
      status = why_gone(s);
    } else if (h == nullptr ? !may_import(*s, write_through) : h->write_through != write_through) {
      status = WireStatus::kImportedOtherwise;
    } else if (h == nullptr && (h = add_sharer(*s, client, instance, write_through)) == nullptr) {
      status = WireStatus::kNoMem;
    } else {
      if (s->quiesce.on && h->quiesce_notified != s->quiesce.round) notify_quiesce(*s, *h, &done);
      out.put(s->size);
      out.put(s->flags);
      out.put(s->attrib);
      out.put(parts_.watch.port());
      // A lifeline is for who has an import here.
      out.put(parts_.watch.expect(client.id));
      if (access::extensible(s->flags)) put_break(out, *s);
    }
  }
  run(done);
  reply(parts_.server, client.id, number, status, out.done());
}

void Home::on_new_session(const fabric::ClientInfo& client) {
  // Its registrations are what its old connection may still be using.
  if (mutated("mutate_rebuild_unfenced")) return;
  Guard g(mu_);
  for (auto& [id, s] : segments_) {
    for (auto& h : s.sharers) {
      if (h.client == client.id) h.session.reset();
    }
  }
  // What it has given up counts as settled from now on, and nobody has said that it was followed.
  for (auto& p : received_) {
    if (p->by == client.id) p->direct_acks = InvalidationRound::kNotSettled;
  }
}

void Home::on_present_token(const fabric::ClientInfo& client, uint64_t number, Reader in,
                            bool write_through) {
  const auto uid = in.get<uint64_t>();
  const auto instance = in.get<uint32_t>();
  const auto token_id = in.get<uint64_t>();
  const auto secret = in.get<uint64_t>();
  NodeId node{in.get<uint64_t>(), 0};
  node.lo = in.get<uint64_t>();
  std::byte buf[60 + fabric::kMaxRawKey];  // no more than reply() takes
  Writer out(buf);
  WireStatus status = WireStatus::kOk;
  std::shared_ptr<InvalidationRound>
      listed;  // what is in flux is known there before it gets its key
  Finished done;
  if (!in.done()) {
    status = WireStatus::kMalformed;
  } else {
    Guard g(mu_);
    Segment* s = find_uid(uid);
    if (s == nullptr || !s->exported || s->removed) {
      status = why_gone(s);
    } else if (auto t = s->tokens.find(token_id);
               t == s->tokens.end() || t->second.revoked || t->second.info.secret != secret) {
      status = WireStatus::kToken;
    } else if (!t->second.info.any_node && (t->second.info.node != node || node != client.node)) {
      status = WireStatus::kNode;
    } else {
      const bool was_shared = s->shared();
      Sharer* h = find_sharer(*s, client.id, instance);
      // One that has been forgotten comes back as what it was.
      if (h == nullptr ? !may_import(*s, write_through) : h->write_through != write_through) {
        return reply(parts_.server, client.id, number, WireStatus::kToken);
      }
      if (h == nullptr) h = add_sharer(*s, client, instance, write_through);
      if (h == nullptr) {
        return reply(parts_.server, client.id, number, WireStatus::kNoMem);
      }
      const access::TokenPart& part = t->second.info.part;
      // From here on it is told of every invalidation round; its key goes out after that.
      const auto enter = [&]() CMI_REQUIRES(mu_) {
        h->presented = true;
        h->token = token_id;
        h->rights = t->second.info.rights;
        h->pages = {static_cast<uint32_t>(part.offset / kPageSize),
                    static_cast<uint32_t>((part.size != 0 ? part.size : s->size) / kPageSize)};
        h->could_write = h->could_write || (h->rights & fabric::kWrite) != 0;
        if (!was_shared && s->shared()) {
          shared_segments_.fetch_add(1);
          if (!mutated("mutate_late_arming")) arm(*s);
        }
      };
      h->session.reset();
      if (!write_through && low_of(*s, *h) < s->brk.bytes) {
        enter();  // its token is good, and only the key has to wait
        fault_point("present_before_reply");
        return reply(parts_.server, client.id, number, WireStatus::kBreakUnacknowledged);
      }
      auto region = register_for(*s, t->second.info, random_u64(), &client.id);
      if (!region) {
        status = WireStatus::kNoMem;
      } else {
        h->session = region.take();
        note_key(*s, client.id);
        h->session_end = s->brk.bytes;
        enter();
        const fabric::RemoteKey key =
            h->session != nullptr ? h->session->key() : fabric::RemoteKey{};
        out.put(key.key);
        out.put(key.base - part.offset);  // of the segment's first byte, reachable or not
        out.put(h->rights);
        out.blob(h->session != nullptr ? h->session->raw_key() : Bytes());
        if (access::extensible(s->flags)) put_break(out, *s);
        if (!s->in_flux.empty()) {
          listed = std::make_shared<InvalidationRound>();
          listed->waiting = 1;
          listed->done.begin();
          const Bytes granted = out.done();
          listed->finished = [server = &parts_.server, id = client.id, number,
                              copy = std::vector(granted.begin(), granted.end())] {
            reply(*server, id, number, WireStatus::kOk, copy);
          };
          if (!mutated("mutate_new_importer_not_told")) {
            notify_ranges(listed, *s, *h, NotificationType::kInFlux, s->in_flux.all());
          }
          settle(listed, &done);
        }
      }
    }
  }
  fault_point("present_before_reply");
  if (listed == nullptr) return reply(parts_.server, client.id, number, status, out.done());
  run(done);
}

void Home::on_publish(const fabric::ClientInfo& client, uint64_t number, Reader in,
                      RequestType type) {
  const bool announce = type == RequestType::kAnnounce;  // the data went by itself
  if (!announce && mutated("mutate_publish_before_data"))
    return HomeMutations::publish_before_data(*this, client, number, in);
  const auto uid = in.get<uint64_t>();
  const auto instance = in.get<uint32_t>();
  const auto n = in.get<uint32_t>();
  WireStatus status = WireStatus::kOk;
  // Given back when the publisher, who waits, has its answer.
  std::vector<PageRange> ranges;
  std::vector<DirtyIntent> intents;
  std::vector<StoredPage> of_subscribed;
  Asked asked{number, 0};
  {
    Guard g(mu_);
    Segment* s = nullptr;
    Sharer* h = nullptr;
    if (!in.ok()) {
      status = WireStatus::kMalformed;
    } else if (announce) {
      // What went by itself was let through by its key; that the token has gone since must not keep
      // others from hearing of it. All this can do is to make them drop pages.
      s = find_uid(uid);
      h = s != nullptr ? find_sharer(*s, client.id, instance) : nullptr;
      status = h != nullptr ? WireStatus::kOk : why_gone(s);
      if (status != WireStatus::kOk) s = nullptr;
    } else {
      status = check(client.id, uid, instance, fabric::kWrite, &s, &h);
    }
    bool broken = false;
    std::byte past_break[kPageSize];
    for (uint32_t i = 0; i < n && status == WireStatus::kOk; ++i) {
      fault_point("publish_before_page");
      const auto page = in.get<uint32_t>();
      uint32_t pages = announce ? in.get<uint32_t>() : 1;
      const uint8_t epoch = announce ? 0 : in.get<uint8_t>();
      const uint64_t all = s->size / kPageSize;
      if (!in.ok() || page >= all || pages == 0 || pages > all - page) {
        status = WireStatus::kRange;
        break;
      }
      if (!announce && !h->covers(page, 1)) {
        status = WireStatus::kRights;
        break;
      }
      // What was stored behind the break, before its importer heard of it, is gone with the memory.
      const uint64_t in_use = low_of(*s, *h) / kPageSize;
      const bool gone = page >= in_use;
      std::byte* const at = gone ? past_break : s->service.data() + size_t{page} * kPageSize;
      if (!gone) pages = static_cast<uint32_t>(std::min<uint64_t>(pages, in_use - page));
      WireStatus stored = WireStatus::kOk;
      if (!announce) {
        if (!gone && subscribed(*s, page)) {
          (void)words_of(in, words_in(page, &of_subscribed));
        }
        stored = store_diff(in, at);
      } else if (!gone) {
        stored = arrived(at, pages);
      }
      if (stored == WireStatus::kMalformed) {
        status = stored;
        break;
      }
      if (gone) continue;
      broken = broken || stored == WireStatus::kBroken;
      if (epoch != 0) intents.push_back({page, epoch});
      if (!ranges.empty() && ranges.back().first + ranges.back().count == page) {
        ranges.back().count += pages;
      } else {
        ranges.push_back({page, pages});
      }
    }
    if (status == WireStatus::kOk && !announce) asked.secret = in.get<uint64_t>();
    if (status == WireStatus::kOk && !in.done()) status = WireStatus::kMalformed;
    if (status == WireStatus::kOk && broken) status = WireStatus::kBroken;
    // Applied stores are published even when a later page of the message was malformed.
    if (s != nullptr && !ranges.empty() && !mutated("mutate_diffs_unpublished")) {
      if (mutated("mutate_marks_cleared_early")) h->intents.clear();
      ranges = each_once(std::move(ranges));
      if (status != WireStatus::kOk) asked.secret = 0;  // that it has to hear from us
      auto p = publish(*s, client.id, instance, ranges, of_subscribed, asked);
      if (p != nullptr && !mutated("mutate_acks_not_awaited")) {
        p->uid = uid;
        p->instance = instance;
        p->intents = std::move(intents);
        const auto shared = p->direct_acks != 0 ? fabric::Shared::kYes : fabric::Shared::kNo;
        p->finished = [this, id = client.id, number, status, shared] {
          const std::byte answer[]{static_cast<std::byte>(status)};
          parts_.server.reply(id, number, answer, shared);
        };
        return;
      }
      clear_intents(*s, *h, intents);
    }
  }
  reply(parts_.server, client.id, number, status);
}

void Home::on_acquire(const fabric::ClientInfo& client, uint64_t number, Reader in) {
  const auto uid = in.get<uint64_t>();
  const auto instance = in.get<uint32_t>();
  const auto first = in.get<uint32_t>();
  const auto n = in.get<uint32_t>();
  const auto epoch = in.get<uint32_t>();
  WireStatus status = WireStatus::kMalformed;
  if (in.done()) {
    Guard g(mu_);
    Segment* s = nullptr;
    Sharer* h = nullptr;
    status = check(client.id, uid, instance, 0, &s, &h);
    if (status == WireStatus::kOk) {
      const auto pages = static_cast<uint32_t>(s->size / kPageSize);
      const uint32_t all = regions_of(pages);
      if (first >= all || n == 0 || n > all - first || epoch == 0) {
        status = WireStatus::kRange;
      } else if (first < region_of(h->pages.first) ||
                 first + n - 1 > region_of(h->pages.first + h->pages.count - 1)) {
        status = WireStatus::kRights;
      } else {
        // What was stored there while nobody held it needs no invalidation round: the importer
        // fetches after this.
        forget_stores(*s, s->directory.hold(h->regions, first, n, epoch, pages));
      }
    }
  }
  reply(parts_.server, client.id, number, status);
}

// Writes that may have arrived before their connection broke, sent again as old and new bytes (rule
// 20). Their connection has been fenced: this comes over a later one.
void Home::on_repair(const fabric::ClientInfo& client, uint64_t number, Reader in) {
  const auto uid = in.get<uint64_t>();
  const auto instance = in.get<uint32_t>();
  const auto n = in.get<uint32_t>();
  WireStatus status = WireStatus::kMalformed;
  {
    Guard g(mu_);
    Segment* s = nullptr;
    Sharer* h = nullptr;
    if (in.ok()) status = check(client.id, uid, instance, fabric::kWrite, &s, &h);
    const bool apply = status == WireStatus::kOk;
    // Without the right nothing is stored any more, but what had arrived is told of all the same.
    s = find_uid(uid);
    h = s != nullptr ? find_sharer(*s, client.id, instance) : nullptr;
    if (h == nullptr) s = nullptr;
    std::vector<PageRange> ranges;
    bool broken = false;
    for (uint32_t i = 0; i < n && s != nullptr; ++i) {
      const auto page = in.get<uint32_t>();
      const Bytes old = in.bytes(kPageSize), next = in.bytes(kPageSize);
      if (!in.ok() || page >= s->size / kPageSize) {
        status = WireStatus::kMalformed;
        break;
      }
      if (page >= low_of(*s, *h) / kPageSize) continue;
      if (apply && h->covers(page, 1)) {
        std::byte* const at = s->service.data() + size_t{page} * kPageSize;
        const std::byte* const was = mutated("mutate_repair_blind") ? at : old.data();
        const auto store = [&] { apply_where_unchanged(was, next.data(), at); };
        broken = !unless_broken(at, kPageSize, store) || broken;
      }
      ranges.push_back({page, 1});
    }
    if (status == WireStatus::kOk && !in.done()) status = WireStatus::kMalformed;
    if (status == WireStatus::kOk && broken) status = WireStatus::kBroken;
    if (auto p = ranges.empty() ? nullptr : publish(*s, client.id, instance, ranges)) {
      p->finished = [this, id = client.id, number, status] {
        reply(parts_.server, id, number, status);
      };
      return;
    }
  }
  reply(parts_.server, client.id, number, status);
}

void Home::on_cas(const fabric::ClientInfo& client, uint64_t number, Reader in) {
  const auto uid = in.get<uint64_t>();
  const auto instance = in.get<uint32_t>();
  const auto offset = in.get<uint64_t>();
  auto expected = in.get<uint64_t>();
  const auto desired = in.get<uint64_t>();
  WireStatus status = WireStatus::kMalformed;
  uint64_t found = 0;
  const auto answer = [this, id = client.id, number](WireStatus st, uint64_t word) {
    std::byte buf[8];
    Writer out(buf);
    out.put(word);
    reply(parts_.server, id, number, st, out.done());
  };
  {
    Guard g(mu_);
    Segment* s = nullptr;
    Sharer* h = nullptr;
    if (in.done()) status = check(client.id, uid, instance, fabric::kAtomic, &s, &h);
    if (status == WireStatus::kOk &&
        (offset % 8 != 0 || s->brk.bytes < 8 || offset > s->brk.bytes - 8)) {
      status = WireStatus::kRange;
    } else if (status == WireStatus::kOk && !h->covers(offset / kPageSize, 1)) {
      status = WireStatus::kRights;
    } else if (status == WireStatus::kOk &&
               s->in_flux.contains(static_cast<uint32_t>(offset / kPageSize))) {
      status = WireStatus::kInFlux;
    } else if (status == WireStatus::kOk) {
      // The CPU's own swap: coherent with swaps of this node's processes and with each other.
      auto* word = reinterpret_cast<uint64_t*>(s->service.data() + offset);
      bool swapped = false;
      const auto swap = [&] {
        swapped = __atomic_compare_exchange_n(word, &expected, desired, false, __ATOMIC_SEQ_CST,
                                              __ATOMIC_SEQ_CST);
      };
      if (!unless_broken(s->service.data() + offset, sizeof *word, swap)) {
        status = WireStatus::kBroken;
        swapped = false;
      } else {
        found = expected;  // what stood there, in both cases
      }
      if (swapped && !mutated("mutate_cas_unpublished")) {
        const PageRange page{static_cast<uint32_t>(offset / kPageSize), 1};
        if (auto p = publish(*s, client.id, instance, {page}, word_of(*s, offset)); p != nullptr) {
          p->finished = [answer, found] { answer(WireStatus::kOk, found); };
          return;
        }
      }
    }
  }
  answer(status, found);
}

}  // namespace cmi::memory
