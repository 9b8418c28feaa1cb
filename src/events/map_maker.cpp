// See map_maker.hpp.
#include "events/map_maker.hpp"

#include <pthread.h>

#include "core/base/library_thread.hpp"
#include "core/memory/engine/probe_all.hpp"

namespace cmi::events {

Status MapMaker::request(uint64_t id) {
  SignalsBlocked quiet;  // the thread inherits it
  Guard g(mu_);
  if (stop_.load()) return Status::kInval;
  // Requests whose maps the client does not fetch would pile up without end.
  if (asked_.size() + events_.maps_waiting() >= kMaxRequests) return Status::kNoMem;
  asked_.push_back(id);
  if (running_) return Status::kOk;
  if (thread_.joinable()) thread_.join();  // its last act was to say that it does not run
  if (Status s = start_thread(&thread_, &MapMaker::run, this); !ok(s)) {
    asked_.pop_back();
    return s;
  }
  running_ = true;
  return Status::kOk;
}

void MapMaker::run() {
  pthread_setname_np(pthread_self(), "cmi-map");
  const LibraryThread here;
  for (;;) {
    std::vector<uint64_t> now_asked;
    {
      Guard g(mu_);
      now_asked.swap(asked_);
      running_ = !now_asked.empty() && !stop_.load();
      if (!running_) return;
    }
    const auto cut_off = memory::unreachable_peers(
        engine_, Deadline::in(engine_.importer().reconf_timeout().get()), stop_);
    if (stop_.load()) continue;
    for (uint64_t id : now_asked) events_.map(id, cut_off);
  }
}

void MapMaker::stop() {
  stop_.store(true);
  std::thread last;
  {
    Guard g(mu_);
    last.swap(thread_);
  }
  if (last.joinable()) last.join();
}

}  // namespace cmi::events
