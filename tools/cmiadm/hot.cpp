// cmiadm hot: the pages that cost most, who stores where in them, and what mends it.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "command.hpp"
#include "diagnosis.hpp"
#include "places.hpp"
#include "text.hpp"

namespace cmi::adm {

namespace {

constexpr size_t kMostShown = 8;  // pages of a segment, for people

struct Hot {
  const Options& options;
  const Places& places;
  ContextId home;
  int32_t segment = 0;  // 0: all

  bool wants(const ContextId& home_of, int32_t id) const {
    return segment == 0 || (home_of == home && id == segment);
  }
};

// What its publications cost: each was stored, and each notice makes a reader fetch it again.
uint64_t cost_of(const node::PublishedPageLine& p) { return p.publications + p.notices; }

// Of the pages that importers have had; those that nobody else has cost nobody anything.
std::vector<node::PublishedPageLine> dear_pages(const node::HomeLine& h) {
  std::vector<node::PublishedPageLine> pages = h.pages;
  std::erase_if(pages, [](const auto& p) { return p.notices == 0 && p.writers.size() < 2; });
  std::stable_sort(pages.begin(), pages.end(),
                   [](const auto& a, const auto& b) { return cost_of(a) > cost_of(b); });
  return pages;
}

uint64_t cost_of(const node::PageCostLine& l) {
  const node::PageCost& c = l.cost;
  return c.load_misses + c.store_misses + c.first_stores + c.notices;
}

void print_page(const Hot& hot, const node::PublishedPageLine& p) {
  const Diagnosis d = diagnose(p);
  fmt::print("  page {} (byte {}): {}\n", p.page, uint64_t{p.page} * kPageSize, d.name);
  fmt::print("    published {}, changed hands {}, {} sent\n", counted(p.publications, "time"),
             counted(p.bounces, "time"), counted(p.notices, "notice"));
  for (const node::PageWriterLine& w : p.writers) {
    const std::string bytes = bytes_text(w.words);
    fmt::print("    stored to by {}, {}: {}\n", hot.places.name(w.by),
               counted(w.publications, "time"),
               bytes.empty() ? "not known where" : "bytes " + bytes);
  }
  if (p.more_writers) fmt::print("    stored to by others as well\n");
  if (*d.mend != '\0') fmt::print("    what mends it: {}\n", d.mend);
}

void print_home(const Hot& hot, const Place& place, const node::HomeLine& h, bool* any) {
  const auto pages = dear_pages(h);
  if (pages.empty()) return;
  fmt::print("{}segment {} of {}\n", *any ? "\n" : "", h.id, hot.places.name(place.context->id));
  *any = true;
  for (size_t i = 0; i < std::min(pages.size(), kMostShown); ++i) print_page(hot, pages[i]);
}

void add_costs(Table* table, const Place& place, const node::ImportLine& import, const char* what,
               const std::vector<node::PageCostLine>& lines) {
  for (size_t i = 0; i < std::min(lines.size(), kMostShown); ++i) {
    const node::PageCost& c = lines[i].cost;
    if (cost_of(lines[i]) == 0) continue;
    table->row({std::to_string(place.context->pid), std::to_string(import.id), what,
                std::to_string(lines[i].first), std::to_string(c.load_misses),
                std::to_string(c.store_misses), std::to_string(c.first_stores),
                std::to_string(c.notices), std::to_string(c.useless)});
  }
}

void print_imports(const Hot& hot, bool* any) {
  Table table({"PID", "IMPORT", "WHAT", "FIRST PAGE", "LOAD MISSES", "STORE MISSES", "FIRST STORES",
               "NOTICES", "USELESS"});
  for (const Place& place : hot.places.all()) {
    for (const node::ImportLine& i : place.report.imports) {
      if (!hot.wants(i.home, i.home_segment)) continue;
      add_costs(&table, place, i, "page", i.pages);
      add_costs(&table, place, i, "2M region", i.regions);
    }
  }
  if (table.empty()) return;
  if (std::exchange(*any, true)) fmt::print("\n");
  table.print();
}

Json json_of(const Hot& hot, const node::PublishedPageLine& p) {
  const Diagnosis d = diagnose(p);
  Json writers = Json::array();
  for (const node::PageWriterLine& w : p.writers) {
    writers.push_back({{"by", hot.places.name(w.by)},
                       {"publications", w.publications},
                       {"bytes", text_or_null(bytes_text(w.words))}});
  }
  return {{"page", p.page},       {"publications", p.publications}, {"notices", p.notices},
          {"bounces", p.bounces}, {"more_writers", p.more_writers}, {"writers", writers},
          {"diagnosis", d.name},  {"mend", text_or_null(d.mend)}};
}

Json json_of(const std::vector<node::PageCostLine>& lines) {
  Json list = Json::array();
  for (const node::PageCostLine& l : lines) {
    list.push_back({{"first", l.first},
                    {"load_misses", l.cost.load_misses},
                    {"store_misses", l.cost.store_misses},
                    {"first_stores", l.cost.first_stores},
                    {"notices", l.cost.notices},
                    {"useless", l.cost.useless}});
  }
  return list;
}

bool some_mapped(const Hot& hot) {
  return std::ranges::any_of(hot.places.all(), [&](const Place& place) {
    return std::ranges::any_of(place.report.imports, [&](const node::ImportLine& i) {
      return hot.wants(i.home, i.home_segment) && i.way.starts_with("mapped");
    });
  });
}

void print_json(const Hot& hot) {
  Json homes = Json::array(), imports = Json::array();
  for (const Place& place : hot.places.all()) {
    for (const node::HomeLine& h : place.report.homes) {
      if (!hot.wants(place.context->id, h.id)) continue;
      Json pages = Json::array();
      for (const auto& p : dear_pages(h)) pages.push_back(json_of(hot, p));
      homes.push_back({{"pid", place.context->pid}, {"segment", h.id}, {"pages", pages}});
    }
    for (const node::ImportLine& i : place.report.imports) {
      if (!hot.wants(i.home, i.home_segment)) continue;
      imports.push_back({{"pid", place.context->pid},
                         {"import", i.id},
                         {"pages", json_of(i.pages)},
                         {"regions", json_of(i.regions)}});
    }
  }
  print_line({{"homes", homes}, {"imports", imports}});
}

}  // namespace

int hot(const Options& options) {
  const Survey survey = options.look();
  complain_about(survey);
  const Places places(options, survey);
  Hot hot{options, places, {}, 0};
  if (options.id != 0 && !places.home_of(options.id, &hot.home, &hot.segment)) {
    complain("no process tells of a segment {}; \"cmiadm list\" shows what there is", options.id);
    return kTrouble;
  }
  if (options.json) {
    print_json(hot);
    return kFine;
  }
  bool any = false;
  for (const Place& place : places.all()) {
    for (const node::HomeLine& h : place.report.homes) {
      if (hot.wants(place.context->id, h.id)) print_home(hot, place, h, &any);
    }
  }
  print_imports(hot, &any);
  if (!any) fmt::print("no page has cost anything\n");
  if (some_mapped(hot))
    fmt::print("imports that map the pages of their home are not counted: they cost no messages\n");
  return kFine;
}

}  // namespace cmi::adm
