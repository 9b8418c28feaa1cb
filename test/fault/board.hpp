// Words that a test and its processes share while a command runs: a mapped file in the cluster's
// folder, so that it goes with the cluster. Any thread, signal handlers too.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>

#include "core/base/clock.hpp"
#include "core/base/fd.hpp"
#include "system/nodes.hpp"

namespace cmi::test {

class Board {
 public:
  using Word = std::atomic<uint64_t>;
  using Name = std::array<char, 128>;  // for a command's arguments
  static constexpr size_t kWords = 1024;

  explicit Board(const Cluster& cluster) {
    static int made = 0;
    std::snprintf(name_.data(), name_.size(), "%s/board%d", cluster.scratch().c_str(), ++made);
    words_ = map(name_);
  }
  ~Board() { ::munmap(words_, kWords * sizeof(Word)); }
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  // In a process of the test. Stays mapped until the process ends; the same board is found again
  // without opening anything.
  static Word* open(const Name& name) {
    static Name last{};
    static Word* words = nullptr;
    if (words == nullptr || name != last) words = map(name);
    last = name;
    return words;
  }

  const Name& name() const { return name_; }
  Word& operator[](size_t word) { return words_[word]; }
  // Whether the word comes to be at least that.
  bool reaches(size_t word, uint64_t value, int seconds = kSeconds) {
    const Deadline deadline = Deadline::in(seconds * kSecond);
    while (words_[word].load() < value) {
      if (deadline.passed()) return false;
      ::usleep(500);
    }
    return true;
  }

 private:
  static Word* map(const Name& name) {
    const Fd fd(::open(name.data(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!fd || ::ftruncate(fd.get(), kWords * sizeof(Word)) != 0) throw ChildFailed("no board");
    void* at =
        ::mmap(nullptr, kWords * sizeof(Word), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (at == MAP_FAILED) throw ChildFailed("no board");
    return static_cast<Word*>(at);
  }

  Name name_{};
  Word* words_;
};

}  // namespace cmi::test
