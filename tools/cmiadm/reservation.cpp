// cmiadm reservation delete: gives back what a memory reservation holds. Its segments stay.
#include <charconv>

#include "command.hpp"
#include "core/node/lock_file.hpp"
#include "text.hpp"

namespace cmi::adm {

int reservation(const Options& options) {
  if (options.operands[0] != "delete") {
    complain("reservation {}: the one thing to be done with a reservation is to delete it",
             printable(options.operands[0]));
    return kUsage;
  }
  const std::string& text = options.operands[1];
  uint64_t key = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), key, 16);
  if (error != std::errc{} || end != text.data() + text.size() || key == 0) {
    complain("{} is no key of a reservation; \"cmiadm list\" shows them", printable(text));
    return kUsage;
  }
  const Survey all = options.look();
  complain_about(all);
  for (const NodeRow& node : all.nodes) {
    for (const ReservationRow& r : node.reservations) {
      if (r.key != key) continue;
      const Status status = node::delete_reservation(node.config(options.runtime_dir), key);
      if (ok(status)) {
        std::printf("reservation %s is deleted; %s of it stay with their segments\n",
                    hex16(key).c_str(), human_bytes(r.used).c_str());
        return kFine;
      }
      if (status == Status::kReconfig) {
        complain(
            "node {}: its registry stayed locked for {}; a stopped process may hold the lock: "
            "resume it (kill -CONT PID) or end it",
            node.name, human_time(static_cast<uint64_t>(node::kLockWait)));
      } else {
        complain("reservation {}: not deleted: {}", hex16(key), status_name(status));
      }
      return kTrouble;
    }
  }
  complain("there is no reservation {} here", hex16(key));
  return kTrouble;
}

}  // namespace cmi::adm
