// seg_getva in one process: which memory may become a segment, that it stays the client's own in
// place and content, and what happens when the client frees it meanwhile.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <sstream>

#include "support/sanitized.hpp"
#include "support/skip.hpp"
#include "system/one_process.hpp"

namespace cmi::one_process::getva_test {

namespace {

constexpr size_t kPage = 4096;

// Where nobody maps anything by himself, so that what is unmapped there stays so.
void* next_place() {
  static uint64_t place = 0x200000000000;
  return reinterpret_cast<void*>(place += uint64_t{1} << 30);
}

// Memory of the client's own.
class Memory {
 public:
  explicit Memory(size_t pages, int protection = PROT_READ | PROT_WRITE,
                  int flags = MAP_PRIVATE | MAP_ANONYMOUS, int file = -1)
      : size(pages * kPage), at_(::mmap(next_place(), size, protection, flags, file, 0)) {
    REQUIRE(at_ != MAP_FAILED);
  }
  ~Memory() { ::munmap(at_, size); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* page(size_t i) const { return static_cast<std::byte*>(at_) + i * kPage; }
  uint64_t& word(size_t i) const { return *reinterpret_cast<uint64_t*>(page(i)); }
  // Private memory again in place of some pages, as after munmap() and mmap().
  void map_anew(size_t first, size_t pages) const {
    REQUIRE(::munmap(page(first), pages * kPage) == 0);
    REQUIRE(::mmap(page(first), pages * kPage, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == page(first));
  }
  const size_t size;

 private:
  void* at_;
};

// What the kernel says of the mapping that holds the address: the last line of its entry.
std::string flags_at(const void* at) {
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  bool here = false;
  while (std::getline(smaps, line)) {
    uint64_t from = 0, to = 0;
    char dash = 0;
    std::istringstream head(line);
    if (head >> std::hex >> from >> dash >> to && dash == '-') {
      here = from <= reinterpret_cast<uint64_t>(at) && reinterpret_cast<uint64_t>(at) < to;
    } else if (here && line.rfind("VmFlags:", 0) == 0) {
      return line + " ";
    }
  }
  return {};
}
bool has_flag(const void* at, const std::string& flag) {
  return flags_at(at).find(" " + flag + " ") != std::string::npos;
}

}  // namespace

TEST_SUITE_BEGIN("getva");

TEST_CASE_FIXTURE(Process, "memory_made_a_segment_keeps_its_place_and_content") {
  ini();
  const Memory own(8);
  for (size_t i = 0; i < 8; i += 2) own.word(i) = 100 + i;
  const cmi_seg seg = CALL(seg_getva, own.page(0), own.size, 0);
  REQUIRE(seg > 0);
  CHECK(error() == CMI_ERR_NONE);
  for (size_t i = 0; i < 8; ++i) CHECK(own.word(i) == (i % 2 == 0 ? 100 + i : 0));
  // It is the segment's memory: another view shows the same pages.
  std::byte* view = attach(seg);
  own.word(3) = 33;
  CHECK(*reinterpret_cast<uint64_t*>(view + 3 * kPage) == 33);
  *reinterpret_cast<uint64_t*>(view + 4 * kPage) = 44;
  CHECK(own.word(4) == 44);
  cmi_ds ds;
  REQUIRE(CALL(seg_ctl, seg, CMI_SEG_INFO, &ds) == 0);
  CHECK(ds.info.seg_sz == own.size);
  REQUIRE(CALL(seg_ctl, seg, CMI_SEG_STATUS, &ds) == 0);
  CHECK(ds.status.st_nattach == 2);
  CHECK(ds.status.st_flags == 0);
}

TEST_CASE_FIXTURE(Process, "memory_of_several_mappings_becomes_one_segment") {
  ini();
  const Memory own(6);
  own.map_anew(2, 2);
  REQUIRE(::mprotect(own.page(5), kPage, PROT_READ) == 0);
  own.word(1) = 1;
  own.word(3) = 3;
  CHECK_FAILS(CALL(seg_getva, own.page(0), own.size, 0), CMI_SEG_INVALID, CMI_ERR_PERM);
  const cmi_seg seg = CALL(seg_getva, own.page(0), 5 * kPage, 0);
  REQUIRE(seg > 0);
  const std::byte* view = attach(seg, CMI_SEG_READ);
  CHECK(*reinterpret_cast<const uint64_t*>(view + kPage) == 1);
  CHECK(*reinterpret_cast<const uint64_t*>(view + 3 * kPage) == 3);
  CHECK_FALSE(has_flag(own.page(5), "sh"));
}

TEST_CASE_FIXTURE(Process, "memory_that_cannot_become_a_segment_is_refused_and_stays_as_it_was") {
  ini();
  const cmi_cfg_info before = info();
  const Memory own(4);
  own.word(0) = 7;
  std::byte* const at = own.page(0);
  const auto fails = [&](void* va, size_t size, cmi_error why, int32_t flags = 0) {
    CAPTURE(va);
    CAPTURE(size);
    CHECK_FAILS(CALL(seg_getva, va, size, flags), CMI_SEG_INVALID, why);
  };
  fails(nullptr, own.size, CMI_ERR_INVAL);
  fails(at + 8, kPage, CMI_ERR_INVAL);
  fails(at, 0, CMI_ERR_INVAL);
  fails(at, kPage + 1, CMI_ERR_INVAL);
  fails(at, ~size_t{0} / kPage * kPage, CMI_ERR_INVAL);
  fails(at, kPage, CMI_ERR_INVAL, CMI_SEG_CLIENT_CONSIST | CMI_SEG_CLIENT_INCONSIST);
  fails(at, kPage, CMI_ERR_NOTSUPP, 1 << 30);
  for (const int32_t flag : {CMI_SEG_EXTENSIBLE, CMI_SEG_LARGE_PAGES, CMI_SEG_LOCK}) {
    fails(at, kPage, CMI_ERR_NOTSUPP, flag);
  }
  {
    auto* const low = static_cast<std::byte*>(next_place());
    const auto map = [&](size_t page) {
      return ::mmap(low + page * kPage, kPage, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    };
    REQUIRE(map(0) == low);
    REQUIRE(map(2) == low + 2 * kPage);
    fails(low, 3 * kPage, CMI_ERR_INVAL);
    fails(low + kPage, kPage, CMI_ERR_INVAL);
    fails(low + 2 * kPage, 2 * kPage, CMI_ERR_INVAL);
    ::munmap(low, 3 * kPage);
  }
  fails(Memory(1, PROT_READ).page(0), kPage, CMI_ERR_PERM);
  fails(Memory(1, PROT_NONE).page(0), kPage, CMI_ERR_PERM);
  fails(Memory(1, PROT_READ | PROT_WRITE | PROT_EXEC).page(0), kPage, CMI_ERR_NOTSUPP);
  fails(Memory(1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS).page(0), kPage,
        CMI_ERR_NOTSUPP);
  const int program = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  REQUIRE(program >= 0);
  fails(Memory(1, PROT_READ | PROT_WRITE, MAP_PRIVATE, program).page(0), kPage, CMI_ERR_NOTSUPP);
  ::close(program);
  char here = 0;  // the stack that this runs on
  fails(reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(&here) / kPage * kPage - 4 * kPage),
        8 * kPage, CMI_ERR_INVAL);
  // What is a segment's already, home or imported, whole or in part.
  const cmi_seg seg = segment(2);
  fails(attach(seg), kPage, CMI_ERR_INVAL);
  const cmi_seg twice = CALL(seg_getva, own.page(2), kPage, 0);
  REQUIRE(twice > 0);
  fails(own.page(2), kPage, CMI_ERR_INVAL);
  fails(own.page(1), 2 * kPage, CMI_ERR_INVAL);
  REQUIRE(CALL(seg_dt, twice, own.page(2)) == 0);
  REQUIRE(CALL(seg_ctl, twice, CMI_SEG_RM, nullptr) == 0);

  CHECK(own.word(0) == 7);
  CHECK_FALSE(has_flag(at, "sh"));
  CHECK_FALSE(has_flag(at, "uw"));
  REQUIRE(CALL(seg_ctl, seg, CMI_SEG_RM, nullptr) == 0);
  CHECK(info().max_mem_avail + 2 * kPage == before.max_mem_avail);  // `seg` is attached still
}

TEST_CASE_FIXTURE(Process, "seg_getva_without_room_is_nomem_and_the_memory_stays_as_it_was") {
  ::setenv("CMI_MEM_MAX", "65536", 1);
  ini();
  const Memory own(17);
  own.word(16) = 16;
  CHECK_FAILS(CALL(seg_getva, own.page(0), own.size, 0), CMI_SEG_INVALID, CMI_ERR_NOMEM);
  CHECK(own.word(16) == 16);
  const cmi_seg seg = CALL(seg_getva, own.page(1), 16 * kPage, 0);
  CHECK(seg > 0);
  CHECK(info().max_mem_avail == 0);
}

TEST_CASE_FIXTURE(Process, "seg_dt_gives_the_memory_back_with_its_content") {
  ini();
  const Memory own(4);
  const cmi_seg seg = CALL(seg_getva, own.page(0), own.size, CMI_SEG_CLIENT_CONSIST);
  REQUIRE(seg > 0);
  std::byte* view = attach(seg);
  own.word(2) = 22;
  CHECK_FAILS(CALL(seg_dt, seg, own.page(1)), -1, CMI_ERR_INVAL);
  REQUIRE(CALL(seg_dt, seg, own.page(0)) == 0);
  CHECK(own.word(2) == 22);
  own.word(2) = 23;
  own.word(0) = 1;
  // The segment goes on without it.
  CHECK(*reinterpret_cast<uint64_t*>(view + 2 * kPage) == 22);
  CHECK(*reinterpret_cast<uint64_t*>(view) == 0);
  CHECK_FALSE(has_flag(own.page(0), "sh"));
  CHECK_FALSE(has_flag(own.page(0), "dc"));  // children have it again
}

TEST_CASE_FIXTURE(Process, "a_removed_segment_leaves_the_memory_with_its_client") {
  ini();
  const Memory own(2);
  const cmi_seg seg = CALL(seg_getva, own.page(0), own.size, 0);
  REQUIRE(seg > 0);
  own.word(1) = 5;
  REQUIRE(CALL(seg_ctl, seg, CMI_SEG_RM, nullptr) == 0);
  CHECK((status_flags(seg) & CMI_SEG_ST_REMOVED) != 0);
  own.word(0) = 6;
  REQUIRE(CALL(seg_dt, seg, own.page(0)) == 0);
  CHECK(own.word(0) == 6);
  CHECK(own.word(1) == 5);
  cmi_ds ds;
  CHECK_FAILS(CALL(seg_ctl, seg, CMI_SEG_STATUS, &ds), -1, CMI_ERR_INVAL);
}

TEST_CASE_FIXTURE(Process, "the_last_fini_gives_the_memory_back") {
  ini();
  const Memory own(3);
  const cmi_seg seg = CALL(seg_getva, own.page(0), own.size, 0);
  REQUIRE(seg > 0);
  own.word(1) = 11;
  end();
  CHECK(own.word(1) == 11);
  own.word(1) = 12;
  CHECK_FALSE(has_flag(own.page(1), "sh"));
}

TEST_CASE_FIXTURE(Process, "locked_memory_stays_locked") {
  if (cmi::test::kSanitized) return cmi::test::skip("mlock does nothing under the sanitizer");
  ini();
  const Memory own(2);
  if (::mlock(own.page(0), own.size) != 0) return;  // not allowed any here
  const cmi_seg seg = CALL(seg_getva, own.page(0), own.size, 0);
  REQUIRE(seg > 0);
  CHECK(has_flag(own.page(0), "sh"));
  CHECK(has_flag(own.page(0), "lo"));
  REQUIRE(CALL(seg_dt, seg, own.page(0)) == 0);
  CHECK_FALSE(has_flag(own.page(0), "sh"));
  CHECK(has_flag(own.page(0), "lo"));
}

TEST_CASE_FIXTURE(Process, "no_store_by_another_thread_is_lost_while_memory_becomes_a_segment") {
  ini();
  constexpr size_t kPages = 512;
  for (int round = 0; round < 8; ++round) {
    const Memory own(kPages);
    std::atomic<bool> over{false};
    std::atomic<uint64_t> rounds[2] = {};
    std::thread writers[2];
    for (size_t w = 0; w < 2; ++w) {
      writers[w] = std::thread([&, w] {
        // Each counts in a word of its own in every page; some pages it is the first to touch.
        while (!over.load()) {
          const uint64_t n = rounds[w].load() + 1;
          for (size_t i = 0; i < kPages; ++i) {
            reinterpret_cast<std::atomic<uint64_t>*>(own.page(i))[w].fetch_add(1);
          }
          rounds[w].store(n);
        }
      });
    }
    while (rounds[0].load() == 0 && rounds[1].load() == 0) std::this_thread::yield();
    const cmi_seg seg = CALL(seg_getva, own.page(0), own.size, 0);
    const uint64_t after = rounds[0].load();
    while (rounds[0].load() < after + 2) std::this_thread::yield();
    over.store(true);
    for (auto& w : writers) w.join();
    REQUIRE(seg > 0);
    const std::byte* view = attach(seg, CMI_SEG_READ);
    int wrong = 0;
    for (size_t i = 0; i < kPages; ++i) {
      for (size_t w = 0; w < 2; ++w) {
        const uint64_t counted = reinterpret_cast<const uint64_t*>(view + i * kPage)[w];
        if (counted != rounds[w].load()) ++wrong;
      }
    }
    CHECK(wrong == 0);
    REQUIRE(CALL(seg_dt, seg, const_cast<std::byte*>(view)) == 0);
    REQUIRE(CALL(seg_dt, seg, own.page(0)) == 0);
    REQUIRE(CALL(seg_ctl, seg, CMI_SEG_RM, nullptr) == 0);
  }
}

TEST_CASE_FIXTURE(Process, "what_the_client_maps_anew_is_not_the_segments") {
  ini();
  const Memory own(6);
  for (size_t i = 0; i < 6; ++i) own.word(i) = i;
  const cmi_seg seg = CALL(seg_getva, own.page(0), own.size, 0);
  REQUIRE(seg > 0);
  own.map_anew(2, 2);
  own.word(2) = 92;
  const std::byte* view = attach(seg, CMI_SEG_READ);
  CHECK(*reinterpret_cast<const uint64_t*>(view + 2 * kPage) == 2);
  uint64_t found = 0;
  CHECK_FAILS(CALL(atm_cas, &own.word(2), 92, 1, &found), -1, CMI_ERR_INVAL);
  CHECK(own.word(2) == 92);
  CHECK(CALL(atm_cas, &own.word(4), 4, 44, &found) == 0);
  CHECK(found == 4);
  CHECK(own.word(4) == 44);
  CHECK_FALSE(has_flag(own.page(2), "uw"));
  // It may become another segment, or be where one is attached.
  const cmi_seg other = CALL(seg_getva, own.page(2), kPage, 0);
  REQUIRE(other > 0);
  const cmi_seg third = segment();
  REQUIRE(::munmap(own.page(3), kPage) == 0);
  CHECK(CALL(seg_at, third, own.page(3), 0) == own.page(3));
  own.word(3) = 93;
  CHECK(CALL(atm_cas, &own.word(3), 93, 94, &found) == 0);
  CHECK(CALL(atm_cas, &own.word(2), 92, 95, &found) == 0);
  // The end of the view takes none of it along.
  REQUIRE(CALL(seg_dt, seg, own.page(0)) == 0);
  CHECK(own.word(2) == 95);
  CHECK(own.word(3) == 94);
  CHECK(own.word(5) == 5);
  CHECK(has_flag(own.page(2), "sh"));
  CHECK_FALSE(has_flag(own.page(5), "sh"));
}

TEST_CASE_FIXTURE(Process, "what_other_threads_map_while_memory_is_given_back_stays_theirs") {
  ::setenv("CMI_FAULT_POINT", "give_back_moved=delay:50000", 1);
  ini();
  ::unsetenv("CMI_FAULT_POINT");
  constexpr size_t kPages = 2048, kRun = 32;
  std::atomic<bool> over{false};
  std::atomic<uint64_t> wrong{0};
  std::thread other([&] {
    // Wherever there is room: where the library has just left some, too.
    constexpr size_t kSize = kRun / 2 * kPage;
    std::vector<void*> mine(256, nullptr);
    while (!over.load()) {
      for (void*& at : mine) {
        at = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      for (void* at : mine) {
        std::vector<unsigned char> there(kSize / kPage);  // a load would kill the thread
        if (::mincore(at, kSize, there.data()) != 0) ++wrong;
        ::munmap(at, kSize);
      }
    }
  });
  for (int round = 0; round < 4; ++round) {
    const Memory own(kPages);
    const cmi_seg seg = CALL(seg_getva, own.page(0), own.size, 0);
    REQUIRE(seg > 0);
    // In many parts, the giving back takes its time.
    for (size_t i = 0; i < kPages; i += kRun) REQUIRE(::munmap(own.page(i), kPage) == 0);
    own.word(kPages - 2) = 17;
    REQUIRE(CALL(seg_dt, seg, own.page(0)) == 0);
    CHECK(own.word(kPages - 2) == 17);
    REQUIRE(CALL(seg_ctl, seg, CMI_SEG_RM, nullptr) == 0);
  }
  over.store(true);
  other.join();
  CHECK(wrong.load() == 0);
}

TEST_CASE_FIXTURE(Process, "a_segment_removed_while_its_memory_is_given_back_keeps_none_of_it") {
  ::setenv("CMI_FAULT_POINT", "give_back_copied=delay:300000", 1);
  ini();
  ::unsetenv("CMI_FAULT_POINT");
  const Memory own(2);
  const cmi_seg seg = CALL(seg_getva, own.page(0), own.size, 0);
  REQUIRE(seg > 0);
  own.word(1) = 5;
  std::thread other([&] {
    CHECK(CALL(ini_th) == 0);
    CHECK(CALL(seg_ctl, seg, CMI_SEG_RM, nullptr) == 0);
    CHECK(CALL(fini) == 0);
  });
  CHECK(CALL(seg_dt, seg, own.page(0)) == 0);
  other.join();
  CHECK_FALSE(has_flag(own.page(0), "sh"));
  CHECK(own.word(1) == 5);
  cmi_ds ds;
  CHECK_FAILS(CALL(seg_ctl, seg, CMI_SEG_STATUS, &ds), -1, CMI_ERR_INVAL);
}

TEST_CASE_FIXTURE(Process, "without_descriptors_the_clients_new_mappings_are_not_mapped_over") {
  ini();
  const Memory own(4);
  for (size_t i = 0; i < 4; ++i) own.word(i) = i;
  const cmi_seg seg = CALL(seg_getva, own.page(0), own.size, 0);
  REQUIRE(seg > 0);
  own.map_anew(2, 1);
  own.word(2) = 92;
  rlimit before, none;
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const int lowest = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  REQUIRE(lowest >= 0);
  ::close(lowest);
  none = {static_cast<rlim_t>(lowest), before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const int left = CALL(seg_dt, seg, own.page(0));
  ::setrlimit(RLIMIT_NOFILE, &before);
  CHECK(left == 0);
  CHECK(own.word(2) == 92);
  CHECK(own.word(3) == 3);
  CHECK_FALSE(has_flag(own.page(3), "sh"));
}

TEST_CASE_FIXTURE(Process, "memory_of_which_it_is_unknown_what_is_left_stays_the_segments") {
  ::setenv("CMI_FAULT_POINT", "adopted_unseen#1=fail", 1);
  ini();
  ::unsetenv("CMI_FAULT_POINT");
  const Memory own(4);
  const cmi_seg seg = CALL(seg_getva, own.page(0), own.size, 0);
  REQUIRE(seg > 0);
  own.map_anew(2, 1);
  own.word(2) = 92;
  own.word(3) = 3;
  CHECK_FAILS(CALL(seg_dt, seg, own.page(0)), -1, CMI_ERR_NOMEM);
  CHECK(own.word(2) == 92);
  CHECK(has_flag(own.page(3), "sh"));
  CHECK(CALL(seg_dt, seg, own.page(0)) == 0);
  CHECK(own.word(2) == 92);
  CHECK(own.word(3) == 3);
  CHECK_FALSE(has_flag(own.page(3), "sh"));
}

TEST_CASE_FIXTURE(Process, "memory_that_was_freed_altogether_can_be_detached") {
  ini();
  Memory own(3);
  const cmi_seg seg = CALL(seg_getva, own.page(0), own.size, 0);
  REQUIRE(seg > 0);
  own.word(1) = 17;
  REQUIRE(::munmap(own.page(0), own.size) == 0);
  const std::byte* view = attach(seg);
  CHECK(*reinterpret_cast<const uint64_t*>(view + kPage) == 17);
  if (view < own.page(0) || view >= own.page(0) + own.size) {
    CHECK(CALL(seg_dt, seg, own.page(0)) == 0);
  }
  CHECK(CALL(seg_dt, seg, const_cast<std::byte*>(view)) == 0);
}

TEST_CASE_FIXTURE(Process, "a_forked_child_has_not_the_memory_of_a_segment") {
  ini();
  const Memory own(2);
  const cmi_seg seg = CALL(seg_getva, own.page(0), own.size, 0);
  REQUIRE(seg > 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    unsigned char there = 0;
    ::_exit(::mincore(own.page(0), kPage, &there) != 0 && errno == ENOMEM ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_SUITE_END();

}  // namespace cmi::one_process::getva_test
