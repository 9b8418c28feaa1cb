// What one import may do, and whether it may go on: the token in force, its rights and pages, and
// the state of the import. Rights and pages are read without the lock, by accesses; a token that
// ends and a token that comes exclude each other under it. Pure; the lock is a leaf.
//
// Invariant: a verdict of the home on an older token ends nothing under a newer one, and under that
// nothing is accessed before the end of the older one has taken all pages; else it would take
// stores of the newer one with it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

#include "core/access/handles.hpp"
#include "core/base/ids.hpp"
#include "core/base/lock.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/importer/lock_order.hpp"
#include "core/memory/importer/session_key.hpp"

namespace cmi::memory {

// Whether accesses may go on. Rises only, but for a new token, which brings kUsable back from
// kNoToken and kRevoked.
enum class ImportState : uint8_t {
  kNoToken,  // none set yet: TOKEN
  kUsable,
  kRevoked,  // TOKEN
  kRemoved,  // marked for deletion at home, which still has it attached: TOKEN
  kGone,     // home dead or segment gone: SINVAL
};

class Grant {
 public:
  // While it lives all pages are being taken out of use; no token comes into force.
  class Sweep {
   public:
    Sweep(Sweep&& other) noexcept : grant_(std::exchange(other.grant_, nullptr)) {}
    Sweep& operator=(Sweep&&) = delete;
    ~Sweep() {
      if (grant_ == nullptr) return;
      Guard g(grant_->mu_);
      --grant_->sweeps_;
    }

   private:
    friend Grant;
    explicit Sweep(Grant& grant) CMI_REQUIRES(grant.mu_) : grant_(&grant) { ++grant.sweeps_; }
    Grant* grant_;
  };

  ImportState state() const { return state_.load(std::memory_order_seq_cst); }
  uint32_t rights() const { return rights_.load(std::memory_order_acquire); }
  bool has(uint32_t rights) const { return (this->rights() & rights) == rights; }
  // The pages that the token is for end before this one.
  uint32_t end_page() const { return end_page_.load(std::memory_order_acquire); }
  bool allows(uint32_t page) const {
    return page >= first_page_.load(std::memory_order_acquire) && page < end_page();
  }
  uint64_t token_id() const { return token_id_.load(); }
  // The home decides; what the token claims is only what it claims.
  void set_rights(uint32_t rights) { rights_.store(rights, std::memory_order_release); }
  // The same of its pages: `count` from `first` on.
  void narrow_pages(uint32_t first, uint32_t count) {
    first_page_.store(std::max(first_page_.load(), first), std::memory_order_release);
    end_page_.store(std::min(end_page_.load(), first + count), std::memory_order_release);
  }

  // The process that imported the segment for its node has said that it set another token; until
  // that one is in force here, nothing may be accessed.
  void notify_of_token() { notified_.fetch_add(1, std::memory_order_seq_cst); }
  uint32_t notified() const { return notified_.load(std::memory_order_acquire); }
  // The token in force is the one of this many notifications: of none that came later.
  void took(uint32_t notified) {
    if (taken_.load() != notified) taken_.store(notified, std::memory_order_release);
  }
  bool is_outdated() const { return notified_.load() != taken_.load(); }

  // Brings the token into force; an import that was removed or lost stays so. `pages`: of the
  // segment. The key is closed before accesses may go on: the next use presents the token. None:
  // the pages of a former token are still being taken.
  std::optional<Sweep> begin(const access::TokenInfo& token, uint32_t pages, SessionKey& key) {
    Guard g(mu_);
    if (sweeps_ != 0 && !mutated("mutate_token_before_sweep")) return std::nullopt;
    key.close();
    rights_.store(token.rights, std::memory_order_release);
    const auto first = static_cast<uint32_t>(token.part.offset / kPageSize);
    const auto count = static_cast<uint32_t>(token.part.size / kPageSize);
    first_page_.store(first, std::memory_order_release);
    end_page_.store(token.part.size == 0 ? pages : first + count, std::memory_order_release);
    token_id_.store(token.id, std::memory_order_release);
    const ImportState before = state_.load();
    if (before != ImportState::kRemoved && before != ImportState::kGone) {
      state_.store(ImportState::kUsable);
    }
    return Sweep(*this);
  }
  // The import ends. `token`: for kRevoked, the token that ends. A state is never replaced by a
  // lower one: a removed segment does not become a revoked one. None: the token is not in force any
  // more.
  std::optional<Sweep> end(ImportState state, uint64_t token) {
    Guard g(mu_);
    if (state == ImportState::kRevoked && token != token_id_.load() &&
        !mutated("mutate_verdict_on_any_token")) {
      return std::nullopt;
    }
    if (state_.load() < state) state_.store(state, std::memory_order_seq_cst);
    return Sweep(*this);
  }
  bool is_swept() {
    Guard g(mu_);
    return sweeps_ != 0;
  }

 private:
  std::atomic<ImportState> state_{ImportState::kNoToken};
  std::atomic<uint32_t> rights_{0}, first_page_{0}, end_page_{0};
  // How often the node's process has said that it set another token, and up to which of these the
  // token in force is that one.
  std::atomic<uint32_t> notified_{0}, taken_{0};
  std::atomic<uint64_t> token_id_{0};  // of the token in force; stored under mu_, with the state
  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_answers)
      CMI_ACQUIRED_BEFORE(lock_order::after_write_backs);
  uint32_t sweeps_ CMI_GUARDED_BY(mu_) = 0;
};

}  // namespace cmi::memory
