// All outcomes of a litmus program that the memory model allows, computed from its axioms
// (doc/cmi.cat, doc/design/memory-model.md): each choice of what the loads see is an execution, and
// one in which no axiom is broken has an allowed outcome. Pure; knows nothing of the library.
//
// Two things of the pitfalls are part of it. A store of a value that the word has already may send
// nothing: it is left out as well. A word that is both stored and swapped is not judged.
//
// Of programs of stores, loads, swaps, barriers that concern all that was stored, and steps of
// locals.
#pragma once

#include <set>
#include <string>

#include "litmus/program.hpp"

namespace cmi::test {

struct Outcomes {
  std::set<Outcome> allowed;
  std::string not_judged;  // why, where it is not
};

Outcomes outcomes_of(const Program& program);

}  // namespace cmi::test
