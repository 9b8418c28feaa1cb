// What one-sided MPI took for the same, measured before this process was started (peers.hpp),
// beside the rows of ours.
#include "cases.hpp"

namespace bench {

namespace {
struct Same {
  const char* row;
  void (*run)(Bench&);
  const char* what;
};
constexpr Same kSame[] = {
    {"load_miss_4k", load_miss, "get of 4 KiB and flush"},
    {"flush_sparse", flush_sparse, "1000 puts of 8 B and flush"},
    {"flush_dense", flush_dense, "1000 puts of 4 KiB and flush"},
    {"cas", cas, "compare_and_swap and flush"},
    {"read_seq", read_seq, "gets of 1 MiB, a flush after 16"},
    {"write_seq", write_seq, "stored to its own memory first; puts of 1 MiB, a flush after 16"},
};
}  // namespace

void peers(Bench& b) {
  for (const Same& s : kSame) {
    if (b.report.find(s.row) == nullptr) s.run(b);
  }
  b.report.peers_header(b.control.peers, kPeerStacks);
  for (const Same& s : kSame) {
    b.report.peers_row(*b.report.find(s.row), b.control.peers, kPeerStacks, s.what);
  }
}

}  // namespace bench
