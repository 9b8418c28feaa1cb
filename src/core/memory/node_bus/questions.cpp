#include "core/memory/node_bus/questions.hpp"

#include <utility>

namespace cmi::memory {

uint64_t BusQuestions::new_number() {
  Guard g(mu_);
  return next_++;
}

std::shared_ptr<BusQuestion> BusQuestions::add(uint64_t number, std::function<void()> answered) {
  auto question = std::make_shared<BusQuestion>();
  question->answered = std::move(answered);
  question->done.begin();
  Guard g(mu_);
  pending_[number] = question;
  return question;
}

bool BusQuestions::answer(uint64_t number, Fd file, uint64_t status) {
  std::shared_ptr<BusQuestion> question;
  {
    Guard g(mu_);
    auto taken = pending_.extract(number);
    if (taken.empty()) return false;
    question = std::move(taken.mapped());
    question->file = std::move(file);
    question->status = status;
  }
  if (question->answered) question->answered();
  question->done.complete(fabric::Cause::kOk);
  return true;
}

Fd BusQuestions::close(uint64_t number, BusQuestion& question) {
  Guard g(mu_);
  pending_.erase(number);
  return std::move(question.file);
}

size_t BusQuestions::pending() {
  Guard g(mu_);
  return pending_.size();
}

}  // namespace cmi::memory
