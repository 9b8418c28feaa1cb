// The read of a page that was missed, and of absent ones behind it as far as the reader's window
// goes. One thread, the one that faulted, all signals blocked.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "core/memory/importer/importer_core.hpp"

namespace cmi::memory {

class IntentRequest;

inline constexpr uint32_t kNobodysPage = kNoPage - 1;  // behind the last of any segment

// Pages that arrived leave kFetching. `view`: where to map them, null for nowhere. `wanted`: the
// one that faulted; kNoPage: none did, and the first is left unmapped, so that the reader that
// comes to it asks for more (Page::marker); kNobodysPage: none did, and all are mapped. `write`:
// the wanted one is stored to next.
void deliver(ImporterCore& core, Import& imp, const View* view, PageRange pages, uint32_t wanted,
             bool write);
void give_up_fetch(ImporterCore& core, const std::shared_ptr<Import>& imp, uint32_t first,
                   uint32_t n);

class Fetch {
 public:
  // A read that is not over in time ends the session, with all that is under way in it. So a
  // caller that can do without the page gives up early what needs messages, and not the read.
  struct Until {
    Deadline messages, read;
    Until(Deadline both) : messages(both), read(both) {}
    Until(Deadline of_messages, Deadline of_read) : messages(of_messages), read(of_read) {}
  };
  // `wanted` is kFetching, by this thread. `intent`: for a store that needs the page's dirty
  // intent, which is asked for beside the read; null: none is needed.
  Fetch(ImporterCore& core, const View& view, uint32_t wanted, bool store, IntentRequest* intent,
        Until until)
      : core_(core),
        view_(view),
        imp_(*view.import),
        wanted_(wanted),
        store_(store),
        intent_(intent),
        deadline_(until.messages),
        read_deadline_(until.read) {}
  Fetch(const Fetch&) = delete;
  Fetch& operator=(const Fetch&) = delete;

  // kNone: the pages have left kFetching, and the access may be tried again.
  Exception run();

 private:
  using Outcome = std::optional<Exception>;  // none: not yet

  void note_miss();
  void claim_window();
  void overlap();
  Outcome attempt();
  bool may_acquire() const;
  Outcome acquire_and_fetch(bool* asked);
  bool ask_intent_and_region(uint32_t epoch);
  bool ask_region(uint32_t epoch, std::shared_ptr<fabric::Request>* request);
  Outcome entered(Bytes content);
  bool prepare();
  bool back();  // with memory
  Outcome fetch_with_intent();
  Outcome with_intent();
  Outcome fetch_released();
  Outcome not_entered(WireStatus status, uint32_t seen);
  Outcome read(const std::shared_ptr<fabric::Session>& session, const fabric::RemoteKey& key);
  Exception arrived();
  // After an attempt that brought nothing: none where another one may.
  Outcome recover();
  bool strand();
  void give_up(uint32_t first, uint32_t count) { give_up_fetch(core_, view_.import, first, count); }

  ImporterCore& core_;
  const View& view_;
  Import& imp_;
  const uint32_t wanted_;
  const bool store_;
  IntentRequest* const intent_;
  const Deadline deadline_, read_deadline_;
  uint32_t n_ = 1;  // pages that are kFetching by this thread, from the wanted one on
  // Of the last attempt: a read was posted and failed. The provider may store to the pages for as
  // long as that read's session lives.
  bool failed_ = false;
  std::weak_ptr<void> session_life_;
};

}  // namespace cmi::memory
