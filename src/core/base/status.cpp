// Names of the statuses, for traces.
#include "core/base/status.hpp"

namespace cmi {

const char* status_name(Status s) {
  switch (s) {
    case Status::kOk:
      return "ok";
    case Status::kInit:
      return "not registered";
    case Status::kInval:
      return "invalid";
    case Status::kNoMem:
      return "out of resources";
    case Status::kPerm:
      return "not permitted";
    case Status::kNotSupp:
      return "not supported";
    case Status::kBound:
      return "already bound";
    case Status::kHw:
      return "local hardware";
    case Status::kStore:
      return "stores lost";
    case Status::kReconfig:
      return "being reconfigured";
  }
  return "unknown";
}

}  // namespace cmi
