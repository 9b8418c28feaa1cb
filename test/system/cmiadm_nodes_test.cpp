// cmiadm against real nodes: what it shows of them, while they live, hang and die, and what it does
// with damaged registries.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "core/base/fd.hpp"
#include "support/skip.hpp"
#include "system/calls.hpp"
#include "system/cmiadm.hpp"

namespace cmi::test::cmiadm_nodes_test {

namespace {

Value list(const Cluster& cluster) {
  const Ran ran = cmiadm(cluster, {"list", "--json", "--wait", "20"});
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  return parse_json(ran.out);
}

// The node with this process, of what list says.
const Value* node_of(const Value& all, pid_t pid) {
  for (const Value& node : all["nodes"].items) {
    if (node["contexts"].find("pid", static_cast<uint64_t>(pid)) != nullptr) return &node;
  }
  return nullptr;
}

const Value& context_of(const Value& all, const Process& process) {
  const Value* node = node_of(all, process.pid());
  REQUIRE(node != nullptr);
  return *(*node)["contexts"].find("pid", static_cast<uint64_t>(process.pid()));
}

std::vector<std::string> registries(const Cluster& cluster) {
  std::vector<std::string> found;
  for (const std::string& file : cluster.files()) {
    if (file.ends_with("/registry")) found.push_back(file);
  }
  return found;
}

std::string save(const Cluster& cluster, const Flat& handle, size_t size) {
  const std::string path = cluster.scratch() + "/handle";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(handle.bytes.data()),
             static_cast<std::streamsize>(size));
  return path;
}

// Where the arrays of a registry begin, as doc/design/registry.md says.
constexpr off_t kContexts = 128, kSegments = 8320, kAttachments = 532608, kReservations = 794752,
                kRegistryEnd = 796800;

void poke(const std::string& file, off_t at, uint64_t word) {
  const Fd fd(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
  REQUIRE(::pwrite(fd.get(), &word, sizeof word, at) == sizeof word);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    std::erase(line, '\r');
    lines.push_back(line);
  }
  return lines;
}

// What cmiadm prints on a terminal of this size, without what clears it.
std::string on_terminal(const Cluster& cluster, std::vector<std::string> arguments, uint16_t rows,
                        uint16_t columns) {
  winsize size{rows, columns, 0, 0};
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, &size);
  REQUIRE(child >= 0);
  if (child == 0) {
    ::setenv("CMI_RUNTIME_DIR", cluster.runtime_folder().c_str(), 1);
    std::string program = CMI_CMIADM_PROGRAM;
    std::vector<char*> argv{program.data()};
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  const Fd fd(terminal);
  std::string text;
  char part[4096];
  // Ends with EIO when the program has.
  for (ssize_t n = 0; (n = ::read(terminal, part, sizeof part)) > 0;) {
    text.append(part, static_cast<size_t>(n));
  }
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(describe_status(status) == "exit status 0");
  const std::string clear = "\033[H\033[2J";
  if (text.starts_with(clear)) text.erase(0, clear.size());
  return text;
}

TEST_SUITE("cmiadm") {
  TEST_CASE("cmiadm_list_shows_contexts_segments_and_views_of_every_node") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home, 8 * kPage);
    const Import import = import_segment(peer, exported);
    REQUIRE(seg_at(peer, import.seg).ok());
    const Answer plain = seg_get(home, kPage);
    REQUIRE(plain.ok());

    const Value all = list(cluster);
    CHECK(all["runtime_dir"].text == cluster.runtime_folder());
    CHECK(all["nodes"].items.size() == 2);
    const Value& maker = context_of(all, home);
    CHECK(maker["state"].text == "alive");
    CHECK(maker["program"].text == program_invocation_short_name);
    CHECK(maker["segments"].number == 2);
    CHECK(maker["imports"].number == 0);
    CHECK(maker["views"].number == 1);
    const Value& user = context_of(all, peer);
    CHECK(user["segments"].number == 0);
    CHECK(user["imports"].number == 1);
    CHECK(user["views"].number == 2);

    const Value& made = (*node_of(all, home.pid()))["segments"];
    REQUIRE(made.items.size() == 2);
    const Value* shared = made.find("id", static_cast<uint64_t>(exported.seg));
    REQUIRE(shared != nullptr);
    CHECK((*shared)["kind"].text == "home");
    CHECK((*shared)["size"].number == 8 * kPage);
    CHECK((*shared)["state"].text == "live");
    CHECK((*shared)["exported"].truth);
    CHECK((*shared)["owner"].number == static_cast<uint64_t>(home.pid()));
    CHECK((*shared)["owner_alive"].truth);
    CHECK((*shared)["trouble"].kind == Value::Kind::kNull);
    const Value* kept = made.find("id", static_cast<uint64_t>(plain.seg()));
    REQUIRE(kept != nullptr);
    CHECK_FALSE((*kept)["exported"].truth);
    CHECK((*kept)["views"].items.empty());

    const Value& taken = (*node_of(all, peer.pid()))["segments"];
    REQUIRE(taken.items.size() == 1);
    CHECK(taken.items[0]["kind"].text == "import");
    CHECK(taken.items[0]["token_set"].truth);
    REQUIRE(taken.items[0]["views"].items.size() == 1);
    CHECK(taken.items[0]["views"].items[0]["pid"].number == static_cast<uint64_t>(peer.pid()));
    CHECK(taken.items[0]["views"].items[0]["views"].number == 2);

    const Ran table = cmiadm(cluster, {"list"});
    CHECK(table.status == 0);
    CHECK(table.says(std::to_string(exported.seg)));
    CHECK(table.says("exported"));
    CHECK(table.says(std::to_string(peer.pid()) + "x2"));
    const Ran one = cmiadm(cluster, {"--node", "peer", "list"});
    CHECK(one.says(std::to_string(peer.pid())));
    CHECK_FALSE(one.says(std::to_string(home.pid())));
    const Ran ids = cmiadm(cluster, {"list", "--ids", "--node", "peer"});
    CHECK(ids.out == std::to_string(import.seg) + "\n");
  }

  TEST_CASE("cmiadm_names_nodes_as_their_processes_do_in_the_order_of_these_names") {
    Cluster cluster;
    Process& writer = cluster.spawn("writer");
    Process& home = cluster.spawn("home");
    const std::string far(60, 'z');
    Process& last = cluster.spawn(far);
    const Import import = import_segment(writer, export_segment(home, 8 * kPage));
    REQUIRE(store(writer, import.at, 1).cause() == Fault::kNone);
    const Value all = list(cluster);
    REQUIRE(all["nodes"].items.size() == 3);
    CHECK(all["nodes"].items[0]["name"].text == "home");
    CHECK(all["nodes"].items[1]["name"].text == "writer");
    CHECK(all["nodes"].items[2]["name"].text == far.substr(0, 48) + "...");
    CHECK(node_of(all, last.pid()) == &all["nodes"].items[2]);
    const std::string digits = (*node_of(all, home.pid()))["node"].text;
    const Ran table = cmiadm(cluster, {"list"});
    CHECK(table.says("node home (" + digits + ")"));
    CHECK(table.out.find("node home") < table.out.find("node writer"));
    // The busiest comes first.
    const Ran top = cmiadm(cluster, {"top", "--wait", "20"});
    CHECK(top.says("NODE"));
    CHECK(top.out.find("\nwriter ") < top.out.find("\nhome "));
    CHECK(top.says("home " + std::to_string(home.pid())));  // of the link to it
  }

  TEST_CASE("cmiadm_shows_a_process_of_another_pid_namespace_by_the_number_that_it_has_here") {
    if (geteuid() != 0) return skip("a pid namespace takes root");
    const Fd ours(open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC));
    REQUIRE(ours);
    Cluster cluster;
    Process& outside = cluster.spawn("out");
    if (unshare(CLONE_NEWPID) != 0) return skip("no pid namespace of our own here");
    Process& first = cluster.spawn("box");  // the first process of the new one
    REQUIRE(setns(ours.get(), CLONE_NEWPID) == 0);
    REQUIRE(first.run([] { return getpid(); }) == 1);
    REQUIRE(first.pid() != 1);
    const Value all = list(cluster);
    CHECK(context_of(all, first)["state"].text == "alive");
    CHECK(context_of(all, outside)["state"].text == "alive");
    const Ran plain = cmiadm(cluster, {"list"});
    CHECK_MESSAGE(plain.says(std::to_string(first.pid())), plain.out);
    first.kill();
    CHECK(cmiadm(cluster, {"list"}).complains("1 dead context"));
  }

  TEST_CASE("cmiadm_on_a_terminal_prints_no_more_than_it_shows") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    (void)import_segment(peer, export_segment(home, 8 * kPage));
    const std::string top = on_terminal(cluster, {"top", "--count", "1", "--wait", "20"}, 10, 60);
    const std::vector<std::string> shown = lines_of(top);
    CHECK(shown.size() <= 10);
    CHECK(shown.back().find("lines are left out") != std::string::npos);
    const std::vector<std::string> listed = lines_of(on_terminal(cluster, {"list"}, 10, 60));
    CHECK(listed.size() > 10);
    bool cut = false;
    for (const auto& lines : {shown, listed}) {
      for (const std::string& line : lines) {
        CHECK_MESSAGE(line.size() <= 60, line);
        cut = cut || line.back() == '>';
      }
    }
    CHECK(cut);
  }

  TEST_CASE("cmiadm_list_of_an_empty_runtime_folder_is_no_error") {
    Cluster cluster;
    const Ran ran = cmiadm(cluster, {"list"});
    CHECK(ran.status == 0);
    CHECK(ran.says("no node"));
    CHECK(cmiadm(cluster, {"reap"}).status == 0);
    CHECK(cluster.files().empty());
    const Ran elsewhere = cmiadm(cluster, {"list", "--runtime-dir", cluster.scratch() + "/none"});
    CHECK(elsewhere.status == 0);
  }

  TEST_CASE("cmiadm_works_while_a_context_hangs") {
    Cluster cluster;
    Process& hung = cluster.spawn("node");
    Process& well = cluster.spawn("node");
    const Answer seg = seg_get(hung, kPage);
    REQUIRE(seg.ok());
    hung.stop();
    const Value all = list(cluster);
    CHECK(context_of(all, hung)["state"].text == "stopped");
    CHECK(context_of(all, well)["state"].text == "alive");
    const Ran shown = cmiadm(cluster, {"show", std::to_string(seg.seg())});
    CHECK(shown.status == 0);
    CHECK(shown.says("stopped"));
    // Hanging is not being dead.
    CHECK(cmiadm(cluster, {"reap"}).says("after 0 dead contexts"));
    CHECK(cmiadm(cluster, {"doctor"}).status == 0);
    hung.signal(SIGCONT);
    CHECK(seg_at(hung, seg.seg()).ok());
  }

  TEST_CASE(
      "every_command_of_cmiadm_ends_well_or_says_why_while_a_context_hangs_and_after_a_crash") {
    Cluster cluster;
    Process& hung = cluster.spawn("home", {{"CMI_MEM_MAX", "16M"}});
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(hung);
    const Import import = import_segment(peer, exported);
    REQUIRE(load(peer, import.at).cause() == Fault::kNone);
    const uint64_t key = hung.run([] {
      cmi_ctl_cfg cfg{};
      cfg.mreq.mem_reserve = 1 << 20;
      return CMIFN(ctxt(), 10, cmi_ctl)(ctxt(), CMI_CTL_MEM_RESERVE, &cfg) == 0 ? cfg.mreq.rsv_key
                                                                                : uint64_t{0};
    });
    REQUIRE(key != 0);
    char digits[20];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(key));
    const std::string id = std::to_string(exported.seg);
    const std::string handle = save(cluster, exported.handle, exported.handle.size);
    const auto json = [&](std::vector<std::string> words) {
      words.insert(words.end(), {"--json", "--wait", "1"});
      const Ran ran = cmiadm(cluster, words);
      CHECK_MESSAGE(ran.status == 0, words.front(), ": ", ran.err);
      return parse_json(ran.out);
    };
    // What needs an answer of the process that hangs, or is no more, says so; all else works.
    using Words = std::vector<std::string>;
    const auto all_commands = [&](const char* state, const Words& why_not_quiesced,
                                  const char* why_no_ping) {
      CHECK(context_of(json({"list"}), hung)["state"].text == state);
      CHECK(json({"show", id}).items.size() == 1);
      CHECK(json({"top"})["contexts"].find("pid", static_cast<uint64_t>(peer.pid())) != nullptr);
      CHECK(json({"doctor"})["health"].text != "BROKEN");
      for (const char* command : {"quiesce", "resume"}) {
        const Ran ran = cmiadm(cluster, {command, id, "--wait", "1"});
        CHECK(ran.status == 1);
        CHECK_MESSAGE(std::any_of(why_not_quiesced.begin(), why_not_quiesced.end(),
                                  [&](const std::string& why) { return ran.complains(why); }),
                      ran.err);
      }
      const Ran pinged = cmiadm(cluster, {"ping", handle, "--wait", "1"});
      CHECK(pinged.status == 1);
      CHECK_MESSAGE(pinged.complains(why_no_ping), pinged.err);
      CHECK(cmiadm(cluster, {"list", "--wait", "1"}).says(digits));
    };
    hung.stop();
    all_commands("stopped", {"may be stopped"}, "hangs");
    hung.kill();
    // Who asks joins the node, and so cleans up what the dead has left.
    all_commands("dead", {"its maker has ended", "no node here is home"}, "has ended");
    const Ran deleted = cmiadm(cluster, {"reservation", "delete", digits});
    CHECK_MESSAGE(deleted.status == 0, deleted.err);
    CHECK(cmiadm(cluster, {"reap"}).status == 0);
    CHECK(node_of(list(cluster), hung.pid()) == nullptr);
  }

  TEST_CASE("cmiadm_list_tells_the_dead_from_the_living_and_reap_cleans_up_after_them") {
    Cluster cluster;
    Process& killed = cluster.spawn("node");
    Process& alive = cluster.spawn("node");
    const Answer attached = seg_get(killed, kPage);
    const Answer alone = seg_get(killed, 3 << 20);
    const Answer view = seg_at(alive, attached.seg());
    REQUIRE(view.ok());
    REQUIRE(seg_at(killed, attached.seg()).ok());
    killed.kill();

    const Value before = list(cluster);
    const Value& dead = context_of(before, killed);
    CHECK(dead["state"].text == "dead");
    CHECK(context_of(before, alive)["state"].text == "alive");
    const Value& node = *node_of(before, alive.pid());
    CHECK(node["stale_views"].number == 1);
    const Value* orphan = node["segments"].find("id", static_cast<uint64_t>(attached.seg()));
    REQUIRE(orphan != nullptr);
    CHECK((*orphan)["state"].text == "removed");
    CHECK_FALSE((*orphan)["owner_alive"].truth);
    CHECK(node["segments"].items.size() == 2);
    CHECK(cmiadm(cluster, {"list"}).complains("1 dead context;"));
    const Ran doctor = cmiadm(cluster, {"doctor"});
    CHECK(doctor.status == 0);
    CHECK(doctor.says("mend: cmiadm reap"));
    // The segment that is attached is in use still.
    CHECK_MESSAGE(doctor.says("1 dead context, with 3M of memory in 1 segment that nobody uses"),
                  doctor.out);

    const Ran reaped = cmiadm(cluster, {"reap"});
    CHECK(reaped.status == 0);
    CHECK(reaped.says("after 1 dead context\n"));
    const Value after = list(cluster);
    CHECK(node_of(after, killed.pid()) == nullptr);
    const Value& segments = (*node_of(after, alive.pid()))["segments"];
    CHECK(segments.find("id", static_cast<uint64_t>(attached.seg())) != nullptr);
    CHECK(segments.find("id", static_cast<uint64_t>(alone.seg())) == nullptr);
    // Who had it attached keeps it.
    CHECK(store(alive, view.at(), 7).cause() == Fault::kNone);
    REQUIRE(seg_dt(alive, attached.seg(), view.at()).ok());
    CHECK((*node_of(list(cluster), alive.pid()))["segments"].items.empty());
  }

  TEST_CASE("cmiadm_reap_removes_a_node_that_nobody_is_left_of") {
    Cluster cluster;
    Process& first = cluster.spawn("node");
    Process& second = cluster.spawn("other");
    REQUIRE(seg_get(first, kPage).ok());
    first.kill();
    second.kill();
    CHECK(registries(cluster).size() == 2);
    const Ran one = cmiadm(cluster, {"reap", "--node", "other"});
    CHECK(one.status == 0);
    CHECK(registries(cluster).size() == 1);
    CHECK(cmiadm(cluster, {"reap"}).status == 0);
    CHECK(cluster.files().empty());
  }

  TEST_CASE("cmiadm_reports_damaged_words_and_reap_repairs_them") {
    Cluster cluster;
    Process& process = cluster.spawn("node");
    const Answer seg = seg_get(process, kPage);
    const Answer view = seg_at(process, seg.seg());
    REQUIRE(view.ok());
    const std::string file = registries(cluster).at(0);
    poke(file, kAttachments + 8 * 100, ~uint64_t{0});  // a view of nothing
    poke(file, kContexts + 32 * 200, 77);              // no state of a context
    const uint64_t index = (static_cast<uint64_t>(seg.seg()) & 4095) + 1;
    poke(file, kSegments + static_cast<off_t>(128 * index), 12345);  // no state of a segment
    const Value damaged = list(cluster);
    const Value& node = *node_of(damaged, process.pid());
    CHECK(node["damaged"].number == 3);
    CHECK(node["segments"].items.size() == 1);
    CHECK(cmiadm(cluster, {"list"}).complains("3 damaged slots"));
    CHECK(cmiadm(cluster, {"doctor"}).says("3 damaged slots"));
    // The scans of the library end where the file says that they may.
    poke(file, 56, 4096);
    poke(file, 64, 32768);
    CHECK(cmiadm(cluster, {"reap"}).status == 0);
    const Value mended = list(cluster);
    const Value& after = *node_of(mended, process.pid());
    CHECK(after["damaged"].number == 0);
    REQUIRE(after["segments"].items.size() == 1);
    CHECK(after["segments"].items[0]["state"].text == "live");
    CHECK(store(process, view.at(), 3).cause() == Fault::kNone);
  }

  TEST_CASE("cmiadm_survives_any_registry") {
    Cluster cluster;
    Process& process = cluster.spawn("node");
    REQUIRE(seg_at(process, seg_get(process, kPage).seg()).ok());
    const std::filesystem::path file = registries(cluster).at(0);
    const std::string elsewhere = cluster.scratch() + "/copy";
    const std::string folder = elsewhere + "/" + file.parent_path().filename().string();
    std::filesystem::create_directories(folder);
    ::chmod(elsewhere.c_str(), 0700);
    ::chmod(folder.c_str(), 0700);
    std::ifstream in(file, std::ios::binary);
    const std::string good{std::istreambuf_iterator<char>(in), {}};
    REQUIRE(good.size() == static_cast<size_t>(kRegistryEnd));
    const auto look = [&](const std::string& content) {
      const std::string path = folder + "/registry";
      std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
      ::chmod(path.c_str(), 0600);
      const Ran ran = cmiadm(cluster, {"list", "--json", "--runtime-dir", elsewhere});
      CHECK(ran.status >= 0);
      CHECK(ran.status <= 1);
      CHECK(parse_json(ran.out)["nodes"].items.size() == 1);
      return ran;
    };
    CHECK(look(good).status == 0);
    CHECK(look("").complains("no process has joined it"));
    CHECK(look(good.substr(0, 1000)).complains("has 1000 bytes instead of"));
    CHECK(look(good + "x").status == 1);
    CHECK(look("nonsense" + good.substr(8)).complains("its registry is none"));
    CHECK(look(good.substr(0, 8) + "\x09" + good.substr(9)).complains("another version"));
    CHECK(look(good.substr(0, 40) + "otherid!" + good.substr(48)).complains("another node's"));
    std::mt19937_64 random(20221122);
    for (int i = 0; i < 12; ++i) {
      std::string bad = good;
      // Behind the header; in some rounds here and there, in others everywhere.
      const size_t changes = i % 3 == 0 ? bad.size() : 300;
      for (size_t n = 0; n < changes; ++n) {
        bad[128 + random() % (bad.size() - 128)] = static_cast<char>(random());
      }
      CHECK(look(bad).status == 0);
    }
    const Ran reaped = cmiadm(cluster, {"reap", "--runtime-dir", elsewhere});
    CHECK(reaped.status == 0);
    CHECK_FALSE(std::filesystem::exists(folder));
  }

  TEST_CASE("cmiadm_says_so_when_a_registry_stays_locked") {
    Cluster cluster;
    Process& process = cluster.spawn("node");
    const Fd fd(::open(registries(cluster).at(0).c_str(), O_RDWR | O_CLOEXEC));
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = off_t{1} << 40;
    lock.l_len = 1;
    REQUIRE(::fcntl(fd.get(), F_OFD_SETLK, &lock) == 0);
    const Ran listed = cmiadm(cluster, {"list"});
    CHECK(listed.status == 0);
    CHECK(listed.says(std::to_string(process.pid())));
    CHECK(listed.complains("stays locked"));
    const Ran doctor = cmiadm(cluster, {"doctor"});
    CHECK(doctor.status == 1);
    CHECK(doctor.says("stays locked"));
    const Ran reaped = cmiadm(cluster, {"reap"});
    CHECK(reaped.status == 1);
    CHECK(reaped.complains("kill -CONT"));
  }

  TEST_CASE("cmiadm_show_names_the_home_and_the_token_of_an_import") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home, 4 * kPage, CMI_ACC_READ | CMI_ACC_WRITE);
    const Import import = import_bare(peer, exported);
    const auto shown = [&] {
      const Ran ran =
          cmiadm(cluster, {"show", "--json", "--node", "peer", std::to_string(import.seg)});
      REQUIRE_MESSAGE(ran.status == 0, ran.err);
      const Value v = parse_json(ran.out);
      REQUIRE(v.items.size() == 1);
      return v.items[0];
    };
    const Value before = shown();
    CHECK(before["kind"].text == "import");
    CHECK(before["home segment"].text == std::to_string(exported.seg));
    CHECK(before["home listener"].items.at(0).text.find("127.0.0.1:") != std::string::npos);
    CHECK(before["token"].text == "none set");
    const Value all = list(cluster);
    CHECK(before["home node"].text == (*node_of(all, home.pid()))["node"].text);
    CHECK(before["home context"].text == context_of(all, home)["id"].text);
    REQUIRE(set_token(peer, import.seg, exported.token).ok());
    const std::string token = shown()["token"].text;
    CHECK(token.find("(read write), set 1 time") != std::string::npos);
    // Neither the name nor the secret of the token is in there.
    CHECK(token.size() < 50);

    const Ran context = cmiadm(cluster, {"show", std::to_string(home.pid())});
    CHECK(context.status == 0);
    CHECK(context.says("segment " + std::to_string(exported.seg)));
    CHECK(cmiadm(cluster, {"show", "2147483647"}).status == 1);
    CHECK(cmiadm(cluster, {"show", "12x"}).status == 2);
    CHECK(cmiadm(cluster, {"show"}).status == 2);
  }

  TEST_CASE("cmiadm_list_shows_tokens_by_fingerprint_and_who_imports") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home, 4 * kPage, CMI_ACC_READ | CMI_ACC_WRITE);
    const Flat own = tok_new_for(home, exported.seg, node_address(peer), CMI_ACC_READ);
    REQUIRE(own.ok());
    const Import import = import_segment(peer, exported);
    const auto told = [&] {
      const Value all = list(cluster);
      return *(*node_of(all, home.pid()))["segments"].find("id",
                                                           static_cast<uint64_t>(exported.seg));
    };
    const Value before = told();
    REQUIRE(before["tokens"].items.size() == 2);
    const Value* any = before["tokens"].find("node", std::string("any"));
    REQUIRE(any != nullptr);
    CHECK((*any)["rights"].text == "read write");
    const std::string print = (*any)["fingerprint"].text;
    CHECK(print.size() == 8);
    const Value all = list(cluster);
    const Value* named = before["tokens"].find("node", (*node_of(all, peer.pid()))["node"].text);
    REQUIRE(named != nullptr);
    CHECK((*named)["rights"].text == "read");
    CHECK((*named)["fingerprint"].text != print);
    REQUIRE(before["importers"].items.size() == 1);
    CHECK(before["importers"].items[0]["context"].text == context_of(all, peer)["id"].text);
    CHECK(before["importers"].items[0]["rights"].text == "read write");
    // The importer's side names the same token.
    const Ran shown =
        cmiadm(cluster, {"show", "--wait", "20", "--node", "peer", std::to_string(import.seg)});
    CHECK(shown.says(print + " (read write)"));
    CHECK(cmiadm(cluster, {"list", "--wait", "20"}).says(print));

    REQUIRE(tok_del(home, exported.token).ok());
    const Value after = told();
    for (const Value& token : after["tokens"].items) {
      CHECK((token["fingerprint"].text != print || token["revoked"].truth));
    }
    // Who does not answer is said to, and holds nobody up.
    home.stop();
    CHECK(told()["tokens"].kind == Value::Kind::kNull);
    CHECK(cmiadm(cluster, {"list"}).complains("does not answer"));
    home.signal(SIGCONT);
    CHECK(told()["tokens"].kind == Value::Kind::kList);
  }

  TEST_CASE("cmiadm_top_counts_what_contexts_do") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home, 64 * kPage);
    const Import import = import_segment(peer, exported);
    const auto look = [&] {
      const Ran ran = cmiadm(cluster, {"top", "--json", "--wait", "20"});
      REQUIRE_MESSAGE(ran.status == 0, ran.err);
      return parse_json(ran.out);
    };
    const auto of = [](const Value& all, const Process& process) {
      const Value* found = all["contexts"].find("pid", static_cast<uint64_t>(process.pid()));
      REQUIRE(found != nullptr);
      return *found;
    };
    REQUIRE(store(peer, import.at, 1).cause() == Fault::kNone);
    const Value dirty = of(look(), peer);
    REQUIRE(dirty["imports"].items.size() == 1);
    CHECK(dirty["imports"].items[0]["id"].number == static_cast<uint64_t>(import.seg));
    CHECK(dirty["imports"].items[0]["state"].text == "usable");
    REQUIRE(publish(peer, import.at + 8 * kPage, 2));
    REQUIRE(atm_cas(peer, import.at + 16 * kPage, 0, 5).swapped);
    REQUIRE_FALSE(atm_cas(peer, import.at + 16 * kPage, 0, 6).swapped);
    REQUIRE(load(peer, import.at + 24 * kPage).cause() == Fault::kNone);
    const Value all = look();
    const Value peers = of(all, peer);
    const cmi_ofi_stats counted = peer.run([] { return stats(); });
    CHECK(peers["store_misses"].number == counted.store_misses);
    CHECK(peers["bytes_fetched"].number == counted.bytes_fetched);
    CHECK(peers["bytes_written_back"].number == counted.bytes_written_back);
    CHECK(peers["publications"].number == counted.publications);
    CHECK(peers["messages_dropped"].number == counted.messages_dropped);
    CHECK(peers["load_misses"].number == counted.load_misses);
    CHECK(peers["store_faults"].number == counted.store_faults);
    CHECK(peers["pages_fetched"].number == counted.pages_fetched);
    CHECK(peers["pages_written_back"].number == counted.pages_written_back);
    CHECK(peers["invalidations_received"].number == counted.invalidations_received);
    CHECK(peers["invalidations_useless"].number == counted.invalidations_useless);
    CHECK(peers["cas_calls"].number == counted.cas_calls);
    CHECK(peers["cas_lost"].number == counted.cas_lost);
    CHECK(peers["exceptions"].number == counted.exceptions);
    CHECK(peers["pages_evicted"].number == counted.pages_evicted);
    CHECK(peers["most_unanswered"].number == counted.most_unanswered);
    CHECK(counted.cas_calls == 2);
    CHECK(counted.cas_lost == 1);
    CHECK(counted.most_unanswered >= 1);
    CHECK(counted.store_misses >= 2);
    CHECK(peers["imports"].items[0]["cached"].number >= 2 * kPage);
    CHECK(peers["imports"].items[0]["dirty_pages"].number == 0);
    REQUIRE(peers["links"].items.size() == 1);
    CHECK(peers["links"].items[0]["state"].text == "up");
    CHECK(peers["links"].items[0]["took_ns"].number > 0);
    REQUIRE(of(all, home)["listeners"].items.size() == 1);
    CHECK(of(all, home)["listeners"].items[0].text.find("127.0.0.1:") != std::string::npos);
    CHECK(peers["links"].items[0]["over"].text == of(all, home)["listeners"].items[0].text);
    CHECK(of(all, home)["links"].items.empty());
    CHECK(all["silent"].items.empty());

    const Ran table = cmiadm(cluster, {"top", "--count", "2", "--every", "1", "--wait", "20"});
    CHECK(table.status == 0);
    CHECK(table.says("since each context began"));
    CHECK(table.says("per second"));
    CHECK(table.says("LINK TO HOME"));
    CHECK(table.says("REACHED OVER"));

    // The same of each segment by itself: nothing of the context's is another segment's.
    const Export other = export_segment(home, 16 * kPage);
    const Import beside = import_segment(peer, other);
    REQUIRE(load(peer, beside.at).cause() == Fault::kNone);
    REQUIRE(load(peer, beside.at + 8 * kPage).cause() == Fault::kNone);
    REQUIRE(publish(home, other.at, 3));
    REQUIRE(tok_del(home, other.token).ok());
    CHECK(load(peer, beside.at + 12 * kPage).cause() == CMI_ERROR_TOKEN);
    const Value each = look();
    const Value both = of(each, peer);
    const Value* one = both["imports"].find("id", static_cast<uint64_t>(import.seg));
    const Value* two = both["imports"].find("id", static_cast<uint64_t>(beside.seg));
    REQUIRE((one != nullptr && two != nullptr));
    CHECK((*two)["load_misses"].number == 2);
    CHECK((*two)["store_misses"].number == 0);
    CHECK((*two)["bytes_written_back"].number == 0);
    CHECK((*two)["publications"].number == 0);
    CHECK((*two)["invalidations_received"].number >= 1);
    CHECK((*two)["exceptions"].number == 1);
    CHECK((*one)["exceptions"].number == 0);
    CHECK((*one)["bytes_written_back"].number == counted.bytes_written_back);
    for (const char* name :
         {"load_misses", "store_misses", "bytes_fetched", "bytes_written_back", "publications",
          "invalidations_received", "invalidations_useless", "exceptions"}) {
      CAPTURE(name);
      CHECK((*one)[name].number + (*two)[name].number == both[name].number);
    }
    const Value told = of(each, home);
    const Value* at_home = told["homes"].find("id", static_cast<uint64_t>(other.seg));
    REQUIRE(at_home != nullptr);
    CHECK((*at_home)["publications"].number >= 1);
    // One that is answered late is told again, and counts there as often as it comes.
    CHECK((*at_home)["notifications"].number >= 1);
    CHECK((*at_home)["notifications"].number <= (*two)["invalidations_received"].number);
    CHECK((*at_home)["importers"].number == 1);
    CHECK(cmiadm(cluster, {"top", "--wait", "20"}).says("NOTICES SENT"));

    home.stop();
    const Value hung = look();
    REQUIRE(hung["silent"].items.size() == 1);
    CHECK(hung["silent"].items[0].number == static_cast<uint64_t>(home.pid()));
    CHECK(hung["contexts"].find("pid", static_cast<uint64_t>(peer.pid())) != nullptr);
    home.signal(SIGCONT);
  }

  TEST_CASE("cmiadm_ping_reaches_the_home_of_a_saved_handle") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    const Export exported = export_segment(home, 16 * kPage);
    const std::string file = save(cluster, exported.handle, exported.handle.size);
    const Ran well = cmiadm(cluster, {"ping", "--wait", "20", file});
    REQUIRE_MESSAGE(well.status == 0, well.err);
    CHECK(well.says("segment " + std::to_string(exported.seg) + ", 64K"));
    CHECK(well.says("round trip"));

    REQUIRE(seg_rm(home, exported.seg).ok());
    const Ran removed = cmiadm(cluster, {"ping", "--wait", "20", file});
    CHECK(removed.status == 1);
    CHECK(removed.complains("not exported any more"));

    home.stop();
    const Ran hung = cmiadm(cluster, {"ping", "--wait", "1", file});
    CHECK(hung.status == 1);
    CHECK(hung.complains("hangs"));
    home.signal(SIGCONT);

    home.kill();
    const Ran dead = cmiadm(cluster, {"ping", "--wait", "20", file});
    CHECK(dead.status == 1);
    CHECK(dead.complains("has ended"));
  }

  TEST_CASE("cmiadm_ping_refuses_what_is_no_handle") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Export exported = export_segment(home);
    const std::string half = save(cluster, exported.handle, exported.handle.size / 2);
    CHECK(cmiadm(cluster, {"ping", half}).complains("not a remote segment handle"));
    exported.handle.bytes[100] ^= 1;
    const std::string damaged = save(cluster, exported.handle, exported.handle.size);
    const Ran ran = cmiadm(cluster, {"ping", damaged});
    CHECK(ran.status == 1);
    CHECK(ran.complains("not a remote segment handle"));
    CHECK(cmiadm(cluster, {"ping", cluster.scratch() + "/none"}).complains("No such file"));
    CHECK(cmiadm(cluster, {"ping", cluster.scratch()}).status == 1);
  }

  TEST_CASE("cmiadm_doctor_finds_a_machine_that_runs_the_tests_usable") {
    Cluster cluster;
    const Ran ran = cmiadm(cluster, {"doctor", "--json"});
    CHECK_MESSAGE(ran.status == 0, ran.out);
    const Value report = parse_json(ran.out);
    for (const char* what :
         {"environment", "kernel", "userfaultfd", "provider", "transfer", "cmi_ini"}) {
      const Value* finding = report["findings"].find("what", std::string(what));
      REQUIRE_MESSAGE(finding != nullptr, what);
      CHECK_MESSAGE((*finding)["health"].text == "ok", what, ": ", (*finding)["found"].text);
    }
    CHECK(report["findings"].find("what", std::string("large pages")) != nullptr);
    // Limits that a cluster meets, each with what to do then.
    const Value* importers = report["findings"].find("what", std::string("importers"));
    REQUIRE(importers != nullptr);
    CHECK((*importers)["found"].text.find("1024") != std::string::npos);
    const Value* imports = report["findings"].find("what", std::string("imports"));
    REQUIRE(imports != nullptr);
    CHECK((*imports)["found"].text.find("4096 of one segment") != std::string::npos);
    CHECK((*imports)["found"].text.find("have fewer processes import it") != std::string::npos);
    const Value* address = report["findings"].find("what", std::string("address"));
    REQUIRE(address != nullptr);
    CHECK((*address)["health"].text == "limited");
    CHECK((*address)["mend"].text.find("CMI_ADDRESS") != std::string::npos);
    CHECK(cluster.files().empty());
  }

  TEST_CASE("cmiadm_doctor_says_what_is_broken_and_what_mends_it") {
    Cluster cluster;
    const auto broken = [&](const Env& env, const std::string& what, const std::string& found) {
      const Ran ran = cmiadm(cluster, {"doctor", "--json"}, env);
      CHECK(ran.status == 1);
      const Value report = parse_json(ran.out);
      CHECK(report["health"].text == "BROKEN");
      const Value* finding = report["findings"].find("what", what);
      REQUIRE_MESSAGE(finding != nullptr, ran.out);
      CHECK((*finding)["health"].text == "BROKEN");
      CHECK_MESSAGE((*finding)["found"].text.find(found) != std::string::npos, ran.out);
      CHECK(!(*finding)["mend"].text.empty());
    };
    broken({{"CMI_MEM_MAX", "plenty"}}, "environment", "CMI_MEM_MAX=plenty");
    broken({{"CMI_ADDRESS", "192.0.2.1"}}, "address", "192.0.2.1 is not an address");
    broken({{"CMI_PROVIDER", "nothing-of-the-kind"}}, "provider", "no usable libfabric provider");
    broken({{"CMI_FAULT_POINT", "kernel_has_larger_pages=fail"}}, "cmi_ini",
           "needs a kernel with pages of 4096");
    ::chmod(cluster.runtime_folder().c_str(), 0755);
    broken({}, "runtime folder", "open to other users");
    ::chmod(cluster.runtime_folder().c_str(), 0700);
    const Ran old = cmiadm(cluster, {"doctor"}, {{"CMI_KERNEL", "6.1"}});
    CHECK(old.status == 0);
    CHECK(old.says("the first store to a page at home costs a fault"));
    const Ran greedy = cmiadm(cluster, {"doctor"}, {{"CMI_MEM_MAX", "900T"}});
    CHECK(greedy.status == 0);
    CHECK(greedy.says("segments end there sooner"));
    CHECK(greedy.says("remount,size="));
  }

  TEST_CASE("cmiadm_refuses_a_command_line_that_it_does_not_understand") {
    Cluster cluster;
    using Words = std::vector<std::string>;
    for (const Words& words :
         {Words{}, Words{"lsit"}, Words{"list", "more"}, Words{"--jsn", "list"}, Words{"--wait"},
          Words{"list", "--wait", "x"}, Words{"top", "--every", "0"}, Words{"top", "--count", "-1"},
          Words{"list", "--runtime-dir", "relative"}}) {
      const Ran ran = cmiadm(cluster, words);
      CHECK(ran.status == 2);
      CHECK(ran.out.empty());
      CHECK_FALSE(ran.err.empty());
    }
    const Ran help = cmiadm(cluster, {"--help"});
    CHECK(help.status == 0);
    CHECK(help.says("doctor"));
  }
}

}  // namespace

}  // namespace cmi::test::cmiadm_nodes_test
