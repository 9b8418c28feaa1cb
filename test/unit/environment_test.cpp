// The CMI_ variables: defaults, what is accepted, what is refused and how it is said.
#include "core/context/environment.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <map>

#include "core/base/log.hpp"
#include "core/memory/vm/userfault.hpp"
#include "core/node/node.hpp"
#include "core/segment/placement.hpp"

namespace cmi::test::environment_test {
using cmi::context::Environment;
using cmi::context::read_environment;

namespace {

const char* const kVariables[] = {
    "CMI_PROVIDER",     "CMI_ADDRESS",    "CMI_FAULT",  "CMI_KERNEL",     "CMI_NODE",
    "CMI_RUNTIME_DIR",  "CMI_MEM_MAX",    "CMI_TRACE",  "CMI_TRACE_FILE", "CMI_DEAD_AFTER",
    "CMI_JOIN_TIMEOUT", "CMI_FATAL_LINE", "CMI_SECRET", "CMI_LOCAL"};

// None of the variables set, and alerts collected, while it lives; then all as it was.
class Clean {
 public:
  Clean() {
    for (const char* name : kVariables) {
      if (const char* value = std::getenv(name)) before_[name] = value;
      unsetenv(name);
    }
    TraceSink sink;
    sink.arg = this;
    sink.alert = [](void* self, const char* text) {
      auto* clean = static_cast<Clean*>(self);
      clean->alerts_ += text;
      clean->alerts_ += '\n';
      ++clean->alert_count_;
    };
    Trace::get().configure(0, kNone, sink);
  }
  ~Clean() {
    Trace::get().configure(0, kNone, {});
    for (const char* name : kVariables) {
      auto value = before_.find(name);
      if (value == before_.end()) {
        unsetenv(name);
      } else {
        setenv(name, value->second.c_str(), 1);
      }
    }
  }
  Clean(const Clean&) = delete;
  Clean& operator=(const Clean&) = delete;

  // True when the value is refused with kInval and one line that names the variable.
  bool refuses(const char* name, const std::string& value) {
    alerts_.clear();
    alert_count_ = 0;
    setenv(name, value.c_str(), 1);
    const Status status = read_environment().status();
    unsetenv(name);
    return status == Status::kInval && alert_count_ == 1 &&
           alerts_.find(name) != std::string::npos && alerts_.find('\n') == alerts_.size() - 1;
  }
  const std::string& alerts() const { return alerts_; }

 private:
  std::map<std::string, std::string> before_;
  std::string alerts_;
  int alert_count_ = 0;
};

uint64_t mem_max(const char* text) {
  setenv("CMI_MEM_MAX", text, 1);
  auto env = read_environment();
  unsetenv("CMI_MEM_MAX");
  return env ? env->mem_max : 0;
}

// A folder that goes with all that the test makes in it.
struct Folder {
  std::string path = "/tmp/cmi_environment_test.XXXXXX";
  Folder() { REQUIRE(mkdtemp(path.data()) != nullptr); }
  ~Folder() {
    unlink((path + "/trace").c_str());
    rmdir(path.c_str());
  }
};

}  // namespace

TEST_CASE("an_empty_environment_gives_the_defaults") {
  Clean clean;
  auto env = read_environment();
  REQUIRE(env);
  CHECK(env->provider.empty());
  CHECK(env->address.empty());
  CHECK(env->node_name == node::default_node_name());
  CHECK_FALSE(env->node_name.empty());
  CHECK(env->runtime_dir == node::default_runtime_dir());
  CHECK(env->mem_max == segment::machine().ram_bytes / 2);
  CHECK(env->dead_after == 10 * kSecond);
  CHECK(env->fault == Environment::FaultMode::kSignal);
  CHECK(env->local);
  CHECK(env->kernel == UINT32_MAX);
  CHECK_FALSE(env->trace.has_value());
  CHECK_FALSE(env->trace_fd);
  CHECK(clean.alerts().empty());
}

TEST_CASE("pages_of_the_machine_are_mapped_unless_a_network_is_named_or_it_is_switched_off") {
  struct Row {
    const char *provider, *local;  // null: not set
    bool maps;
    const char* over;  // the providers for messages
  };
  for (const Row& row :
       {Row{nullptr, nullptr, true, ""}, Row{nullptr, "on", true, ""},
        Row{"local", nullptr, true, ""}, Row{"shm", nullptr, true, ""}, Row{"shm", "on", true, ""},
        Row{nullptr, "off", false, ""}, Row{"tcp", nullptr, false, "tcp"},
        Row{"tcp", "on", true, "tcp"}, Row{"local,tcp", nullptr, true, "tcp"},
        Row{"verbs,shm,tcp", nullptr, true, "verbs,tcp"}, Row{"ofi:shm", nullptr, false, "shm"}}) {
    Clean clean;
    if (row.provider != nullptr) setenv("CMI_PROVIDER", row.provider, 1);
    if (row.local != nullptr) setenv("CMI_LOCAL", row.local, 1);
    auto env = read_environment();
    REQUIRE(env);
    CAPTURE(row.over);
    CHECK(env->local == row.maps);
    CHECK(env->provider == row.over);
  }
  Clean clean;
  CHECK(clean.refuses("CMI_LOCAL", "maybe"));
  setenv("CMI_PROVIDER", "local", 1);
  CHECK(clean.refuses("CMI_LOCAL", "off"));
}

TEST_CASE("every_variable_arrives_where_it_belongs") {
  Clean clean;
  setenv("CMI_PROVIDER", "tcp;ofi_rxm", 1);
  setenv("CMI_ADDRESS", "auto", 1);
  setenv("CMI_FAULT", "thread", 1);
  setenv("CMI_KERNEL", "6.1", 1);
  setenv("CMI_NODE", "left", 1);
  setenv("CMI_RUNTIME_DIR", "/dev/shm/somewhere", 1);
  setenv("CMI_MEM_MAX", "1", 1);
  setenv("CMI_DEAD_AFTER", "2500", 1);
  setenv("CMI_JOIN_TIMEOUT", "4500", 1);
  setenv("CMI_TRACE", "seg,mem:debug", 1);
  auto env = read_environment();
  REQUIRE(env);
  CHECK(env->provider == "tcp;ofi_rxm");
  CHECK(env->address == "auto");
  CHECK(env->fault == Environment::FaultMode::kThread);
  CHECK(env->kernel == memory::kernel_version(6, 1));
  CHECK(env->node_name == "left");
  CHECK(env->runtime_dir == "/dev/shm/somewhere");
  CHECK(env->mem_max == 1);
  CHECK(env->dead_after == 2500 * kMilli);
  CHECK(env->join_timeout == 4500 * kMilli);
  REQUIRE(env->trace);
  CHECK(env->trace->facilities == (kFacSeg | kFacMem));
  CHECK(env->trace->level == kDebug);

  setenv("CMI_FAULT", "signal", 1);
  env = read_environment();
  REQUIRE(env);
  CHECK(env->fault == Environment::FaultMode::kSignal);
}

TEST_CASE("variables_of_others_are_nobodys_error") {
  Clean clean;
  setenv("CMI_SOMETHING_ELSE", "", 1);
  CHECK(read_environment());
  unsetenv("CMI_SOMETHING_ELSE");
}

TEST_CASE("memory_is_given_in_bytes_or_with_a_unit") {
  Clean clean;
  CHECK(mem_max("4096") == 4096);
  CHECK(mem_max("3K") == 3 << 10);
  CHECK(mem_max("512M") == 512 << 20);
  CHECK(mem_max("2G") == uint64_t{2} << 30);
  CHECK(mem_max("1T") == uint64_t{1} << 40);
  CHECK(mem_max("18446744073709551615") == UINT64_MAX);
  for (const char* bad :
       {"", "0", "0K", "K", "-1", "+1", " 1", "1 ", "1 K", "1KB", "1KK", "1k", "1P", "1.5G", "0x10",
        "half", "18446744073709551616", "17179869184G", "16777216T"}) {
    CAPTURE(bad);
    CHECK(clean.refuses("CMI_MEM_MAX", bad));
  }
}

TEST_CASE("a_value_that_cannot_be_parsed_is_refused_with_one_line_that_names_it") {
  Clean clean;
  CHECK(clean.refuses("CMI_PROVIDER", ""));
  CHECK(clean.refuses("CMI_ADDRESS", ""));
  for (const char* list : {",", "a,", ",a", "a,,b"}) {
    CHECK(clean.refuses("CMI_PROVIDER", list));
    CHECK(clean.refuses("CMI_ADDRESS", list));
  }
  for (const char* bad : {"", "Signal", "signals", "both"}) {
    CAPTURE(bad);
    CHECK(clean.refuses("CMI_FAULT", bad));
  }
  for (const char* bad :
       {"", "6", "6.", ".1", "6.1.2", "6.1-rc1", " 6.1", "5.18", "6.1000", "v6.1"}) {
    CAPTURE(bad);
    CHECK(clean.refuses("CMI_KERNEL", bad));
  }
  CHECK(clean.refuses("CMI_NODE", ""));
  CHECK(clean.refuses("CMI_NODE", std::string(256, 'n')));
  CHECK(clean.refuses("CMI_NODE", std::string(5000, 'n')));
  for (const char* bad : {"", "relative", "./here", "~/cmi"}) {
    CAPTURE(bad);
    CHECK(clean.refuses("CMI_RUNTIME_DIR", bad));
  }
  for (const char* bad : {"", "seg", ":debug", "seg:", "seg:loud", "segment:debug", "seg,:debug"}) {
    CAPTURE(bad);
    CHECK(clean.refuses("CMI_TRACE", bad));
  }
  for (const char* bad : {"", "/", "/nonexistent/folder/trace"}) {
    CAPTURE(bad);
    CHECK(clean.refuses("CMI_TRACE_FILE", bad));
  }
  // Whatever the value holds, the line stays one line.
  CHECK(clean.refuses("CMI_FAULT", "two\nlines\x1b[31m\xff{}"));
  CHECK(clean.alerts().find("two?lines?[31m?{}") != std::string::npos);
}

TEST_CASE("times_are_given_in_milliseconds_from_a_second_to_an_hour") {
  Clean clean;
  for (const char* name : {"CMI_DEAD_AFTER", "CMI_JOIN_TIMEOUT"}) {
    CAPTURE(name);
    for (const char* bad :
         {"", "0", "999", "3600001", "99999999999", "-1000", "1000 ", "2s", "x"}) {
      CAPTURE(bad);
      CHECK(clean.refuses(name, bad));
    }
    for (const char* good : {"1000", "3600000"}) {
      setenv(name, good, 1);
      CHECK(read_environment());
    }
    unsetenv(name);
  }
}

TEST_CASE("a_secret_has_bytes_and_is_not_shown") {
  Clean clean;
  auto env = read_environment();
  REQUIRE(env);
  CHECK(env->secret.empty());
  setenv("CMI_SECRET", "hush", 1);
  env = read_environment();
  REQUIRE(env);
  CHECK(env->secret == "hush");
  CHECK(clean.refuses("CMI_SECRET", ""));
  CHECK(clean.refuses("CMI_SECRET", std::string(1025, 'h')));
  CHECK(clean.alerts().find("hhh") == std::string::npos);
}

TEST_CASE("the_fatal_line_is_on_or_off") {
  Clean clean;
  auto env = read_environment();
  REQUIRE(env);
  CHECK(env->fatal_line);
  for (const char* value : {"on", "off"}) {
    setenv("CMI_FATAL_LINE", value, 1);
    env = read_environment();
    REQUIRE(env);
    CHECK(env->fatal_line == (std::string(value) == "on"));
  }
  for (const char* bad : {"", "1", "On", "offf", "quiet"}) {
    CAPTURE(bad);
    CHECK(clean.refuses("CMI_FATAL_LINE", bad));
  }
}

TEST_CASE("the_longest_node_name_is_accepted") {
  Clean clean;
  setenv("CMI_NODE", std::string(255, 'n').c_str(), 1);
  auto env = read_environment();
  REQUIRE(env);
  CHECK(env->node_name == std::string(255, 'n'));
}

TEST_CASE("the_trace_file_is_appended_to_and_not_inherited") {
  Clean clean;
  Folder folder;
  const std::string path = folder.path + "/trace";
  setenv("CMI_TRACE_FILE", path.c_str(), 1);
  for (int round = 0; round < 2; ++round) {
    auto env = read_environment();
    REQUIRE(env);
    REQUIRE(env->trace_fd);
    CHECK((fcntl(env->trace_fd.get(), F_GETFD) & FD_CLOEXEC) != 0);
    CHECK(write(env->trace_fd.get(), "line\n", 5) == 5);
  }
  struct stat st;
  REQUIRE(stat(path.c_str(), &st) == 0);
  CHECK(st.st_size == 10);
  CHECK((st.st_mode & 077) == 0);
}

TEST_CASE("no_trace_file_is_made_when_another_variable_is_wrong") {
  Clean clean;
  Folder folder;
  const std::string path = folder.path + "/trace";
  setenv("CMI_TRACE_FILE", path.c_str(), 1);
  CHECK(clean.refuses("CMI_FAULT", "no"));
  CHECK(access(path.c_str(), F_OK) == -1);
}

TEST_CASE("a_pipe_without_a_reader_is_refused_at_once_as_trace_file") {
  Clean clean;
  Folder folder;
  const std::string path = folder.path + "/trace";
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  CHECK(clean.refuses("CMI_TRACE_FILE", path));
}

}  // namespace cmi::test::environment_test
