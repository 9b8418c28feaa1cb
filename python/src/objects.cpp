// Closing: what was made in a context goes before the context, and nothing goes that is in use.
#include "objects.hpp"

#include <algorithm>

namespace cmi_python {

void Closable::must_be_open() const {
  if (closed_) throw py::value_error(std::string("the ") + what_ + " is closed");
}

void Closable::close() {
  if (closed_) return;
  if (in_use()) {
    throw py::buffer_error(std::string("the ") + what_ +
                           " is in use: by an array, a memoryview, or a call of another thread");
  }
  give_back();
  closed_ = true;
}

Context::Context() : Closable("context"), context_(cmi::context::open()) {}

void Context::adopt(const std::shared_ptr<Closable>& made) {
  std::erase_if(made_, [](const auto& one) { return one.expired(); });
  made_.push_back(made);
}

bool Context::any_in_use() const {
  return in_use() || std::any_of(made_.begin(), made_.end(), [](const auto& one) {
           const auto object = one.lock();
           return object && object->in_use();
         });
}

void Context::give_back() {
  if (any_in_use()) {
    throw py::buffer_error("the context is in use: by an array, a memoryview, or another thread");
  }
  for (auto one = made_.rbegin(); one != made_.rend(); ++one) {
    if (const auto object = one->lock()) object->close();
  }
  made_.clear();
  context_.reset();
}

std::byte* View::at(size_t offset, size_t bytes) const {
  must_be_open();
  if (offset > size() || bytes > size() - offset) {
    throw py::index_error(std::to_string(bytes) + " bytes at " + std::to_string(offset) +
                          " of a view of " + std::to_string(size()) + " bytes");
  }
  return view_.data() + offset;
}

Placed::Placed(std::shared_ptr<View> view, size_t offset, size_t bytes, size_t alignment)
    : view_(std::move(view)), offset_(offset), bytes_(bytes) {
  static_cast<void>(view_->at(offset, bytes));
  if (offset % alignment != 0) {
    throw py::value_error("the offset is not a multiple of " + std::to_string(alignment));
  }
}

}  // namespace cmi_python
