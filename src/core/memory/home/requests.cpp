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
#include "core/memory/wire/dispatch.hpp"

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

// Each request is decoded and checked here, before its handler runs.
void Home::on_request(const fabric::ClientInfo& client, uint64_t number, uint16_t type, Reader in) {
  using Client = const fabric::ClientInfo&;
  using Table =
      DispatchTable<size_t{static_cast<uint16_t>(RequestType::kLast)} + 1, Home, Client, uint64_t>;
  using Type = RequestType;
  static constexpr auto kTable = [] {
    constexpr auto open = [](Home& h, Client c, uint64_t n, const OpenRequest& m) {
      h.on_open(c, n, m, false);
    };
    constexpr auto open_through = [](Home& h, Client c, uint64_t n, const OpenRequest& m) {
      h.on_open(c, n, m, true);
    };
    constexpr auto present = [](Home& h, Client c, uint64_t n, const PresentTokenRequest& m) {
      h.on_present_token(c, n, m, false);
    };
    constexpr auto present_through = [](Home& h, Client c, uint64_t n,
                                        const PresentTokenRequest& m) {
      h.on_present_token(c, n, m, true);
    };
    constexpr auto mark = [](Home& h, Client c, uint64_t n, const DirtyIntentRequest& m) {
      h.on_dirty_intent(c, n, m, true);
    };
    constexpr auto unmark = [](Home& h, Client c, uint64_t n, const DirtyIntentRequest& m) {
      h.on_dirty_intent(c, n, m, false);
    };
    Table t;
    t.on<OpenRequest, open>(Type::kOpen);
    t.on<OpenRequest, open_through>(Type::kOpenWriteThrough);
    t.on<PresentTokenRequest, present>(Type::kPresentToken);
    t.on<PresentTokenRequest, present_through>(Type::kPresentTokenWriteThrough);
    t.on<LeaveRequest, &Home::on_leave>(Type::kLeave);
    t.on<PublishRequest, &Home::on_publish>(Type::kPublish);
    t.on<AnnounceRequest, &Home::on_announce>(Type::kAnnounce);
    t.on<RepairRequest, &Home::on_repair>(Type::kRepair);
    t.on<CasRequest, &Home::on_cas>(Type::kCas);
    t.on<CauseRequest, &Home::on_cause>(Type::kCause);
    t.on<AcquireRequest, &Home::on_acquire>(Type::kAcquire);
    t.on<DirtyIntentRequest, mark>(Type::kDirtyIntent);
    t.on<DirtyIntentRequest, unmark>(Type::kDropIntent);
    t.on<AskFluxRequest, &Home::on_ask_flux>(Type::kAskFlux);
    t.on<FetchWithIntentRequest, &Home::on_fetch_with_intent>(Type::kFetchWithIntent);
    t.on<SubscribeRequest, &Home::on_subscribe>(Type::kSubscribe);
    t.on<GoodbyeRequest, &Home::on_goodbye>(Type::kGoodbye);
    t.on<ReturnedRequest, &Home::on_returned>(Type::kReturned);
    t.on<AliveRequest, &Home::on_alive>(Type::kAlive);
    t.on<LoadRequest, &Home::on_load>(Type::kLoad);
    t.on<StoreRequest, &Home::on_store>(Type::kStore);
    t.on<SwapRequest, &Home::on_swap>(Type::kSwap);
    return t;
  }();
  SignalsBlocked quiet;
  if (kTable.dispatch(type, *this, client, number, in) == Dispatched::kHandled) return;
  reply(parts_.server, client.id, number, WireStatus::kMalformed);
}

void Home::on_alive(const fabric::ClientInfo& client, uint64_t number, const AliveRequest&) {
  reply(parts_.server, client.id, number, WireStatus::kOk);
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

void Home::on_open(const fabric::ClientInfo& client, uint64_t number, const OpenRequest& m,
                   bool write_through) {
  std::byte buf[48];
  Writer out(buf);
  WireStatus status = WireStatus::kOk;
  Finished done;
  {
    Guard g(mu_);
    Segment* s = find_uid(m.uid);
    Sharer* h = s != nullptr ? find_sharer(*s, client.id, m.instance) : nullptr;
    if (s == nullptr || !s->exported || s->removed) {
      status = why_gone(s);
    } else if (h == nullptr ? !may_import(*s, write_through) : h->write_through != write_through) {
      status = WireStatus::kImportedOtherwise;
    } else if (h == nullptr && (h = add_sharer(*s, client, m.instance, write_through)) == nullptr) {
      status = WireStatus::kNoMem;
    } else {
      if (s->quiesce.on && h->quiesce_notified != s->quiesce.round) notify_quiesce(*s, *h, &done);
      OpenReply answer;
      answer.size = s->size;
      answer.flags = s->flags;
      answer.attrib = s->attrib;
      answer.lifeline_port = parts_.watch.port();
      // A lifeline is for who has an import here.
      answer.lifeline_secret = parts_.watch.expect(client.id);
      encode(answer, out);
      if (access::extensible(s->flags)) encode(BreakPart{s->brk}, out);
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

void Home::on_present_token(const fabric::ClientInfo& client, uint64_t number,
                            const PresentTokenRequest& m, bool write_through) {
  const NodeId node{m.node_hi, m.node_lo};
  std::byte buf[68 + fabric::kMaxRawKey];  // no more than reply() takes
  Writer out(buf);
  WireStatus status = WireStatus::kOk;
  std::shared_ptr<InvalidationRound>
      listed;  // what is in flux is known there before it gets its key
  Finished done;
  {
    Guard g(mu_);
    Segment* s = find_uid(m.uid);
    if (s == nullptr || !s->exported || s->removed) {
      status = why_gone(s);
    } else if (auto t = s->tokens.find(m.token);
               t == s->tokens.end() || t->second.revoked || t->second.info.secret != m.secret) {
      status = WireStatus::kToken;
    } else if (!t->second.info.any_node && (t->second.info.node != node || node != client.node)) {
      status = WireStatus::kNode;
    } else {
      const bool was_shared = s->shared();
      Sharer* h = find_sharer(*s, client.id, m.instance);
      // One that has been forgotten comes back as what it was.
      if (h == nullptr ? !may_import(*s, write_through) : h->write_through != write_through) {
        return reply(parts_.server, client.id, number, WireStatus::kToken);
      }
      if (h == nullptr) h = add_sharer(*s, client, m.instance, write_through);
      if (h == nullptr) {
        return reply(parts_.server, client.id, number, WireStatus::kNoMem);
      }
      const access::TokenPart& part = t->second.info.part;
      // From here on it is told of every invalidation round; its key goes out after that.
      const auto enter = [&]() CMI_REQUIRES(mu_) {
        h->presented = true;
        h->token = m.token;
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
        PresentTokenReply answer;
        answer.key = key.key;
        answer.base = key.base - part.offset;  // of the segment's first byte, reachable or not
        answer.rights = h->rights;
        answer.first = h->pages.first;
        answer.count = h->pages.count;
        answer.body = h->session != nullptr ? h->session->raw_key() : Bytes();
        answer.raw_key_size = static_cast<uint16_t>(answer.body.size());
        encode(answer, out);
        if (access::extensible(s->flags)) encode(BreakPart{s->brk}, out);
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

// What a message has changed at home, or was told of, before its importers are.
struct Home::Applied {
  // Given back when the publisher, who waits, has its answer.
  std::vector<PageRange> ranges;
  std::vector<DirtyIntent> intents;
  std::vector<StoredPage> of_subscribed;
  Asked asked;
  WireStatus status = WireStatus::kOk;

  void add(const PageRange& r) {
    if (!ranges.empty() && ranges.back().first + ranges.back().count == r.first) {
      ranges.back().count += r.count;
    } else {
      ranges.push_back(r);
    }
  }
};

// True: the answer comes when all importers have dropped the pages.
bool Home::publish_applied(Segment& s, Sharer& h, const fabric::ClientInfo& client, uint64_t number,
                           Applied& applied) {
  // Applied stores are published even when a later page of the message was malformed.
  if (applied.ranges.empty() || mutated("mutate_diffs_unpublished")) return false;
  if (mutated("mutate_marks_cleared_early")) h.intents.clear();
  applied.ranges = each_once(std::move(applied.ranges));
  const WireStatus status = applied.status;
  if (status != WireStatus::kOk) applied.asked.secret = 0;  // that it has to hear from us
  auto p = publish(s, client.id, h.instance, applied.ranges, applied.of_subscribed, applied.asked);
  if (p == nullptr || mutated("mutate_acks_not_awaited")) {
    clear_intents(s, h, applied.intents);
    return false;
  }
  p->uid = s.uid;
  p->instance = h.instance;
  p->intents = std::move(applied.intents);
  const auto shared = p->direct_acks != 0 ? fabric::Shared::kYes : fabric::Shared::kNo;
  p->finished = [this, id = client.id, number, status, shared] {
    const std::byte answer[]{static_cast<std::byte>(status)};
    parts_.server.reply(id, number, answer, shared);
  };
  return true;
}

void Home::on_publish(const fabric::ClientInfo& client, uint64_t number, const PublishRequest& m) {
  if (mutated("mutate_publish_before_data")) {
    return HomeMutations::publish_before_data(*this, client, number, m);
  }
  Applied applied;
  applied.asked = {number, 0};
  WireStatus& status = applied.status;
  {
    Guard g(mu_);
    Segment* s = nullptr;
    Sharer* h = nullptr;
    status = check(client.id, m.uid, m.instance, fabric::kWrite, &s, &h);
    bool broken = false;
    std::byte past_break[kPageSize];
    PublishedPages pages(m);
    for (uint32_t i = 0; i < m.pages && status == WireStatus::kOk; ++i) {
      fault_point("publish_before_page");
      DirtyIntent intent;
      if (!pages.next(&intent) || intent.page >= s->size / kPageSize) {
        status = WireStatus::kRange;
        break;
      }
      const uint32_t page = intent.page;
      if (!h->covers(page, 1)) {
        status = WireStatus::kRights;
        break;
      }
      // What was stored behind the break, before its importer heard of it, is gone with the memory.
      const bool gone = page >= low_of(*s, *h) / kPageSize;
      std::byte* const at = gone ? past_break : s->service.data() + size_t{page} * kPageSize;
      if (!gone && subscribed(*s, page)) {
        (void)words_of(pages.diff(), words_in(page, &applied.of_subscribed));
      }
      const WireStatus stored = store_diff(pages.diff(), at);
      if (stored == WireStatus::kMalformed) {
        status = stored;
        break;
      }
      if (gone) continue;
      broken = broken || stored == WireStatus::kBroken;
      if (intent.epoch != 0) applied.intents.push_back(intent);
      applied.add({page, 1});
    }
    if (status == WireStatus::kOk && !pages.end(&applied.asked.secret)) {
      status = WireStatus::kMalformed;
    }
    if (status == WireStatus::kOk && broken) status = WireStatus::kBroken;
    if (s != nullptr && publish_applied(*s, *h, client, number, applied)) return;
  }
  reply(parts_.server, client.id, number, status);
}

// What went by itself was let through by its key; that the token has gone since must not keep
// others from hearing of it. All this can do is to make them drop pages.
void Home::on_announce(const fabric::ClientInfo& client, uint64_t number,
                       const AnnounceRequest& m) {
  Applied applied;
  applied.asked = {number, 0};
  WireStatus& status = applied.status;
  {
    Guard g(mu_);
    Segment* s = find_uid(m.uid);
    Sharer* const h = s != nullptr ? find_sharer(*s, client.id, m.instance) : nullptr;
    status = h != nullptr ? WireStatus::kOk : why_gone(s);
    bool broken = false;
    const PageRangeList ranges = m.ranges();
    for (size_t i = 0; i < m.count && status == WireStatus::kOk; ++i) {
      fault_point("publish_before_page");
      PageRange r = i < ranges.size() ? ranges[i] : PageRange{};
      const uint64_t all = s->size / kPageSize;
      if (r.first >= all || r.count == 0 || r.count > all - r.first) {
        status = WireStatus::kRange;
        break;
      }
      const uint64_t in_use = low_of(*s, *h) / kPageSize;
      if (r.first >= in_use) continue;
      r.count = static_cast<uint32_t>(std::min<uint64_t>(r.count, in_use - r.first));
      const std::byte* const at = s->service.data() + size_t{r.first} * kPageSize;
      broken = arrived(at, r.count) == WireStatus::kBroken || broken;
      applied.add(r);
    }
    if (status == WireStatus::kOk && !m.exact()) status = WireStatus::kMalformed;
    if (status == WireStatus::kOk && broken) status = WireStatus::kBroken;
    if (h != nullptr && publish_applied(*s, *h, client, number, applied)) return;
  }
  reply(parts_.server, client.id, number, status);
}

void Home::on_acquire(const fabric::ClientInfo& client, uint64_t number, const AcquireRequest& m) {
  const uint32_t first = m.first, n = m.count, epoch = m.epoch;
  WireStatus status = WireStatus::kMalformed;
  {
    Guard g(mu_);
    Segment* s = nullptr;
    Sharer* h = nullptr;
    status = check(client.id, m.uid, m.instance, 0, &s, &h);
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
void Home::on_repair(const fabric::ClientInfo& client, uint64_t number, const RepairRequest& m) {
  WireStatus status = WireStatus::kMalformed;
  {
    Guard g(mu_);
    Segment* s = nullptr;
    Sharer* h = nullptr;
    status = check(client.id, m.uid, m.instance, fabric::kWrite, &s, &h);
    const bool apply = status == WireStatus::kOk;
    // Without the right nothing is stored any more, but what had arrived is told of all the same.
    s = find_uid(m.uid);
    h = s != nullptr ? find_sharer(*s, client.id, m.instance) : nullptr;
    if (h == nullptr) s = nullptr;
    std::vector<PageRange> ranges;
    bool broken = false;
    for (uint32_t i = 0; i < m.pages && s != nullptr; ++i) {
      if (i >= m.whole_pages() || m.page(i).page >= s->size / kPageSize) {
        status = WireStatus::kMalformed;
        break;
      }
      const auto [page, old, next] = m.page(i);
      if (page >= low_of(*s, *h) / kPageSize) continue;
      if (apply && h->covers(page, 1)) {
        std::byte* const at = s->service.data() + size_t{page} * kPageSize;
        const std::byte* const was = mutated("mutate_repair_blind") ? at : old.data();
        const auto store = [&, to = next.data()] { apply_where_unchanged(was, to, at); };
        broken = !unless_broken(at, kPageSize, store) || broken;
      }
      ranges.push_back({page, 1});
    }
    if (status == WireStatus::kOk && !m.exact()) status = WireStatus::kMalformed;
    if (status == WireStatus::kOk && broken) status = WireStatus::kBroken;
    if (auto p = ranges.empty() ? nullptr : publish(*s, client.id, m.instance, ranges)) {
      p->finished = [this, id = client.id, number, status] {
        reply(parts_.server, id, number, status);
      };
      return;
    }
  }
  reply(parts_.server, client.id, number, status);
}

void Home::on_cas(const fabric::ClientInfo& client, uint64_t number, const CasRequest& m) {
  const uint64_t offset = m.offset, desired = m.desired;
  uint64_t expected = m.expected;
  WireStatus status = WireStatus::kMalformed;
  uint64_t found = 0;
  const auto answer = [this, id = client.id, number](WireStatus st, uint64_t word) {
    reply(parts_.server, id, number, st, Encoded(CasReply{word}));
  };
  {
    Guard g(mu_);
    Segment* s = nullptr;
    Sharer* h = nullptr;
    status = check(client.id, m.uid, m.instance, fabric::kAtomic, &s, &h);
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
        if (auto p = publish(*s, client.id, m.instance, {page}, word_of(*s, offset));
            p != nullptr) {
          p->finished = [answer, found] { answer(WireStatus::kOk, found); };
          return;
        }
      }
    }
  }
  answer(status, found);
}

}  // namespace cmi::memory
