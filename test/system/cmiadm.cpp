// See cmiadm.hpp.
#include "system/cmiadm.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdlib>
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

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}
  Value whole() {
    Value v = value();
    if (text_ != "\n") fail();
    return v;
  }

 private:
  [[noreturn]] void fail() {
    throw ChildFailed("not JSON at: " + std::string(text_.substr(0, 40)));
  }
  bool take(std::string_view token) {
    if (text_.substr(0, token.size()) != token) return false;
    text_.remove_prefix(token.size());
    return true;
  }
  void need(std::string_view token) {
    if (!take(token)) fail();
  }
  char next() {
    if (text_.empty()) fail();
    const char c = text_.front();
    text_.remove_prefix(1);
    return c;
  }
  std::string string() {
    need("\"");
    std::string out;
    for (;;) {
      char c = next();
      if (c == '"') return out;
      if (c < ' ' || c > '~') fail();
      if (c == '\\') {
        c = next();
        if (c == 'u') {
          unsigned code = 0;
          for (int i = 0; i < 4; ++i) {
            const char digit = next();
            if (std::isxdigit(static_cast<unsigned char>(digit)) == 0) fail();
            code = code * 16 + static_cast<unsigned>(std::stoi(std::string(1, digit), nullptr, 16));
          }
          c = static_cast<char>(code);
        } else if (c != '"' && c != '\\') {
          fail();
        }
      }
      out += c;
    }
  }
  Value value() {
    Value v;
    if (text_.substr(0, 1) == "\"") {
      v.kind = Value::Kind::kText;
      v.text = string();
    } else if (take("{")) {
      v.kind = Value::Kind::kObject;
      while (!take("}")) {
        if (!v.members.empty()) need(", ");
        std::string name = string();
        need(": ");
        v.members.emplace_back(std::move(name), value());
      }
    } else if (take("[")) {
      v.kind = Value::Kind::kList;
      while (!take("]")) {
        if (!v.items.empty()) need(", ");
        v.items.push_back(value());
      }
    } else if (take("true")) {
      v.kind = Value::Kind::kBool;
      v.truth = true;
    } else if (take("false")) {
      v.kind = Value::Kind::kBool;
    } else if (!take("null")) {
      v.kind = Value::Kind::kNumber;
      size_t digits = 0;
      while (digits < text_.size() && text_[digits] >= '0' && text_[digits] <= '9') ++digits;
      if (digits == 0 || digits > 20) fail();
      v.number = std::strtoull(std::string(text_.substr(0, digits)).c_str(), nullptr, 10);
      text_.remove_prefix(digits);
    }
    return v;
  }

  std::string_view text_;
};

}  // namespace

Value parse_json(const std::string& text) { return Parser(text).whole(); }

}  // namespace cmi::test
