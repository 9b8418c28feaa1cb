// The least that memory behind page faults costs: a userfaultfd, a handler of SIGBUS and a file of
// its own, none of it the library's. What the library's paths are compared with beside raw
// libfabric: a handler that does one thing, without locks, states or lists. One thread at a time
// touches a page; the calls below are its as well, but that another one may take pages from under
// it.
#pragma once

#include <signal.h>

#include <atomic>
#include <functional>
#include <vector>

#include "util.hpp"

namespace bench {

class Trap {
 public:
  // Fails where the kernel has not what it takes (Linux 6.4). An access to an absent page maps
  // `window` pages from it on. Without twins nothing may be stored to the view.
  explicit Trap(size_t pages, size_t window = 1, bool twins = true);
  ~Trap();
  Trap(const Trap&) = delete;
  Trap& operator=(const Trap&) = delete;

  // SIGBUS is ours between the two, and whoever's it was before again.
  void install();
  void restore();

  // An access to an absent page of the view faults: `fetch`, if set, fills its content and runs
  // what it is given meanwhile or afterwards, which maps it; at a load protected from stores, at a
  // store with the twins of what is mapped copied afterwards. A store to a protected page faults as
  // well: `mark`, if set, runs; then its twin is copied and the protection taken away.
  std::byte* page(size_t index) const { return view_ + index * kPage; }
  std::byte* content(size_t index) const { return service_ + index * kPage; }
  using Meanwhile = std::function<void()>;
  void set_fetch(std::function<void(size_t, const Meanwhile&)> fetch) { fetch_ = std::move(fetch); }
  void set_mark(std::function<void(size_t)> mark) { mark_ = std::move(mark); }
  size_t pages() const { return pages_; }

  void zap(size_t first, size_t count);
  void protect(size_t index);
  // A page that was stored to with its twin: how many words differ.
  size_t compare(size_t index) const;

 private:
  static void on_sigbus(int signal, siginfo_t* info, void* context);
  void serve(size_t index, bool store);
  void remove() noexcept;

  const size_t pages_, window_;
  int fd_ = -1, file_ = -1;
  std::byte *service_ = nullptr, *view_ = nullptr;
  std::vector<std::byte> twins_;
  std::vector<std::atomic<bool>>
      mapped_;  // false before a page leaves the view, true after it came
  std::function<void(size_t, const Meanwhile&)> fetch_;
  std::function<void(size_t)> mark_;
  struct sigaction before_ {};
  bool installed_ = false;
};

// Memory whose stores the kernel tracks by itself, without a fault that anybody hears of: what a
// store on the home node costs at the least while others have the page.
class Tracked {
 public:
  explicit Tracked(size_t pages);
  ~Tracked();
  Tracked(const Tracked&) = delete;
  Tracked& operator=(const Tracked&) = delete;

  bool good() const { return good_; }  // false before Linux 6.7
  std::byte* at() const { return at_; }
  void begin();  // from here on the first store to each page is one to be tracked

 private:
  const size_t size_;
  int fd_ = -1, file_ = -1;
  std::byte* at_ = nullptr;
  bool good_ = false;
};

// All signals of the calling thread blocked while this lives: two system calls, as the library
// makes them around a call that takes locks.
class Masked {
 public:
  Masked();
  ~Masked();
  Masked(const Masked&) = delete;
  Masked& operator=(const Masked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace bench
