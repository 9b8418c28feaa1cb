// An absent page that is mapped while its bytes travel, where nobody can come to it before the
// thread that faulted goes on: in a process with no other thread (rule 3). Private to the Importer.
// One thread, the one that faulted, all signals blocked.
#pragma once

#include "core/memory/importer/importer.hpp"

namespace cmi::memory {

class Importer::EarlyMap {
 public:
  EarlyMap(Importer& importer, const View& view, uint32_t page, bool writable)
      : importer_(importer), at_(view.addr + size_t{page} * kPageSize), writable_(writable) {}
  ~EarlyMap();  // what was not kept is in no view again
  EarlyMap(const EarlyMap&) = delete;
  EarlyMap& operator=(const EarlyMap&) = delete;

  // Its bytes are on their way. Once: a second try finds it mapped.
  void begin();
  // They are there, and it may be accessed like this. False: it has to be mapped yet.
  bool keep(bool writable);

 private:
  Importer& importer_;
  std::byte* const at_;
  const bool writable_;
  bool mapped_ = false;
};

}  // namespace cmi::memory
