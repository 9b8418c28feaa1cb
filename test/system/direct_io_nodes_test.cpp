// Exported memory as source and target of direct I/O: the device reads and writes the pages of the
// segment itself, past the kernel's write tracking.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "core/base/fd.hpp"
#include "support/skip.hpp"
#include "system/calls.hpp"

namespace cmi::test::direct_io_nodes_test {

namespace {

constexpr uint64_t kPages = 256;
constexpr uint64_t kSize = kPages * kPage;
constexpr uint64_t kFilePages = 1024;

// Each word of the file tells where it stands, and is not 0.
uint64_t word_of(uint64_t page, uint64_t word) { return ((page + 1) << 32) | word; }

using Path = std::array<char, 256>;

// A file of words on a disk, for direct I/O, and gone with this; none where that cannot be had.
struct DiskFile {
  Path path{};
  bool there = false;

  DiskFile() {
    // Not the cluster's folder: that is in memory, where nothing is direct.
    const char* folder = std::getenv("TMPDIR");
    if (folder == nullptr) folder = "/var/tmp";
    std::snprintf(path.data(), path.size(), "%s/cmi-direct-XXXXXX", folder);
    Fd file(::mkstemp(path.data()));
    if (!file) {
      skip("no folder for a file");
      return;
    }
    std::vector<uint64_t> words(kFilePages * kPage / 8);
    for (uint64_t i = 0; i < words.size(); ++i) words[i] = word_of(i / 512, i % 512);
    REQUIRE(::pwrite(file.get(), words.data(), words.size() * 8, 0) ==
            static_cast<ssize_t>(words.size() * 8));
    REQUIRE(::fsync(file.get()) == 0);
    const Fd direct(::open(path.data(), O_RDONLY | O_DIRECT | O_CLOEXEC));
    there = static_cast<bool>(direct);
    if (!there) skip("no direct I/O with files in $TMPDIR or /var/tmp");
  }
  ~DiskFile() { ::unlink(path.data()); }
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;
};

// Loads one word of each page until it is called back, and so has them cached again whenever they
// were dropped: also while the device has not written to them yet.
constexpr auto keep_cached = [](uint64_t at) {
  uint64_t sum = 0;
  do {
    for (uint64_t page = 0; page < kPages; ++page) {
      sum += *reinterpret_cast<const volatile uint64_t*>(at + page * kPage);
    }
  } while (!called_back());
  return sum;
};

// A read of the device into the segment.
struct Transfer {
  uint64_t to, pages, from;  // pages of the segment and of the file
};

Transfer some_transfer(uint64_t round) {
  uint64_t x = (round + 1) * 0x9e3779b97f4a7c15;
  const auto below = [&x](uint64_t n) {
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9;
    return (x >> 32) % n;
  };
  Transfer t{};
  t.pages = 1 + below(32);
  t.to = below(kPages - t.pages);
  t.from = below(kFilePages - t.pages);
  return t;
}

// In the process that has the memory at home: pread(2) into it while another thread calls barriers,
// so that the kernel's note of a page is taken before the device writes to it; then cflush. 0, or
// minus errno.
constexpr auto read_directly = [](Path path, uint64_t at, Transfer t) -> int64_t {
  const Fd file(::open(path.data(), O_RDONLY | O_DIRECT | O_CLOEXEC));
  if (!file) return -errno;
  std::atomic<bool> over{false}, begun{false};
  std::thread other([&] {
    CMIFN(ctxt(), 10, ini_th)(ctxt());
    do {
      cmi_wmb();
      begun = true;
    } while (!over);
    CMIFN(ctxt(), 10, fini)(ctxt());
  });
  while (!begun) std::this_thread::yield();
  const ssize_t got = ::pread(file.get(), reinterpret_cast<void*>(at + t.to * kPage),
                              t.pages * kPage, static_cast<off_t>(t.from * kPage));
  const int64_t failure = got == static_cast<ssize_t>(t.pages * kPage) ? 0 : -(got < 0 ? errno : 1);
  std::vector<void*> lines;
  for (uint64_t page = 0; page < t.pages; ++page) {
    lines.push_back(reinterpret_cast<void*>(at + (t.to + page) * kPage));
  }
  const int flushed =
      CMIFN(ctxt(), 10, cflush)(ctxt(), lines.data(), static_cast<int32_t>(lines.size()));
  over = true;
  other.join();
  if (failure != 0) return failure;
  return flushed;
};

// Pages of the transfer that are not what the file has.
constexpr auto wrong_pages = [](uint64_t at, Transfer t) {
  uint64_t wrong = 0;
  for (uint64_t page = 0; page < t.pages; ++page) {
    const auto* words = reinterpret_cast<const volatile uint64_t*>(at + (t.to + page) * kPage);
    bool good = true;
    for (uint64_t i = 0; i < 512; ++i) good = good && words[i] == word_of(t.from + page, i);
    wrong += !good;
  }
  return wrong;
};

// What is stored under the tracking of old kernels is a fault, and that of a system call fails.
bool tracked_by_the_kernel(Process& home, uint64_t at) {
  return home.run(
      [](uint64_t to) {
        const Fd file(static_cast<int>(::memfd_create("probe", MFD_CLOEXEC)));
        const uint64_t zero = 0;
        return ::pwrite(file.get(), &zero, sizeof zero, 0) == sizeof zero &&
               ::pread(file.get(), reinterpret_cast<void*>(to), sizeof zero, 0) == sizeof zero;
      },
      at);
}

// How many pages are wrong at the importer: ends with the first transfer that leaves some.
uint64_t read_into_exported_memory(Process& reader, uint64_t at, Process& importer,
                                   uint64_t imported, const Path& path, uint64_t rounds = 60) {
  uint64_t wrong = 0;
  for (uint64_t round = 0; round < rounds && wrong == 0; ++round) {
    const Transfer t = some_transfer(round);
    auto cached = importer.start(keep_cached, imported);
    REQUIRE(reader.run(read_directly, path, at, t) == 0);
    cached.finish();
    wrong += importer.run(wrong_pages, imported, t);
  }
  return wrong;
}

// The same by the process that has exported it; nothing where that cannot be tried.
std::optional<uint64_t> wrong_after_cflush(const Env& home_env, uint64_t rounds) {
  const DiskFile file;
  if (!file.there) return std::nullopt;
  Cluster cluster;
  Process& home = cluster.spawn("home", home_env);
  Process& importer = cluster.spawn("peer");
  const Export exported = export_segment(home, kSize);
  const Import import = import_segment(importer, exported);
  REQUIRE(load(importer, import.at).cause() == Fault::kNone);
  if (!tracked_by_the_kernel(home, exported.at)) {
    skip("the kernel does not track stores: system calls cannot store at home");
    return std::nullopt;
  }
  return read_into_exported_memory(home, exported.at, importer, import.at, file.path, rounds);
}

TEST_SUITE("direct-io") {
  TEST_CASE("what_a_device_has_written_to_exported_memory_is_seen_after_cflush") {
    if (const auto wrong = wrong_after_cflush({}, 60)) CHECK(*wrong == 0);
  }

  TEST_CASE("what_a_device_has_written_is_missed_when_cflush_looks_for_stores_alone") {
    const auto wrong =
        wrong_after_cflush({{"CMI_FAULT_POINT", "mutate_named_lines_scanned=fail"}}, 1500);
    if (wrong) CHECK(*wrong > 0);
  }

  TEST_CASE("what_a_device_has_written_for_another_process_at_home_is_seen_after_its_cflush") {
    const DiskFile file;
    if (!file.there) return;
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& second = cluster.spawn("home");
    Process& importer = cluster.spawn("peer");
    const Export exported = export_segment(home, kSize);
    const Answer view = seg_at(second, exported.seg);
    REQUIRE(view.ok());
    const Import import = import_segment(importer, exported);
    REQUIRE(load(importer, import.at).cause() == Fault::kNone);
    if (!tracked_by_the_kernel(second, view.at())) {
      return skip("the kernel does not track stores: system calls cannot store at home");
    }
    CHECK(read_into_exported_memory(second, view.at(), importer, import.at, file.path) == 0);
  }

  TEST_CASE("a_device_reads_exported_memory_while_an_importer_stores_and_loads") {
    const DiskFile file;
    if (!file.there) return;
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& importer = cluster.spawn("peer");
    const Export exported = export_segment(home, kSize);
    const Import import = import_segment(importer, exported);
    for (uint64_t page = 0; page < kPages; ++page) {
      REQUIRE(store(home, exported.at + page * kPage, page + 1).cause() == Fault::kNone);
    }
    REQUIRE(wmb(home).ok());
    // It adds to the second word of each page, and reads the first, which nobody changes.
    auto busy = importer.start(
        [](uint64_t at) {
          uint64_t rounds = 0, wrong = 0;
          do {
            ++rounds;
            for (uint64_t page = 0; page < kPages; ++page) {
              auto* words = reinterpret_cast<volatile uint64_t*>(at + page * kPage);
              wrong += words[0] != page + 1;
              words[1] = rounds;
            }
            wrong += cmi_wmb() != 0;
          } while (!called_back());
          return wrong;
        },
        import.at);
    const auto write_directly = [](Path path, uint64_t at) -> int64_t {
      const Fd out(::open(path.data(), O_RDWR | O_DIRECT | O_CLOEXEC));
      if (!out) return -errno;
      int64_t wrong = 0;
      std::vector<uint64_t> found(kSize / 8);
      for (int round = 0; round < 30; ++round) {
        const auto put = ::pwrite(out.get(), reinterpret_cast<void*>(at), kSize, 0);
        if (put != static_cast<ssize_t>(kSize)) return put < 0 ? -errno : -1;
        const Fd in(::open(path.data(), O_RDONLY | O_CLOEXEC));
        if (::pread(in.get(), found.data(), kSize, 0) != static_cast<ssize_t>(kSize)) return -1;
        for (uint64_t page = 0; page < kPages; ++page) wrong += found[page * 512] != page + 1;
      }
      return wrong;
    };
    CHECK(home.run(write_directly, file.path, exported.at) == 0);
    CHECK(busy.finish() == 0);
    // And what the importer stored last is what goes to the disk from now on.
    const uint64_t last = load(importer, import.at + 8).value;
    REQUIRE(last > 0);
    CHECK(home.run(write_directly, file.path, exported.at) == 0);
    const Fd in(::open(file.path.data(), O_RDONLY | O_CLOEXEC));
    for (uint64_t page = 0; page < kPages; ++page) {
      uint64_t words[2] = {};
      REQUIRE(::pread(in.get(), words, sizeof words, static_cast<off_t>(page * kPage)) ==
              sizeof words);
      CHECK(words[0] == page + 1);
      CHECK(words[1] == last);
    }
  }

  TEST_CASE("direct_io_on_an_import_is_efault_where_threads_do_not_take_its_faults") {
    const DiskFile file;
    if (!file.there) return;
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& importer = cluster.spawn("peer", {{"CMI_FAULT", "signal"}});
    const Import import = import_segment(importer, export_segment(home, kSize));
    const auto move = [](Path path, uint64_t at, bool in) -> int64_t {
      const Fd fd(::open(path.data(), O_RDWR | O_DIRECT | O_CLOEXEC));
      void* const page = reinterpret_cast<void*>(at);
      const ssize_t n = in ? ::pread(fd.get(), page, kPage, 0) : ::pwrite(fd.get(), page, kPage, 0);
      return n < 0 ? -errno : n;
    };
    CHECK(importer.run(move, file.path, import.at, true) == -EFAULT);
    CHECK(importer.run(move, file.path, import.at, false) == -EFAULT);
    CHECK(load(importer, import.at).cause() == Fault::kNone);
  }

  TEST_CASE("direct_io_from_an_import_works_where_threads_take_its_faults") {
    const DiskFile file;
    if (!file.there) return;
    if (!fault_threads_possible()) return skip("no userfaultfd for the faults of system calls");
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& importer = cluster.spawn("peer", {{"CMI_FAULT", "thread"}});
    const Export exported = export_segment(home, kSize);
    const Import import = import_segment(importer, exported);
    for (uint64_t page = 0; page < kPages; ++page) {
      REQUIRE(store(home, exported.at + page * kPage, page + 7).cause() == Fault::kNone);
    }
    REQUIRE(wmb(home).ok());
    const int64_t wrote = importer.run(
        [](Path path, uint64_t at) -> int64_t {
          const Fd fd(::open(path.data(), O_RDWR | O_DIRECT | O_CLOEXEC));
          const ssize_t n = ::pwrite(fd.get(), reinterpret_cast<void*>(at), kSize, 0);
          return n < 0 ? -errno : n;
        },
        file.path, import.at);
    REQUIRE(wrote == static_cast<int64_t>(kSize));
    const Fd in(::open(file.path.data(), O_RDONLY | O_CLOEXEC));
    for (uint64_t page = 0; page < kPages; ++page) {
      uint64_t word = 0;
      REQUIRE(::pread(in.get(), &word, sizeof word, static_cast<off_t>(page * kPage)) ==
              sizeof word);
      CHECK(word == page + 7);
    }
  }

  TEST_CASE("cflush_at_home_drops_the_lines_named_and_no_others_at_importers") {
    // What makes the others work: nothing was stored, and yet the importer lets go of the line.
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& importer = cluster.spawn("peer");
    const Export exported = export_segment(home, 16 * kPage);
    const Import import = import_segment(importer, exported);
    const auto misses = [](uint64_t at) {
      for (uint64_t page = 0; page < 16; ++page) {
        (void)*reinterpret_cast<const volatile uint64_t*>(at + page * kPage);
      }
      return stats().load_misses;
    };
    // The first publishes what the kernel had noted when it began to track.
    REQUIRE(cflush(home, exported.at).ok());
    importer.run(misses, import.at);
    REQUIRE(wmb(home).ok());
    const uint64_t before = importer.run(misses, import.at);
    REQUIRE(wmb(home).ok());
    CHECK(importer.run(misses, import.at) == before);
    REQUIRE(cflush(home, exported.at + 5 * kPage + 8).ok());
    CHECK(importer.run(misses, import.at) == before + 1);
  }
}

}  // namespace

}  // namespace cmi::test::direct_io_nodes_test
