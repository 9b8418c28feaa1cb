// cmiadm metrics: what contexts have counted, as OpenMetrics text.
#include <array>
#include <string_view>

#include "command.hpp"
#include "places.hpp"
#include "text.hpp"

namespace cmi::adm {

namespace {

using Labels = std::string;

// A label's value, as the format quotes it.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : printable(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

Labels labels_of(const Place& p) {
  return fmt::format("node={},pid=\"{}\",program={}", quoted(p.node->called()), p.context->pid,
                     quoted(p.context->program));
}

// What the counters are. One that goes up and down as well is a gauge, which has no suffix.
bool is_gauge(std::string_view name) { return name == "most_unanswered"; }

// bytes_fetched becomes fetched_bytes: a unit stands last.
std::string metric_name(std::string_view prefix, std::string_view name) {
  constexpr std::string_view kBytes = "bytes_";
  if (!name.starts_with(kBytes)) return fmt::format("{}{}", prefix, name);
  return fmt::format("{}{}_bytes", prefix, name.substr(kBytes.size()));
}

void head(const std::string& name, const char* type, const std::string& help, bool bytes = false) {
  fmt::print("# TYPE {} {}\n", name, type);
  if (bytes) fmt::print("# UNIT {} bytes\n", name);
  fmt::print("# HELP {} {}\n", name, help);
}

void print_contexts(const std::vector<Place>& all) {
  for (size_t i = 0; i < node::kCounterNames.size(); ++i) {
    const std::string_view counter = node::kCounterNames[i];
    const std::string name = metric_name("cmi_", counter);
    head(name, is_gauge(counter) ? "gauge" : "counter",
         fmt::format("{} of struct cmi_ofi_stats, of one context.", counter),
         counter.starts_with("bytes_"));
    for (const Place& p : all) {
      fmt::print("{}{}{{{}}} {}\n", name, is_gauge(counter) ? "" : "_total", labels_of(p),
                 p.report.counters[i]);
    }
  }
}

void print_imports(const std::vector<Place>& all) {
  for (size_t i = 0; i < node::kImportCounterNames.size(); ++i) {
    const std::string_view counter = node::kImportCounterNames[i];
    const std::string name = metric_name("cmi_import_", counter);
    head(name, "counter", fmt::format("{} of one import.", counter), counter.starts_with("bytes_"));
    for (const Place& p : all) {
      for (const node::ImportLine& l : p.report.imports) {
        fmt::print("{}_total{{{},segment=\"{}\"}} {}\n", name, labels_of(p), l.id, l.counters[i]);
      }
    }
  }
}

struct Gauge {
  const char* name;
  const char* help;
  bool bytes;
  uint64_t (*of)(const node::ImportLine&);
};
constexpr Gauge kGauges[] = {
    {"cmi_import_cached_bytes", "Memory that the cache of one import takes.", true,
     [](const node::ImportLine& l) { return l.cached; }},
    {"cmi_import_dirty_pages", "Pages of one import with stores that are not home yet.", false,
     [](const node::ImportLine& l) { return l.dirty; }},
};

struct HomeCounter {
  const char* name;
  const char* help;
  uint64_t (*of)(const node::HomeLine&);
};
constexpr HomeCounter kHomeCounters[] = {
    {"cmi_segment_publications", "How often pages of one segment were published.",
     [](const node::HomeLine& l) { return l.publications; }},
    {"cmi_segment_notifications", "Messages that told importers of one segment of its pages.",
     [](const node::HomeLine& l) { return l.notifications; }},
};

void print_segments(const std::vector<Place>& all) {
  for (const Gauge& g : kGauges) {
    head(g.name, "gauge", g.help, g.bytes);
    for (const Place& p : all) {
      for (const node::ImportLine& l : p.report.imports)
        fmt::print("{}{{{},segment=\"{}\"}} {}\n", g.name, labels_of(p), l.id, g.of(l));
    }
  }
  for (const HomeCounter& c : kHomeCounters) {
    head(c.name, "counter", c.help);
    for (const Place& p : all) {
      for (const node::HomeLine& l : p.report.homes)
        fmt::print("{}_total{{{},segment=\"{}\"}} {}\n", c.name, labels_of(p), l.id, c.of(l));
    }
  }
  head("cmi_segment_importers", "gauge", "Imports of one segment.");
  for (const Place& p : all) {
    for (const node::HomeLine& l : p.report.homes) {
      fmt::print("cmi_segment_importers{{{},segment=\"{}\"}} {}\n", labels_of(p), l.id,
                 l.sharers.size());
    }
  }
}

std::string seconds(uint64_t nanos) {
  return fmt::format("{}.{:09}", nanos / kSecond, nanos % kSecond);
}

// One bound for each power of two.
void print_times(const char* name, const Labels& labels, const node::TimesLine& times) {
  uint64_t below = 0;
  for (size_t i = 0; i < times.counts.size(); ++i) {
    below += times.counts[i];
    const bool last = i + 1 == times.counts.size();
    const uint64_t end = end_of_bucket(i);
    if (!last && (end & (end - 1)) != 0) continue;
    fmt::print("{}_bucket{{{},le=\"{}\"}} {}\n", name, labels, last ? "+Inf" : seconds(end), below);
  }
  fmt::print("{}_count{{{}}} {}\n", name, labels, below);
  fmt::print("{}_sum{{{}}} {}\n", name, labels, seconds(times.sum));
}

void print_histograms(const std::vector<Place>& all) {
  constexpr std::array<std::array<const char*, 2>, node::kTimeNames.size()> kNames{{
      {"cmi_miss_seconds", "How long misses took: one in 16 of them."},
      {"cmi_barrier_seconds", "How long barriers took that had something to publish."},
      {"cmi_swap_seconds", "How long atm_cas took, after its barrier."},
  }};
  for (size_t i = 0; i < kNames.size(); ++i) {
    const auto& [name, help] = kNames[i];
    fmt::print("# TYPE {} histogram\n# UNIT {} seconds\n# HELP {} {}\n", name, name, name, help);
    for (const Place& p : all) print_times(name, labels_of(p), p.report.times[i]);
  }
}

}  // namespace

int metrics(const Options& options) {
  const Survey survey = options.look();
  complain_about(survey);
  if (!survey.trouble.empty()) return kTrouble;
  const Places places(options, survey);
  print_contexts(places.all());
  print_imports(places.all());
  print_segments(places.all());
  print_histograms(places.all());
  fmt::print("# EOF\n");
  return kFine;
}

}  // namespace cmi::adm
