// One run of examples/02-wordcount as three processes on nodes of their own, one of them with a
// fault point armed: started, awaited, and its output kept. The input is the test's own, so that
// what is right is known without the program. Single-threaded.
#pragma once

#include <string>
#include <vector>

#include "support/passages.hpp"
#include "system/nodes.hpp"

namespace cmi::test {

// Text whose words, and how often each occurs, are known beforehand.
struct KnownText {
  std::string text;
  size_t words;                   // different ones
  std::vector<std::string> most;  // "count  word" of the most frequent, as the program shows them
};
KnownText known_text();

class WordCount {
 public:
  enum Role { kHome, kPeer, kThird, kRoles };
  static constexpr const char* kNodes[] = {"home", "peer", "third"};

  struct Part {
    pid_t pid = -1;
    bool started = false;
    int status = 0;      // of waitpid()
    std::string output;  // both streams, in the order of their lines
    Passages passages;

    bool killed() const;
    bool exited(int with) const;
    bool says(const std::string& text) const { return output.find(text) != output.npos; }
  };

  // Runs until every process has ended; throws ChildFailed if one does not in time. `fault` is an
  // item of CMI_FAULT_POINT, for the victim alone; empty: none. `env` is for all. Nothing outlives
  // the call.
  WordCount(const Cluster& cluster, const KnownText& input, Role victim, const std::string& fault,
            const Env& env = {});

  const Part& part(Role role) const { return parts_[role]; }
  // The home shows every count as it is.
  bool shows_the_counts(const KnownText& input) const;
  // All output, for messages.
  std::string all_said() const;

 private:
  void start(const Cluster& cluster, Role role, const std::string& fault, const Env& env,
             const std::vector<std::string>& arguments);
  void end_all();

  std::string folder_;
  Part parts_[kRoles];
};

}  // namespace cmi::test
