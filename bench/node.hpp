// The library as its clients see it: a context, a segment at home, an imported segment. Each
// process has one Node. Nothing here reaches around the public headers.
#pragma once

#include <cmi.h>
#include <cmi/ofi/cmi_impl.h>
#include <cmi/ofi/cmi_sync.h>

#include <atomic>
#include <string>

#include "control.hpp"

namespace bench {

using Stats = ::cmi_ofi_stats;

class Node {
 public:
  // Fails if the library does not take this provider.
  Node(const std::string& name, const std::string& provider);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  cmi_ctxt* ctxt() const { return ctxt_; }
  Stats stats() const;
  uint64_t alerts() const { return alerts_.load(); }  // lines in which the library complained

 private:
  static void on_alert(void* self, const char* line);
  static void on_trace(void* self, const char* line);
  cmi_ctxt* ctxt_;
  std::string provider_;  // as the library's trace names it
  std::atomic<uint64_t> alerts_{0};
};

// A thread beside the one that made the Node: registered, with access, while this lives in it.
class OtherThread {
 public:
  explicit OtherThread(Node& node);
  ~OtherThread();
  OtherThread(const OtherThread&) = delete;
  OtherThread& operator=(const OtherThread&) = delete;

 private:
  Node& node_;
};

void barrier();  // cmi_wmb()

// On the home: made, touched unless CMI_SEG_NORESERVE is among the flags and, if so wanted,
// exported.
class HomeSegment {
 public:
  HomeSegment(Node& node, size_t size, bool exported, int32_t flags, Control& control);
  ~HomeSegment();
  HomeSegment(const HomeSegment&) = delete;
  HomeSegment& operator=(const HomeSegment&) = delete;
  std::byte* page(uint64_t index) const { return at_ + index * kPage; }

 private:
  Node& node_;
  cmi_seg segment_;
  std::byte* at_;
  cmi_rseg* handle_ = nullptr;
  cmi_token* token_ = nullptr;
};

// The segment that the home made last.
class Imported {
 public:
  Imported(Node& node, Control& control);
  ~Imported();
  Imported(const Imported&) = delete;
  Imported& operator=(const Imported&) = delete;
  std::byte* page(uint64_t index) const { return at_ + index * kPage; }

 private:
  Node& node_;
  cmi_seg segment_;
  std::byte* at_;
};

// One word of a page, as one load or store of the CPU.
inline volatile uint64_t& word(std::byte* page, size_t index) {
  return reinterpret_cast<volatile uint64_t*>(page)[index];
}

// The latches of local_wakeup, in the first pages of a segment, beside the words that are stamped;
// each is used once.
inline constexpr uint64_t kLatchPages = 16, kLatchBytes = 64,
                          kLatches = kLatchPages * kPage / kLatchBytes;
inline cmi_ofi_latch* latch(std::byte* first_page, uint64_t index) {
  return reinterpret_cast<cmi_ofi_latch*>(first_page + index * kLatchBytes + kLatchBytes / 2);
}

inline void touch(std::byte* page) { [[maybe_unused]] const uint64_t loaded = word(page, 0); }

}  // namespace bench
