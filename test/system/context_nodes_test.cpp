// The context where it takes processes of their own: the environment, traces, fork() and the end.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "support/passages.hpp"
#include "support/sanitized.hpp"
#include "support/skip.hpp"
#include "system/calls.hpp"

namespace cmi::test::context_nodes_test {

namespace {

struct Text {
  Answer answer;
  char text[4000];
};

void append_line(void* to, const char* line) {
  auto* text = static_cast<Text*>(to);
  const size_t used = std::strlen(text->text);
  std::snprintf(text->text + used, sizeof text->text - used, "%s\n", line);
}

// cmi_ini() with callbacks that collect what is traced.
Text ini_with_traces(Process& process, uint32_t facilities, uint32_t level) {
  return process.run(
      [](uint32_t f, uint32_t l) {
        static Text text;
        text = {};
        cmi_cbs callbacks{};
        callbacks.alert = append_line;
        callbacks.log = append_line;
        callbacks.arg = &text;
        callbacks.trace_facilities = f;
        callbacks.trace_level = l;
        cmi_ctxt* context = cmi_ini(CMI_VERNO, &callbacks);
        text.answer = answer(0, context == nullptr);
        if (context != nullptr) {
          const cmi_seg seg = CMIFN(context, 10, seg_get)(context, kPage, 0);
          CMIFN(context, 10, tok_new)(context, seg, CMI_NADDR_ANY, CMI_ACC_READ);
          CMIFN(context, 10, fini)(context);
        }
        return text;
      },
      facilities, level);
}

std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// A whole session with one call each of the facilities SEG and TOK, without callbacks.
Answer short_session(Process& process) {
  return process.run([] {
    cmi_ctxt* context = cmi_ini(CMI_VERNO, nullptr);
    if (context == nullptr) return answer(0, true);
    const cmi_seg seg = CMIFN(context, 10, seg_get)(context, kPage, 0);
    CMIFN(context, 10, tok_new)(context, seg, CMI_NADDR_ANY, CMI_ACC_READ);
    CMIFN(context, 10, fini)(context);
    return Answer{};
  });
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_SUITE("context") {
  TEST_CASE("cmi_ini_with_a_malformed_environment_is_inval") {
    Cluster cluster;
    const Env bad = {{"CMI_PROVIDER", ""},
                     {"CMI_ADDRESS", ""},
                     {"CMI_FAULT", "sometimes"},
                     {"CMI_NODE", ""},
                     {"CMI_NODE", std::string(300, 'n')},
                     {"CMI_RUNTIME_DIR", "not/absolute"},
                     {"CMI_RUNTIME_DIR", ""},
                     {"CMI_MEM_MAX", "much"},
                     {"CMI_MEM_MAX", "-1"},
                     {"CMI_MEM_MAX", "12Q"},
                     {"CMI_MEM_MAX", "99999999999999999999"},
                     {"CMI_TRACE", "SEG"},
                     {"CMI_TRACE", "NOSUCH:DEBUG"},
                     {"CMI_TRACE", "SEG:LOUD"},
                     {"CMI_TRACE_FILE", "/nowhere/at/all"}};
    for (const auto& variable : bad) {
      CAPTURE(variable.first);
      CAPTURE(variable.second);
      Process& process = cluster.spawn_bare("node", {variable});
      const Text text = ini_with_traces(process, CMI_TRACE_FAC_ALL, CMI_TRACE_LVL_ERROR);
      CHECK(text.answer.failed(CMI_ERR_INVAL));
      CHECK(has(text.text, variable.first));
      process.end();
    }
  }

  TEST_CASE("cmi_ini_with_a_runtime_folder_on_a_disk_is_notsupp_and_says_so") {
    const char* told = std::getenv("TMPDIR");
    std::string folder;
    for (const std::string base : {told != nullptr ? told : "/tmp", "/tmp", "/var/tmp", "."}) {
      struct statfs info {};
      if (::statfs(base.c_str(), &info) != 0 || info.f_type == TMPFS_MAGIC) continue;
      std::error_code error;
      folder = std::filesystem::absolute(base + "/cmi-disk-XXXXXX", error).string();
      if (::mkdtemp(folder.data()) != nullptr) break;
      folder.clear();
    }
    if (folder.empty()) return skip("no folder to write to but on tmpfs");
    Cluster cluster;
    Process& process = cluster.spawn_bare("node", {{"CMI_RUNTIME_DIR", folder + "/run"}});
    const Text text = ini_with_traces(process, CMI_TRACE_FAC_ALL, CMI_TRACE_LVL_ERROR);
    CHECK(text.answer.failed(CMI_ERR_NOTSUPP));
    CHECK(has(text.text, "CMI_RUNTIME_DIR: " + folder + "/run is not on a tmpfs"));
    process.end();
    CHECK(std::filesystem::is_empty(folder + "/run"));
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }

  TEST_CASE("after_fork_every_call_of_the_child_is_init") {
    Cluster cluster;
    Process& process = cluster.spawn("home");
    const Export own = export_segment(process);
    REQUIRE(store(process, own.at, 77).cause() == Fault::kNone);
    struct Seen {
      int calls;       // that were not CMI_ERR_INIT, as a bit each
      int view_fault;  // si_code of a load through the view
    };
    const Seen seen = process.run(
        [](cmi_seg seg, uint64_t at) {
          int ends[2];
          Seen result{-1, -1};
          if (::pipe(ends) != 0) return result;
          const pid_t child = ::fork();
          if (child == 0) {
            cmi_ctxt* c = ctxt();
            Seen mine{0, 0};
            int bit = 0;
            const auto note = [&](bool failed) {
              if (!failed || cmi_get_error(nullptr) != CMI_ERR_INIT) mine.calls |= 1 << bit;
              ++bit;
            };
            uint64_t old = 0;
            size_t length = sizeof old;
            cmi_ctl_cfg cfg{};
            cmi_ds ds{};
            note(CMIFN(c, 10, seg_get)(c, kPage, 0) == CMI_SEG_INVALID);
            note(CMIFN(c, 10, seg_at)(c, seg, nullptr, 0) == nullptr);
            note(CMIFN(c, 10, seg_ctl)(c, seg, CMI_SEG_STATUS, &ds) == -1);
            note(CMIFN(c, 10, seg_exp)(c, seg, 0) == nullptr);
            note(CMIFN(c, 10, tok_new)(c, seg, CMI_NADDR_ANY, CMI_ACC_READ) == nullptr);
            note(CMIFN(c, 10, cmi_ctl)(c, CMI_CTL_INFO, &cfg) == -1);
            note(CMIFN(c, 10, attr_get)(c, seg, CMI_ATTR_RSEG_SIZE, &old, &length) == -1);
            note(CMIFN(c, 10, wmb_fn)(c) == -1);
            note(CMIFN(c, 10, mb_fn)(c) == -1);
            note(CMIFN(c, 10, rmb_fn)(c) == -1);
            note(CMIFN(c, 10, cmi_enb)(c, 1) == -1);
            note(CMIFN(c, 10, open_fb)(c) == nullptr);
            note(CMIFN(c, 10, ini_th)(c) == -1);
            note(CMIFN(c, 10, evt_get)(c) == nullptr);
            note(CMIFN(c, 10, fini)(c) == -1);
            const Access access = load64(at);
            mine.view_fault = access.fault.signal == SIGSEGV ? access.fault.code : 0;
            if (::write(ends[1], &mine, sizeof mine) != sizeof mine) ::_exit(1);
            ::_exit(0);
          }
          ::close(ends[1]);
          if (::read(ends[0], &result, sizeof result) != sizeof result) result.calls = -2;
          ::close(ends[0]);
          ::waitpid(child, nullptr, 0);
          return result;
        },
        own.seg, own.at);
    CHECK(seen.calls == 0);
    CHECK(seen.view_fault == SEGV_MAPERR);
    CHECK(load(process, own.at).value == 77);
    CHECK(seg_status(process, own.seg).status.st_nattach == 1);
    CHECK(seg_get(process, kPage).ok());
  }

  // Whoever forks while another thread makes the context has a child that knows nothing of it.
  TEST_CASE("a_child_that_is_forked_beside_cmi_ini_may_begin_a_context_of_its_own") {
    if (kSanitized) return skip("the sanitizer's heap keeps its locks in a forked child");
    Cluster cluster;
    Process& process =
        cluster.spawn_bare("home", {{"CMI_FAULT_POINT", "node.join.published=delay:300000"}});
    const int failed = process.run([] {
      std::atomic<bool> made = false;
      std::thread maker([&] {
        cmi_ctxt* const c = cmi_ini(CMI_VERNO, nullptr);
        made = true;
        if (c != nullptr) CMIFN(c, 10, fini)(c);
      });
      int bad = 0;
      while (!made) {
        const pid_t child = ::fork();
        if (child == 0) {
          ::alarm(20);
          cmi_ctxt* const c = cmi_ini(CMI_VERNO, nullptr);
          ::_exit(c != nullptr && CMIFN(c, 10, fini)(c) == 0 ? 0 : 1);
        }
        int status = -1;
        ::waitpid(child, &status, 0);
        bad += status != 0;
      }
      maker.join();
      return bad;
    });
    CHECK(failed == 0);
  }

  TEST_CASE("views_fault_after_the_last_fini") {
    if (kSanitized) return skip("the sanitizer may have taken the place of the view");
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    REQUIRE(load(peer, import.at).cause() == Fault::kNone);
    REQUIRE(fini(peer).ok());
    CHECK(load(peer, import.at).cause() == Fault::kPlain);
    REQUIRE(load(home, exported.at).cause() == Fault::kNone);
    REQUIRE(fini(home).ok());
    CHECK(load(home, exported.at).cause() == Fault::kPlain);
  }

  TEST_CASE("traces_without_callbacks_go_to_the_trace_file") {
    Cluster cluster;
    const std::string file = cluster.scratch() + "/trace";
    Process& to_file =
        cluster.spawn_bare("a", {{"CMI_TRACE", "SEG:DEBUG"}, {"CMI_TRACE_FILE", file}});
    REQUIRE(short_session(to_file).ok());
    CHECK(has(contents(file), "seg_get"));

    Process& to_stderr = cluster.spawn_bare("b", {{"CMI_TRACE", "SEG:DEBUG"}});
    const bool redirected = to_stderr.run([] {
      const int fd = ::memfd_create("stderr", 0);
      return ::dup2(fd, STDERR_FILENO) == STDERR_FILENO;
    });
    REQUIRE(redirected);
    REQUIRE(short_session(to_stderr).ok());
    const Text text = to_stderr.run([] {
      Text seen{};
      const ssize_t got = ::pread(STDERR_FILENO, seen.text, sizeof seen.text - 1, 0);
      seen.answer.value = got;
      return seen;
    });
    CHECK(has(text.text, "seg_get"));
  }

  TEST_CASE("the_trace_variable_acts_as_the_callback_fields") {
    Cluster cluster;
    Process& by_fields = cluster.spawn_bare("a");
    const Text fields = ini_with_traces(by_fields, CMI_TRACE_FAC_SEG, CMI_TRACE_LVL_DEBUG);
    Process& by_variable = cluster.spawn_bare("a", {{"CMI_TRACE", "SEG:DEBUG"}});
    const Text variable = ini_with_traces(by_variable, 0, 0);
    for (const Text* text : {&fields, &variable}) {
      CHECK(text->answer.ok());
      CHECK(has(text->text, "seg_get"));
      CHECK_FALSE(has(text->text, "tok_new"));
    }
    Process& silent = cluster.spawn_bare("a");
    CHECK(std::string(ini_with_traces(silent, 0, 0).text).empty());
  }
}

}  // namespace

}  // namespace cmi::test::context_nodes_test
