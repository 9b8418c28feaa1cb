// wordcount: processes on several nodes count the words of real text in one hash table, which lies
// in one CMI segment of the first node and which all of them change in place. Then another node
// reads it, counts everything once more in an ordinary map, and compares.
//
//   wordcount home --listen HOST:PORT --nodes N [options] [file or folder ...]
//   wordcount node --connect HOST:PORT [--timeout SECONDS]
//   mpirun -n N wordcount --pmix [options] [file or folder ...]
//
// Each process belongs to the node that CMI_NODE names, or to the machine's; CMI_ADDRESS says where
// others reach it. The files must be the same on all machines. With --pmix the first process of the
// job is the home, and each is a node of its own unless CMI_NODE says otherwise. With --losers N
// the home ends with status 1 as well if fewer than N nodes have lost a compare-and-swap to
// another: without contention the run shows nothing about swaps between nodes.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "failure.hpp"
#include "input.hpp"
#include "launcher.hpp"
#include "links.hpp"
#include "memory.hpp"
#include "report.hpp"
#include "table.hpp"
#include "verify.hpp"

namespace wordcount {
namespace {

constexpr uint64_t kMiB = 1024 * 1024;
constexpr uint64_t kDefaultInput = 64 * kMiB;
constexpr std::string_view kHello = "hello wordcount 1";
// What a node keeps to itself before it merges.
constexpr size_t kBatchWords = 64 * 1024;
constexpr uint64_t kLargestBatch = 16 * kMiB;

struct Options {
  std::string role;
  std::string address;   // --listen or --connect
  std::string announce;  // file that the home writes its address to
  unsigned nodes = 4;
  std::chrono::seconds timeout{120};
  uint64_t limit_mib = 0;
  uint64_t segment_mib = 0;  // 0: derived from the input
  unsigned losers = 0;       // nodes that must have lost a swap to another
  std::vector<std::string> paths;
};

[[noreturn]] void usage() {
  fmt::print(
      stderr,
      "usage: wordcount home --listen HOST:PORT --nodes N [--announce FILE] [--timeout SECONDS]\n"
      "                      [--limit MIB] [--segment MIB] [--losers N] [file or folder ...]\n"
      "       wordcount node --connect HOST:PORT [--timeout SECONDS]\n"
      "       mpirun -n N wordcount --pmix [--timeout SECONDS] [--limit MIB] [--segment MIB]\n"
      "                      [--losers N] [file or folder ...]\n");
  ::_exit(2);
}

uint64_t number(const std::string& text, uint64_t lowest, uint64_t highest) {
  uint64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size() || value < lowest ||
      value > highest) {
    fmt::print(stderr, "wordcount: '{}' is not a number from {} to {}\n", text, lowest, highest);
    usage();
  }
  return value;
}

Options parse(int argc, char** argv) {
  Options options;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.empty()) usage();
  options.role = arguments[0];
  const bool pmix = options.role == "--pmix";
  const bool home = options.role == "home" || pmix;
  if (!home && options.role != "node") usage();
  for (size_t i = 1; i < arguments.size(); i++) {
    const std::string& name = arguments[i];
    if (!name.starts_with("--")) {
      if (!home) usage();
      options.paths.push_back(name);
      continue;
    }
    if (++i == arguments.size()) usage();
    const std::string& value = arguments[i];
    if (!pmix && name == (home ? "--listen" : "--connect")) {
      options.address = value;
    } else if (name == "--timeout") {
      options.timeout = std::chrono::seconds(number(value, 1, 86400));
    } else if (home && !pmix && name == "--nodes") {
      options.nodes = static_cast<unsigned>(number(value, 2, 64));
    } else if (home && !pmix && name == "--announce") {
      options.announce = value;
    } else if (home && name == "--limit") {
      options.limit_mib = number(value, 1, 1024 * 1024);
    } else if (home && name == "--segment") {
      options.segment_mib = number(value, 1, 1024 * 1024);
    } else if (home && name == "--losers") {
      options.losers = static_cast<unsigned>(number(value, 0, 64));
    } else {
      usage();
    }
  }
  if (options.address.empty() && !pmix) usage();
  return options;
}

uint64_t nanoseconds_since(Clock::time_point start) {
  return static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now() - start).count());
}

// A node's part in the work: takes chunks, counts them in private, merges each batch into the table
// while the others do the same.
void count_share(SharedMemory& memory, SharedTable& table, const std::function<void()>& pause) {
  const auto start = Clock::now();
  NodeStatistics& mine = table.statistics;
  const Layout& layout = table.layout();
  const uint64_t batch_bytes =
      std::clamp(layout.input_bytes / (2 * layout.nodes), kMiB / 16, kLargestBatch);
  memory.open_epoch();

  Batch batch;
  batch.reserve(kBatchWords);
  uint64_t bytes_in_batch = 0;
  const auto merge = [&] {
    const auto merge_start = Clock::now();
    table.merge(batch, pause);
    batch.clear();
    bytes_in_batch = 0;
    mine.batches++;
    mine.merge_nanoseconds += nanoseconds_since(merge_start);
    table.store_statistics(mine);
    memory.flush_epoch();
  };

  Chunk chunk;
  std::string text;
  while (table.take_chunk(chunk)) {
    for (const Piece& piece : chunk) {
      read_piece(piece, text);
      for_each_word(text, [&](std::string_view word) {
        auto at = batch.find(word);
        if (at == batch.end()) at = batch.emplace(std::string(word), 0).first;
        at->second++;
        mine.words++;
      });
      mine.bytes += text.size();
      bytes_in_batch += text.size();
      if (batch.size() >= kBatchWords) merge();
      pause();
    }
    table.store_statistics(mine);  // for the progress line; goes with the next publication
    if (bytes_in_batch >= batch_bytes) merge();
  }
  if (!batch.empty()) merge();

  const cmi_ofi_stats library = memory.library_counters();
  mine.loads = memory.loads();
  mine.load_misses = library.load_misses;
  mine.stores = memory.stores();
  mine.store_misses = library.store_misses;
  mine.written_back = library.bytes_written_back;
  mine.swaps = memory.swaps();
  mine.nanoseconds = nanoseconds_since(start);
  table.store_statistics(mine);
  memory.close_epoch();
}

int run_node(const Options& options) {
  self = "wordcount node";
  Link home = connect_to(options.address);
  home.send(kHello);
  const std::string join = home.expect("join");
  unsigned node = 0, port = 0;
  size_t size = 0;
  if (std::sscanf(join.c_str(), "%u %zu %u", &node, &size, &port) != 3) {
    fail("the home sent a line that cannot be read: join {}", join);
  }
  self = fmt::format("node {}", node);
  partners.push_back({home.fd(), home.name()});

  const std::string where = fmt::format("tcp://{}:{}", split(options.address).host, port);
  SharedMemory memory = SharedMemory::find(where, size);
  home.send("ready");
  home.expect("go");
  SharedTable table(memory, node);
  auto next_check = Clock::now();
  count_share(memory, table, [&] {
    if (Clock::now() < next_check) return;
    std::string line;
    if (home.receive(line, std::chrono::milliseconds(0)) == Received::kClosed)
      fail("{} has ended", home.name());
    next_check = Clock::now() + std::chrono::milliseconds(100);
  });
  home.send("done");

  std::string order = home.expect_line();
  if (order == "verify") {
    const Say say = [&](std::string_view line) { home.send(fmt::format("say {}", line)); };
    const std::vector<Entry> entries = read_table(memory, table, say);
    const std::vector<Chunk> chunks = read_plan(memory, table.layout());
    memory.close();  // from here on this is an ordinary process
    const Verdict verdict = count_alone_and_compare(chunks, entries, say);
    home.send(fmt::format("verified {} {}", verdict.identical ? "yes" : "no", verdict.seconds));
    order = home.expect_line();
  }
  if (order != "bye") fail("{} says '{}', not 'bye'", home.name(), order);
  memory.close();
  return 0;
}

// A node of a job. The meetings are those of JobNodes.
int run_job_node(Launcher& job) {
  const unsigned node = job.rank() + 1;
  self = fmt::format("node {}", node);
  job.meet();
  const size_t size = number(job.take(0, "size"), 1, SIZE_MAX);
  SharedMemory memory = SharedMemory::find("pmix:", size);
  job.meet();
  SharedTable table(memory, node);
  count_share(memory, table, [] {});
  job.meet();
  if (job.rank() == 1) {
    const Say say = [](std::string_view line) { fmt::print("{}\n", line); };
    const std::vector<Entry> entries = read_table(memory, table, say);
    const std::vector<Chunk> chunks = read_plan(memory, table.layout());
    memory.close();  // from here on this is an ordinary process
    const Verdict verdict = count_alone_and_compare(chunks, entries, say);
    job.leave("verdict", fmt::format("{} {}", verdict.identical ? "yes" : "no", verdict.seconds));
    std::fflush(stdout);
  }
  job.meet();
  memory.close();
  job.meet();
  return 0;
}

bool read_verdict(const char* text, Verdict& verdict) {
  char answer[8] = {};
  if (std::sscanf(text, "%7s %lf", answer, &verdict.seconds) != 2) return false;
  verdict.identical = std::string_view(answer) == "yes";
  return true;
}

// The other processes of the job, as the home sees them.
class JobNodes {
 public:
  JobNodes(Launcher& job, SharedMemory& memory) : job_(job) {
    memory.must_offer("pmix:");
    job.leave("size", std::to_string(memory.size()));
    job.meet();  // now the others can import
  }
  void go() { job_.meet(); }
  // Who dies meanwhile is noticed by the launcher, which ends the job.
  void check() {}
  void wait_until_done(const std::function<void()>& /*meanwhile*/) { job_.meet(); }
  Verdict verify() {
    job_.meet();
    const std::string line = job_.take(1, "verdict");
    Verdict verdict = {};
    if (!read_verdict(line.c_str(), verdict)) fail("node 2: {}", line);
    return verdict;
  }
  void dismiss() { job_.meet(); }

 private:
  Launcher& job_;
};

// The other nodes, as the home sees them.
class Nodes {
 public:
  Nodes(const Options& options, SharedMemory& memory) {
    Listener listener(options.address);
    const std::string address = listener.address();
    fmt::print(stderr, "waiting for {} nodes on {}\n", options.nodes - 1, address);
    const unsigned port = offer_beside(address, memory);
    if (!options.announce.empty()) announce(options.announce, address);
    while (links_.size() + 1 < options.nodes) {
      Link link = listener.accept();
      std::string line;
      // Somebody else who happens to connect is sent away.
      if (link.receive(line, std::chrono::seconds(5)) != Received::kLine || line != kHello)
        continue;
      link.rename(fmt::format("node {}", links_.size() + 2));
      partners.push_back({link.fd(), link.name()});
      links_.push_back(std::move(link));
      links_.back().send(fmt::format("join {} {} {}", links_.size() + 1, memory.size(), port));
    }
    done_.assign(links_.size(), false);
    for (Link& link : links_) link.expect("ready");
  }

  void go() { tell_all("go"); }
  void check() { check(std::chrono::milliseconds(0)); }
  void wait_until_done(const std::function<void()>& meanwhile) {
    while (!check(std::chrono::milliseconds(20))) meanwhile();
  }

  // Node 2 reads and judges; what it says is printed here. Returns its verdict.
  Verdict verify() {
    Link& reader = links_.front();
    reader.send("verify");
    for (;;) {
      const std::string line = reader.expect_line();
      if (line.starts_with("say ")) {
        fmt::print("{}\n", line.substr(4));
        continue;
      }
      Verdict verdict = {};
      if (!line.starts_with("verified ") || !read_verdict(line.c_str() + 9, verdict))
        fail("{} says '{}', not what it has found", reader.name(), line);
      return verdict;
    }
  }

  // Waits until each has closed its segment and gone. One that has ended before takes nothing away:
  // all it has counted is in the table, and the table has been read.
  void dismiss() {
    for (Link& link : links_) {
      if (!link.offer("bye")) fmt::print(stderr, "{} has ended early\n", link.name());
    }
    for (Link& link : links_) {
      std::string line;
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
      const Received received = link.receive(line, std::max(left, std::chrono::milliseconds(0)));
      if (received == Received::kLine) fail("{} says at its end: {}", link.name(), line);
      if (received == Received::kNothing) fail("{} does not end", link.name());
    }
  }

 private:
  // Offers the memory at one of the ports behind that of the links, and tells which.
  static unsigned offer_beside(const std::string& address, SharedMemory& memory) {
    const auto [host, listening] = split(address);
    const unsigned first = static_cast<unsigned>(number(listening, 1, 65535)) + 1;
    const unsigned last = std::min(first + 20, 65535U);
    unsigned port = first;
    while (port < last && !memory.offer(fmt::format("tcp://{}:{}", host, port))) port++;
    if (port >= last) memory.must_offer(fmt::format("tcp://{}:{}", host, port));
    return port;
  }

  void tell_all(std::string_view line) {
    for (Link& link : links_) link.send(line);
  }

  // Notes who has finished; fails if a node has died. True when all are done.
  bool check(std::chrono::milliseconds wait) {
    bool all = true;
    for (size_t i = 0; i < links_.size(); i++) {
      if (done_[i]) continue;
      std::string line;
      const Received received = links_[i].receive(line, wait);
      if (received == Received::kClosed) {
        fail("{} has ended before its work was done: the count is incomplete", links_[i].name());
      }
      if (received == Received::kLine && line != "done") {
        fail("{} says '{}', not 'done'", links_[i].name(), line);
      }
      done_[i] = received == Received::kLine;
      all = all && done_[i];
    }
    if (Clock::now() > deadline) fail("the nodes have not finished in time");
    return all;
  }

  // The file appears under its name only when it is whole.
  static void announce(const std::string& path, const std::string& address) {
    const std::string part = path + ".part";
    std::FILE* file = std::fopen(part.c_str(), "w");
    if (file == nullptr) fail("cannot write {}", path);
    fmt::print(file, "{}\n", address);
    std::error_code error;
    if (std::fclose(file) == 0) std::filesystem::rename(part, path, error);
    if (error) fail("cannot write {}: {}", path, error.message());
  }

  std::vector<Link> links_;
  std::vector<bool> done_;
};

// `gather` makes the other nodes, once they can import the memory.
template <class Gather>
int run_home(const Options& options, Gather gather) {
  self = "node 1 (home)";
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::vector<std::string> paths = options.paths;
  uint64_t limit = options.limit_mib * kMiB;
  if (paths.empty()) {
    for (const char* path : {"/usr/include", "/usr/share/doc", "/usr/share/common-licenses"}) {
      if (std::filesystem::exists(path)) paths.emplace_back(path);
    }
    if (limit == 0) limit = kDefaultInput;
  }
  const Plan plan = make_plan(paths, limit, options.nodes);
  if (plan.bytes == 0) fail("there is no text to count");
  const double mib = static_cast<double>(plan.bytes) / kMiB;
  fmt::print("input: {:.1f} MiB in {} text files, {} chunks\n", mib, plan.files,
             plan.chunks.size());

  const size_t size = options.segment_mib != 0 ? options.segment_mib * kMiB
                                               : SharedTable::segment_size(plan, options.nodes);
  SharedMemory memory = SharedMemory::make(size);
  SharedTable table = SharedTable::create(memory, plan, options.nodes);
  auto nodes = gather(memory);

  const auto statistics = [&] {
    std::vector<NodeStatistics> all;
    for (unsigned node = 1; node <= options.nodes; node++)
      all.push_back(table.load_statistics(node));
    return all;
  };
  Progress progress(plan.bytes);
  nodes.go();
  const auto start = Clock::now();
  auto next_check = start;
  count_share(memory, table, [&] {
    if (Clock::now() < next_check) return;
    nodes.check();
    table.store_statistics(table.statistics);
    progress.show(statistics);
    next_check = Clock::now() + std::chrono::milliseconds(100);
  });
  nodes.wait_until_done([&] { progress.show(statistics); });
  const double seconds = static_cast<double>(nanoseconds_since(start)) / 1e9;
  progress.end();

  const Verdict verdict = nodes.verify();
  const std::vector<NodeStatistics> all = statistics();
  print_statistics(all);
  fmt::print("{:.1f} of the segment's {:.1f} MiB used\n",
             static_cast<double>(table.bytes_used()) / kMiB, static_cast<double>(size) / kMiB);
  fmt::print("shared table: {:.2f} s, {:.1f} MiB/s; one process alone: {:.2f} s, {:.1f} MiB/s\n",
             seconds, mib / seconds, verdict.seconds, mib / verdict.seconds);
  nodes.dismiss();
  memory.close();

  const auto losers =
      std::count_if(all.begin(), all.end(), [](const NodeStatistics& n) { return n.lost() > 0; });
  const bool contended = losers >= static_cast<long>(options.losers);
  if (!contended) fmt::print("only {} nodes lost a compare-and-swap to another\n", losers);
  fmt::print("identical: {}\n", verdict.identical ? "yes" : "no");
  return verdict.identical && contended ? 0 : 1;
}

int run_in_job(Options options) {
  Launcher job;
  options.nodes = job.size();
  if (job.size() < 2 || job.size() > 64) fail("2 to 64 processes are wanted, not {}", job.size());
  ::setenv("CMI_NODE", fmt::format("wordcount-{}", job.rank()).c_str(), 0);
  if (job.rank() != 0) return run_job_node(job);
  return run_home(options, [&](SharedMemory& memory) { return JobNodes(job, memory); });
}

int run(const Options& options) {
  if (options.role == "--pmix") return run_in_job(options);
  if (options.role == "node") return run_node(options);
  return run_home(options, [&](SharedMemory& memory) { return Nodes(options, memory); });
}

}  // namespace
}  // namespace wordcount

int main(int argc, char** argv) {
  const wordcount::Options options = wordcount::parse(argc, argv);
  wordcount::limit_run_to(options.timeout);
  wordcount::install_exception_handler();
  return wordcount::run(options);
}
