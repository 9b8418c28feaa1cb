// All contexts of a survey with what they have told, and what a context id stands for.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ask.hpp"
#include "command.hpp"

namespace cmi::adm {

struct Place {
  const NodeRow* node;
  const ContextRow* context;
  node::ContextReport report;
};

class Places {
 public:
  // Asks the contexts; what is silent is complained about. `map`: as ask_contexts has it.
  Places(const Options& options, const Survey& survey, const node::MapQuestion* map = nullptr);

  const std::vector<Place>& all() const { return all_; }
  // The process and its node; of none of these nodes: the digits of the id. None: "home".
  std::string name(const ContextId& id) const;
  // The home's context and id of the segment that has this id on one of the nodes, as its home or
  // as an import. False: there is none that has told of it.
  bool home_of(int32_t id, ContextId* home, int32_t* segment) const;

 private:
  const Survey& survey_;
  std::vector<Place> all_;
};

}  // namespace cmi::adm
