// How the home leads a run: short lines over TCP, from each node to the home. They carry the start,
// the end and what one node reports, and their end says that a process has ended; no words and no
// counts, and nothing of the segment but where it is offered (memory.hpp).
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

namespace wordcount {

enum class Received { kLine, kNothing, kClosed };

// One connection. Every call is bounded by its own time or by the deadline of the run. Where the
// other side says that it fails, so does this one, with its words.
class Link {
 public:
  Link(int fd, std::string name) : fd_(fd), name_(std::move(name)) {}
  Link(Link&& other) noexcept;
  Link& operator=(Link&&) = delete;
  ~Link();

  // False if the other side has ended.
  bool offer(std::string_view line);
  // Fails in that case.
  void send(std::string_view line);
  // The next line without its end, if there is one within `wait`.
  Received receive(std::string& line, std::chrono::milliseconds wait);
  // The next line; fails when the other side has gone or the deadline has passed.
  std::string expect_line();
  // The next line, which must begin with `word` and a blank or be the word alone; returns what
  // follows.
  std::string expect(std::string_view word);

  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  void rename(std::string name) { name_ = std::move(name); }

 private:
  int fd_;
  std::string name_;  // of the other side, in messages
  std::string unread_;
};

class Listener {
 public:
  // HOST:PORT; port 0 for one that is free.
  explicit Listener(const std::string& address);
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener();

  // HOST:PORT as it is.
  [[nodiscard]] std::string address() const;
  // Fails when nobody has come before the deadline.
  Link accept();

 private:
  int fd_ = -1;
};

// Tries again until the home listens or the deadline has passed.
Link connect_to(const std::string& address);

// The two parts of HOST:PORT.
struct HostPort {
  std::string host, port;
};
HostPort split(const std::string& address);

}  // namespace wordcount
