// Packing diffs into messages, and runs that are written one-sided.
#include "core/memory/importer/collector.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "core/base/fault_point.hpp"
#include "core/base/mutation.hpp"
#include "core/base/usdt.hpp"
#include "core/memory/importer/await_home.hpp"
#include "core/memory/importer/dirty_intents.hpp"
#include "core/memory/importer/importer_mutations.hpp"
#include "core/memory/importer/page_moves.hpp"
#include "core/memory/importer/write_back.hpp"
#include "core/memory/page/compare.hpp"

namespace cmi::memory {

namespace {
// Of one message.
constexpr uint32_t kRepairPages =
    (fabric::kMaxPayload - kWireSize<RepairRequest>) / RepairRequest::kItem;
// Pages of runs, 16 MiB: twice of what a session posts at once.
constexpr size_t kMostRunPages = 4096;

// Sends a message about pages of the write-back; answered() runs with the home's verdict.
std::shared_ptr<fabric::Request> start_message(ImporterCore& core, const WriteBackPtr& write_back,
                                               RequestType type, Bytes payload,
                                               std::vector<uint32_t> pages,
                                               fabric::Request::Callback on_answer = {}) {
  write_back->parts.fetch_add(1, std::memory_order_relaxed);
  count(core.parts.stats.publications);
  count(write_back->import->stats.publications);
  CMI_PROBE3(publish, write_back->import->id, pages.size(), payload.size());
  note_greatest(core.parts.stats.most_unanswered,
                core.traffic.unanswered.fetch_add(1, std::memory_order_relaxed) + 1);
  return write_back->import->link->start(
      static_cast<uint16_t>(type), payload,
      [&core, write_back, pages = std::move(pages),
       on_answer = std::move(on_answer)](Bytes reply) mutable {
        core.traffic.unanswered.fetch_sub(1, std::memory_order_relaxed);
        if (fabric::is_direct_acks(reply)) {
          count(core.parts.stats.publications_received);
          core.traffic.acked_below_unreported.store(
              true);  // before the write-back ends, of which busy() tells
        }
        if (on_answer) on_answer(reply);
        const auto answer = split_reply(reply);
        answered(core, write_back, pages, answer ? std::optional(answer->status) : std::nullopt);
      },
      type == RequestType::kPublish ? fabric::Link::DirectAcks::kTaken
                                    : fabric::Link::DirectAcks::kNone);
}

// The write of a run has arrived, or its session is closed and nobody knows. The pages are pinned
// until the answer: they still hold what was, or should have been, written.
void written(ImporterCore& core, const std::shared_ptr<BulkWrite>& run, bool arrived) {
  SignalsBlocked quiet;
  Import& imp = *run->write_back->import;
  fault_point("bulk_write_before_announce");
  const auto n = static_cast<uint32_t>(run->twins.size());
  const uint32_t step = arrived ? n : kRepairPages;
  std::vector<std::byte> buf(fabric::kMaxPayload);
  for (uint32_t at = 0; at < n; at += step) {
    std::vector<uint32_t> pages(std::min(step, n - at));
    Writer out(buf);
    if (arrived) {
      encode(AnnounceRequest{imp.rseg.uid, imp.instance, 1, {}}, out);
      PageRangeList::put(out, {run->first, n});
    } else {
      const auto count = static_cast<uint32_t>(pages.size());
      encode(RepairRequest{imp.rseg.uid, imp.instance, count, {}}, out);
    }
    for (uint32_t i = 0; i < pages.size(); ++i) {
      pages[i] = run->first + at + i;
      if (arrived) continue;
      RepairRequest::put(out, {pages[i],
                               {core.twins.at(run->twins[at + i]), kPageSize},
                               {imp.page_data(pages[i]), kPageSize}});
    }
    start_message(core, run->write_back, arrived ? RequestType::kAnnounce : RequestType::kRepair,
                  out.done(), std::move(pages));
  }
  for (uint32_t twin : run->twins) core.twins.give(twin);
  end_part(core, run->write_back);
}
}  // namespace

Collector::Collector(ImporterCore& core, std::shared_ptr<Import> imp, WriteBackPtr write_back)
    : core_(core), import_(std::move(imp)), write_back_(std::move(write_back)) {}

Collector::~Collector() {
  flush();
  if (!unmarked_.empty()) give_back_intents(*import_, unmarked_);
  if (write_back_ != nullptr) end_part(core_, write_back_);
}

std::span<std::byte> Collector::buffer() {
  return large_ != nullptr ? std::span(large_.get(), kFront + kMostBytes) : std::span(little_);
}

void Collector::open() {
  out_.emplace(buffer().subspan(kFront));
  encode(PublishRequest{import_->rseg.uid, import_->instance, 0, {}}, *out_);
}

// The message goes on in a buffer of the full length. False: there is no memory for one.
bool Collector::grow() {
  const Bytes begun = out_->done();
  large_.reset(new (std::nothrow) std::byte[kFront + kMostBytes]);
  if (large_ == nullptr) return false;
  out_.emplace(buffer().subspan(kFront));
  out_->bytes(begun);
  return true;
}

// Puts what differs into the message, and another message if that is full. *diff: where it stands.
size_t Collector::pack(uint32_t page, uint8_t epoch, const std::byte* data, const std::byte* twin,
                       Bytes* diff) {
  for (;;) {
    if (!out_) open();
    Writer trial = *out_;
    DirtyIntentList::put(trial, {page, epoch});
    const size_t diff_at = trial.size();
    const size_t bytes = trial.ok() ? encode_diff(data, twin, trial) : kDiffNoRoom;
    if (bytes == 0) return 0;
    if (bytes != kDiffNoRoom && trial.ok()) {
      *out_ = trial;
      *diff = trial.done().subspan(diff_at);
      // Registered before the caller lets go of the page's lock (see WriteBacks).
      if (write_back_ == nullptr) write_back_ = core_.write_backs.begin(import_);
      pages_.push_back(page);
      count(core_.parts.stats.pages_written_back);
      count(core_.parts.stats.bytes_written_back, bytes);
      count(import_->stats.bytes_written_back, bytes);
      return bytes;
    }
    if (large_ == nullptr && grow()) continue;
    if (large_ == nullptr && pages_.empty()) throw std::bad_alloc();  // it takes the large one
    flush();  // an empty message has room for any page's diff, a small one for a few bytes
  }
}

size_t Collector::add(uint32_t page, const std::byte* twin, std::byte* renewed) {
  IntentState& intent = import_->page(page).intent;
  Bytes diff;
  const size_t bytes = pack(page, intent.held() ? intent.epoch() : uint8_t{0},
                            import_->page_data(page), twin, &diff);
  if (bytes == 0) {
    clear_intent(page);
    return 0;
  }
  if (renewed != nullptr) renew(diff, page, renewed);
  if (!mutated("mutate_intent_kept_by_write_back")) intent.take();
  return bytes;
}

bool Collector::differs(uint32_t page, const std::byte* twin) const {
  return std::memcmp(import_->page_data(page), twin, kPageSize) != 0;
}

size_t Collector::add_hot(uint32_t page, std::byte* twin) {
  if (!differs(page, twin)) return 0;
  const std::byte* const data = import_->page_data(page);
  // A word that changes between comparison and packing would go as a mixture of two values.
  alignas(kCompareBlock) std::byte seen[kPageSize];
  read_words(data, seen);
  IntentState& intent = import_->page(page).intent;
  uint8_t epoch = 0;
  if (mutated("mutate_hot_intent_cleared") && intent.held()) epoch = intent.epoch();
  Bytes diff;
  const size_t bytes = pack(page, epoch, seen, twin, &diff);
  if (bytes != 0 && mutated("mutate_hot_twin_read_again")) {
    mutation::renew_from_page(twin, data);
  } else if (bytes != 0 && !mutated("mutate_hot_twin_kept")) {
    std::memcpy(twin, seen, kPageSize);
  }
  return bytes;
}

// From the message: the page itself may have been stored to since it was compared.
void Collector::renew(Bytes diff, uint32_t page, std::byte* twin) {
  if (mutated("mutate_sent_twin_kept")) return;
  if (mutated("mutate_sent_read_again"))
    return mutation::renew_from_page(twin, import_->page_data(page));
  Reader in(diff);
  (void)apply_diff(in, twin);
}

void Collector::clear_intent(uint32_t page) {
  IntentState& mark = import_->page(page).intent;
  // Whether it is held here or has gone with a message that was refused: the home has it under this
  // epoch. One that is being asked for is another thread's.
  if (mark.asked() || mark.epoch() == 0) return;
  mark.take();
  unmarked_.push_back({page, mark.epoch()});
}

void Collector::flush() {
  if (!out_ || pages_.empty()) return;
  const auto n = static_cast<uint32_t>(pages_.size());
  Writer head(buffer().subspan(kFront));  // now that the number of pages is known
  encode(PublishRequest{import_->rseg.uid, import_->instance, n, {}}, head);
  fault_point("publish_before_send");
  if (mutated("mutate_live_bytes")) {
    mutation::read_again(*import_, out_->done().subspan(kWireSize<PublishRequest>));
  }
  sent_.push_back(
      start_message(core_, write_back_, RequestType::kPublish, out_->done(), std::move(pages_)));
  pages_.clear();
  out_.reset();
}

bool Collector::fits_swap() const {
  return sent_.empty() && runs_.empty() && runs_out_.empty() &&
         (!out_ || kFront + out_->size() <= fabric::kMaxPayload);
}

// `m` takes the place of the head of a publish request, and of what is free in front of it.
template <class Message>
std::shared_ptr<fabric::Request> Collector::send_with(RequestType type, const Message& m,
                                                      OnAnswer on_answer) {
  constexpr size_t kUnused = kFront + kWireSize<PublishRequest> - kWireSize<Message>;
  const auto whole = buffer().subspan(kUnused, kFront - kUnused + out_->size());
  Writer head(whole);
  encode(m, head);
  fault_point("cas_before_send");
  auto request =
      start_message(core_, write_back_, type, whole, std::move(pages_), std::move(on_answer));
  pages_.clear();
  out_.reset();
  return request;
}

std::shared_ptr<fabric::Request> Collector::flush_with(const CasRequest& swap, OnAnswer on_answer) {
  const auto pages = static_cast<uint32_t>(pages_.size());
  const PublishSwapRequest m{swap.uid,     swap.instance, swap.offset, swap.expected,
                             swap.desired, pages,         {}};
  return send_with(RequestType::kPublishSwap, m, std::move(on_answer));
}

std::shared_ptr<fabric::Request> Collector::flush_with(SwapFetchRequest swap, OnAnswer on_answer) {
  swap.pages = static_cast<uint32_t>(pages_.size());
  return send_with(RequestType::kSwapFetch, swap, std::move(on_answer));
}

bool Collector::full() {
  const size_t most = most_unanswered(*import_->link);
  if (sent_.size() >= most) {
    while (!sent_.empty() && sent_.front()->answered()) sent_.pop_front();
  }
  if (run_pages_ >= kMostRunPages) {
    while (!runs_out_.empty() && runs_out_.front()->write_back->done.done()) release_bulk_write();
  }
  return (sent_.size() >= most || run_pages_ >= kMostRunPages) &&
         !fault_point_fails("collector_never_full");
}

void Collector::release_bulk_write() {
  run_pages_ -= runs_out_.front()->twins.size();
  runs_out_.pop_front();
}

bool Collector::link_full() const {
  return import_->link->pending() >= most_unanswered(*import_->link) &&
         !fault_point_fails("collector_never_full");
}

bool Collector::await_room(const Patience& patience) {
  // The wait must not keep a session open that breaks meanwhile.
  const bool runs = session_ != nullptr;
  session_.reset();
  while (sent_.size() > most_unanswered(*import_->link) / 2) {
    if (!await(core_, *import_, sent_.front()->op(), patience)) return false;
    sent_.pop_front();
  }
  while (run_pages_ > kMostRunPages / 2) {
    if (!await(core_, *import_, runs_out_.front()->write_back->done, patience)) return false;
    release_bulk_write();
  }
  if (runs) allow_runs();
  return true;
}

void Collector::allow_runs() {
  auto session = import_->link->current();
  if (session == nullptr || import_->key.generation() != session->generation()) {
    return;
  }
  key_ = import_->key.key();
  session_ = std::move(session);
}

uint32_t Collector::run_at(uint32_t page, uint32_t end) {
  if (session_ == nullptr || page < no_run_before_) return 0;
  const size_t most = session_->fabric().traits().max_rma / kPageSize;
  uint32_t n = 0;
  while (page + n < end && n < most) {
    const Page& p = import_->page(page + n);
    if (p.state != PageState::kDirty || p.in_flight) break;
    const uint32_t next = std::min(page + n + 1, end - 1);
    const std::byte* const twin = core_.twins.at(p.twin);
    const std::byte* const next_twin = core_.twins.at(import_->page(next).twin);
    if (!all_differ(import_->page_data(page + n), twin, import_->page_data(next),
                    next_twin != nullptr ? next_twin : twin)) {
      break;
    }
    ++n;
  }
  if (n >= kMinRun) return n;
  no_run_before_ = page + n;
  return 0;
}

void Collector::add_run(uint32_t first, uint32_t n) {
  auto run = std::make_shared<BulkWrite>();
  // Registered before the caller lets go of the pages' locks (see WriteBacks).
  run->write_back = core_.write_backs.begin(import_);
  run->first = first;
  run->twins.reserve(n);
  for (uint32_t i = 0; i < n; ++i) {
    Page& p = import_->page(first + i);
    run->twins.push_back(p.twin);
    p.twin = 0;
    ++p.generation;
    p.heat.written_back(true);
    p.in_flight = p.pinned = true;
    set_state(core_, *import_, p, PageState::kWriting);
  }
  count(core_.parts.stats.pages_written_back, n);
  count(core_.parts.stats.bytes_written_back, size_t{n} * kPageSize);
  count(import_->stats.bytes_written_back, size_t{n} * kPageSize);
  runs_out_.push_back(run);
  run_pages_ += n;
  runs_.push_back(std::move(run));
}

void Collector::start_runs() {
  for (auto& run : runs_) {
    if (!import_->begin_use(session_->generation(), key_, run->first + run->twins.size())) {
      written(core_, run, false);
      continue;
    }
    fault_point("bulk_write_before_write");
    session_->start_write(import_->page_data(run->first), run->twins.size() * kPageSize, key_,
                          uint64_t{run->first} * kPageSize,
                          [&core = core_, run](fabric::Cause cause) {
                            run->write_back->import->key.end_use();
                            written(core, run, cause == fabric::Cause::kOk);
                          });
  }
  runs_.clear();
}

}  // namespace cmi::memory
