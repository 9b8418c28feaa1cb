// Standard output and standard error of the home.
#include "report.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace wordcount {
namespace {

constexpr double kMiB = 1024 * 1024;

}  // namespace

Progress::Progress(uint64_t input_bytes)
    : input_bytes_(input_bytes), terminal_(::isatty(STDERR_FILENO) != 0) {}

void Progress::show(const std::function<std::vector<NodeStatistics>()>& statistics) {
  const auto now = Clock::now();
  if (now < next_) return;
  next_ = now + std::chrono::seconds(1);
  uint64_t bytes = 0;
  uint64_t words = 0;
  for (const NodeStatistics& node : statistics()) {
    bytes += node.bytes;
    words += node.inserted;
  }
  fmt::print(stderr, "{}{:6.1f} s: {:.1f} of {:.1f} MiB counted, {} words in the table{}",
             terminal_ ? "\r" : "", std::chrono::duration<double>(now - start_).count(),
             static_cast<double>(bytes) / kMiB, static_cast<double>(input_bytes_) / kMiB, words,
             terminal_ ? "  " : "\n");
  std::fflush(stderr);
  shown_ = true;
}

void Progress::end() {
  if (terminal_ && shown_) fmt::print(stderr, "\n");
  shown_ = false;
}

void print_statistics(const std::vector<NodeStatistics>& nodes) {
  using Cell = std::function<std::string(const NodeStatistics&)>;
  const auto row = [&](std::string_view title, const Cell& cell) {
    fmt::print("{:<28}", title);
    for (const NodeStatistics& node : nodes) fmt::print(" {:>13}", cell(node));
    fmt::print("\n");
  };
  const auto number = [&](std::string_view title, uint64_t NodeStatistics::*member) {
    row(title, [&](const NodeStatistics& n) { return fmt::to_string(n.*member); });
  };
  const auto seconds = [&](std::string_view title, uint64_t NodeStatistics::*member) {
    row(title, [&](const NodeStatistics& n) {
      return fmt::format("{:.2f}", static_cast<double>(n.*member) / 1e9);
    });
  };
  size_t column = 0;
  row("", [&](const NodeStatistics&) {
    column++;
    return fmt::format("node {}{}", column, column == 1 ? " (home)" : "");
  });
  row("MiB read", [](const NodeStatistics& n) {
    return fmt::format("{:.1f}", static_cast<double>(n.bytes) / kMiB);
  });
  number("words", &NodeStatistics::words);
  number("batches merged", &NodeStatistics::batches);
  number("entries made", &NodeStatistics::inserted);
  // One miss brings a page, so it counts against one access of the many that the page serves.
  row("loads served from cache", [](const NodeStatistics& n) {
    return fmt::to_string(n.loads - std::min(n.loads, n.load_misses));
  });
  number("load misses", &NodeStatistics::load_misses);
  row("stores served from cache", [](const NodeStatistics& n) {
    return fmt::to_string(n.stores - std::min(n.stores, n.store_misses));
  });
  number("store misses", &NodeStatistics::store_misses);
  number("bytes written back", &NodeStatistics::written_back);
  number("CAS done", &NodeStatistics::swaps);
  row("CAS lost", [](const NodeStatistics& n) { return fmt::to_string(n.lost()); });
  number("  taking a chunk", &NodeStatistics::lost_chunks);
  number("  taking a block", &NodeStatistics::lost_blocks);
  number("  linking a leaf", &NodeStatistics::lost_links);
  seconds("seconds", &NodeStatistics::nanoseconds);
  seconds("  merging", &NodeStatistics::merge_nanoseconds);
}

}  // namespace wordcount
