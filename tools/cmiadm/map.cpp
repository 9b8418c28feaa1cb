// cmiadm map: a segment as a picture of its pages, by its home and by each importer that is here.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "command.hpp"
#include "places.hpp"
#include "text.hpp"

namespace cmi::adm {

namespace {

constexpr size_t kPerLine = 64;  // cells

struct Drawn {  // what one context says
  std::string who;
  node::MapLine map;
  std::vector<bool> hot;  // cells with pages that cost
  pid_t pid = 0;
};

struct Look {
  char letter;
  const char* colour;
  const char* meaning;
};
enum Kind { kNothing, kHeld, kMany, kHot, kDirty, kFlux, kKinds };
constexpr Look kLooks[kKinds] = {
    {'.', "#e8e8e8", "nothing"},
    {'c', "#7fb3d5", "cached; at home: one importer may have it"},
    {'s', "#2e6da4", "several importers may have it"},
    {'h', "#f0ad4e", "hot: it costs misses or notices"},
    {'d', "#5cb85c", "has stores that are not home yet"},
    {'x', "#d9534f", "in flux: its newest stores are lost"},
};

Kind kind_of(const Drawn& d, size_t cell) {
  const uint8_t marks = d.map.cells[cell];
  if ((marks & node::kMapFlux) != 0) return kFlux;
  if ((marks & node::kMapDirty) != 0) return kDirty;
  if (d.hot[cell]) return kHot;
  if ((marks & node::kMapMany) != 0) return kMany;
  return (marks & node::kMapHeld) != 0 ? kHeld : kNothing;
}

// Pages that cost at least a tenth of what the dearest one does, and more than once.
template <class Lines, class Cost>
void mark_hot(const Lines& lines, Cost&& cost_and_page, Drawn* d) {
  uint64_t most = 0;
  for (const auto& l : lines) most = std::max(most, cost_and_page(l).first);
  for (const auto& l : lines) {
    const auto [cost, page] = cost_and_page(l);
    if (cost > 1 && cost >= most / 10 && page < d->map.pages) d->hot[page / d->map.per_cell] = true;
  }
}

std::vector<Drawn> drawn(const Places& places, const node::MapQuestion& asked) {
  std::vector<Drawn> all;
  for (const Place& place : places.all()) {
    for (const node::MapLine& map : place.report.maps) {
      Drawn d{(map.at_home ? "home " : "importer ") + places.name(place.context->id), map,
              std::vector<bool>(map.cells.size()), place.context->pid};
      for (const node::HomeLine& h : place.report.homes) {
        if (!map.at_home || h.id != asked.segment) continue;
        mark_hot(
            h.pages, [](const auto& p) { return std::pair(p.notices, p.page); }, &d);
      }
      for (const node::ImportLine& i : place.report.imports) {
        if (map.at_home || i.home != asked.home || i.home_segment != asked.segment) continue;
        const auto cost = [](const node::PageCostLine& l) {
          return std::pair(l.cost.load_misses + l.cost.store_misses + l.cost.notices, l.first);
        };
        mark_hot(i.pages, cost, &d);
      }
      all.push_back(std::move(d));
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Drawn& a, const Drawn& b) { return a.map.at_home > b.map.at_home; });
  return all;
}

void print_text(const std::vector<Drawn>& all) {
  std::set<int> used;
  for (const Drawn& d : all) {
    fmt::print("{}, {} each\n", d.who, counted(d.map.per_cell, "page"));
    for (size_t at = 0; at < d.map.cells.size(); at += kPerLine) {
      std::string line;
      for (size_t i = at; i < std::min(at + kPerLine, d.map.cells.size()); ++i) {
        const Kind kind = kind_of(d, i);
        used.insert(kind);
        line += kLooks[kind].letter;
      }
      fmt::print("{:>10} {}\n", at * d.map.per_cell, line);
    }
    fmt::print("\n");
  }
  for (int kind : used) fmt::print("{}  {}\n", kLooks[kind].letter, kLooks[kind].meaning);
}

std::string xml(const std::string& text) {
  std::string safe;
  for (char c : printable(text)) {
    if (c == '<') {
      safe += "&lt;";
    } else if (c == '&') {
      safe += "&amp;";
    } else {
      safe += c;
    }
  }
  return safe;
}

std::string svg(const std::vector<Drawn>& all) {
  constexpr int kCell = 10, kText = 16;
  std::string body;
  int y = kText;
  const auto text = [&](int x, const std::string& what) {
    body += fmt::format("<text x=\"{}\" y=\"{}\">{}</text>\n", x, y, xml(what));
  };
  for (const Drawn& d : all) {
    text(0, fmt::format("{}, {} each", d.who, counted(d.map.per_cell, "page")));
    y += 4;
    for (size_t i = 0; i < d.map.cells.size(); ++i) {
      body += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"9\" height=\"9\" fill=\"{}\"/>\n",
                          i % kPerLine * kCell, y + static_cast<int>(i / kPerLine) * kCell,
                          kLooks[kind_of(d, i)].colour);
    }
    y += static_cast<int>((d.map.cells.size() + kPerLine - 1) / kPerLine) * kCell + kText + 4;
  }
  for (const Look& look : kLooks) {
    body += fmt::format("<rect x=\"0\" y=\"{}\" width=\"9\" height=\"9\" fill=\"{}\"/>\n", y - 9,
                        look.colour);
    text(kText, look.meaning);
    y += kText;
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n{}</svg>\n",
      kPerLine * kCell, y, body);
}

void print_json(const std::vector<Drawn>& all) {
  Json list = Json::array();
  for (const Drawn& d : all) {
    std::string cells;
    for (size_t i = 0; i < d.map.cells.size(); ++i) cells += kLooks[kind_of(d, i)].letter;
    list.push_back({{"pid", d.pid},
                    {"home", d.map.at_home},
                    {"pages", d.map.pages},
                    {"pages_per_cell", d.map.per_cell},
                    {"cells", cells}});
  }
  print_line(list);
}

}  // namespace

int map(const Options& options) {
  const Survey survey = options.look();
  complain_about(survey);
  node::MapQuestion asked;
  {
    const Places places(options, survey);
    if (!places.home_of(options.id, &asked.home, &asked.segment)) {
      complain("no process tells of a segment {}; \"cmiadm list\" shows what there is", options.id);
      return kTrouble;
    }
  }
  // Its importers may be on other nodes than the one that --node names.
  Options everywhere = options;
  everywhere.node.clear();
  const Survey wide = everywhere.look();
  const Places places(everywhere, wide, &asked);
  const std::vector<Drawn> all = drawn(places, asked);
  if (options.json) {
    print_json(all);
  } else if (options.svg.empty()) {
    print_text(all);
  }
  if (options.svg.empty()) return kFine;
  std::ofstream file(options.svg, std::ios::trunc);
  file << svg(all);
  file.close();
  if (file) return kFine;
  complain("{}: {}", options.svg, std::strerror(errno));
  return kTrouble;
}

}  // namespace cmi::adm
