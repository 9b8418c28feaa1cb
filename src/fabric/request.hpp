// One request of a Link, from start() until it is answered or given up, and the tokens that may
// answer it in the home's place.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory_resource>
#include <span>

#include "core/base/codec.hpp"
#include "fabric/fabric.hpp"
#include "fabric/frame.hpp"

namespace cmi::fabric {

// The secret of a request, which the home splits into one token for each receiver of its
// notifications: the exclusive or of all tokens is the secret. A client that has them all knows
// that all receivers have done what the notification asks for. Guarded by Link::mu_ while the
// request is pending.
class AckTokens {
 public:
  void expect(uint64_t secret) { secret_ = missing_ = secret; }
  // The session over which the secret went has gone, and some tokens with it.
  void expect_none() { secret_ = missing_ = 0; }
  bool expected() const { return secret_ != 0; }
  uint64_t secret() const { return secret_; }  // 0: none is sent
  bool complete() const { return missing_ == 0; }
  // False: it has come before, or there cannot be so many.
  bool take(uint64_t token) {
    const auto seen = std::span(tokens_).first(taken_);
    if (taken_ == tokens_.size() || std::find(seen.begin(), seen.end(), token) != seen.end()) {
      return false;
    }
    tokens_[taken_++] = token;
    missing_ ^= token;
    return true;
  }

 private:
  uint64_t secret_ = 0;
  uint64_t missing_ = 0;  // exclusive or of the tokens that have not come
  size_t taken_ = 0;
  std::array<uint64_t, kMostDirectAcks> tokens_;
};

class Request {
 public:
  // Takes the reply, which is not kept then; an empty one when none will come. On the polling
  // thread, no lock held.
  using Callback = std::function<void(Bytes)>;
  bool answered() const { return op_.done(); }
  Bytes reply() const { return reply_; }  // once answered, without a callback
  uint64_t number() const { return number_; }
  Op& op() { return op_; }  // to wait for

 private:
  friend class Link;
  friend class RequestWindow;
  // A copy that lives as long as the request. Most are a few words and lie in little_.
  Bytes keep(Bytes b) {
    if (b.empty()) return {};
    void* copy = memory_.allocate(b.size(), 1);
    return {static_cast<std::byte*>(std::memcpy(copy, b.data(), b.size())), b.size()};
  }

  Op op_;  // done when the reply is here, so that waiting for it is waiting for an op
  uint64_t number_ = 0;
  uint16_t type_ = 0;
  // Guarded by Link::mu_ while the request is pending: from here to tokens_.
  Nanos begun_at_ = 0;
  Nanos sent_at_ = 0;               // the last time
  bool repeated_ = false;           // the last time was to ask again
  bool takes_direct_acks_ = false;  // behind its payload goes the secret of tokens_, or 0
  AckTokens tokens_;
  std::array<std::byte, 192> little_;
  std::pmr::monotonic_buffer_resource memory_{little_.data(), little_.size()};
  Bytes payload_, reply_;
  Callback on_answer_;
  std::function<void()> late_;  // guarded by Link::mu_ while the request is pending
};

}  // namespace cmi::fabric
