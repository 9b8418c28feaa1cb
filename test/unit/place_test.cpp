// What clients name as the place of an offer.
#include "core/rendezvous/place.hpp"

#include <doctest/doctest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>

namespace cmi::test::place_test {
using namespace cmi::rendezvous;

namespace {

// A file that goes away with the case.
struct File {
  explicit File(const std::string& text) {
    const int fd = ::mkstemp(path.data());
    REQUIRE(fd >= 0);
    ::close(fd);
    std::ofstream(path) << text;
  }
  ~File() { ::unlink(path.c_str()); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  std::string path = "/tmp/cmi-secret-XXXXXX";
};

}  // namespace

TEST_CASE("a_place_is_a_folder_a_host_and_port_or_pmix") {
  const auto folder = parse_place("/srv/a?b:c", "s");
  REQUIRE(folder);
  CHECK(folder->kind == Place::Kind::kFolder);
  CHECK(folder->folder == "/srv/a?b:c");
  const auto tcp = parse_place("tcp://node-1.example:7400", "s");
  REQUIRE(tcp);
  CHECK(tcp->kind == Place::Kind::kTcp);
  CHECK(tcp->host == "node-1.example");
  CHECK(tcp->port == "7400");
  CHECK(tcp->secret == "s");
  const auto six = parse_place("tcp://[fe80::1%eth0]:65535", "");
  REQUIRE(six);
  CHECK(six->host == "fe80::1%eth0");
  CHECK(six->secret.empty());
  const auto pmix = parse_place("pmix:", "s");
  REQUIRE(pmix);
  CHECK(pmix->kind == Place::Kind::kPmix);
  CHECK_FALSE(pmix->rank);
  const auto third = parse_place("pmix:3", "");
  REQUIRE(third);
  CHECK(third->rank == 3);
}

TEST_CASE("what_is_no_place_is_refused") {
  for (const char* bad : {"",
                          "http://host:1",
                          "tcp://",
                          "tcp://host",
                          "tcp://:1",
                          "tcp://host:",
                          "tcp://host:0",
                          "tcp://host:65536",
                          "tcp://host:007",
                          "tcp://host:1x",
                          "tcp://host:-1",
                          "tcp://a:b:1",
                          "tcp://::1:1",
                          "tcp://[::1:1",
                          "tcp://[]:1",
                          "tcp://ho st:1",
                          "tcp://-h:1",
                          "tcp://h/x:1",
                          "tcp://host:1?",
                          "tcp://host:1?secret=",
                          "tcp://host:1?token=x",
                          "pmix:x",
                          "pmix:-1",
                          "pmix:1x",
                          "pmix:4294967295",
                          "pmix:99999999999",
                          "tcp://host:1?secret=/nonexistent",
                          "tcp://host:1?secret=/tmp"}) {
    CAPTURE(bad);
    CHECK(parse_place(bad, "").status() == Status::kInval);
  }
  CHECK(parse_place(std::string(kMaxWhere + 1, 'x'), "").status() == Status::kInval);
  CHECK(parse_place("tcp://" + std::string(256, 'x') + ":1", "").status() == Status::kInval);
  CHECK(parse_place(std::string("tcp://ho\0st:1", 13), "").status() == Status::kInval);
}

TEST_CASE("a_file_has_the_secret_of_a_place") {
  const File file("of the file\n");
  const auto place = parse_place("tcp://host:1?secret=" + file.path, "of the environment");
  REQUIRE(place);
  CHECK(place->secret == "of the file");
  CHECK(place->host == "host");
  for (const std::string& text :
       {std::string(), std::string("\n"), std::string(kMaxSecret + 1, 'x')}) {
    const File bad(text);
    CHECK(parse_place("tcp://host:1?secret=" + bad.path, "").status() == Status::kInval);
  }
  const File longest(std::string(kMaxSecret, 'x') + "\n");
  CHECK(parse_place("tcp://host:1?secret=" + longest.path, "").status() == Status::kOk);
}

}  // namespace cmi::test::place_test
