// cmiadm reap: what the next cmi_ini() on a node would clean up is cleaned up now.
#include "command.hpp"
#include "core/node/lock_file.hpp"
#include "text.hpp"

namespace cmi::adm {

int reap(const Options& options) {
  const Survey before = options.look();
  complain_about(before);
  bool good = before.trouble.empty();
  if (before.nodes.empty() && good) {
    fmt::print("no node in {}\n", printable(options.runtime_dir));
  }
  for (const NodeRow& node : before.nodes) {
    // A folder that nobody finished has no name of its node's id but the half in its own.
    NodeRow known = node;
    if (!known.id) known.id.hi = std::stoull(node.name, nullptr, 16);
    const Result<int> dead = node::reap_folder(known.config(options.runtime_dir));
    if (dead) {
      fmt::print("node {}: cleaned up after {}\n", node.name,
                 counted(static_cast<uint64_t>(*dead), "dead context"));
      continue;
    }
    good = false;
    if (dead.status() == Status::kReconfig) {
      complain(
          "node {}: its registry stayed locked for {}; a stopped process may hold the lock: "
          "resume it (kill -CONT PID) or end it",
          node.name, human_time(static_cast<uint64_t>(node::kLockWait)));
    } else {
      complain("node {}: not cleaned up: {}; if no process uses it, remove its folder", node.name,
               status_name(dead.status()));
    }
  }
  return good ? kFine : kTrouble;
}

}  // namespace cmi::adm
