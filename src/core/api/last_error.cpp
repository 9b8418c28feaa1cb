#include "core/api/last_error.hpp"

#include <memory>
#include <new>

namespace cmi::api {

namespace {

constinit thread_local std::unique_ptr<char[]> t_text;

}  // namespace

char* error_text_buffer() {
  if (t_text == nullptr) t_text.reset(new (std::nothrow) char[kErrorTextSize]{});
  return t_text.get();
}

const char* error_text() { return t_text != nullptr ? t_text.get() : "no memory for more"; }

}  // namespace cmi::api
