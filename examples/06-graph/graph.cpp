// graph: PageRank, breadth-first search and connected components on a Kronecker graph in one
// segment, by several nodes, each with a part of the vertices; the home compares with what it gets
// alone. What is stored for a vertex lies in memory of the node that stores it (spread.hpp).
//
//   graph home DIR NODES SCALE    makes a graph of 2^SCALE vertices and takes part
//   graph node DIR                each of the others
//
// DIR is how they find each other, as in 01-hello; run-graph starts them all on this machine.
#include <charconv>
#include <chrono>
#include <cmath>
#include <cmi/cmi.hpp>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "algorithms.hpp"
#include "spread.hpp"

namespace {

using Clock = std::chrono::steady_clock;
constexpr uint64_t kMaxNodes = 16;
constexpr int kPasses = 2;  // the first one fetches what the second one has
constexpr auto kPatience = std::chrono::seconds(60);

struct Head {
  uint64_t nodes, scale, edges;  // directed ones: two for each of the graph
  alignas(kPage) uint64_t joined;
  alignas(kPage) uint64_t left;
  // A node's swap at the gate publishes what the node stored before. Its sum lies on the page of
  // the gate, which the other nodes load while they wait.
  alignas(kPage) cmi_ofi_barrier gate;
  double sums[2][kMaxNodes];
};

// The graph, behind the head, in arrays that begin at pages.
struct Rows {
  Rows(std::byte* at, uint64_t vertices)
      : first(reinterpret_cast<uint64_t*>(at)),
        to(reinterpret_cast<uint32_t*>(at + in_pages((vertices + 1) * sizeof *first))) {}
  static uint64_t bytes(uint64_t vertices, uint64_t edges) {
    return in_pages((vertices + 1) * sizeof(uint64_t)) + in_pages(edges * sizeof(uint32_t));
  }
  uint64_t* first;
  uint32_t* to;
};

// Results for each vertex, by everybody or by one process alone.
struct Arrays {
  double* give[2];
  uint8_t* level;
  uint32_t* label;
};

struct Edges {
  std::vector<uint64_t> first;
  std::vector<uint32_t> to;
};
Edges make_graph(unsigned scale) {
  const uint64_t n = uint64_t{1} << scale, count = n * kEdgesOfVertex;
  Edges made{std::vector<uint64_t>(n + 1), {}};
  for (uint64_t i = 0; i < count; ++i) {
    const edge e = kronecker_edge(i, scale);
    if (e.from == e.to) continue;
    ++made.first[e.from + 1];
    ++made.first[e.to + 1];
  }
  for (uint64_t v = 0; v < n; ++v) made.first[v + 1] += made.first[v];
  made.to.resize(made.first[n]);
  std::vector<uint64_t> next(made.first.begin(), made.first.end() - 1);
  for (uint64_t i = 0; i < count; ++i) {
    const edge e = kronecker_edge(i, scale);
    if (e.from == e.to) continue;
    made.to[next[e.from]++] = static_cast<uint32_t>(e.to);
    made.to[next[e.to]++] = static_cast<uint32_t>(e.from);
  }
  return made;
}

// So that each node has as many edges, as near as borders of pages allow.
std::vector<graph::Part> parts_of(const graph::Graph& g, uint64_t nodes) {
  std::vector<graph::Part> parts(nodes);
  for (uint64_t k = 1; k < nodes; ++k) {
    const uint64_t edges = g.first[g.vertices] / nodes * k;
    const auto* const v = std::lower_bound(g.first, g.first + g.vertices, edges);
    const uint64_t border = (static_cast<uint64_t>(v - g.first) + kPage / 2) / kPage * kPage;
    parts[k - 1].end = parts[k].begin = std::min(border, g.vertices);
  }
  parts[nodes - 1].end = g.vertices;
  return parts;
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Times {
  double page_rank = 0, search = 0, components = 0;
};
Times work(const graph::Graph& g, uint64_t root, const Arrays& arrays, graph::Part part,
           const graph::Team& team) {
  Times times;
  team.sync(0);
  auto begin = Clock::now();
  graph::page_rank(g, arrays.give, part, team);
  times.page_rank = seconds_since(begin);
  begin = Clock::now();
  graph::search(g, root, arrays.level, part, team);
  times.search = seconds_since(begin);
  begin = Clock::now();
  graph::components(g, arrays.label, part, team);
  times.components = seconds_since(begin);
  return times;
}

// One of the nodes that work on it.
class Member {
 public:
  Member(const cmi::context& context, const std::string& folder, Head& head, uint64_t node)
      : context_(context),
        head_(head),
        node_(node),
        rows_(reinterpret_cast<std::byte*>(&head + 1), vertices()),
        g_{vertices(), rows_.first, rows_.to},
        spot_{context, folder, parts_of(g_, head.nodes), node},
        gate_(context, head.gate, static_cast<uint32_t>(head.nodes)) {}

  // All passes. What the last one took.
  Times take_part() {
    const graph::Team team = {[this](double mine) { return sync(mine); },
                              [this](const void* array) { fetch(array); }};
    const uint64_t root = kronecker_root(static_cast<unsigned>(head_.scale));
    Times times;
    for (int pass = 0; pass < kPasses; ++pass) {
      const cmi_ofi_stats before = costs();
      times = work(g_, root, arrays(), spot_.parts[node_], team);
      if (pass + 1 == kPasses) report_costs(before, costs());
    }
    return times;
  }
  // Nobody leaves before everybody has what it wants of the others.
  void wait_for_all() { sync(0); }
  Arrays arrays() const { return {{give_[0].all(), give_[1].all()}, level_.all(), label_.all()}; }
  uint64_t vertices() const { return uint64_t{1} << head_.scale; }

 private:
  double sync(double mine) {
    head_.sums[turn_][node_] = mine;
    if (gate_.arrive_and_wait() != cmi::taken::yes) throw std::runtime_error("a node has died");
    double sum = 0;
    for (uint64_t i = 0; i < head_.nodes; ++i) sum += head_.sums[turn_][i];
    turn_ = 1 - turn_;
    return sum;
  }
  // Else each page that a load comes to is a miss, one after the other.
  void fetch(const void* array) const {
    for (const auto& give : give_) {
      if (give.all() == array) give.fetch();
    }
    if (level_.all() == array) level_.fetch();
    if (label_.all() == array) label_.fetch();
  }
  cmi_ofi_stats costs() const {
    cmi_ofi_stats stats = {};
    stats.size = sizeof stats;
    cmi_ofi_get_stats(context_.get(), &stats);
    return stats;
  }
  void report_costs(const cmi_ofi_stats& from, const cmi_ofi_stats& to) const {
    std::printf(
        "node %lu, of the last pass: %lu misses, %lu pages fetched, %lu first stores, %lu "
        "swaps, %lu publications, %lu notifications\n",
        node_ + 1, to.load_misses + to.store_misses - from.load_misses - from.store_misses,
        to.pages_fetched - from.pages_fetched, to.store_faults - from.store_faults,
        to.cas_calls - from.cas_calls, to.publications - from.publications,
        to.invalidations_received - from.invalidations_received);
  }

  const cmi::context& context_;
  Head& head_;
  const uint64_t node_;
  Rows rows_;
  graph::Graph g_;
  Spot spot_;
  cmi::barrier gate_;
  int turn_ = 0;
  Spread<double> give_[2] = {{spot_, "give0"}, {spot_, "give1"}};
  Spread<uint8_t> level_{spot_, "level"};
  Spread<uint32_t> label_{spot_, "label"};
};

// In ordinary memory.
class Alone {
 public:
  explicit Alone(uint64_t vertices)
      : give_{std::vector<double>(vertices), std::vector<double>(vertices)},
        level_(vertices),
        label_(vertices) {}
  Arrays arrays() { return {{give_[0].data(), give_[1].data()}, level_.data(), label_.data()}; }
  void copy(const Arrays& from) {
    for (int i : {0, 1}) std::copy_n(from.give[i], give_[i].size(), give_[i].begin());
    std::copy_n(from.level, level_.size(), level_.begin());
    std::copy_n(from.label, label_.size(), label_.begin());
  }

 private:
  std::vector<double> give_[2];
  std::vector<uint8_t> level_;
  std::vector<uint32_t> label_;
};

bool same(const Arrays& shared, const Arrays& alone, uint64_t vertices) {
  const double* const a = shared.give[kIterations % 2];
  const double* const b = alone.give[kIterations % 2];
  for (uint64_t v = 0; v < vertices; ++v) {
    if (!(std::fabs(a[v] - b[v]) <= 1e-9 * b[v])) return false;  // sums in another order
  }
  return std::memcmp(shared.level, alone.level, vertices) == 0 &&
         std::memcmp(shared.label, alone.label, vertices * sizeof *alone.label) == 0;
}

// What graph_mpi prints of the same graph.
void print_check(const Arrays& arrays, uint64_t vertices) {
  uint64_t levels = 0, labels = 0;
  double ranks = 0;
  for (uint64_t v = 0; v < vertices; ++v) {
    levels += arrays.level[v];
    labels += arrays.label[v];
    ranks += arrays.give[kIterations % 2][v];
  }
  std::printf("check %lu %lu %.9e\n", levels, labels, ranks);
}

int home(const std::string& folder, uint64_t nodes, uint64_t scale) {
  const Edges made = make_graph(static_cast<unsigned>(scale));
  const uint64_t vertices = uint64_t{1} << scale, edges = made.to.size();
  const auto context = cmi::context::open();
  const auto segment =
      context.make(sizeof(Head) + Rows::bytes(vertices, edges), CMI_SEG_CLIENT_CONSIST);
  const auto view = segment.attach();
  Head& head = *reinterpret_cast<Head*>(view.data());
  const Rows rows(view.data() + sizeof(Head), vertices);
  head.nodes = nodes;
  head.scale = scale;
  head.edges = edges;
  head.joined = 1;
  std::copy(made.first.begin(), made.first.end(), rows.first);
  std::copy(made.to.begin(), made.to.end(), rows.to);
  cmi::publish();
  const auto handle = segment.export_handle();
  const auto token = segment.grant();
  const auto offer = context.offer(folder, "graph", handle, token);
  Alone shared(vertices), alone(vertices);
  Times together;
  {
    Member self(context, folder, head, 0);
    together = self.take_part();
    shared.copy(self.arrays());
    self.wait_for_all();
  }
  const cmi::atomic_ref left(context, head.left);
  const auto end = Clock::now() + kPatience;
  while (left.load() + 1 < nodes && Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }

  const graph::Graph g = {vertices, made.first.data(), made.to.data()};
  Times one;
  for (int pass = 0; pass < kPasses; ++pass) {
    one = work(g, kronecker_root(static_cast<unsigned>(scale)), alone.arrays(), {0, vertices},
               {[](double mine) { return mine; }, [](const void*) {}});
  }
  const auto line = [&](const char* name, double ours, double single) {
    std::printf("graph_%s_%lu: %.3f ms; one process: %.3f ms\n", name, nodes, ours * 1e3,
                single * 1e3);
  };
  std::printf("%lu vertices, %lu edges\n", vertices, edges / 2);
  line("pagerank", together.page_rank, one.page_rank);
  line("bfs", together.search, one.search);
  line("components", together.components, one.components);
  const bool right = same(shared.arrays(), alone.arrays(), vertices);
  print_check(alone.arrays(), vertices);
  std::printf("identical: %s\n", right ? "yes" : "no");
  return right ? 0 : 1;
}

int node(const std::string& folder) {
  const auto context = cmi::context::open();
  const auto segment = context.find(folder, "graph", kPatience);
  const auto view = segment.attach();
  Head& head = *reinterpret_cast<Head*>(view.data());
  const uint64_t number = cmi::atomic_ref(context, head.joined).fetch_add(1);
  if (number >= head.nodes) throw std::runtime_error("more nodes than were asked for");
  {
    Member self(context, folder, head, number);
    self.take_part();
    self.wait_for_all();
  }
  cmi::atomic_ref(context, head.left).fetch_add(1);
  return 0;
}

uint64_t number(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> given(argv + 1, argv + argc);
  try {
    if (given.size() == 2 && given[0] == "node") return node(given[1]);
    if (given.size() == 4 && given[0] == "home") {
      const uint64_t nodes = number(given[2]), scale = number(given[3]);
      if (nodes > 0 && nodes <= kMaxNodes && scale >= 8 && scale <= 24) {
        return home(given[1], nodes, scale);
      }
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "graph: %s\n", e.what());
    return 1;
  }
  std::fprintf(stderr, "usage: graph home DIR NODES SCALE (8 to 24)\n       graph node DIR\n");
  return 2;
}
