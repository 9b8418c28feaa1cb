// The one status type used inside the library, and Result<T>, a value or a status.
// Translated to cmi_error once, in core/api. Any thread; no allocation.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

namespace cmi {

enum class [[nodiscard]] Status : uint8_t{
    kOk,
    kInit,      // the calling thread is not registered
    kInval,     // an argument is wrong, or the object it names is gone
    kNoMem,     // memory, slots or limits exhausted
    kPerm,      // not the owner, or not the node a token was made for
    kNotSupp,   // not offered by this implementation or this machine
    kBound,     // already registered, opened or generated
    kHw,        // the local fabric device or provider failed
    kStore,     // stores were lost on their way to a home
    kReconfig,  // the node or the segment is being rearranged: try again
};

inline bool ok(Status s) { return s == Status::kOk; }

const char* status_name(Status s);

template <class T>
class [[nodiscard]] Result {
 public:
  Result(Status error) : status_(error) {}  // implicit on purpose; error must not be kOk
  Result(T value) : status_(Status::kOk), value_(std::move(value)) {}
  explicit operator bool() const { return status_ == Status::kOk; }
  Status status() const { return status_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T take() { return std::move(*value_); }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace cmi
