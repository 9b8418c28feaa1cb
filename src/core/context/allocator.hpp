// Memory for what the client holds: from the allocator that it gave to cmi_ini, or the library's
// own.
#pragma once

#include <cstddef>
#include <cstdlib>

namespace cmi::context {

struct Allocator {
  void* (*alloc)(size_t, void*) = nullptr;  // null, with free: malloc and free
  void (*free)(void*, void*) = nullptr;
  void* arg = nullptr;

  void* get(size_t bytes) const {  // null: out of memory
    return alloc != nullptr ? alloc(bytes, arg) : std::malloc(bytes);
  }
  void put(void* memory) const {  // null is fine
    if (memory == nullptr) return;
    if (free != nullptr) {
      free(memory, arg);
    } else {
      std::free(memory);
    }
  }
};

}  // namespace cmi::context
