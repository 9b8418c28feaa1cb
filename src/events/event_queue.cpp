// See queue.hpp.
#include "events/event_queue.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

namespace cmi::events {

Result<std::unique_ptr<Queue>> Queue::open() {
  std::unique_ptr<Queue> q(new Queue);
  q->ready_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!q->ready_) return Status::kNoMem;
  return q;
}

Queue::List* Queue::first_list() {
  for (List& l : waiting_) {
    if (!l.empty()) return &l;
  }
  return nullptr;
}

void Queue::show() {
  const bool any = first_list() != nullptr;
  if (any == shown_) return;
  shown_ = any;
  uint64_t one = 1;
  [[maybe_unused]] const ssize_t n =
      any ? ::write(ready_.get(), &one, sizeof one) : ::read(ready_.get(), &one, sizeof one);
}

void Queue::push(std::unique_ptr<Event> event) {
  SignalsBlocked quiet;
  Guard g(mu_);
  List& list = waiting_[event->rank()];
  // From the newest back: of one key, the newest is what this one follows.
  for (auto at = list.rbegin(); at != list.rend(); ++at) {
    if ((*at)->absorb(*event)) return;
    if (!(*at)->undone_by(*event)) continue;
    // An earlier one that says the same makes the pair between them needless.
    const auto earlier =
        std::find_if(std::next(at), list.rend(), [&](auto& e) { return e->absorb(*event); });
    if (earlier == list.rend()) break;
    list.erase(std::next(at).base());
    return;
  }
  list.push_back(std::move(event));
  show();
}

bool Queue::next(size_t* room) {
  SignalsBlocked quiet;
  Guard g(mu_);
  const List* list = first_list();
  if (list == nullptr) return false;
  *room = list->front()->room();
  return true;
}

std::unique_ptr<Event> Queue::take(size_t room) {
  SignalsBlocked quiet;
  Guard g(mu_);
  List* list = first_list();
  if (list == nullptr || list->front()->room() > room) return nullptr;
  std::unique_ptr<Event> event = std::move(list->front());
  list->pop_front();
  show();
  return event;
}

size_t Queue::waiting(Event::Rank rank) {
  Guard g(mu_);
  return waiting_[rank].size();
}

void Queue::forget(int32_t segment) {
  SignalsBlocked quiet;
  Guard g(mu_);
  for (List& l : waiting_) {
    std::erase_if(l, [&](auto& e) { return e->forget(segment); });
  }
  show();
}

}  // namespace cmi::events
