// Offers in a folder: what is left there is found, and nothing else is.
#include "core/rendezvous/folder_offers.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "unit/some_offer.hpp"

namespace cmi::test::folder_offers_test {
using namespace cmi::rendezvous;
using cmi::test::some_offer;

namespace {

struct Folder {
  Folder() {
    path = "/tmp/cmi-offer-XXXXXX";
    REQUIRE(::mkdtemp(path.data()) != nullptr);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  void put(const std::string& name, const std::string& text) const {
    std::ofstream(path + "/" + name) << text;
  }
  std::string text(const std::string& name) const {
    std::ifstream file(path + "/" + name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  size_t entries() const {
    const std::filesystem::directory_iterator all(path);
    return static_cast<size_t>(std::distance(begin(all), end(all)));
  }
  std::string path;
};

}  // namespace

TEST_CASE("an_offer_is_found_until_it_is_replaced_or_taken_away") {
  Folder folder;
  CHECK(read_offer(folder.path, "a").status() == Status::kReconfig);
  REQUIRE(write_offer(folder.path, "a", some_offer()) == Status::kOk);
  REQUIRE(write_offer(folder.path, "b", some_offer(9, 9)) == Status::kOk);
  CHECK(folder.entries() == 2);
  auto found = read_offer(folder.path, "a");
  REQUIRE(found);
  CHECK(*found == some_offer());
  REQUIRE(write_offer(folder.path, "a", some_offer(11, 11)) == Status::kOk);
  found = read_offer(folder.path, "a");
  REQUIRE(found);
  CHECK(*found == some_offer(11, 11));
  CHECK(remove_offer(folder.path, "a") == Status::kOk);
  CHECK(remove_offer(folder.path, "a") == Status::kOk);
  CHECK(read_offer(folder.path, "a").status() == Status::kReconfig);
  CHECK(folder.entries() == 1);
}

TEST_CASE("an_offer_is_a_file_that_nobody_else_reads") {
  Folder folder;
  REQUIRE(write_offer(folder.path, "a", some_offer()) == Status::kOk);
  struct stat file;
  REQUIRE(::stat((folder.path + "/a.cmi").c_str(), &file) == 0);
  CHECK((file.st_mode & 07777) == 0600);
}

TEST_CASE("a_process_that_is_killed_while_it_writes_leaves_nothing") {
  Folder folder;
  for (const bool replaces : {false, true}) {
    CAPTURE(replaces);
    if (replaces) REQUIRE(write_offer(folder.path, "a", some_offer(9, 9)) == Status::kOk);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      // The first byte of a file kills, by SIGXFSZ.
      const rlimit none{0, 0};
      ::setrlimit(RLIMIT_FSIZE, &none);
      ::setrlimit(RLIMIT_CORE, &none);
      (void)write_offer(folder.path, "a", some_offer());
      ::_exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    CHECK(folder.entries() == (replaces ? 1 : 0));
  }
  const auto earlier = read_offer(folder.path, "a");
  REQUIRE(earlier);
  CHECK(*earlier == some_offer(9, 9));
}

TEST_CASE("what_a_killed_process_left_of_a_replacement_goes_with_the_next") {
  Folder folder;
  REQUIRE(write_offer(folder.path, "a", some_offer()) == Status::kOk);
  folder.put(".a.part", "half of it");
  REQUIRE(write_offer(folder.path, "a", some_offer(9, 9)) == Status::kOk);
  CHECK(folder.entries() == 1);
  const auto found = read_offer(folder.path, "a");
  REQUIRE(found);
  CHECK(*found == some_offer(9, 9));
  folder.put(".a.part", "half of it");
  CHECK(remove_offer(folder.path, "a") == Status::kOk);
  CHECK(folder.entries() == 0);
}

TEST_CASE("a_damaged_offer_is_refused") {
  Folder folder;
  REQUIRE(write_offer(folder.path, "a", some_offer()) == Status::kOk);
  const std::string good = folder.text("a.cmi");
  for (size_t n = 0; n < good.size(); ++n) {
    folder.put("cut.cmi", good.substr(0, n));
    REQUIRE(read_offer(folder.path, "cut").status() == Status::kInval);
  }
  for (const std::string& bad :
       {good + "\n", good + "x", "\n" + good, good + good, std::string(1 << 20, 'A'),
        good.substr(good.find('\n') + 1) + good.substr(0, good.find('\n') + 1)}) {
    folder.put("bad.cmi", bad);
    CHECK(read_offer(folder.path, "bad").status() == Status::kInval);
  }
}

TEST_CASE("handle_and_token_of_two_segments_are_no_offer") {
  Folder folder;
  CHECK(write_offer(folder.path, "a", some_offer(7, 8)) == Status::kInval);
  Offer swapped = some_offer();
  swapped.token = swapped.rseg;
  CHECK(write_offer(folder.path, "a", swapped) == Status::kInval);
  CHECK(folder.entries() == 0);
}

TEST_CASE("what_is_no_plain_file_is_no_offer_and_holds_nobody_up") {
  Folder folder;
  REQUIRE(::mkfifo((folder.path + "/pipe.cmi").c_str(), 0600) == 0);
  CHECK(read_offer(folder.path, "pipe").status() == Status::kPerm);
  std::filesystem::create_directory(folder.path + "/folder.cmi");
  CHECK_FALSE(read_offer(folder.path, "folder"));
  REQUIRE(write_offer(folder.path, "a", some_offer()) == Status::kOk);
  std::filesystem::create_symlink("a.cmi", folder.path + "/link.cmi");
  CHECK_FALSE(read_offer(folder.path, "link"));
}

TEST_CASE("a_folder_that_is_not_there_is_said_so") {
  CHECK(write_offer("/nonexistent/folder", "a", some_offer()) == Status::kInval);
  CHECK(read_offer("/nonexistent/folder", "a").status() == Status::kReconfig);
  CHECK(remove_offer("/nonexistent/folder", "a") == Status::kOk);
}

TEST_CASE("names_of_offers_stay_in_their_folder") {
  for (const char* good : {"a", "A.b-c_9", "0"}) CHECK(legal_offer_name(good));
  CHECK(legal_offer_name(std::string(200, 'n')));
  CHECK_FALSE(legal_offer_name(std::string(201, 'n')));
  for (const char* bad : {"", ".", "..", ".a", "a/b", "../a", "a b", "a\n", "\xc3\xa4", "a*"}) {
    CAPTURE(bad);
    CHECK_FALSE(legal_offer_name(bad));
  }
}

}  // namespace cmi::test::folder_offers_test
