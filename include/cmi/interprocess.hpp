/*
 * cmi/interprocess.hpp: maps, strings and vectors in a segment, changed by processes of any nodes
 * that attach it at different addresses: Boost.Interprocess's managed memory with offset pointers,
 * behind a lock of <cmi/ofi/cmi_sync.h>. Optional: it needs Boost's headers (libboost-dev) and
 * C++20, and is no part of <cmi/cmi.hpp>. cmi_cpp(7) has an example.
 *
 * Boost's memory does not survive a client that dies while it changes it: the next caller gets
 * std::errc::owner_dead. The memory of class arena survives such a death.
 */
#ifndef CMI_INTERPROCESS_HPP
#define CMI_INTERPROCESS_HPP

#include <boost/container/map.hpp>
#include <boost/container/scoped_allocator.hpp>
#include <boost/container/string.hpp>
#include <boost/container/vector.hpp>
#include <boost/interprocess/allocators/allocator.hpp>
#include <boost/interprocess/indexes/iset_index.hpp>
#include <boost/interprocess/managed_external_buffer.hpp>
#include <boost/interprocess/mem_algo/rbtree_best_fit.hpp>
#include <boost/interprocess/sync/mutex_family.hpp>
#include <chrono>
#include <cmi/cmi.hpp>
#include <cstddef>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace cmi::interprocess {

/** Boost's memory, without locks of its own: class memory has one for all of it. */
using buffer = boost::interprocess::basic_managed_external_buffer<
    char, boost::interprocess::rbtree_best_fit<boost::interprocess::null_mutex_family>,
    boost::interprocess::iset_index>;

/** Hands itself on to what is inside, so that the strings of a map lie in the segment as well. */
template <class T>
using allocator = boost::container::scoped_allocator_adaptor<
    boost::interprocess::allocator<T, buffer::segment_manager>>;

using string =
    boost::container::basic_string<char, std::char_traits<char>,
                                   boost::interprocess::allocator<char, buffer::segment_manager>>;
template <class T>
using vector = boost::container::vector<T, allocator<T>>;
template <class Key, class T, class Less = std::less<Key>>
using map = boost::container::map<Key, T, Less, allocator<std::pair<const Key, T>>>;

/** Such memory in a segment of its own. Its threads may share it; each is registered. */
class memory {
 public:
  /** Makes a segment of so many bytes, and offers it to others; see cmi_ofi_offer(). */
  static memory make(const context& of, const std::string& where, const std::string& name,
                     size_t size) {
    memory made(of, of.make(size, CMI_SEG_CLIENT_CONSIST));
    made.buffer_ = buffer(boost::interprocess::create_only, made.start(), made.bytes());
    publish();
    made.handle_ = made.segment_.export_handle();
    made.token_ = made.segment_.grant();
    made.offer_ = of.offer(where, name, made.handle_, made.token_);
    return made;
  }
  /** Waits for such an offer; see cmi_ofi_find(). */
  static memory find(const context& of, const std::string& where, const std::string& name,
                     std::chrono::milliseconds timeout) {
    memory found(of, of.find(where, name, timeout));
    found.buffer_ = buffer(boost::interprocess::open_only, found.start(), found.bytes());
    return found;
  }
  memory(memory&&) = default;
  memory& operator=(memory&&) = delete;

  /**
   * f(object) with the object of this type and name, made at its first use, while nobody else
   * changes this memory; what f returns, but no reference. Everybody sees the change when this
   * returns. Throws what f throws, what the lock throws, std::errc::owner_dead among it, and
   * Boost's exceptions where there is no room.
   */
  template <class T, class F>
  auto with(const std::string& name, F&& f) {
    using result = std::invoke_result_t<F, T&>;
    static_assert(!std::is_reference_v<result>, "what it refers to would be used without the lock");
    holding held(mutex_);
    // Boost looks at names alone: so the type is part of it.
    const std::string typed = name + ':' + typeid(T).name();
    T& object = *buffer_.find_or_construct<T>(typed.c_str())(buffer_.get_segment_manager());
    if constexpr (std::is_void_v<result>) {
      std::invoke(std::forward<F>(f), object);
      held.release();
    } else {
      result value = std::invoke(std::forward<F>(f), object);
      held.release();
      return value;
    }
  }

 private:
  static constexpr size_t page = 4096; /* the lock's */

  class holding {
   public:
    explicit holding(mutex& of) : mutex_(of) { mutex_.lock(); }
    holding(const holding&) = delete;
    holding& operator=(const holding&) = delete;
    ~holding() {
      try {
        if (held_) mutex_.unlock();
      } catch (const std::exception&) { /* the caller gets what f has thrown */
      }
    }
    void release() {
      held_ = false;
      mutex_.unlock();
    }

   private:
    mutex& mutex_;
    bool held_ = true;
  };

  memory(const context& of, segment shared)
      : segment_(std::move(shared)), view_(segment_.attach()), mutex_(of, lock_in(view_)) {}
  static cmi_ofi_mutex& lock_in(const view<std::byte>& memory) {
    if (memory.size() < 2 * page)
      throw std::invalid_argument("interprocess: the segment is too small");
    return *reinterpret_cast<cmi_ofi_mutex*>(memory.data());
  }
  std::byte* start() const noexcept { return view_.data() + page; }
  size_t bytes() const noexcept { return view_.size() - page; }

  segment segment_;
  view<std::byte> view_;
  handle handle_;
  token token_;
  cmi::offer offer_;
  mutex mutex_;
  buffer buffer_;
};

}  // namespace cmi::interprocess

#endif
