// cmiadm reservation delete: gives back what a memory reservation holds. Its segments stay.
#include "command.hpp"
#include "core/node/lock_file.hpp"
#include "text.hpp"

namespace cmi::adm {

int reservation(const Options& options) {
  const Survey all = options.look();
  complain_about(all);
  for (const NodeRow& node : all.nodes) {
    for (const ReservationRow& r : node.reservations) {
      if (r.key != options.key) continue;
      const Status status = node::delete_reservation(node.config(options.runtime_dir), options.key);
      if (ok(status)) {
        fmt::print("reservation {} is deleted; {} of it stay with their segments\n",
                   hex16(options.key), human_bytes(r.used));
        return kFine;
      }
      if (status == Status::kReconfig) {
        complain(
            "node {}: its registry stayed locked for {}; a stopped process may hold the lock: "
            "resume it (kill -CONT PID) or end it",
            node.name, human_time(static_cast<uint64_t>(node::kLockWait)));
      } else {
        complain("reservation {}: not deleted: {}", hex16(options.key), status_name(status));
      }
      return kTrouble;
    }
  }
  complain("there is no reservation {} here", hex16(options.key));
  return kTrouble;
}

}  // namespace cmi::adm
