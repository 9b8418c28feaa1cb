// What a swap's answer brings of the word's page (rule 12): the page, where it is not cached and
// was missed after the last swap there, and its dirty intent, where a store asked for it. The page
// is fetched by the thread that swaps, by the rules of every fetch; it is this object's from
// begin() until take() or give_up(), which the swap's thread calls before it gives its signals
// free.
#pragma once

#include <memory>

#include "core/memory/importer/importer_core.hpp"
#include "core/memory/importer/pending_swaps.hpp"
#include "core/memory/wire/requests.hpp"

namespace cmi::memory {

class SwapFetch {
 public:
  // A page that a swap waits for keeps others from fetching it: for this long.
  static constexpr Nanos kPatience = 20 * kMilli;

  SwapFetch(ImporterCore& core, const View& view, uint32_t index)
      : core_(core), view_(view), imp_(*view.import), index_(index) {}
  ~SwapFetch() { give_up(); }
  SwapFetch(const SwapFetch&) = delete;
  SwapFetch& operator=(const SwapFetch&) = delete;

  // Before the swap is sent: decides what is asked for. No page is locked.
  void begin();
  bool any() const { return page_ || epoch_ != 0; }
  // A message about so many pages, whose answer is noted in *to.
  SwapFetchRequest request(const CasRequest& swap, uint32_t pages, std::shared_ptr<SentSwap> to);
  // The answer is here: what it has brought is put in its place. Whether the page was.
  bool take(const SentSwap& answer);
  // It has not come in time, or never will. What it brings later is not used.
  void give_up();

  // By a provider's atomic, which brings nothing: the same by a fetch of its own, while the swap is
  // announced. Whether the page is here.
  bool fetch(Deadline deadline);

 private:
  void end_intent(bool granted);
  void note_unused(Page& page);

  ImporterCore& core_;
  const View& view_;
  Import& imp_;
  const uint32_t index_;
  bool page_ = false;  // it is kFetching, by this
  uint8_t epoch_ = 0;  // of its dirty intent, which is being asked for
  std::shared_ptr<SentSwap> sent_;
};

// The swap's answer, in whatever thread takes it in: kept until the swap's thread looks.
void take_swap_answer(const std::shared_ptr<Import>& imp, SentSwap& to, Bytes answer);
// The timer's: intents that swaps have brought and nobody has used go back.
void give_back_unused(ImporterCore& core);

}  // namespace cmi::memory
