// ycsb: the mixes A (half reads, half updates), B (95 of 100 reads) and C (reads) of YCSB over the
// store of store.hpp, with zipf keys, by one thread on each node. Each value read must be one of
// its key, and in the end the home looks at all. The first pass fetches what the others measure.
//
//   ycsb home DIR NODES MIX RECORDS OPERATIONS PASSES    makes the store, fills it, takes part
//   ycsb node DIR [endless]                              each of the others; endless: it never
//                                                        comes to the end of its first pass
//   ycsb check DIR RECORDS                               one line: whether all records are right
//
// DIR is how they find each other, as in 01-hello; run-ycsb starts them all on this machine.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "store.hpp"
#include "zipf.hpp"

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kValueSize = 100;
constexpr uint64_t kMaxNodes = 8, kMaxPasses = 8;
constexpr auto kPatience = std::chrono::seconds(60);

// In a segment of its own, beside the store's.
struct Run {
  uint64_t nodes, mix, records, operations, passes;
  alignas(4096) uint64_t joined;
  alignas(4096) cmi_ofi_barrier gate;
  alignas(4096) uint64_t wrong;
  alignas(4096) uint64_t left;
  alignas(4096) double seconds[kMaxNodes][kMaxPasses];
};

double updates_of(uint64_t mix) { return mix == 'a' ? 0.5 : mix == 'b' ? 0.05 : 0; }

// Half full.
kv::Shape shape_for(uint64_t records, uint64_t writers) {
  kv::Shape shape;
  shape.cell_bytes = 136;
  shape.writers = writers;
  shape.groups = std::max<uint64_t>(1, records * 2 / (shape.slots() * shape.pages));
  return shape;
}

void fill(kv::Store& store, uint64_t records) {
  for (uint64_t record = 0; record < records; ++record) {
    store.put(kv::key_of(record), kv::value_of(record, 0, 0, kValueSize));
  }
}

uint64_t wrong_records(const kv::Store& store, uint64_t records) {
  uint64_t wrong = 0;
  std::string value;
  for (uint64_t record = 0; record < records; ++record) {
    wrong += !store.get(kv::key_of(record), value) || !kv::belongs(record, value) ||
             value.size() != kValueSize;
  }
  return wrong;
}

// One node's operations of one pass; how many went wrong.
uint64_t pass(kv::Store& store, const Run& run, uint64_t operations, kv::Zipf& zipf, uint64_t node,
              uint64_t& number) {
  const double updates = updates_of(run.mix);
  uint64_t wrong = 0;
  std::string value;
  for (uint64_t i = 0; i < operations; ++i) {
    const uint64_t record = zipf.next();
    if (updates > 0 && zipf.chance() < updates) {
      store.put(kv::key_of(record), kv::value_of(record, node, ++number, kValueSize));
    } else {
      wrong += !store.get(kv::key_of(record), value) || !kv::belongs(record, value);
    }
  }
  return wrong;
}

// What an operation of the last pass cost this node, in messages to the home and what they are for.
void report_costs(const Run& run, uint64_t node, const cmi_ofi_stats& from,
                  const cmi_ofi_stats& to) {
  const auto each = [&](uint64_t cmi_ofi_stats::*field) {
    return static_cast<double>(to.*field - from.*field) / static_cast<double>(run.operations);
  };
  std::printf(
      "node %lu, of each operation: %.3f load misses, %.3f store misses, %.3f first stores, "
      "%.3f swaps, %.3f of them lost, %.3f publications, %.3f notifications\n",
      node + 1, each(&cmi_ofi_stats::load_misses), each(&cmi_ofi_stats::store_misses),
      each(&cmi_ofi_stats::store_faults), each(&cmi_ofi_stats::cas_calls),
      each(&cmi_ofi_stats::cas_lost), each(&cmi_ofi_stats::publications),
      each(&cmi_ofi_stats::invalidations_received));
}
cmi_ofi_stats costs(const cmi::context& context) {
  cmi_ofi_stats stats = {};
  stats.size = sizeof stats;
  cmi_ofi_get_stats(context.get(), &stats);
  return stats;
}

void take_part(const cmi::context& context, kv::Store& store, Run& run, uint64_t node,
               uint64_t operations) {
  cmi::barrier gate(context, run.gate, static_cast<uint32_t>(run.nodes));
  kv::Zipf zipf(run.records, node + 1);
  uint64_t wrong = 0, number = 0;
  for (uint64_t i = 0; i < run.passes; ++i) {
    gate.arrive_and_wait();
    const cmi_ofi_stats before = costs(context);
    const auto begin = Clock::now();
    wrong += pass(store, run, operations, zipf, node, number);
    run.seconds[node][i] = std::chrono::duration<double>(Clock::now() - begin).count();
    if (i + 1 == run.passes) report_costs(run, node, before, costs(context));
  }
  cmi::publish();
  if (wrong != 0) cmi::atomic_ref(context, run.wrong).fetch_add(wrong);
  gate.arrive_and_wait();
}

void report(const Run& run) {
  for (uint64_t i = 0; i < run.passes; ++i) {
    double slowest = 0;
    for (uint64_t node = 0; node < run.nodes; ++node) {
      slowest = std::max(slowest, run.seconds[node][i]);
    }
    std::printf("ycsb_%c_%lu pass %lu: %.0f operations/s\n", static_cast<char>(run.mix), run.nodes,
                i + 1, static_cast<double>(run.nodes * run.operations) / slowest);
  }
}

// The segments go with the home: not before the others have left, or have been killed.
void await_ends(const cmi::context& context, Run& run) {
  const cmi::atomic_ref left(context, run.left);
  uint64_t killed = 0;
  for (const auto end = Clock::now() + kPatience; Clock::now() < end;) {
    if (left.load() + killed + 1 >= run.nodes) return;
    const auto event = context.next_event();
    if (event && (*event)->type == CMI_EVENT_RCTXT_DOWN) ++killed;
    if (!event) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

int home(const std::string& folder, const Run& wanted) {
  const auto context = cmi::context::open();
  const kv::Shape shape = shape_for(wanted.records, wanted.nodes);
  const auto run_segment = context.make(sizeof(Run), CMI_SEG_CLIENT_CONSIST);
  const auto run = run_segment.attach<Run>();
  const auto segment = context.make(kv::Store::bytes(shape), CMI_SEG_CLIENT_CONSIST);
  const auto memory = segment.attach();
  *run = wanted;
  run->joined = 1;
  kv::Store::make(memory, shape);
  kv::Store store(context, memory);
  fill(store, wanted.records);
  const auto handle = segment.export_handle(), run_handle = run_segment.export_handle();
  const auto token = segment.grant(), run_token = run_segment.grant();
  const auto offer = context.offer(folder, "store", handle, token);
  const auto run_offer = context.offer(folder, "run", run_handle, run_token);

  take_part(context, store, *run, 0, wanted.operations);
  await_ends(context, *run);
  report(*run);
  const uint64_t wrong = run->wrong + wrong_records(store, wanted.records);
  std::printf("%lu wrong: %s\n", wrong, wrong == 0 ? "exact" : "WRONG");
  return wrong == 0 ? 0 : 1;
}

int node(const std::string& folder, bool endless) {
  const auto context = cmi::context::open();
  const auto run_segment = context.find(folder, "run", kPatience);
  const auto run = run_segment.attach<Run>();
  const auto segment = context.find(folder, "store", kPatience);
  const auto memory = segment.attach();
  kv::Store store(context, memory);
  const uint64_t number = cmi::atomic_ref(context, run->joined).fetch_add(1);
  if (number >= run->nodes) throw std::runtime_error("more nodes than were asked for");
  std::printf("node %lu begins\n", number + 1);
  std::fflush(stdout);
  take_part(context, store, *run, number, endless ? UINT64_MAX : run->operations);
  cmi::atomic_ref(context, run->left).fetch_add(1);
  return 0;
}

int check(const std::string& folder, uint64_t records) {
  const auto context = cmi::context::open();
  const auto segment = context.find(folder, "store", kPatience);
  const auto memory = segment.attach();
  const kv::Store store(context, memory);
  const uint64_t wrong = wrong_records(store, records);
  std::printf("%lu of %lu records are wrong\n", wrong, records);
  return wrong == 0 ? 0 : 1;
}

uint64_t number(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : 0;
}

int run(const std::vector<std::string>& given) {
  if (given.size() == 2 && given[0] == "node") return node(given[1], false);
  if (given.size() == 3 && given[0] == "node" && given[2] == "endless") return node(given[1], true);
  if (given.size() == 3 && given[0] == "check") return check(given[1], number(given[2]));
  if (given.size() == 7 && given[0] == "home" && given[3].size() == 1) {
    Run wanted = {};
    wanted.nodes = number(given[2]);
    wanted.mix = static_cast<unsigned char>(given[3][0]);
    wanted.records = number(given[4]);
    wanted.operations = number(given[5]);
    wanted.passes = number(given[6]);
    if (wanted.nodes > 0 && wanted.nodes <= kMaxNodes && wanted.mix >= 'a' && wanted.mix <= 'c' &&
        wanted.records > 1 && wanted.operations > 0 && wanted.passes > 0 &&
        wanted.passes <= kMaxPasses) {
      return home(given[1], wanted);
    }
  }
  std::fprintf(stderr,
               "usage: ycsb home DIR NODES a|b|c RECORDS OPERATIONS PASSES\n"
               "       ycsb node DIR [endless]\n"
               "       ycsb check DIR RECORDS\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "ycsb: %s\n", e.what());
    return 1;
  }
}
