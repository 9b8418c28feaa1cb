// Asks the contexts of a node for what their registry does not hold. One thread.
#pragma once

#include <map>

#include "core/node/context_report.hpp"
#include "survey.hpp"

namespace cmi::adm {

struct Reports {
  std::map<uint32_t, node::ContextReport> by_slot;
  std::vector<pid_t> silent;  // alive, and did not answer in time or were not waited for: stopped
};

// All at once; waits until all have answered or the time is over. 0: asks nobody. `map`: a segment
// that each draws a map of, or null; which of them is its home is seen here.
Reports ask_contexts(const std::string& runtime_dir, const NodeRow& node, Nanos wait,
                     const node::MapQuestion* map = nullptr);

// What the owner of a home segment said of it, or null.
const node::HomeLine* report_of(const Reports& reports, const SegmentRow& s);

// "usable", "revoked" and so on, for ImportLine::state.
const char* import_state_name(uint8_t state);

}  // namespace cmi::adm
