// atm_cas on an imported segment: executed at the home, never on cached values; then the caller's
// own cached copy takes the result (protocol rule 12). In mapped pages by the processor, else by a
// device's own atomic where that is coherent with CPUs, else by a message that the home executes.
#include <cstring>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/importer/await_home.hpp"
#include "core/memory/importer/dirty_intents.hpp"
#include "core/memory/importer/import_access.hpp"
#include "core/memory/importer/import_break.hpp"
#include "core/memory/importer/local_swap.hpp"
#include "core/memory/importer/page_drops.hpp"
#include "core/memory/importer/swap_fetch.hpp"
#include "core/memory/importer/swaps.hpp"
#include "core/memory/importer/tokens.hpp"
#include "core/memory/importer/write_back.hpp"
#include "core/memory/page/diff.hpp"

namespace cmi::memory {

namespace {
// One word through the service view, whole: a thread of the client may be reading it.
void store_word(std::byte* at, uint64_t value) {
  __atomic_store_n(reinterpret_cast<uint64_t*>(at), value, __ATOMIC_SEQ_CST);
}
// What a provider's atomic needs of a registration; with less, the home's own swap must do.
constexpr uint32_t kOneSided = fabric::kRead | fabric::kWrite | fabric::kAtomic;
}  // namespace

Exception Swaps::cas(const View& view, const std::byte* addr, uint64_t expected, uint64_t desired,
                     uint64_t* found, PendingSwap* pending, bool* unknown, Deadline deadline) {
  SignalsBlocked quiet;
  const std::shared_ptr<Import>& owner = view.import;
  Import& imp = *owner;
  if (view.read_only) return Exception::kAccess;
  const auto offset = static_cast<uint64_t>(addr - view.addr);
  const auto index = static_cast<uint32_t>(offset / kPageSize);
  // What is answered has happened, whatever has become of the import since.
  if (!pending->is_over(owner)) {
    if (const Exception e = may_swap(owner, index, deadline); e != Exception::kNone) return e;
  }
  if (pending->made && pending->is_sent(owner)) {
    return await_heard(core_, owner, found, pending, deadline);
  }
  if (imp.views.local.local() && !pending->is_sent(owner)) {
    const auto done =
        swap_in_place(core_, owner, offset, expected, desired, found, pending, deadline);
    if (done) return *done;
  }
  // Nothing is cached, and the home's own swap is one with the stores that it makes for others, or
  // that are made to its pages.
  const Word word{offset, expected, desired};
  if (imp.write_through || imp.views.local.local()) {
    return swap_by_message(view, word, found, pending, unknown, deadline);
  }

  // One that an earlier try has sent may have been made before what the page holds by now.
  const bool sent_before = pending->is_sent(owner);
  const auto sent = sent_before ? pending->sent : nullptr;
  Page& page = imp.page(index);
  page.lock();
  bool quiet_page = !sent_before &&
                    (page.state == PageState::kClean || page.state == PageState::kDirty) &&
                    !page.in_flight;
  uint32_t generation = page.generation;
  page.unlock();
  if (sent != nullptr) {
    quiet_page = sent->cached;
    generation = sent->generation;
  }

  bool brought = false;
  const Exception e = make(view, word, found, &brought, pending, unknown, deadline);
  if (e != Exception::kNone) {
    // The swap may have been made. Nobody will say so: the page is dropped, so that the next load
    // fetches the truth.
    if (*unknown) invalidate(core_, owner, {index, 1});
    return e;
  }
  if (*found != expected) count(core_.parts.stats.cas_lost);
  fault_point("cas_before_patch");
  if (mutated("mutate_cas_unpatched")) return Exception::kNone;
  if (!brought) patch(owner, offset, *found == expected ? desired : *found, quiet_page, generation);
  note_over(imp, index);
  return Exception::kNone;
}

// *brought: the word's page is here as it was after the swap, and with all that came since.
Exception Swaps::make(const View& view, const Word& word, uint64_t* found, bool* brought,
                      PendingSwap* pending, bool* unknown, Deadline deadline) {
  if (!pending->is_sent(view.import) && swaps_by_provider(*view.import)) {
    return swap_by_provider(view, word, found, brought, unknown, deadline);
  }
  const Exception e = swap_by_message(view, word, found, pending, unknown, deadline);
  if (pending->request == nullptr) {
    const auto sent = std::exchange(pending->sent, nullptr);
    *brought = sent != nullptr && sent->brought;
  }
  return e;
}

// What an access to the page lacks now, the next swap may bring.
void Swaps::note_over(Import& imp, uint32_t index) {
  Page& page = imp.page(index);
  page.lock();
  page.swaps.swapped(!may_be_mapped(page.state), imp.intents && !page.intent.held());
  page.unlock();
}

bool swaps_by_provider(const Import& imp) {
  return imp.link->routes().cas() && imp.grant.has(kOneSided);
}

// Whether token, rights, break and pages in flux let it be made, as far as it is known here.
Exception Swaps::may_swap(const std::shared_ptr<Import>& owner, uint32_t index, Deadline deadline) {
  Import& imp = *owner;
  for (Exception e = usable(imp, false, index); e != Exception::kNone && e != Exception::kAccess;
       e = usable(imp, false, index)) {
    if (e == Exception::kToken && Tokens(core_).adopt(owner, deadline)) continue;
    return imp.grant.state() == ImportState::kRemoved ? explain(core_, imp, deadline) : e;
  }
  if (!imp.grant.has(fabric::kAtomic) || !imp.allows(index)) return Exception::kAccess;
  if (index >= imp.brk.load(std::memory_order_seq_cst)) {
    if (Exception e = past_break(core_, imp, index, deadline); e != Exception::kNone) return e;
  }
  if (!imp.write_through && imp.flux.contains(index))
    return ask_in_flux(core_, imp, index, deadline);
  return Exception::kNone;
}

// The home must have heard of this import before it takes its swaps.
Exception Swaps::await_presented(Import& imp, Deadline deadline) {
  for (;;) {
    auto session = imp.link->session(deadline);
    fabric::RemoteKey key;
    if (session != nullptr && session_key(core_, imp, *session, &key, deadline)) {
      return Exception::kNone;
    }
    session.reset();
    if (const Exception e = explain(core_, imp, deadline); e != Exception::kNone) return e;
    if (deadline.passed()) return Exception::kTransient;
  }
}

// Sends it, unless an earlier try has. `fetch`: null where its answer is to bring nothing.
Exception Swaps::send_swap(const View& view, const Word& word, SwapFetch* fetch,
                           PendingSwap* pending, Deadline deadline) {
  const std::shared_ptr<Import>& owner = view.import;
  Import& imp = *owner;
  if (pending->is_sent(owner) && pending->offset == word.offset) return Exception::kNone;
  pending->request = nullptr;
  if (const Exception e = await_presented(imp, deadline); e != Exception::kNone) return e;
  if (!imp.grant.has(fabric::kAtomic) || !imp.allows(word.page())) return Exception::kAccess;
  const CasRequest m{imp.rseg.uid, imp.instance, word.offset, word.expected, word.desired};
  fault_point("cas_before_send");
  if (fetch != nullptr && !imp.write_through && !imp.views.local.local()) fetch->begin();
  if (fetch == nullptr || !fetch->any()) {
    *pending = {pending->call, owner,
                imp.link->start(static_cast<uint16_t>(RequestType::kCas), Encoded(m)), word.offset,
                nullptr};
    return Exception::kNone;
  }
  auto sent = std::make_shared<SentSwap>();
  std::byte buf[kWireSize<SwapFetchRequest>];
  Writer out(buf);
  encode(fetch->request(m, 0, sent), out);
  auto take = [owner, sent](Bytes answer) { take_swap_answer(owner, *sent, answer); };
  *pending = {
      pending->call, owner,
      imp.link->start(static_cast<uint16_t>(RequestType::kSwapFetch), out.done(), std::move(take)),
      word.offset, sent};
  return Exception::kNone;
}

Exception Swaps::swap_by_message(const View& view, const Word& word, uint64_t* found,
                                 PendingSwap* pending, bool* unknown, Deadline deadline) {
  SwapFetch fetch(core_, view, word.page());
  Exception e = send_swap(view, word, &fetch, pending, deadline);
  if (e == Exception::kNone) e = await_swap(view, word, &fetch, pending, unknown, deadline);
  if (e == Exception::kNone && pending->sent != nullptr && !pending->sent->made()) {
    // The home has published the stores. The swap came over a session that has been replaced since,
    // and was not made: it is asked for anew, alone. What is said of that one is the last word.
    pending->request = nullptr;
    pending->sent = nullptr;
    e = send_swap(view, word, nullptr, pending, deadline);
    if (e == Exception::kNone) e = await_swap(view, word, nullptr, pending, unknown, deadline);
  }
  return e == Exception::kNone ? take_swap(view.import, found, pending, deadline) : e;
}

// kNone: the answer is here. `fetch`: null where it brings nothing.
Exception Swaps::await_swap(const View& view, const Word& word, SwapFetch* fetch,
                            PendingSwap* pending, bool* unknown, Deadline deadline) {
  const std::shared_ptr<Import>& owner = view.import;
  Import& imp = *owner;
  const bool fetches = fetch != nullptr && fetch->any();
  if (fetches) {
    const Deadline soon = Deadline::in(SwapFetch::kPatience);
    (void)imp.link->await(pending->request, soon.at < deadline.at ? soon : deadline);
    if (!pending->request->answered()) fetch->give_up();
  }
  // The request's number makes the swap happen once, however often the link is rebuilt. A swap that
  // is not answered in time stays pending: a caller that tries again waits for it.
  (void)imp.link->await(pending->request, deadline);
  const bool over = pending->request->answered();
  if (!over) swapped_late(owner, pending->request, word.page());
  if (!over || pending->request->op().cause() != fabric::Cause::kOk) {
    if (over) {
      // Given up with its link: no answer will come, and whether it was made nobody knows.
      pending->request = nullptr;
      *unknown = true;
    }
    const Exception e = explain(core_, imp, Deadline::in(50 * kMilli));
    return e == Exception::kNone ? Exception::kTransient : e;
  }
  if (fetches && fetch->any()) pending->sent->brought = fetch->take(*pending->sent);
  return Exception::kNone;
}

// The answer is here.
Exception Swaps::take_swap(const std::shared_ptr<Import>& owner, uint64_t* found,
                           PendingSwap* pending, Deadline deadline) {
  const std::shared_ptr<fabric::Request> request = std::move(pending->request);
  const auto sent = pending->sent;
  WireStatus status = WireStatus::kOk;
  if (sent != nullptr) {
    if (!sent->answer()) return Exception::kTransient;
    status = *sent->answer();
    if (status == WireStatus::kOk) *found = sent->found;
  } else {
    const auto reply = split_reply(request->reply());
    CasReply answer;
    if (!reply || !decode(reply->body, &answer)) return Exception::kTransient;
    status = reply->status;
    if (status == WireStatus::kOk) *found = answer.found;
  }
  switch (status) {
    case WireStatus::kOk:
      return Exception::kNone;
    case WireStatus::kRights:
      return Exception::kAccess;
    case WireStatus::kGone:
    case WireStatus::kEnding:
      return Exception::kSinval;
    case WireStatus::kInFlux:
      return Exception::kConsist;
    case WireStatus::kBroken:
      return Exception::kUe;
    case WireStatus::kRange:
      return Exception::kSegBrk;
    case WireStatus::kRemoved:
      return explain(core_, *owner, deadline);
    default:
      return Exception::kToken;
  }
}

// The caller may never come back for the answer. The home notifies all sharers but the one that
// swaps, so this importer drops its own copy once the swap has been made.
void Swaps::swapped_late(const std::shared_ptr<Import>& owner,
                         const std::shared_ptr<fabric::Request>& request, uint32_t index) {
  if (owner->write_through || owner->views.local.local() || mutated("mutate_late_swap_kept"))
    return;
  const auto drop_it = [&core = core_, owner, index] {
    const SignalsBlocked quiet;
    invalidate(core, owner, {index, 1});
  };
  if (!owner->link->when_late(request, drop_it)) drop_it();
}

// A write-back of its own, so that, should the home not answer in time, every later barrier waits
// for it.
WriteBackPtr Swaps::announce_swap(const std::shared_ptr<Import>& owner, uint64_t offset) {
  std::byte buf[kWireSize<AnnounceRequest> + PageRangeList::kItem];
  Writer out(buf);
  encode(AnnounceRequest{owner->rseg.uid, owner->instance, 1, {}}, out);
  PageRangeList::put(out, {static_cast<uint32_t>(offset / kPageSize), 1});
  auto write_back = core_.write_backs.begin(owner);
  owner->link->start(static_cast<uint16_t>(RequestType::kAnnounce), out.done(),
                     [&core = core_, write_back](Bytes) { end_part(core, write_back); });
  return write_back;
}

// kNone: *session may be used with *key, which counts as in use.
Exception Swaps::begin_use_of_word(Import& imp, uint64_t offset,
                                   std::shared_ptr<fabric::Session>* session,
                                   fabric::RemoteKey* key, Deadline deadline) {
  const auto page = static_cast<uint32_t>(offset / kPageSize);
  for (;;) {
    *session = imp.link->session(deadline);
    if (*session != nullptr && session_key(core_, imp, **session, key, deadline)) {
      if (!imp.grant.has(fabric::kAtomic)) return Exception::kAccess;
      if (imp.begin_use((*session)->generation(), *key, uint64_t{page} + 1)) {
        return Exception::kNone;
      }
    }
    session->reset();
    if (const Exception e = explain(core_, imp, deadline); e != Exception::kNone) return e;
    if (page >= imp.brk.load(std::memory_order_seq_cst)) {
      const Exception e = past_break(core_, imp, page, deadline);
      if (e != Exception::kNone) return e;
    }
    if (deadline.passed()) return Exception::kTransient;
  }
}

Exception Swaps::swap_by_provider(const View& view, const Word& word, uint64_t* found,
                                  bool* fetched, bool* unknown, Deadline deadline) {
  const std::shared_ptr<Import>& owner = view.import;
  const uint64_t offset = word.offset;
  Import& imp = *owner;
  std::shared_ptr<fabric::Session> session;
  fabric::RemoteKey key;
  const Exception begun = begin_use_of_word(imp, offset, &session, &key, deadline);
  if (begun != Exception::kNone) return begun;
  const fabric::Cause cause =
      session->cas(found, word.expected, word.desired, key, offset, deadline);
  imp.key.end_use();
  if (cause != fabric::Cause::kOk) {
    // A target that refused did not swap; of everything else the fate is open.
    *unknown = cause != fabric::Cause::kRefused;
    if (imp.grant.state() == ImportState::kUsable) imp.link->retire(session);
    session.reset();
    // The swap may have happened, and the home does not know: other sharers must be notified.
    if (*unknown) (void)announce_swap(owner, offset);
    const Exception e = explain(core_, imp, deadline);
    return e == Exception::kNone ? Exception::kTransient : e;
  }
  if (*found != word.expected) return Exception::kNone;  // nothing changed, nobody needs to know
  if (mutated("mutate_cas_unpublished")) return Exception::kNone;
  // The swap has happened; others must drop their copies before the call returns.
  const WriteBackPtr announced = announce_swap(owner, offset);
  *fetched = SwapFetch(core_, view, word.page()).fetch(deadline);
  if (!await(core_, {announced}, {deadline})) {
    trace(kFacMem, kWarn, "atm_cas: the home did not confirm the publication in time");
  }
  return Exception::kNone;
}

void Swaps::patch(const std::shared_ptr<Import>& owner, uint64_t offset, uint64_t word,
                  bool same_page, uint32_t generation) {
  Import& imp = *owner;
  const auto index = static_cast<uint32_t>(offset / kPageSize);
  const size_t in_page = offset % kPageSize;
  Page& page = imp.page(index);
  page.lock();
  if (mutated("mutate_cas_any_generation")) generation = page.generation;
  if (imp.subscribed.any()) imp.subscribed.stored_to(index);  // it takes no more updates (rule 25)
  const bool same = same_page && page.generation == generation && !page.in_flight;
  if (same && page.state == PageState::kClean) {
    store_word(imp.page_data(index) + in_page, word);
    ++page.generation;
    page.unlock();
    return;
  }
  if (same && page.state == PageState::kDirty) {
    // Bytes that differ from the twin were stored by a thread of ours since and are newer; the rest
    // and the twin take the result. The page is writable while we do it, hence the loop.
    std::byte* twin = core_.twins.at(page.twin) + in_page;
    auto* cached = reinterpret_cast<uint64_t*>(imp.page_data(index) + in_page);
    uint64_t old;
    std::memcpy(&old, twin, sizeof old);
    uint64_t seen = __atomic_load_n(cached, __ATOMIC_RELAXED), next;
    do {
      next = take_unchanged(seen, old, word);
    } while (!__atomic_compare_exchange_n(cached, &seen, next, false, __ATOMIC_SEQ_CST,
                                          __ATOMIC_RELAXED));
    if (!mutated("mutate_cas_twin_kept")) std::memcpy(twin, &word, sizeof word);
    ++page.generation;
    page.unlock();
    return;
  }
  const bool absent = page.state == PageState::kAbsent;
  page.unlock();
  if (!absent) invalidate(core_, owner, {index, 1});
}

}  // namespace cmi::memory
