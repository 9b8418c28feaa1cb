/*
 * cmi/cpp/sync.hpp: locks between threads of any nodes that survive the death of their owner, as
 * <cmi/ofi/cmi_sync.h> describes them. Part of <cmi/cmi.hpp>.
 *
 * An object here is a context and an address; each process makes its own, and its threads may share
 * it, but those of barrier and queue, which are of one thread. What lies in the segment are the
 * structures of C. Failures throw cmi::error; where a std::error_code is given, it says so instead,
 * and what is returned is no. lock() and its like, for the guards of the standard, throw alone.
 */
#ifndef CMI_CPP_SYNC_HPP
#define CMI_CPP_SYNC_HPP

#include <cmi.h>
#include <cmi/ofi/cmi_sync.h>

#include <algorithm>
#include <chrono>
#include <cmi/cpp/context.hpp>
#include <cmi/cpp/error.hpp>
#include <cstddef>
#include <cstdint>
#include <system_error>
#include <type_traits>

namespace cmi {

/** What became of a wait. */
enum class taken {
  yes = 0,
  owner_dead = CMI_OFI_OWNER_DEAD, /**< as the call says: mostly taken, and to be repaired */
  no = CMI_OFI_TIMED_OUT
};

namespace detail {

/** How long calls without a deadline of their own wait; then they throw std::errc::timed_out. */
inline constexpr std::chrono::milliseconds longest_wait = std::chrono::minutes(5);

inline uint32_t in_ms(std::chrono::milliseconds span) noexcept {
  const auto count = std::clamp<std::chrono::milliseconds::rep>(span.count(), 0, UINT32_MAX);
  return static_cast<uint32_t>(count);
}
/* no: the deadline has passed, or the call has failed. */
inline taken checked(int result, std::error_code& code) noexcept {
  set(code, result >= 0);
  return result < 0 ? taken::no : static_cast<taken>(result);
}
inline taken checked(int result) {
  if (result < 0) throw_if(last_error());
  return static_cast<taken>(result);
}
inline void in_time(taken result) {
  if (result == taken::no) throw std::system_error(std::make_error_code(std::errc::timed_out));
}

/* lock() and try_lock() of the standard over try_lock_for() of the derived class. */
template <class Lock>
class lockable {
 public:
  /**
   * For std::lock_guard and its like. Throws std::errc::owner_dead, and does not hold it, where an
   * owner has died and nobody has repaired; std::errc::timed_out after five minutes.
   */
  void lock() { safely(longest_wait); }
  bool try_lock() { return safely(std::chrono::milliseconds(0), true); }

 private:
  bool safely(std::chrono::milliseconds span, bool may_fail = false) {
    Lock& self = static_cast<Lock&>(*this);
    const taken result = self.try_lock_for(span);
    if (may_fail && result == taken::no) return false;
    in_time(result);
    if (result == taken::yes) return true;
    self.unlock();
    throw std::system_error(std::make_error_code(std::errc::owner_dead));
  }
};

}  // namespace detail

/** See cmi_ofi_mutex_lock(). */
class mutex : public detail::lockable<mutex> {
 public:
  mutex(const context& of, cmi_ofi_mutex& at) noexcept : ctxt_(of.get()), at_(&at) {}
  /** owner_dead: taken; repair what it guards, then call repaired(). */
  [[nodiscard]] taken try_lock_for(std::chrono::milliseconds span) {
    return detail::checked(cmi_ofi_mutex_lock(ctxt_, at_, detail::in_ms(span)));
  }
  [[nodiscard]] taken try_lock_for(std::chrono::milliseconds span, std::error_code& code) noexcept {
    return detail::checked(cmi_ofi_mutex_lock(ctxt_, at_, detail::in_ms(span)), code);
  }
  void unlock() { detail::checked(cmi_ofi_mutex_unlock(ctxt_, at_)); }
  void unlock(std::error_code& code) noexcept {
    detail::checked(cmi_ofi_mutex_unlock(ctxt_, at_), code);
  }
  void repaired() { detail::checked(cmi_ofi_mutex_repaired(ctxt_, at_)); }
  void repaired(std::error_code& code) noexcept {
    detail::checked(cmi_ofi_mutex_repaired(ctxt_, at_), code);
  }

 private:
  cmi_ctxt* ctxt_;
  cmi_ofi_mutex* at_;
};

/** See cmi_ofi_shared_mutex_lock(). */
class shared_mutex : public detail::lockable<shared_mutex> {
 public:
  shared_mutex(const context& of, cmi_ofi_shared_mutex& at) noexcept : ctxt_(of.get()), at_(&at) {}
  [[nodiscard]] taken try_lock_for(std::chrono::milliseconds span) {
    return detail::checked(cmi_ofi_shared_mutex_lock(ctxt_, at_, detail::in_ms(span)));
  }
  [[nodiscard]] taken try_lock_for(std::chrono::milliseconds span, std::error_code& code) noexcept {
    return detail::checked(cmi_ofi_shared_mutex_lock(ctxt_, at_, detail::in_ms(span)), code);
  }
  void unlock() { detail::checked(cmi_ofi_shared_mutex_unlock(ctxt_, at_)); }
  void unlock(std::error_code& code) noexcept {
    detail::checked(cmi_ofi_shared_mutex_unlock(ctxt_, at_), code);
  }
  void repaired() { detail::checked(cmi_ofi_shared_mutex_repaired(ctxt_, at_)); }
  void repaired(std::error_code& code) noexcept {
    detail::checked(cmi_ofi_shared_mutex_repaired(ctxt_, at_), code);
  }
  /** owner_dead: not taken; a writer has to repair first. */
  [[nodiscard]] taken try_lock_shared_for(std::chrono::milliseconds span) {
    return detail::checked(cmi_ofi_shared_mutex_lock_shared(ctxt_, at_, detail::in_ms(span)));
  }
  [[nodiscard]] taken try_lock_shared_for(std::chrono::milliseconds span,
                                          std::error_code& code) noexcept {
    return detail::checked(cmi_ofi_shared_mutex_lock_shared(ctxt_, at_, detail::in_ms(span)), code);
  }
  /** For std::shared_lock. Throws as lock(). */
  void lock_shared() {
    const taken result = try_lock_shared_for(detail::longest_wait);
    detail::in_time(result);
    if (result == taken::owner_dead) {
      throw std::system_error(std::make_error_code(std::errc::owner_dead));
    }
  }
  void unlock_shared() { detail::checked(cmi_ofi_shared_mutex_unlock_shared(ctxt_, at_)); }
  void unlock_shared(std::error_code& code) noexcept {
    detail::checked(cmi_ofi_shared_mutex_unlock_shared(ctxt_, at_), code);
  }

 private:
  cmi_ctxt* ctxt_;
  cmi_ofi_shared_mutex* at_;
};

/** See cmi_ofi_ticket_lock_lock(). Of one thread, since it keeps the ticket. */
class ticket_lock : public detail::lockable<ticket_lock> {
 public:
  ticket_lock(const context& of, cmi_ofi_ticket_lock& at) noexcept : ctxt_(of.get()), at_(&at) {}
  [[nodiscard]] taken try_lock_for(std::chrono::milliseconds span) {
    return detail::checked(cmi_ofi_ticket_lock_lock(ctxt_, at_, detail::in_ms(span), &ticket_));
  }
  [[nodiscard]] taken try_lock_for(std::chrono::milliseconds span, std::error_code& code) noexcept {
    return detail::checked(cmi_ofi_ticket_lock_lock(ctxt_, at_, detail::in_ms(span), &ticket_),
                           code);
  }
  void unlock() { detail::checked(cmi_ofi_ticket_lock_unlock(ctxt_, at_, ticket_)); }
  void unlock(std::error_code& code) noexcept {
    detail::checked(cmi_ofi_ticket_lock_unlock(ctxt_, at_, ticket_), code);
  }
  void repaired() { detail::checked(cmi_ofi_ticket_lock_repaired(ctxt_, at_, ticket_)); }
  void repaired(std::error_code& code) noexcept {
    detail::checked(cmi_ofi_ticket_lock_repaired(ctxt_, at_, ticket_), code);
  }

 private:
  cmi_ctxt* ctxt_;
  cmi_ofi_ticket_lock* at_;
  uint32_t ticket_ = 0;
};

/** See cmi_ofi_semaphore_acquire(). The constructor makes it where nobody has. */
class semaphore {
 public:
  semaphore(const context& of, cmi_ofi_semaphore& at, uint32_t permits)
      : ctxt_(of.get()), at_(&at) {
    detail::checked(cmi_ofi_semaphore_init(ctxt_, at_, permits));
  }
  semaphore(const context& of, cmi_ofi_semaphore& at, uint32_t permits,
            std::error_code& code) noexcept
      : ctxt_(of.get()), at_(&at) {
    detail::checked(cmi_ofi_semaphore_init(ctxt_, at_, permits), code);
  }
  /** owner_dead: taken over from a context that is gone. */
  [[nodiscard]] taken try_acquire_for(std::chrono::milliseconds span) {
    return detail::checked(cmi_ofi_semaphore_acquire(ctxt_, at_, detail::in_ms(span)));
  }
  [[nodiscard]] taken try_acquire_for(std::chrono::milliseconds span,
                                      std::error_code& code) noexcept {
    return detail::checked(cmi_ofi_semaphore_acquire(ctxt_, at_, detail::in_ms(span)), code);
  }
  taken acquire() {
    const taken result = try_acquire_for(detail::longest_wait);
    detail::in_time(result);
    return result;
  }
  void release() { detail::checked(cmi_ofi_semaphore_release(ctxt_, at_)); }
  void release(std::error_code& code) noexcept {
    detail::checked(cmi_ofi_semaphore_release(ctxt_, at_), code);
  }

 private:
  cmi_ctxt* ctxt_;
  cmi_ofi_semaphore* at_;
};

/** A party of a barrier: see cmi_ofi_barrier_wait(). Of one thread, and not copied. */
class barrier {
 public:
  barrier(const context& of, cmi_ofi_barrier& at, uint32_t parties) : ctxt_(of.get()), at_(&at) {
    detail::checked(cmi_ofi_barrier_init(ctxt_, at_, parties));
  }
  barrier(const context& of, cmi_ofi_barrier& at, uint32_t parties, std::error_code& code) noexcept
      : ctxt_(of.get()), at_(&at) {
    detail::checked(cmi_ofi_barrier_init(ctxt_, at_, parties), code);
  }
  barrier(const barrier&) = delete;
  barrier& operator=(const barrier&) = delete;
  /** Arrives and waits; no: it has arrived, and waits on with the next call. */
  [[nodiscard]] taken arrive_and_wait_for(std::chrono::milliseconds span) {
    return detail::checked(cmi_ofi_barrier_wait(ctxt_, at_, &party_, detail::in_ms(span)));
  }
  [[nodiscard]] taken arrive_and_wait_for(std::chrono::milliseconds span,
                                          std::error_code& code) noexcept {
    return detail::checked(cmi_ofi_barrier_wait(ctxt_, at_, &party_, detail::in_ms(span)), code);
  }
  /** owner_dead: passed, and some party has died. */
  taken arrive_and_wait() {
    const taken result = arrive_and_wait_for(detail::longest_wait);
    detail::in_time(result);
    return result;
  }

 private:
  cmi_ctxt* ctxt_;
  cmi_ofi_barrier* at_;
  cmi_ofi_party party_ = {};
};

/** See cmi_ofi_latch_wait(). */
class latch {
 public:
  latch(const context& of, cmi_ofi_latch& at, uint64_t count) : ctxt_(of.get()), at_(&at) {
    detail::checked(cmi_ofi_latch_init(ctxt_, at_, count));
  }
  latch(const context& of, cmi_ofi_latch& at, uint64_t count, std::error_code& code) noexcept
      : ctxt_(of.get()), at_(&at) {
    detail::checked(cmi_ofi_latch_init(ctxt_, at_, count), code);
  }
  void count_down(uint64_t by = 1) { detail::checked(cmi_ofi_latch_count_down(ctxt_, at_, by)); }
  void count_down(uint64_t by, std::error_code& code) noexcept {
    detail::checked(cmi_ofi_latch_count_down(ctxt_, at_, by), code);
  }
  [[nodiscard]] bool wait_for(std::chrono::milliseconds span) {
    return detail::checked(cmi_ofi_latch_wait(ctxt_, at_, detail::in_ms(span))) == taken::yes;
  }
  [[nodiscard]] bool wait_for(std::chrono::milliseconds span, std::error_code& code) noexcept {
    return detail::checked(cmi_ofi_latch_wait(ctxt_, at_, detail::in_ms(span)), code) == taken::yes;
  }

 private:
  cmi_ctxt* ctxt_;
  cmi_ofi_latch* at_;
};

/** See cmi_ofi_queue_push(). Of one thread. `at`: cmi_ofi_queue_size() bytes, zeros at first. */
template <class T>
class queue {
  static_assert(std::is_trivially_copyable_v<T>, "items are copied as bytes");

 public:
  static constexpr size_t bytes(uint32_t cells) {
    return 8 + cells * (8 + (sizeof(T) + 7) / 8 * 8);
  }
  queue(const context& of, void* at, uint32_t cells) : ctxt_(of.get()) {
    detail::checked(cmi_ofi_queue_open(ctxt_, &queue_, at, cells, sizeof(T)));
  }
  queue(const context& of, void* at, uint32_t cells, std::error_code& code) noexcept
      : ctxt_(of.get()) {
    detail::checked(cmi_ofi_queue_open(ctxt_, &queue_, at, cells, sizeof(T)), code);
  }
  /** no: it was full. owner_dead: not pushed, a process died in a push of its own; call again. */
  [[nodiscard]] taken try_push_for(const T& item, std::chrono::milliseconds span) {
    return detail::checked(cmi_ofi_queue_push(ctxt_, &queue_, &item, detail::in_ms(span)));
  }
  [[nodiscard]] taken try_push_for(const T& item, std::chrono::milliseconds span,
                                   std::error_code& code) noexcept {
    return detail::checked(cmi_ofi_queue_push(ctxt_, &queue_, &item, detail::in_ms(span)), code);
  }
  /** no: it was empty. owner_dead: nothing popped, a process died in a push; call again. */
  [[nodiscard]] taken try_pop_for(T& item, std::chrono::milliseconds span) {
    return detail::checked(cmi_ofi_queue_pop(ctxt_, &queue_, &item, detail::in_ms(span)));
  }
  [[nodiscard]] taken try_pop_for(T& item, std::chrono::milliseconds span,
                                  std::error_code& code) noexcept {
    return detail::checked(cmi_ofi_queue_pop(ctxt_, &queue_, &item, detail::in_ms(span)), code);
  }

 private:
  cmi_ctxt* ctxt_;
  cmi_ofi_queue queue_ = {};
};

}  // namespace cmi

#endif
