// Runs cmiadm as an administrator would, and reads what it prints.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "system/nodes.hpp"

namespace cmi::test {

struct Ran {
  int status = 0;  // of the program; minus the signal that ended it
  std::string out, err;
  bool says(const std::string& text) const { return out.find(text) != out.npos; }
  bool complains(const std::string& text) const { return err.find(text) != err.npos; }
};

// With the cluster's runtime folder. Throws ChildFailed if it has not ended after 30 s.
Ran cmiadm(const Cluster& cluster, const std::vector<std::string>& arguments, const Env& env = {});

// A JSON value, as far as the tests look into one; their sources need not read the library's
// header.
struct Value {
  enum class Kind { kNull, kBool, kNumber, kText, kList, kObject } kind = Kind::kNull;
  bool truth = false;
  uint64_t number = 0;
  std::string text;
  std::vector<Value> items;
  std::vector<std::pair<std::string, Value>> members;

  // Of an object; throws ChildFailed where there is none.
  const Value& operator[](const std::string& name) const;
  // The first item whose member says so, or null.
  const Value* find(const std::string& name, const std::string& text) const;
  const Value* find(const std::string& name, uint64_t number) const;
};
// Throws ChildFailed unless the text is one value in one line of ASCII.
Value parse_json(const std::string& text);

}  // namespace cmi::test
