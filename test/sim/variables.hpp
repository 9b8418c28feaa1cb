// Global variables of which each thread, or each process, of a simulation has values of its own.
// The kernel knows of one thread in one process; the simulation puts their values aside when
// another one goes on.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace cmi::test {

class Variables {
 public:
  using Values = std::vector<std::byte>;

  template <class T>
  void add(T& variable) {
    add(std::span(reinterpret_cast<std::byte*>(&variable), sizeof variable));
  }
  void add(std::span<std::byte> bytes);
  Values get() const;
  void get(Values* values) const;
  void set(const Values& values) const;

 private:
  std::vector<std::span<std::byte>> all_;
  size_t size_ = 0;
};

// Both begin with those of the library. A test adds its own before there is a simulation.
Variables& thread_variables();
Variables& process_variables();

}  // namespace cmi::test
