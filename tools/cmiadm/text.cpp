// See text.hpp.
#include "text.hpp"

#include <cmi.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace cmi::adm {

std::string printable(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c < ' ' || c > '~') c = '?';
  }
  return out;
}

std::string counted(uint64_t n, std::string_view what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

std::vector<std::string> Table::lines(int indent) const {
  std::vector<size_t> width(rows_.front().size());
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::vector<std::string> out;
  for (const auto& row : rows_) {
    std::string line(static_cast<size_t>(indent), ' ');
    for (size_t i = 0; i < row.size(); ++i) {
      // The heads of numbers stand over them.
      const std::string& sample = rows_.size() > 1 ? rows_[1][i] : row[i];
      const bool right = !sample.empty() && sample[0] >= '0' && sample[0] <= '9';
      const std::string cell = printable(row[i]);
      line +=
          right ? fmt::format("{:>{}}  ", cell, width[i]) : fmt::format("{:<{}}  ", cell, width[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out.push_back(std::move(line));
  }
  return out;
}

void Table::print(int indent) const {
  const size_t columns = screen().columns;
  for (const std::string& line : lines(indent)) fmt::print("{}\n", clipped(line, columns));
}

Screen screen() {
  winsize size{};
  if (isatty(STDOUT_FILENO) != 1 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return {};
  return {size.ws_col, size.ws_row};
}

std::string clipped(std::string line, size_t columns) {
  if (columns != 0 && line.size() > columns) {
    line.resize(columns);
    line.back() = '>';
  }
  return line;
}

void print_line(const Json& value) {
  fmt::print("{}\n", value.dump(-1, ' ', true, Json::error_handler_t::replace));
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

std::string human_bytes(uint64_t n) {
  constexpr std::string_view kUnits = "BKMGTPE";
  size_t unit = 0;
  double v = static_cast<double>(n);
  while (v >= 1024 && unit + 1 < kUnits.size()) {
    v /= 1024;
    ++unit;
  }
  if (unit == 0) return fmt::format("{}", n);
  return v < 10 && v != static_cast<uint64_t>(v) ? fmt::format("{:.1f}{}", v, kUnits[unit])
                                                 : fmt::format("{:.0f}{}", v, kUnits[unit]);
}

std::string human_time(uint64_t nanos) {
  const double v = static_cast<double>(nanos);
  if (nanos < 1000) return fmt::format("{} ns", nanos);
  if (nanos < 1000'000) return fmt::format("{:.1f} us", v / 1e3);
  if (nanos < 1000'000'000) return fmt::format("{:.1f} ms", v / 1e6);
  return fmt::format("{:.1f} s", v / 1e9);
}

std::string hex16(uint64_t n) { return fmt::format("{:016x}", n); }

std::string rights_text(uint32_t rights) {
  std::string out;
  const auto add = [&](uint32_t bit, const char* name) {
    if ((rights & bit) != 0) out += (out.empty() ? "" : " ") + std::string(name);
  };
  add(CMI_ACC_READ, "read");
  add(CMI_ACC_WRITE, "write");
  add(CMI_ACC_ATOMIC, "atomic");
  return out.empty() ? "none" : out;
}

std::string flags_text(int32_t flags) {
  std::string out;
  const auto add = [&](int32_t bit, const char* name) {
    if ((flags & bit) != 0) out += (out.empty() ? "" : " ") + std::string(name);
    flags &= ~bit;
  };
  add(CMI_SEG_NORESERVE, "noreserve");
  add(CMI_SEG_LOCK, "lock");
  add(CMI_SEG_LARGE_PAGES, "large_pages");
  add(CMI_SEG_EXTENSIBLE, "extensible");
  add(CMI_SEG_CLIENT_CONSIST, "client_consist");
  add(CMI_SEG_CLIENT_INCONSIST, "client_inconsist");
  if (flags != 0) add(flags, fmt::format("{:#x}", flags).c_str());
  return out.empty() ? "none" : out;
}

}  // namespace cmi::adm
