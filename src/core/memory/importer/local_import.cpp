// See local_import.hpp.
#include "core/memory/importer/local_import.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/importer/import_access.hpp"
#include "core/memory/importer/import_views.hpp"
#include "core/memory/importer/local_rings.hpp"
#include "core/memory/importer/write_back.hpp"
#include "core/memory/wire/local_messages.hpp"
#include "core/memory/wire/replies.hpp"
#include "core/memory/wire/requests.hpp"
#include "core/node/local_channel.hpp"
#include "core/segment/map_file.hpp"

namespace cmi::memory {

namespace {
constexpr Nanos kAnswerWait = 2 * kSecond;  // of a home that has just made an offer
constexpr size_t kMostRanges =
    (fabric::kMaxPayload - kWireSize<AnnounceRequest>) / PageRangeList::kItem;

// What came of asking. Neither: there was no answer, or one that says what an access would raise.
struct Asked {
  std::optional<LocalGrant> grant;
  const char* why_not = nullptr;
  bool stranger = false;  // it was not the home that answered, or the home has ended its offer
};

const char* words_of(LocalRefusal refusal) {
  switch (refusal) {
    case LocalRefusal::kOff:
      return "the home does not offer its pages (CMI_LOCAL)";
    case LocalRefusal::kPart:
      return "the token is for a part of the segment";
    case LocalRefusal::kLarge:
      return "the segment has large pages";
    case LocalRefusal::kShort:
      return "the home is short of memory or descriptors";
    case LocalRefusal::kNone:
      break;
  }
  return nullptr;
}

// In whatever namespaces; whether its runtime folder is seen here shows when it is asked. An older
// library's handle tells only of a home in this network namespace.
bool on_this_machine(const access::RsegInfo& rseg) {
  return rseg.boot != 0 ? rseg.boot == node::boot_id() : rseg.machine == node::machine_id();
}

// What is known here. Null: the home may be asked.
const char* unfit(const ImporterCore& core, const Import& imp) {
  if (imp.rseg.boot == 0 && imp.rseg.machine == 0) {
    return "the handle does not say on which machine its home is";
  }
  if (!on_this_machine(imp.rseg)) return "the home is on another machine";
  if (core.parts.fault_threads) return "CMI_FAULT=thread serves cached pages alone";
  if (!Userfault::features().continue_protected) return "it needs Linux 6.4";
  if (access::large_pages(imp.rseg.flags)) return words_of(LocalRefusal::kLarge);
  return nullptr;
}

// Proves to the home, by the ticket that it has given over the link, which import this is, and
// takes its descriptors.
Asked fetch_descriptors(Import& imp, const LocalOfferReply& offer, const std::string& folder,
                        const std::vector<const std::byte*>& views, int watch, Deadline deadline) {
  const std::span<const int> passed(&watch, watch >= 0 ? 1 : 0);
  if (views.size() > LocalAsk::kMostViews) return {{}, "the import has too many views"};
  std::vector<std::byte> bytes(kWireSize<LocalAsk> + views.size() * sizeof(uint64_t));
  Writer out(bytes);
  encode(LocalAsk{offer.ticket_hi, offer.ticket_lo, {}}, out);
  for (const std::byte* view : views) out.put(reinterpret_cast<uint64_t>(view));
  auto channel = node::LocalChannel::ask(folder, offer.slot, out.done(), passed);
  if (channel.status() == Status::kReconfig) return {};
  if (channel.status() == Status::kNoMem) return {{}, "there are no descriptors to ask with"};
  if (!channel) return {{}, "the home's runtime folder is not the user's here, or not to be seen"};
  auto answer = channel->receive({std::min(deadline.at, now() + kAnswerWait)});
  const auto stranger = [] {
    return Asked{{}, "another context is in the place of the home, below the same path here", true};
  };
  if (answer.status() == Status::kInval) return stranger();  // the home answers what it is asked
  LocalGranted granted;
  if (!answer || !decode(Bytes(answer->bytes), &granted)) return {};
  if (answer->fds.empty() && granted.why_not == LocalGranted::kLacking) {
    return {{}, "the home is short of memory or descriptors"};
  }
  if (answer->fds.empty() && granted.why_not == LocalGranted::kStranger) {
    return stranger();
  }
  if (answer->fds.empty()) return {};  // the token was revoked meanwhile
  if (answer->fds.size() != 2) return {{}, "the home has passed what it must not"};
  auto control = LocalControl::open(std::move(answer->fds[1]), imp.pages);
  if (!control) return {{}, "the home's file of marks is not what it must be"};
  return {LocalGrant{std::move(answer->fds[0]), granted.writable != 0, control.take()}};
}

Asked ask(ImporterCore& core, Import& imp, const std::vector<const std::byte*>& views, int watch,
          Deadline deadline) {
  {
    fabric::RemoteKey key;
    const auto session = imp.link->session(deadline);
    if (session == nullptr || !session_key(core, imp, *session, &key, deadline)) return {};
  }
  const LocalOfferRequest m{imp.rseg.uid, imp.instance};
  const auto answer =
      imp.link->call(static_cast<uint16_t>(RequestType::kLocalOffer), Encoded(m), deadline);
  const auto reply = split_reply(answer ? Bytes(*answer) : Bytes());
  if (!reply) return {};
  if (reply->status == WireStatus::kMalformed) return {{}, "the home is of an older version"};
  LocalOfferReply offer;
  if (reply->status != WireStatus::kOk || !decode(reply->body, &offer)) return {};
  if (const char* why = words_of(LocalRefusal{offer.refusal})) return {{}, why};
  const std::string folder(reinterpret_cast<const char*>(offer.body.data()), offer.body.size());
  Asked asked = fetch_descriptors(imp, offer, folder, views, watch, deadline);
  if (asked.stranger && explain(core, imp, deadline) != Exception::kNone) return {};
  if (asked.grant) {
    imp.link->go_by_rings(
        std::make_unique<LocalRings>(core.parts.server, imp.rseg.home, folder, offer.slot));
  }
  return asked;
}

// The home takes an import that has its descriptors for one that caches nothing. An offer that is
// not taken ends that, before a page is cached. False: the home has not heard of it.
bool give_back(Import& imp, Deadline deadline) {
  const LocalOfferRequest m{imp.rseg.uid, imp.instance};
  const auto answer =
      imp.link->call(static_cast<uint16_t>(RequestType::kLocalOffer), Encoded(m), deadline);
  return split_reply(answer ? Bytes(*answer) : Bytes()).has_value();
}

// The views of the cache take the place of the others. The cache's file is empty until all of them
// are there: an access faults, whichever mapping it meets, and is served when this is over. Where
// one cannot be had it stays empty: what nobody watches is not to be read.
bool end_in_cache(ImporterCore& core, Import& imp, const char* why) {
  trace(kFacSeg, kInfo, "segment {}: its pages are cached from here on: {}", imp.id, why);
  imp.views.local.say_cached(why);
  if (!ok(ImportViews(core).make_cache(imp, false))) return false;
  const size_t size = size_t{imp.pages} * kPageSize;
  const int file = imp.cache.file();
  if (ftruncate(file, 0) != 0) return false;
  return imp.views.local.end(
      [&](std::byte* view) {
        if (!segment::map_home_over(file, view, size, 0, kPageSize)) return false;
        madvise(view, size, MADV_DONTFORK);
        return ok(core.userfault.add(view, size));
      },
      [&] { return ftruncate(file, static_cast<off_t>(size)) == 0; });
}

// The home's verdict on stores that it was told of.
void told(ImporterCore& core, const WriteBackPtr& write_back, const std::vector<PageRange>& ranges,
          Bytes answer) {
  const SignalsBlocked quiet;
  const std::shared_ptr<Import>& imp = write_back->import;
  imp->views.local.answered(ranges);
  const auto reply = split_reply(answer);
  if (!reply || reply->status != WireStatus::kOk) {
    std::vector<uint32_t> pages;
    for (const PageRange& r : ranges) {
      for (uint32_t i = 0; i < r.count; ++i) pages.push_back(r.first + i);
    }
    refuse_pages(core, write_back, pages, reply ? std::optional(reply->status) : std::nullopt);
  }
  imp->changes.notify();
  end_part(core, write_back);
}
}  // namespace

bool begin_local(ImporterCore& core, Import& imp) {
  if (imp.write_through) return false;
  if (!core.parts.local) {
    imp.views.local.say_cached("CMI_LOCAL is off here");
    return false;
  }
  Guard g(imp.views.local.join_mu);
  if (imp.views.local.local()) return true;
  if (imp.cache.ready()) return false;
  const char* why = unfit(core, imp);
  if (why == nullptr && imp.views.local.begin(imp.pages, core.dirty)) return true;
  if (why == nullptr) why = "no descriptors";
  imp.views.local.say_cached(why);
  trace(kFacSeg, kInfo, "segment {}: its pages are cached, not mapped: {}", imp.id, why);
  return false;
}

std::optional<Exception> join_local(ImporterCore& core, const std::shared_ptr<Import>& owner,
                                    Deadline deadline) {
  Import& imp = *owner;
  Guard g(imp.views.local.join_mu);
  const auto has_grant = [&imp] {
    return imp.views.local.look(
        0, [](const LocalViews::Opened& at) { return at.page() != LocalViews::Page::kNoGrant; });
  };
  if (!imp.views.local.local() || has_grant()) return std::nullopt;
  // The home forgets the marks of the grant before with its next offer: what they stand for is on
  // its way by then.
  announce_stores(core, owner);
  const auto views = imp.views.local.addresses();
  Asked asked = ask(core, imp, views, imp.views.local.watch(), deadline);
  if (asked.grant && !imp.views.local.maps(asked.grant->writable)) {
    const ExclusiveAccess alone(core.enabled);
    if (!alone.mine()) {
      asked.why_not = "other threads have access when the pages are to be mapped";
    } else if (!imp.views.local.map_file(std::move(asked.grant->file), asked.grant->writable)) {
      asked.why_not = "there is no memory to map them";
    }
  }
  if (asked.why_not != nullptr) {
    if (give_back(imp, deadline)) {
      if (end_in_cache(core, imp, asked.why_not)) return std::nullopt;
      // This process lacks what a cache takes, too: there is no home to wait for.
      imp.cache.use.note_memory(false);
    }
  } else if (asked.grant) {
    (void)imp.views.local.open(std::move(asked.grant->control), views);
    return std::nullopt;
  } else if (const Exception e = explain(core, imp, deadline); e != Exception::kNone) {
    return e;
  }
  if (deadline.passed()) return Exception::kTransient;
  return std::nullopt;
}

void announce_stores(ImporterCore& core, const std::shared_ptr<Import>& imp,
                     LocalViews::Taker taker) {
  if (!imp->views.local.any_stored()) return;
  if (taker == LocalViews::Taker::kBarrier && imp->views.local.published()) return;
  // Begun first: a barrier that no longer finds the pages dirty finds this.
  const WriteBackPtr write_back = core.write_backs.begin(imp);
  const std::vector<PageRange> taken = imp->views.local.take(taker);
  if (mutated("mutate_mapped_stores_unannounced")) {
    imp->views.local.answered(taken);
    return end_part(core, write_back);
  }
  std::vector<std::byte> buf(kWireSize<AnnounceRequest> +
                             std::min(kMostRanges, taken.size()) * PageRangeList::kItem);
  for (size_t at = 0; at < taken.size(); at += kMostRanges) {
    const size_t n = std::min(kMostRanges, taken.size() - at);
    std::vector<PageRange> ranges(taken.begin() + static_cast<ptrdiff_t>(at),
                                  taken.begin() + static_cast<ptrdiff_t>(at + n));
    Writer out(buf);
    encode(AnnounceRequest{imp->rseg.uid, imp->instance, static_cast<uint32_t>(n), {}}, out);
    for (const PageRange& r : ranges) PageRangeList::put(out, r);
    write_back->parts.fetch_add(1, std::memory_order_relaxed);
    count(core.parts.stats.publications);
    count(imp->stats.publications);
    imp->link->start(static_cast<uint16_t>(RequestType::kAnnounce), out.done(),
                     [&core, write_back, ranges = std::move(ranges)](Bytes answer) {
                       told(core, write_back, ranges, answer);
                     });
  }
  end_part(core, write_back);
}

void end_local(ImporterCore& core, const std::shared_ptr<Import>& imp, bool lost) {
  imp->views.local.close();
  if (!lost) return announce_stores(core, imp);
  const WriteBackPtr write_back = core.write_backs.begin(imp);
  const std::vector<PageRange> taken = imp->views.local.take(LocalViews::Taker::kOther);
  imp->views.local.answered(taken);
  std::vector<uint32_t> pages;
  for (const PageRange& r : taken) {
    for (uint32_t i = 0; i < r.count; ++i) pages.push_back(r.first + i);
  }
  if (!pages.empty()) {
    write_back->failed.store(true);
    core.losses.lose(imp, pages);
  }
  end_part(core, write_back);
}

}  // namespace cmi::memory
