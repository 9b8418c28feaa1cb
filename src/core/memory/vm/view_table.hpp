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

// One seg_at, or a seg_getva. Never moved; the table cuts out of one what another is mapped over.
// At home `import` is empty.
struct View {
  std::byte* addr = nullptr;
  size_t len = 0;
  bool read_only = false;
  bool write_through = false;  // write-through: no page of it is ever there
  int32_t segment = 0;
  std::shared_ptr<Import> import;
  std::shared_ptr<StoreLog> stores;  // writable at home, and the kernel does not track it by itself
  bool adopted = false;              // memory of the client's own, by seg_getva
  size_t offset = 0;                 // where in the segment it begins
  std::shared_ptr<const View> whole;  // in the table: of what it was cut from
};

class ViewTable {
 public:
  ViewTable() : current_(new Table) {}
  ~ViewTable() { delete current_.load(); }

  // The view that holds addr, kept alive by the caller's copy. Fault handler safe.
  std::shared_ptr<const View> find(const void* addr);
  // Calls visit(view) for each. Fault handler safe where visit() is.
  template <class Visit>
  void each(Visit visit) {
    readers_.fetch_add(1, std::memory_order_seq_cst);
    for (const auto& view : *current_.load(std::memory_order_seq_cst)) visit(*view);
    readers_.fetch_sub(1, std::memory_order_release);
  }
  // What others have there goes: they are mapped there no longer.
  void insert(std::shared_ptr<const View> view);
  // The views that have some of this range.
  std::vector<std::shared_ptr<const View>> within(const std::byte* addr, size_t len);
  bool insert_if_free(std::shared_ptr<const View> view);  // false: some of it is a view's
  void erase(const std::shared_ptr<const View>& view);    // what is left of it
  // The client has unmapped this part of a view, or mapped something else there.
  void cut(const std::shared_ptr<const View>& view, std::byte* addr, size_t len);

 private:
  using Table = std::vector<std::shared_ptr<const View>>;  // ascending, disjoint
  void publish(std::unique_ptr<Table> next) CMI_REQUIRES(mu_);
  static bool free_at(const Table& table, const std::byte* addr, size_t len);
  static void place(Table* table, std::shared_ptr<const View> view);
  template <class Which>
  static void cut(Table* table, std::byte* addr, size_t len, Which which);

  Mutex mu_;  // writers
  std::atomic<Table*> current_;
  // Readers announce themselves before they load current_; a writer that stored a new table waits
  // until it has seen each counter at zero once. seq_cst on both sides orders the two.
  std::atomic<uint32_t> readers_{0};
};

}  // namespace cmi::memory
