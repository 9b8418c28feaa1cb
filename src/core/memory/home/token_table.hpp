// The tokens of one segment, at its home. At most one of them is for any given node.
// They are changed under the segment's lock `mu` and HomeCore::mu.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "core/access/handles.hpp"
#include "fabric/server.hpp"

namespace cmi::memory {

inline constexpr uint32_t kMaxTokens = 16384;  // of a context
inline constexpr uint32_t kMaxTokensPerSegment = 16384;

struct Token {
  access::TokenInfo info;
  std::unique_ptr<fabric::Region> region;  // its key; null while no memory is behind it
  bool revoked = false;
};

class TokenTable {
 public:
  bool full() const { return tokens_.size() >= kMaxTokensPerSegment; }
  bool has_for(const NodeId& node) const {
    return std::any_of(tokens_.begin(), tokens_.end(), [&](const auto& t) {
      return !t.second.info.any_node && t.second.info.node == node;
    });
  }
  void add(Token token) {
    ever_ = true;
    const uint64_t id = token.info.id;
    tokens_[id] = std::move(token);
  }
  // Null: no token of this id is in force, or the secret is another one's.
  Token* in_force(uint64_t id, uint64_t secret) {
    const auto it = tokens_.find(id);
    const bool good =
        it != tokens_.end() && !it->second.revoked && it->second.info.secret == secret;
    return good ? &it->second : nullptr;
  }
  void erase(uint64_t id) { tokens_.erase(id); }
  void clear() { tokens_.clear(); }
  size_t size() const { return tokens_.size(); }
  // There was a token once, so that somebody may write to the segment's memory past the home.
  bool ever() const { return ever_; }
  auto begin() { return tokens_.begin(); }
  auto end() { return tokens_.end(); }
  auto begin() const { return tokens_.begin(); }
  auto end() const { return tokens_.end(); }

 private:
  std::map<uint64_t, Token> tokens_;  // by id, the revoked ones until their keys are closed
  bool ever_ = false;
};

}  // namespace cmi::memory
