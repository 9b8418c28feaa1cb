// See cmiadm.hpp.
#include "system/cmiadm.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/base/clock.hpp"

extern char** environ;

namespace cmi::test {

Ran cmiadm(const Cluster& cluster, const std::vector<std::string>& arguments, const Env& env) {
  std::vector<std::string> strings;
  for (char** at = environ; *at != nullptr; ++at) {
    if (std::string_view(*at).substr(0, 4) != "CMI_") strings.emplace_back(*at);
  }
  strings.push_back("CMI_RUNTIME_DIR=" + cluster.runtime_folder());
  for (const auto& [name, value] : env) strings.push_back(name + "=" + value);
  std::vector<char*> environment, argv;
  for (std::string& s : strings) environment.push_back(s.data());
  environment.push_back(nullptr);
  std::vector<std::string> words{"cmiadm"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);

  int out[2], err[2];
  if (::pipe2(out, O_CLOEXEC) != 0) throw ChildFailed("no pipe");
  Fd from_out(out[0]), to_out(out[1]);
  if (::pipe2(err, O_CLOEXEC) != 0) throw ChildFailed("no pipe");
  Fd from_err(err[0]), to_err(err[1]);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throw ChildFailed("fork failed");
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(126);
    ::dup2(to_out.get(), 1);
    ::dup2(to_err.get(), 2);
    ::execve(CMI_CMIADM_PROGRAM, argv.data(), environment.data());
    ::_exit(127);
  }
  to_out.reset();
  to_err.reset();
  Ran ran;
  const Deadline deadline = Deadline::in(kSeconds * kSecond);
  pollfd polls[2] = {{from_out.get(), POLLIN, 0}, {from_err.get(), POLLIN, 0}};
  std::string* texts[2] = {&ran.out, &ran.err};
  int open_ends = 2;
  while (open_ends > 0 && !deadline.passed()) {
    if (::poll(polls, 2, static_cast<int>(deadline.left() / kMilli)) < 0) continue;
    for (int i = 0; i < 2; ++i) {
      if (polls[i].revents == 0) continue;
      char buf[4096];
      const ssize_t n = ::read(polls[i].fd, buf, sizeof buf);
      if (n > 0) {
        texts[i]->append(buf, static_cast<size_t>(n));
      } else if (n == 0) {
        polls[i].fd = -1;
        --open_ends;
      }
    }
  }
  const bool late = open_ends > 0;
  if (late) ::kill(pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (late) throw ChildFailed("cmiadm did not end in time; it said: " + ran.out + ran.err);
  ran.status = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  return ran;
}

const Value& Value::operator[](const std::string& name) const {
  for (const auto& [key, value] : members) {
    if (key == name) return value;
  }
  throw ChildFailed("no member " + name);
}

const Value* Value::find(const std::string& name, const std::string& wanted) const {
  for (const Value& item : items) {
    if (item[name].kind == Kind::kText && item[name].text == wanted) return &item;
  }
  return nullptr;
}

const Value* Value::find(const std::string& name, uint64_t wanted) const {
  for (const Value& item : items) {
    if (item[name].kind == Kind::kNumber && item[name].number == wanted) return &item;
  }
  return nullptr;
}

namespace {

Value value_of(const nlohmann::ordered_json& json) {
  Value v;
  if (json.is_boolean()) {
    v.kind = Value::Kind::kBool;
    v.truth = json.get<bool>();
  } else if (json.is_number_unsigned()) {
    v.kind = Value::Kind::kNumber;
    v.number = json.get<uint64_t>();
  } else if (json.is_string()) {
    v.kind = Value::Kind::kText;
    v.text = json.get<std::string>();
  } else if (json.is_array()) {
    v.kind = Value::Kind::kList;
    for (const auto& item : json) v.items.push_back(value_of(item));
  } else if (json.is_object()) {
    v.kind = Value::Kind::kObject;
    for (const auto& [name, member] : json.items()) v.members.emplace_back(name, value_of(member));
  } else if (!json.is_null()) {
    throw ChildFailed("a number below 0, or no whole one: " + json.dump());
  }
  return v;
}

}  // namespace

Value parse_json(const std::string& text) {
  const auto plain = [](char c) { return c >= ' ' && c <= '~'; };
  if (!text.ends_with('\n') || !std::all_of(text.begin(), text.end() - 1, plain)) {
    throw ChildFailed("not one line of ASCII: " + text.substr(0, 40));
  }
  try {
    return value_of(nlohmann::ordered_json::parse(text));
  } catch (const nlohmann::json::exception& error) {
    throw ChildFailed(error.what());
  }
}

}  // namespace cmi::test
