// Questions of this process to others of the node that wait for their answer, by number. A question
// is answered once; later answers to the same number change nothing.
// Threads: any. Owner: NodeChannel.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "core/base/fd.hpp"
#include "core/base/ids.hpp"
#include "core/base/lock.hpp"
#include "fabric/fabric.hpp"

namespace cmi::memory {

struct BusQuestion {
  fabric::Op done;                 // complete when there is an answer
  Fd file;                         // that came with the answer
  std::optional<uint64_t> status;  // of the answer; none: there was no answer
  std::function<void()> answered;  // run once, with no lock held, before `done` is complete
};

class BusQuestions {
 public:
  // A number that no other question of this process has.
  uint64_t new_number();
  std::shared_ptr<BusQuestion> add(uint64_t number, std::function<void()> answered = {});
  // Takes the question out and completes it. False: there is none of this number (any more).
  bool answer(uint64_t number, Fd file, uint64_t status = 0);
  // Nobody waits for the answer any more. Returns the file that came with it, if any.
  Fd close(uint64_t number, BusQuestion& question);
  size_t pending();

 private:
  Mutex mu_;
  uint64_t next_ CMI_GUARDED_BY(mu_) = random_u64();
  std::map<uint64_t, std::shared_ptr<BusQuestion>> pending_ CMI_GUARDED_BY(mu_);
};

}  // namespace cmi::memory
