// graph: PageRank, breadth-first search and connected components on a Kronecker graph in one
// segment, by several nodes, each with a part of the vertices; the home compares with what it gets
// alone.
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

namespace {

using Clock = std::chrono::steady_clock;
constexpr uint64_t kMaxNodes = 16, kPage = 4096;
constexpr int kPasses = 2;  // the first one fetches what the second one has
constexpr auto kPatience = std::chrono::seconds(60);

struct Head {
  uint64_t nodes, scale, edges;  // directed ones: two for each of the graph
  alignas(kPage) uint64_t joined;
  alignas(kPage) uint64_t left;
  alignas(kPage) cmi_ofi_barrier gate;
  struct alignas(kPage) {
    double of_turn[2];
  } sums[kMaxNodes];
};

uint64_t in_pages(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Where everything lies behind the head, in arrays that begin at pages.
class Arrays {
 public:
  Arrays(std::byte* at, uint64_t vertices, uint64_t edges) : next_(at) {
    first = take<uint64_t>(vertices + 1);
    to = take<uint32_t>(edges);
    give[0] = take<double>(vertices);
    give[1] = take<double>(vertices);
    level = take<uint8_t>(vertices);
    label = take<uint32_t>(vertices);
  }
  static uint64_t bytes(uint64_t vertices, uint64_t edges) {
    return in_pages((vertices + 1) * 8) + in_pages(edges * 4) + 2 * in_pages(vertices * 8) +
           in_pages(vertices) + in_pages(vertices * 4);
  }

  uint64_t* first;
  uint32_t* to;
  double* give[2];
  uint8_t* level;
  uint32_t* label;

 private:
  template <class T>
  T* take(uint64_t count) {
    auto* const taken = reinterpret_cast<T*>(next_);
    next_ += in_pages(count * sizeof(T));
    return taken;
  }
  std::byte* next_;
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

// So that each node has as many edges; at borders of pages where there are enough vertices.
graph::Part part_of(const graph::Graph& g, uint64_t node, uint64_t nodes) {
  const uint64_t step = g.vertices >= kPage * 4 * nodes ? kPage : 64;
  const auto border = [&](uint64_t k) {
    if (k == nodes) return g.vertices;
    const uint64_t edges = g.first[g.vertices] / nodes * k;
    const auto* const v = std::lower_bound(g.first, g.first + g.vertices, edges);
    return static_cast<uint64_t>(v - g.first) / step * step;
  };
  return {border(node), border(node + 1)};
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Times {
  double page_rank = 0, search = 0, components = 0;
};
Times work(const graph::Graph& g, uint64_t root, Arrays& arrays, graph::Part part,
           const graph::Sync& sync) {
  Times times;
  sync(0);
  auto begin = Clock::now();
  graph::page_rank(g, arrays.give, part, sync);
  times.page_rank = seconds_since(begin);
  begin = Clock::now();
  graph::search(g, root, arrays.level, part, sync);
  times.search = seconds_since(begin);
  begin = Clock::now();
  graph::components(g, arrays.label, part, sync);
  times.components = seconds_since(begin);
  return times;
}

// A node's part of all passes. What the last one took.
Times take_part(const cmi::context& context, Head& head, std::byte* data, uint64_t node) {
  const uint64_t vertices = uint64_t{1} << head.scale;
  Arrays arrays(data, vertices, head.edges);
  const graph::Graph g = {vertices, arrays.first, arrays.to};
  cmi::barrier gate(context, head.gate, static_cast<uint32_t>(head.nodes));
  const uint64_t root = kronecker_root(static_cast<unsigned>(head.scale));
  int turn = 0;
  const graph::Sync sync = [&](double mine) {
    head.sums[node].of_turn[turn] = mine;
    if (gate.arrive_and_wait() != cmi::taken::yes) throw std::runtime_error("a node has died");
    double sum = 0;
    for (uint64_t i = 0; i < head.nodes; ++i) sum += head.sums[i].of_turn[turn];
    turn = 1 - turn;
    return sum;
  };
  Times times;
  for (int pass = 0; pass < kPasses; ++pass) {
    times = work(g, root, arrays, part_of(g, node, head.nodes), sync);
  }
  return times;
}

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
  const uint64_t bytes = Arrays::bytes(vertices, edges);
  const auto context = cmi::context::open();
  const auto segment = context.make(sizeof(Head) + bytes, CMI_SEG_CLIENT_CONSIST);
  const auto view = segment.attach();
  Head& head = *reinterpret_cast<Head*>(view.data());
  std::byte* const data = view.data() + sizeof(Head);
  Arrays shared(data, vertices, edges);
  head.nodes = nodes;
  head.scale = scale;
  head.edges = edges;
  head.joined = 1;
  std::copy(made.first.begin(), made.first.end(), shared.first);
  std::copy(made.to.begin(), made.to.end(), shared.to);
  cmi::publish();
  const auto handle = segment.export_handle();
  const auto token = segment.grant();
  const auto offer = context.offer(folder, "graph", handle, token);
  const Times together = take_part(context, head, data, 0);
  const cmi::atomic_ref left(context, head.left);
  const auto end = Clock::now() + kPatience;
  while (left.load() + 1 < nodes && Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }

  std::vector<uint64_t> memory(bytes / sizeof(uint64_t));
  Arrays alone(reinterpret_cast<std::byte*>(memory.data()), vertices, edges);
  const graph::Graph g = {vertices, made.first.data(), made.to.data()};
  const Times one = work(g, kronecker_root(static_cast<unsigned>(scale)), alone, {0, vertices},
                         [](double mine) { return mine; });
  const auto line = [&](const char* name, double ours, double single) {
    std::printf("graph_%s_%lu: %.3f ms; one process: %.3f ms\n", name, nodes, ours * 1e3,
                single * 1e3);
  };
  std::printf("%lu vertices, %lu edges\n", vertices, edges / 2);
  line("pagerank", together.page_rank, one.page_rank);
  line("bfs", together.search, one.search);
  line("components", together.components, one.components);
  const bool right = same(shared, alone, vertices);
  print_check(alone, vertices);
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
  take_part(context, head, view.data() + sizeof(Head), number);
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
