// A question to a context over the bus by a process that has not joined its node, as cmiadm is one.
// The question brings a file of shared memory that the answer goes into, so that the service thread
// that answers never waits for whoever asked, however much there is to say.
// Threads: an Inquiry belongs to one thread; answer() runs on the service thread.
#pragma once

#include <optional>
#include <vector>

#include "core/node/context_report.hpp"
#include "core/node/folder.hpp"

namespace cmi::node {

class Inquiry {
 public:
  // kReconfig: the context's queue is full, try again; kInval: nobody is there. `map`: a segment
  // that a map is asked of; null: none.
  static Result<Inquiry> send(const Folder& folder, uint32_t slot,
                              const MapQuestion* map = nullptr);
  // The answer once it is there. kReconfig: not yet; kInval: it is no report.
  Result<ContextReport> look() const;

 private:
  explicit Inquiry(Fd file) : file_(std::move(file)) {}
  Fd file_;
};

// The map that is asked for by the file that came with a question; none: it asks for none.
std::optional<MapQuestion> map_asked(int fd);
// Writes the report into the file that came with a question. What is not a file of shared memory is
// left alone: writing to it might wait.
void answer(int fd, const ContextReport& report);

}  // namespace cmi::node
