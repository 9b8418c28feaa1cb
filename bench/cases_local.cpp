// Imports whose home is on the same machine and whose pages are mapped (CMI_LOCAL=on): beside what
// the processor and the kernel take for the same in memory that nobody shares.
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "cases.hpp"
#include "pattern.hpp"
#include "worker.hpp"

namespace bench {

namespace {
uint64_t sum_of(std::byte* at, size_t size) {
  const auto* words = reinterpret_cast<const volatile uint64_t*>(at);
  uint64_t sum = 0;
  for (size_t i = 0; i < size / 8; ++i) sum += words[i];
  return sum;
}

// A fresh mapping of a file whose pages are there, watched for stores: the kernel's own faults.
class Watched {
 public:
  explicit Watched(size_t pages) : size_(pages * kPage) {
    file_ = memfd_create("cmi-bench", MFD_CLOEXEC);
    must(file_ >= 0 && ftruncate(file_, static_cast<off_t>(size_)) == 0 &&
             fallocate(file_, 0, 0, static_cast<off_t>(size_)) == 0,
         "no memory for a file");
    fd_ = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY));
    uffdio_api api{UFFD_API, UFFD_FEATURE_SIGBUS | UFFD_FEATURE_WP_HUGETLBFS_SHMEM, 0};
    must(fd_ >= 0 && ioctl(fd_, UFFDIO_API, &api) == 0, "no userfaultfd for a comparison");
  }
  ~Watched() {
    if (at_ != nullptr) munmap(at_, size_);
    close(fd_);
    close(file_);
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  std::byte* map() {
    if (at_ != nullptr) munmap(at_, size_);
    void* const at = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    must(at != MAP_FAILED, "no mapping for a comparison");
    at_ = static_cast<std::byte*>(at);
    uffdio_register watch{{reinterpret_cast<uint64_t>(at), size_}, UFFDIO_REGISTER_MODE_WP, 0};
    must(ioctl(fd_, UFFDIO_REGISTER, &watch) == 0, "a comparison cannot be watched");
    return at_;
  }

 private:
  const size_t size_;
  int file_ = -1, fd_ = -1;
  std::byte* at_ = nullptr;
};

// As many pages as the library maps at once for a reader in order.
constexpr size_t kWindow = 256;

void must_map(Bench& b) {
  const Stats s = b.node.stats();
  must(s.pages_fetched == 0 && s.load_misses == 0, "pages were cached, not mapped");
}
}  // namespace

void local_load_first(Bench& b) {
  constexpr size_t kPages = 1024;
  Watched watched(kPages);
  std::vector<double> ours, theirs;
  for (size_t i = 0; i < b.scaled(30, 5); ++i) {
    const Shared shared(b, kPages);
    touch(shared.page(0));  // the home is asked for its pages
    const auto pass = [](std::byte* first) {
      const double begun = now();
      for (size_t p = 1; p < kPages; ++p) touch(first + p * kPage);
      return (now() - begun) / kMicro / (kPages - 1);
    };
    theirs.push_back(pass(watched.map()));
    ours.push_back(pass(shared.page(0)));
  }
  must_map(b);
  b.report.row({"local_load_first", "us", spread_of(ours), spread_of(theirs),
                "the kernel's faults in a mapping that is watched for stores", 0});
}

void local_store_first(Bench& b) {
  constexpr size_t kPages = 256;
  Shared shared(b, kPages);
  shared.load_all();
  const auto order = random_order(kPages, 9);
  const auto trap = make_trap(kPages);
  must(trap != nullptr, "no handler of faults to compare with here");
  std::vector<uint8_t> marks(kPages);
  trap->set_mark([&](size_t p) { __atomic_store_n(&marks[p], 1, __ATOMIC_SEQ_CST); });
  std::vector<double> ours, theirs;
  const auto store_to = [&](std::byte* page, std::vector<double>* samples) {
    const double begun = now();
    word(page, 1) = begun > 0 ? samples->size() + 1 : 0;
    samples->push_back((now() - begun) / kMicro);
  };
  trap->install();
  for (uint32_t p : order) touch(trap->page(p));
  trap->restore();
  for (size_t i = 0; i < b.scaled(20, 3); ++i) {
    trap->install();
    for (uint32_t p : order) store_to(trap->page(p), &theirs);
    for (uint32_t p : order) trap->protect(p);
    trap->restore();
    for (uint32_t p : order) store_to(shared.page(p), &ours);
    barrier();
    sleep_for(40 * kMilli);  // what is stored to again at once stays writable until the timer comes
  }
  must(b.node.stats().store_faults >= kPages * b.scaled(20, 3) / 2,
       "stores have met no protection");
  must_map(b);
  b.report.row({"local_store_first", "us", spread_of(ours), spread_of(theirs),
                "a bare handler that sets a mark, copies a twin and lets the store go on", 0});
}

void local_hit(Bench& b) {
  constexpr size_t kPages = 64;
  Shared shared(b, kPages);
  shared.load_all();
  const PlainMemory plain(kPages * kPage);
  std::vector<double> ours, theirs;
  const auto pass = [](std::byte* at) {
    const double begun = now();
    (void)sum_of(at, kPages * kPage);
    return (now() - begun) / (kPages * kPage / 8);
  };
  for (size_t i = 0; i < b.scaled(2000, 200); ++i) {
    theirs.push_back(pass(plain.at));
    ours.push_back(pass(shared.page(0)));
  }
  must_map(b);
  b.report.row(
      {"local_hit", "ns", spread_of(ours), spread_of(theirs), "a load of memory of its own", 0});
}

void local_cas(Bench& b) {
  constexpr int kTimes = 1000;
  Shared shared(b, 16);
  auto* const at = reinterpret_cast<uint64_t*>(shared.page(0));
  alignas(64) uint64_t own = 0;
  uint64_t value = 0, own_value = 0, found = 0;
  cmi_ctxt* const ctxt = b.node.ctxt();
  __atomic_load(at, &value, __ATOMIC_SEQ_CST);
  std::vector<double> ours, theirs;
  for (size_t i = 0; i < b.scaled(200, 20); ++i) {
    double begun = now();
    for (int k = 0; k < kTimes; ++k, ++own_value) {
      found = own_value;
      __atomic_compare_exchange_n(&own, &found, own_value + 1, false, __ATOMIC_SEQ_CST,
                                  __ATOMIC_SEQ_CST);
    }
    theirs.push_back((now() - begun) / kTimes / kMicro);
    begun = now();
    for (int k = 0; k < kTimes; ++k, ++value) {
      must(CMIFN(ctxt, 10, atm_cas)(ctxt, at, value, value + 1, &found) == 0 && found == value,
           "a swap has failed");
    }
    ours.push_back((now() - begun) / kTimes / kMicro);
  }
  must_map(b);
  b.report.row({"local_cas", "us", spread_of(ours), spread_of(theirs),
                "the processor's instruction alone", 0});
}

void local_wmb_empty(Bench& b) {
  const Shared shared(b, 16);
  touch(shared.page(0));
  std::vector<double> empty;
  for (size_t i = 0; i < b.scaled(2000, 200); ++i) {
    const double begun = now();
    barrier();
    empty.push_back(now() - begun);
  }
  must_map(b);
  b.report.row({"local_wmb_empty", "ns", spread_of(empty), {}, "nothing stored", 0});
}

// A third process of the machine, which maps the segment as well and looks all the time.
void local_publish(Bench& b) {
  Shared shared(b, 16, 2);
  touch(shared.page(0));
  // On two processors the first of the others has that of this process, and the second the home's,
  // which does nothing meanwhile.
  Spinner spinner(b, sysconf(_SC_NPROCESSORS_ONLN) <= 2 ? kOther2 : kOther1);
  spinner.start();
  std::vector<double> seen;
  const auto publish = [&](uint64_t version) {
    const double begun = now();
    word(shared.page(0), 1) = stamp(0, version);
    barrier();
    spinner.await_value(stamp(0, version));
    return (b.control.seen_at.load() - begun) / kMicro;
  };
  (void)publish(1);  // it maps the page by then
  const uint64_t before = b.node.stats().publications;
  for (uint64_t version = 2; version <= b.scaled(2000, 200); ++version) {
    seen.push_back(publish(version));
  }
  must(b.node.stats().publications == before, "somebody was told of a store by message");
  must_map(b);
  b.report.row({"local_publish",
                "us",
                spread_of(seen),
                {},
                "from the store until another process has seen it, no message",
                0});
}

void local_copy(Bench& b) {
  const size_t size = b.scaled(kReadSeqBytes, kReadSeqBytesQuick);
  const PlainMemory from(size), to(size);
  std::memset(from.at, 1, size);
  std::memset(to.at, 1, size);
  const auto trap = make_trap(size / kPage, kWindow, false);
  must(trap != nullptr, "no handler of faults to compare with here");
  for (size_t p = 0; p < trap->pages(); ++p) word(trap->content(p), 0) = 1;
  std::vector<double> ours, theirs, bare;
  const auto copy = [&](const std::byte* source) {
    const double begun = now();
    std::memcpy(to.at, source, size);
    return static_cast<double>(size) / 1e6 / ((now() - begun) / kSecond);
  };
  for (size_t i = 0; i < b.scaled(4, 2); ++i) {
    const Shared shared(b, size / kPage);
    theirs.push_back(copy(from.at));
    ours.push_back(copy(shared.page(0)));
    trap->install();
    bare.push_back(copy(trap->page(0)));
    trap->restore();
    trap->zap(0, trap->pages());
  }
  must_map(b);
  b.report.row({"local_copy", "MB/s", spread_of(ours), spread_of(theirs),
                "memcpy from memory that is mapped; ours from a fresh import", 0, spread_of(bare)});
}

// Both are asleep when the word is changed: the one that waits, and the processor it waits on.
void local_wakeup(Bench& b) {
  constexpr uint64_t kBlock = 20, kWarm = 2;
  const uint64_t blocks = b.scaled(kLatches / kBlock, 3);
  const Shared shared(b, kLatchPages, 2);
  cmi_ctxt* const ctxt = b.node.ctxt();
  for (uint64_t i = 0; i < kLatches; ++i) {
    must(cmi_ofi_latch_init(ctxt, latch(shared.page(0), i), 1) == 0, "no latch");
  }
  const int role = sysconf(_SC_NPROCESSORS_ONLN) <= 2 ? kOther2 : kOther1;
  std::vector<double> ours, theirs;
  const auto block = [&](uint64_t first, bool bare, std::vector<double>* samples) {
    b.control.awaited.store(static_cast<uint32_t>(first));
    ask(b.control, role, Command::kAwait, first, kBlock, bare ? 1 : 0);
    for (uint64_t i = first; i < first + kBlock; ++i) {
      sleep_for(3 * kMilli);
      const double begun = now();
      if (bare) {
        b.control.awaited.store(static_cast<uint32_t>(i + 1));
        futex_wake(b.control.awaited);
      } else {
        must(cmi_ofi_latch_count_down(ctxt, latch(shared.page(0), i), 1) == 0, "no latch");
      }
      for (const double give_up = now() + 10 * kSecond; b.control.seen_value.load() != i + 1;) {
        must(now() < give_up, "who waits is not woken");
      }
      if (i >= first + kWarm) samples->push_back((b.control.seen_at.load() - begun) / kMicro);
    }
    await(b.control, role);
  };
  for (uint64_t n = 0; n < blocks; ++n) {
    b.control.seen_value.store(UINT64_MAX);
    block(n * kBlock, true, &theirs);
    b.control.seen_value.store(UINT64_MAX);
    block(n * kBlock, false, &ours);
  }
  must_map(b);
  b.report.row({"local_wakeup", "us", spread_of(ours), spread_of(theirs),
                "a futex in shared memory; ours: a latch, the one that waits has slept", 0});
}

void local_import(Bench& b) {
  const Shared shared(b, 16);
  // The home is asked three times: with the token, for the offer, and for the descriptors.
  constexpr int kAsked = 3;
  std::vector<double> took, bare;
  for (size_t i = 0; i < b.scaled(50, 5); ++i) {
    double begun = now();
    {
      const Imported import(b.node, b.control);
      touch(import.page(0));
      took.push_back((now() - begun) / kMilli);
    }
    begun = now();
    for (int n = 0; n < kAsked; ++n) call(b.control, kHome, Command::kPeek, 0);
    bare.push_back((now() - begun) / kMilli);
  }
  must_map(b);
  b.report.row({"local_import",
                "ms",
                spread_of(took),
                {},
                "until the first byte is there; floor: the home woken by a futex three times",
                0,
                spread_of(bare)});
}

}  // namespace bench
