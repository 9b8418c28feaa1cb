// Whether the calling thread is the only one of its process, but for the library's own: what it
// does not store meanwhile, nobody stores. One system call, 0.15 us; no thread has to be told of
// another.
#pragma once

#include "core/base/fd.hpp"

namespace cmi {

class Alone {
 public:
  // Where /proc does not tell, or is not to be trusted, nobody ever is.
  void open();
  // True: it stays so until this thread starts another one, or lets a handler run that does. A
  // thread that has just ended, and those of a provider, count. One of the library's own never is.
  bool now() const;

 private:
  Fd tasks_;  // /proc/self/task, which counts its entries as a folder counts its folders
};

}  // namespace cmi
