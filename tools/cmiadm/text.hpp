// What cmiadm prints: tables with aligned columns, JSON, numbers for people. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/ids.hpp"

namespace cmi::adm {

// Columns as wide as their widest cell; cells that begin with a digit stand right. Bytes of cells
// that no terminal should get are shown as question marks.
class Table {
 public:
  explicit Table(std::vector<std::string> head) : rows_{std::move(head)} {}
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.size() == 1; }
  // One for each row, and one above for the head.
  std::vector<std::string> lines(int indent = 0) const;
  void print(int indent = 0) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// The terminal that standard output is, in characters; 0: it is none, or does not say.
struct Screen {
  size_t columns = 0, rows = 0;
};
Screen screen();
// As much of a line as goes into so many columns, and a mark where something is left out. 0: all.
std::string clipped(std::string line, size_t columns);

// Keys come out in the order in which they went in.
using Json = nlohmann::ordered_json;
// In one line of ASCII. A string may hold any bytes: what is no UTF-8 comes out as U+FFFD.
void print_line(const Json& value);
// Null for an empty text.
Json text_or_null(const std::string& text);

std::string printable(std::string_view text);
std::string counted(uint64_t n, std::string_view what);  // "1 node", "2 nodes"
std::string human_bytes(uint64_t n);                     // 4K, 1.5G
std::string human_time(uint64_t nanos);                  // 12 us, 3.4 ms
std::string hex16(uint64_t n);                           // 16 digits
template <class Tag>
std::string hex32(const Id128<Tag>& id) {
  return hex16(id.hi) + hex16(id.lo);
}
// The names of the bits: of a token's rights, of the flags of seg_get.
std::string rights_text(uint32_t rights);
std::string flags_text(int32_t flags);

}  // namespace cmi::adm
