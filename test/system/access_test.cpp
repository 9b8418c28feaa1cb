// atm_cas and exceptions, on home segments and on imports of the same process.
#include <fcntl.h>
#include <sys/mman.h>

#include <cstring>

#include "system/one_process.hpp"

namespace cmi::one_process::access_test {

namespace {

uint64_t* word_at(std::byte* p) { return reinterpret_cast<uint64_t*>(p); }
uint64_t load(const uint64_t* word) { return *const_cast<const volatile uint64_t*>(word); }

// A home segment, then an import of it: what holds for both is checked for both.
struct Both : Process {
  Both() {
    ini();
    CHECK(CALL(cmi_enb, 1) == 0);
    home = segment(2);
    import = import_own(home);
  }
  cmi_seg home = 0;
  cmi_seg import = 0;
};

}  // namespace

TEST_SUITE_BEGIN("memory");

TEST_CASE_FIXTURE(Both, "atm_cas_swaps_when_equal_and_tells_the_old_value") {
  const uint64_t* at_home = word_at(attach(home)) + 3;
  uint64_t expected = 0;
  for (const cmi_seg seg : {home, import, home, import}) {
    uint64_t* word = word_at(attach(seg)) + 3;
    for (int i = 0; i < 10; ++i) {
      const uint64_t next = expected * 3 + 0x0123456789abcdef;
      uint64_t was = ~expected;
      CHECK(CALL(atm_cas, word, expected, next, &was) == 0);
      CHECK(was == expected);
      CHECK(load(word) == next);
      CHECK(load(at_home) == next);
      expected = next;
    }
  }
}

TEST_CASE_FIXTURE(Both, "atm_cas_leaves_an_unequal_word_and_tells_it") {
  uint64_t* at_home = word_at(attach(home)) + 1;
  *at_home = 77;
  for (const cmi_seg seg : {home, import}) {
    uint64_t* word = word_at(attach(seg)) + 1;
    for (const uint64_t other : {uint64_t{0}, uint64_t{78}, ~uint64_t{0}, uint64_t{77} << 32}) {
      uint64_t was = 0;
      CHECK(CALL(atm_cas, word, other, 5, &was) == 0);
      CHECK(was == 77);
      CHECK(load(word) == 77);
      CHECK(load(at_home) == 77);
    }
  }
}

TEST_CASE_FIXTURE(Both, "atm_cas_of_a_misaligned_address_is_inval") {
  for (const cmi_seg seg : {home, import}) {
    std::byte* view = attach(seg);
    for (const size_t off : {1, 2, 4, 7, 4093}) {
      CAPTURE(off);
      uint64_t was = 5;
      CHECK_FAILS(CALL(atm_cas, word_at(view + off), 0, 1, &was), -1, CMI_ERR_INVAL);
      CHECK(was == 5);
      CHECK(view[off] == std::byte{0});
    }
  }
}

TEST_CASE_FIXTURE(Both, "atm_cas_outside_a_segment_is_inval") {
  for (const cmi_seg seg : {home, import}) {
    std::byte* view = attach(seg);
    std::byte* gone = attach(seg);
    CHECK(CALL(seg_dt, seg, gone) == 0);
    uint64_t mine = 0;
    uint64_t was = 5;
    for (uint64_t* word :
         {static_cast<uint64_t*>(nullptr), &mine, word_at(gone), word_at(view + 2 * unit())}) {
      CAPTURE(word);
      CHECK_FAILS(CALL(atm_cas, word, 0, 1, &was), -1, CMI_ERR_INVAL);
      CHECK(was == 5);
    }
    CHECK(mine == 0);
    CHECK_FAILS(CALL(atm_cas, word_at(view), 0, 1, nullptr), -1, CMI_ERR_INVAL);
    CHECK(load(word_at(view)) == 0);
  }
}

TEST_CASE_FIXTURE(Both, "atm_cas_on_a_read_only_view_raises_access_error") {
  for (const cmi_seg seg : {home, import}) {
    uint64_t* word = word_at(attach(seg, CMI_SEG_READ)) + 2;
    const Fault fault = fault_of([&] {
      uint64_t was = 0;
      CALL(atm_cas, word, 0, 1, &was);
    });
    CHECK(fault.is_cmi(CMI_ERROR_ACCESS));
    CHECK(fault.address == word);
    CHECK(fault.segment == seg);
    CHECK(load(word) == 0);
    // The call was left by a jump, and the library works on.
    uint64_t was = 1;
    CHECK(CALL(atm_cas, word_at(attach(seg)) + 2, 0, 0, &was) == 0);
    CHECK(was == 0);
  }
}

TEST_CASE_FIXTURE(Both, "a_store_through_a_read_only_view_raises_access_error") {
  for (const cmi_seg seg : {home, import}) {
    std::byte* view = attach(seg, CMI_SEG_READ);
    for (const size_t off : {size_t{0}, unit() + 17}) {
      CHECK_FALSE(load_fault(view + off).caught);
      for (int again = 0; again < 2; ++again) {
        const Fault fault = store_fault(view + off);
        CHECK(fault.is_cmi(CMI_ERROR_ACCESS));
        CHECK(fault.address == view + off);
        CHECK(fault.segment == seg);
      }
      CHECK(view[off] == std::byte{0});
    }
    // A page that was never loaded.
    std::byte* fresh = attach(seg, CMI_SEG_READ);
    CHECK(store_fault(fresh).is_cmi(CMI_ERROR_ACCESS));
    CHECK(attach(seg)[0] == std::byte{0});
  }
}

TEST_CASE_FIXTURE(Process, "an_ordinary_fault_keeps_its_own_code") {
  const auto check = [&] {
    void* page = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(page != MAP_FAILED);
    for (const Fault& fault : {load_fault(page), store_fault(page)}) {
      CHECK(fault.caught);
      CHECK(fault.code == SEGV_ACCERR);
      CHECK(fault.address == page);
    }
    ::munmap(page, 4096);
    for (void* at :
         {static_cast<void*>(nullptr), reinterpret_cast<void*>(uintptr_t{0x123}), page}) {
      for (const Fault& fault : {load_fault(at), store_fault(at)}) {
        CHECK(fault.caught);
        CHECK(fault.code == SEGV_MAPERR);
        CHECK(fault.address == at);
      }
    }
  };
  ini();
  check();
  const cmi_seg home = segment();
  attach(home);
  attach(import_own(home));
  check();
}

namespace {

sigjmp_buf sigbus_escape;
void* sigbus_address = nullptr;
int sigbus_code = 0;

void on_sigbus(int /*signo*/, siginfo_t* info, void* /*context*/) {
  sigbus_address = info->si_addr;
  sigbus_code = info->si_code;
  siglongjmp(sigbus_escape, 1);
}

}  // namespace

TEST_CASE_FIXTURE(Process, "a_sigbus_that_is_not_ours_reaches_the_former_handler") {
  struct sigaction handler {};
  struct sigaction former {};
  handler.sa_sigaction = on_sigbus;
  handler.sa_flags = SA_SIGINFO;
  ::sigemptyset(&handler.sa_mask);
  REQUIRE(::sigaction(SIGBUS, &handler, &former) == 0);

  ini();
  attach(import_own(segment()));
  const int fd = ::open(folder().c_str(), O_TMPFILE | O_RDWR, 0600);
  REQUIRE(fd >= 0);
  REQUIRE(::ftruncate(fd, 4096) == 0);
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  REQUIRE(page != MAP_FAILED);
  REQUIRE(::ftruncate(fd, 0) == 0);

  for (int round = 0; round < 2; ++round) {
    sigbus_address = nullptr;
    if (sigsetjmp(sigbus_escape, 1) == 0) *static_cast<volatile char*>(page) = 1;
    CHECK(sigbus_address == page);
    CHECK(sigbus_code == BUS_ADRERR);
  }
  ::munmap(page, 4096);
  ::close(fd);
  end();
  ::sigaction(SIGBUS, &former, nullptr);
}

TEST_SUITE_END();

}  // namespace cmi::one_process::access_test
