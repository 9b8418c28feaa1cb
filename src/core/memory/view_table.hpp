// Finds the view that an address lies in, from the fault handler, without a lock.
// Writers publish an immutable sorted table and wait for the readers of the old one, which are in
// there for nanoseconds.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "core/base/lock.hpp"

namespace cmi::memory {

struct Import;
class StoreLog;

// One seg_at. Never split, never moved. At home `import` is empty.
struct View {
  std::byte* addr = nullptr;
  size_t len = 0;
  bool read_only = false;
  bool through = false;  // write-through: no page of it is ever there
  int32_t segment = 0;
  std::shared_ptr<Import> import;
  std::shared_ptr<StoreLog> stores;  // writable at home, and the kernel does not track it by itself
};

class ViewTable {
 public:
  ViewTable() : current_(new Table) {}
  ~ViewTable() { delete current_.load(); }

  // The view that holds addr, kept alive by the caller's copy. Fault handler safe.
  std::shared_ptr<const View> find(const void* addr);
  void insert(std::shared_ptr<const View> view);
  void erase(const std::shared_ptr<const View>& view);

 private:
  using Table = std::vector<std::shared_ptr<const View>>;  // ascending, disjoint
  void publish(std::unique_ptr<Table> next) CMI_REQUIRES(mu_);

  Mutex mu_;  // writers
  std::atomic<Table*> current_;
  // Readers announce themselves before they load current_; a writer that stored a new table waits
  // until it has seen each counter at zero once. seq_cst on both sides orders the two.
  std::atomic<uint32_t> readers_{0};
};

}  // namespace cmi::memory
