// The parts of kernel.cpp: the words of a file, the names in it, and a thread's statements as
// steps.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "litmus/kernel.hpp"

namespace cmi::test {

bool is_number(const std::string& word);
size_t number_of(const std::string& word);
uint8_t small_number(const std::string& word);  // that no address is

// The words of a text, one after another. At the end there are empty ones.
class Words {
 public:
  explicit Words(std::string text) : text_(std::move(text)) { next(); }
  bool is(const std::string& word) const { return word_ == word; }
  const std::string& peek() const { return word_; }
  std::string take();
  bool skip(const std::string& word);
  void expect(const std::string& word);
  std::string rest_of_line();
  bool is_thread() const;  // P0(...) { ... }
  Words take_thread();     // from its parameters on

 private:
  void next();

  std::string text_, word_;
  size_t at_ = 0;      // behind the word
  size_t begins_ = 0;  // the word
};

// Variables by name, and where in an outcome the registers are that the condition names.
class Names {
 public:
  uint8_t variable(const std::string& name);  // a new one where it is not known
  bool knows(const std::string& name) const { return variables_.contains(name); }
  uint8_t address_of(const std::string& name);
  uint8_t variables() const { return static_cast<uint8_t>(variables_.size()); }
  size_t cell_of(size_t thread, const std::string& reg);
  const std::map<std::string, uint8_t>& cells_of(size_t thread) const;
  uint8_t free_cell() { return cells_ < kRegisters ? cells_++ : uint8_t{kRegisters}; }

  std::map<size_t, std::map<std::string, uint8_t>> first_locals;  // of threads, by number
  std::map<size_t, std::vector<uint8_t>> wanted;  // values that the condition compares a cell with

 private:
  std::map<std::string, uint8_t> variables_;
  std::map<size_t, std::map<std::string, uint8_t>> registers_;
  uint8_t cells_ = 0;
};

void read_parameters(Words& body, Names& names);
Thread read_thread(Words& body, size_t number, Names& names);
void store_by_swaps_where_words_are_swapped(Program& program);

}  // namespace cmi::test
