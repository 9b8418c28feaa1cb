#include "core/api/last_error.hpp"

#include <memory>
#include <new>

#include "core/base/cause.hpp"
#include "core/base/descriptors_left.hpp"

namespace cmi::api {

namespace {

constinit thread_local std::unique_ptr<char[]> t_text;

}  // namespace

char* error_text_buffer() {
  if (t_text == nullptr) t_text.reset(new (std::nothrow) char[kErrorTextSize]{});
  return t_text.get();
}

const char* words_of_failure(Status status) {
  if (const char* const cause = take_cause(status); cause != nullptr) return cause;
  if (status == Status::kNoMem && !descriptors_left(1)) {
    return "this process has no descriptors left (ulimit -n)";
  }
  return status_name(status);
}

const char* error_text() { return t_text != nullptr ? t_text.get() : "no memory for more"; }

}  // namespace cmi::api
