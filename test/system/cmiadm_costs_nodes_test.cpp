// What cmiadm shows of what pages cost: hot, map, metrics, and the times of top.
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "system/calls.hpp"
#include "system/cmiadm.hpp"

namespace cmi::test::cmiadm_costs_nodes_test {

namespace {

constexpr int kRounds = 20;

// Two importers store to words of one page, in turn, and publish each time.
struct Sharing {
  Cluster cluster;
  Process& home = cluster.spawn("home");
  Process& one = cluster.spawn("one");
  Process& two = cluster.spawn("two");
  Export exported = export_segment(home, 64 * kPage);
  Import first = import_segment(one, exported);
  Import second = import_segment(two, exported);

  void store_in_turn(size_t at_first, size_t at_second) {
    for (uint64_t i = 1; i <= kRounds; ++i) {
      REQUIRE(publish(one, first.at + at_first, i));
      REQUIRE(publish(two, second.at + at_second, i + kRounds));
    }
  }
  Value look(const std::string& command, int32_t seg) {
    const Ran ran = cmiadm(cluster, {command, std::to_string(seg), "--json", "--wait", "20"});
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    return parse_json(ran.out);
  }
  // What hot says of the page at home, or null.
  static const Value* page_of(const Value& hot, uint64_t page) {
    REQUIRE(hot["homes"].items.size() == 1);
    return hot["homes"].items[0]["pages"].find("page", page);
  }
};

// Whether each line is one of the format's, and ends as it asks.
void check_lines(const std::string& text) {
  const std::regex line(
      R"re(# (TYPE [a-z_]+ (counter|gauge|histogram)|UNIT [a-z_]+ (bytes|seconds)|HELP [a-z_]+ .+|EOF)|)re"
      R"re([a-z_]+(\{[a-z_]+="([^"\\]|\\.)*"(,[a-z_]+="([^"\\]|\\.)*")*\})? [0-9.]+)re");
  std::istringstream in(text);
  std::string last;
  for (std::string l; std::getline(in, l); last = l) CHECK_MESSAGE(std::regex_match(l, line), l);
  CHECK(last == "# EOF");
}

TEST_SUITE("cmiadm") {
  TEST_CASE("cmiadm_hot_names_false_sharing_and_who_stores_where") {
    Sharing s;
    s.store_in_turn(3 * kPage, 3 * kPage + 64);
    for (int32_t seg : {s.exported.seg, s.first.seg}) {
      const Value hot = s.look("hot", seg);
      const Value* page = Sharing::page_of(hot, 3);
      REQUIRE(page != nullptr);
      CHECK((*page)["diagnosis"].text == "false sharing");
      CHECK((*page)["publications"].number >= 2 * kRounds);
      CHECK((*page)["bounces"].number >= 2 * kRounds - 1);
      CHECK((*page)["notices"].number >= kRounds);
      std::set<std::string> bytes;
      for (const Value& writer : (*page)["writers"].items) bytes.insert(writer["bytes"].text);
      CHECK(bytes == std::set<std::string>{"0-7", "64-71"});
      // The importers have paid for it.
      REQUIRE(hot["imports"].items.size() == 2);
      for (const Value& import : hot["imports"].items) {
        const Value* paid = import["pages"].find("first", uint64_t{3});
        REQUIRE(paid != nullptr);
        CHECK((*paid)["store_misses"].number + (*paid)["first_stores"].number >= 2);
        CHECK((*paid)["notices"].number >= kRounds / 2);
        CHECK(import["regions"].find("first", uint64_t{0}) != nullptr);
      }
    }
    const Ran people = cmiadm(s.cluster, {"hot", "--wait", "20"});
    CHECK(people.status == 0);
    CHECK(people.says("page 3 (byte 12288): false sharing"));
    CHECK(people.says("bytes 64-71"));
    CHECK(people.says("what mends it: give what each context stores to pages"));
    CHECK_FALSE(people.says("imports that map"));
  }

  TEST_CASE("cmiadm_hot_tells_apart_what_is_no_false_sharing") {
    Sharing s;
    s.store_in_turn(5 * kPage, 5 * kPage);
    s.store_in_turn(6 * kPage, 7 * kPage);  // a page each, which the other does not have
    const Value hot = s.look("hot", s.exported.seg);
    const Value* same = Sharing::page_of(hot, 5);
    REQUIRE(same != nullptr);
    CHECK((*same)["diagnosis"].text == "write after write");
    const Value* own = Sharing::page_of(hot, 6);
    if (own != nullptr) CHECK((*own)["writers"].items.size() == 1);
    REQUIRE(load(s.two, s.second.at + 9 * kPage).cause() == Fault::kNone);
    REQUIRE(publish(s.one, s.first.at + 9 * kPage, 1));
    const Value later = s.look("hot", s.exported.seg);
    const Value* read = Sharing::page_of(later, 9);
    REQUIRE(read != nullptr);
    CHECK((*read)["diagnosis"].text == "read by others, written by one");
    CHECK(cmiadm(s.cluster, {"hot", "4711", "--wait", "20"}).status == 1);
  }

  TEST_CASE("cmiadm_hot_says_that_mapped_imports_are_not_counted") {
    const Env local{{"CMI_LOCAL", "on"}};
    Cluster cluster;
    Process& home = cluster.spawn("home", local);
    Process& mapper = cluster.spawn("mapper", local);
    const Export exported = export_segment(home, kPage);
    const Import mapped = import_segment(mapper, exported);
    REQUIRE(publish(mapper, mapped.at, 1));
    const Ran people = cmiadm(cluster, {"hot", std::to_string(exported.seg), "--wait", "20"});
    CHECK_MESSAGE(people.says("imports that map the pages"), people.out, people.err);
  }

  TEST_CASE("cmiadm_map_draws_what_each_context_has") {
    Sharing s;
    REQUIRE(load(s.one, s.first.at + 2 * kPage).cause() == Fault::kNone);
    REQUIRE(store(s.two, s.second.at + 40 * kPage, 1).cause() == Fault::kNone);
    const Value maps = s.look("map", s.exported.seg);
    REQUIRE(maps.items.size() == 3);
    CHECK(maps.items[0]["home"].truth);
    CHECK(maps.items[0]["cells"].text.size() == 64);
    CHECK(maps.items[0]["cells"].text[2] != '.');
    const Value* one = maps.find("pid", static_cast<uint64_t>(s.one.pid()));
    const Value* two = maps.find("pid", static_cast<uint64_t>(s.two.pid()));
    REQUIRE((one != nullptr && two != nullptr));
    CHECK((*one)["pages"].number == 64);
    CHECK(std::string("ch").find((*one)["cells"].text[2]) != std::string::npos);
    // A notice that finds nothing makes it hot, and no more.
    CHECK(std::string(".h").find((*one)["cells"].text[40]) != std::string::npos);
    // The timer may have brought it home by now.
    CHECK(std::string("cdh").find((*two)["cells"].text[40]) != std::string::npos);
    CHECK((*two)["cells"].text[2] == '.');

    const std::string file = s.cluster.scratch() + "/map.svg";
    const Ran drawn =
        cmiadm(s.cluster, {"map", std::to_string(s.second.seg), "--svg", file, "--wait", "20"});
    CHECK_MESSAGE(drawn.status == 0, drawn.err);
    std::ifstream in(file);
    const std::string svg(std::istreambuf_iterator<char>(in), {});
    CHECK(svg.starts_with("<svg xmlns="));
    CHECK(svg.ends_with("</svg>\n"));
    size_t cells = 0;
    for (size_t at = svg.find("<rect"); at != svg.npos; at = svg.find("<rect", at + 1)) ++cells;
    CHECK(cells == 3 * 64 + 6);
    CHECK(cmiadm(s.cluster, {"map", "4711", "--wait", "20"}).status == 1);
    CHECK(cmiadm(s.cluster, {"map"}).status == 2);
  }

  TEST_CASE("cmiadm_metrics_is_openmetrics_text") {
    Sharing s;
    s.store_in_turn(0, 8);
    REQUIRE(atm_cas(s.one, s.first.at + 16 * kPage, 0, 5).swapped);
    const Ran ran = cmiadm(s.cluster, {"metrics", "--wait", "20"});
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    check_lines(ran.out);
    const std::string of_one = "pid=\"" + std::to_string(s.one.pid()) + "\"";
    const cmi_ofi_stats counted = s.one.run([] { return stats(); });
    std::istringstream in(ran.out);
    std::set<std::string> lines;
    for (std::string l; std::getline(in, l);) {
      if (l.find(of_one) != l.npos) lines.insert(l.substr(0, l.find('{')) + l.substr(l.find('}')));
    }
    CHECK(lines.contains("cmi_store_misses_total} " + std::to_string(counted.store_misses)));
    CHECK(lines.contains("cmi_fetched_bytes_total} " + std::to_string(counted.bytes_fetched)));
    CHECK(lines.contains("cmi_swap_seconds_count} 1"));
    CHECK(ran.says("cmi_barrier_seconds_bucket{"));

    if (std::system("/usr/bin/python3 -c 'import prometheus_client' 2>/dev/null") != 0) {
      MESSAGE("not read by a collector's parser: no python3-prometheus-client");
      return;
    }
    const std::string file = s.cluster.scratch() + "/metrics";
    std::ofstream(file) << ran.out;
    const std::string parse =
        "/usr/bin/python3 -c 'import sys; from prometheus_client.openmetrics.parser import "
        "text_string_to_metric_families as parse; "
        "sys.exit(len(list(parse(open(sys.argv[1]).read()))) < 30)' " +
        file;
    CHECK(std::system(parse.c_str()) == 0);
  }

  TEST_CASE("cmiadm_top_shows_how_long_misses_barriers_and_swaps_took") {
    Sharing s;
    s.store_in_turn(0, 8);
    REQUIRE(atm_cas(s.one, s.first.at + 16 * kPage, 0, 5).swapped);
    const Ran ran = cmiadm(s.cluster, {"top", "--json", "--wait", "20"});
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    const Value all = parse_json(ran.out);
    const Value* one = all["contexts"].find("pid", static_cast<uint64_t>(s.one.pid()));
    REQUIRE(one != nullptr);
    for (const char* what : {"misses", "barriers", "swaps"}) {
      CAPTURE(what);
      const Value& times = (*one)["times"][what];
      CHECK(times["p50_ns"].number > 0);
      CHECK(times["p99_ns"].number >= times["p50_ns"].number);
      CHECK(times["sum_ns"].number > 0);
    }
    const Ran table = cmiadm(s.cluster, {"top", "--wait", "20"});
    CHECK(table.says("HALF WITHIN"));
  }
}

}  // namespace

}  // namespace cmi::test::cmiadm_costs_nodes_test
