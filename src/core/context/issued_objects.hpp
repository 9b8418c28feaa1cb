// Handles and tokens that the client holds, in memory from its allocator, until it deletes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/codec.hpp"
#include "core/base/lock.hpp"
#include "core/context/allocator.hpp"
#include "core/context/lock_order.hpp"

namespace cmi::context {

// Any thread. Its lock is a leaf; the client's allocator is called without it.
class IssuedObjects {
 public:
  enum class Kind : uint8_t { kHandle, kToken };

  explicit IssuedObjects(const Allocator& allocator) : allocator_(allocator) {}
  ~IssuedObjects();  // what the client has not deleted goes, too
  IssuedObjects(const IssuedObjects&) = delete;
  IssuedObjects& operator=(const IssuedObjects&) = delete;

  // Zeroed memory for a new object of so many bytes. Null: out of memory.
  std::byte* issue(Kind kind, size_t size);
  // Frees the object of that kind at this address; else one with the same content, because a client
  // may delete a copy. `content` is as long as all objects of that kind. False: there is none.
  bool take_back(Kind kind, const void* object, Bytes content);

 private:
  struct Issued {
    std::byte* object = nullptr;
    Kind kind{};
  };
  const Allocator& allocator_;
  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_sizes);
  std::vector<Issued> issued_ CMI_GUARDED_BY(mu_);
};

}  // namespace cmi::context
