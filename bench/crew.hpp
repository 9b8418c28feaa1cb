// A crew of importers, each a process and a node of its own, that are started for one row and work
// on the segment that the home made last. The process that starts them opens neither the library
// nor libfabric; it sees them off within a deadline, whatever happens.
#pragma once

#include <memory>
#include <string>

#include "control.hpp"

namespace bench {

class Imported;
class Node;

// How far a member is, and how far the crew lets all of them go.
enum CrewStep : uint32_t { kStarting, kReady, kWorked, kFinished, kFailed };

// Of one member. Each fails by an exception.
class CrewWork {
 public:
  virtual ~CrewWork() = default;
  virtual void prepare() {}  // nothing of it is counted
  virtual void work() = 0;
  virtual void finish() {}  // when all members have worked
  CrewWork() = default;
  CrewWork(const CrewWork&) = delete;
  CrewWork& operator=(const CrewWork&) = delete;
};
struct CrewPlace {
  Node& node;
  const Imported& import;
  size_t self, members;
  uint64_t amount;
  CrewMember& results;  // where operations, last and nanos go, and of requests those to be left out
  CrewMember& next;     // whose turn it is after this one's
};
std::unique_ptr<CrewWork> make_work(CrewJob job, const CrewPlace& place);

// kTable: pages of the table, then a page for the progress word of each member.
inline constexpr size_t kTablePages = 16;

// Executes Command::kWork until Command::kQuit. Work that takes longer than it should, a member
// that ends and one that fails are the answer.
void run_crew(Control& control, const std::string& provider);

}  // namespace bench
