// How a segment becomes an import: the link to its home, the first question, lifelines. Application
// threads; calls wait for the home.
#pragma once

#include <memory>
#include <vector>

#include "core/memory/importer/importer_core.hpp"
#include "core/memory/importer/patience.hpp"

namespace cmi::memory {

class Joining {
 public:
  explicit Joining(ImporterCore& core) : core_(core) {}

  // Asks the home for the segment. kInval: nobody listens there any more, or it no longer has it.
  // kReconfig: it does not answer, for longer than first contacts should take. kNoMem: no endpoint
  // can be had here, or the home keeps no more imports. `ours`: this process imports it for its
  // node, so its client is notified of what happens to it. `cache`: bytes that it may keep, as
  // set_cache_size() takes them; 0: no limit.
  Result<std::shared_ptr<Import>> import(const access::RsegInfo& rseg, int32_t id, bool ours,
                                         const JoinTime& time, size_t cache = 0);

 private:
  // Why there is no answer to the first question.
  enum class NoAnswer : uint8_t { kBusy, kEnded, kOutOfReach, kRefused, kLocal };
  struct Opened {
    OpenReply reply;
    Break brk;
    QuiescePart quiesce;
  };

  std::vector<fabric::Route> routes_to(const access::RsegInfo& rseg) const;
  std::shared_ptr<fabric::Link> link_to(const access::RsegInfo& rseg);
  Result<std::vector<std::byte>> open(fabric::Link& link, bool write_through, Bytes question,
                                      NoAnswer* why, const JoinTime& time);
  // kBusy: it goes on being waited for.
  static NoAnswer look_for_home(fabric::Link& link, int refusals, const JoinTime& time);
  static void say_no_answer(const access::RsegInfo& rseg, const fabric::Link& link, NoAnswer why);
  static const char* cause_of(NoAnswer why);
  static Status refused_by(WireStatus status);
  // The home's answer. A failure: the import is forgotten.
  Result<Opened> take_answer(const std::shared_ptr<Import>& imp, Bytes answer);
  Status watch(const std::shared_ptr<Import>& imp, const Opened& opened, const JoinTime& time);
  void take_back(const std::shared_ptr<Import>& imp, Bytes question, bool refused);

  ImporterCore& core_;
};

}  // namespace cmi::memory
