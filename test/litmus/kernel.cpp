// The file as a whole: its words, what is there at first, the condition. The threads:
// kernel_thread.cpp.
#include "litmus/kernel.hpp"

#include <cctype>
#include <regex>
#include <utility>
#include <vector>

#include "litmus/kernel_thread.hpp"

namespace cmi::test {

namespace {

// Comments are herd7's but in the bodies of threads, where (*x) is something else.
std::string without_comments(const std::string& text) {
  std::string out;
  int depth = 0;  // in the body of a thread
  char before = 0;
  for (size_t i = 0; i < text.size();) {
    const std::string two = text.substr(i, 2);
    const std::string end = two == "(*" && depth == 0 ? "*)"
                            : two == "/*"             ? "*/"
                            : two == "//"             ? "\n"
                                                      : "";
    if (!end.empty()) {
      const size_t to = text.find(end, i + 2);
      if (to == std::string::npos) throw NotPlayed("a comment without an end");
      i = to + end.size();
      out += end == "\n" ? '\n' : ' ';
      continue;
    }
    const char c = text[i++];
    if (c == '{' && (depth > 0 || before == ')')) ++depth;
    if (c == '}' && depth > 0) --depth;
    if (std::isspace(static_cast<unsigned char>(c)) == 0) before = c;
    out += c;
  }
  return out;
}

std::string result_in(const std::string& text) {
  std::smatch found;
  const std::regex line("[Rr]esult:\\s*([A-Za-z]+)");
  return std::regex_search(text, found, line) ? found[1].str() : "";
}

// ---- What is there at first -----------------------------------------------------------------

// One of `0:r1 = 5`, `x = 5`, `atomic_t x = ATOMIC_INIT(5)`, `x = y`, `int *x = &y`.
void read_first(Words& words, Names& names, Program& program) {
  std::vector<std::string> left;
  while (!words.is("=") && !words.is(";") && !words.is("}")) left.push_back(words.take());
  if (left.empty()) return;
  const std::string name = left.back() == "]" ? left.at(left.size() - 2) : left.back();
  const bool of_thread = left.size() >= 3 && left.at(left.size() - 2) == ":";
  uint8_t value = 0;
  if (words.skip("=")) {
    if (words.skip("ATOMIC_INIT")) words.expect("(");
    words.skip("{");
    words.skip("&");
    const std::string word = words.take();
    value = is_number(word) ? small_number(word) : names.address_of(word);
    words.skip(")");
    words.skip("}");
  }
  if (of_thread) {
    names.first_locals[number_of(left.at(left.size() - 3))][name] = value;
  } else {
    program.initial[names.variable(name)] = value;
  }
}

void read_all_first(Words& words, Names& names, Program& program) {
  words.expect("{");
  while (!words.skip("}")) {
    read_first(words, names, program);
    words.skip(";");
  }
}

// ---- The condition --------------------------------------------------------------------------

class Condition {
 public:
  Condition(Words& words, Names& names) : words_(words), names_(names) {}
  Predicate read() {
    Predicate left = conjunction();
    while (words_.skip("\\/")) {
      left = [left, right = conjunction()](const Outcome& o) { return left(o) || right(o); };
    }
    return left;
  }

 private:
  Predicate conjunction() {
    Predicate left = term();
    while (words_.skip("/\\")) {
      left = [left, right = term()](const Outcome& o) { return left(o) && right(o); };
    }
    return left;
  }
  Predicate term() {
    if (words_.skip("~") || words_.skip("not")) {
      return [inner = term()](const Outcome& o) { return !inner(o); };
    }
    if (words_.skip("(")) {
      Predicate inner = read();
      words_.expect(")");
      return inner;
    }
    const size_t cell = this->cell();
    const bool equal = !words_.skip("!=");
    if (equal && !words_.skip("==")) words_.expect("=");
    words_.skip("&");
    const std::string word = words_.take();
    // A name that no thread knows is an address that nobody has.
    const uint8_t value = is_number(word)      ? small_number(word)
                          : names_.knows(word) ? names_.address_of(word)
                                               : kDisagree - 2;
    names_.wanted[cell].push_back(value);
    return [=](const Outcome& o) { return (o.at(cell) == value) == equal; };
  }
  // Of the register of a thread, or of a variable.
  size_t cell() {
    const bool in_brackets = words_.skip("[") || words_.skip("*");
    const std::string word = words_.take();
    if (words_.skip(":")) return names_.cell_of(number_of(word), words_.take());
    if (in_brackets) words_.skip("]");
    return static_cast<size_t>(kRegisters + names_.variable(word));
  }

  Words& words_;
  Names& names_;
};

Predicate read_condition(Words& words, Names& names) {
  if (words.skip("locations")) {
    while (!words.skip("]")) words.take();
    words.skip(";");
  }
  if (words.is("filter")) throw NotPlayed("it has a filter");
  const bool negated = words.skip("~");
  if (words.skip("forall")) {
    return [inner = Condition(words, names).read()](const Outcome& o) { return !inner(o); };
  }
  words.expect("exists");
  (void)negated;  // "~exists" says that it must not be; what `exists` names is the same
  return Condition(words, names).read();
}

}  // namespace

KernelTest read_kernel_test(const std::string& text) {
  KernelTest test;
  test.result = result_in(text);
  if (test.result == "DEADLOCK") throw NotPlayed("its threads wait for each other for ever");
  Words words(without_comments(text));
  if (words.take() != "C") throw NotPlayed("it is not written in C");
  test.name = words.rest_of_line();
  while (!words.is("{")) words.take();

  Names names;
  Program& program = test.program;
  read_all_first(words, names, program);
  // The condition says which registers are asked for, so it is read before the threads.
  std::vector<Words> bodies;
  while (words.is_thread()) bodies.push_back(words.take_thread());
  if (bodies.empty() || bodies.size() > kMaxThreads) throw NotPlayed("it has too many threads");
  for (Words& body : bodies) read_parameters(body, names);
  test.exists = read_condition(words, names);
  for (size_t t = 0; t < bodies.size(); ++t) {
    program.threads[t] = read_thread(bodies[t], t, names);
  }
  program.count = static_cast<uint8_t>(bodies.size());
  program.variables = names.variables();
  program.finals = true;
  store_by_swaps_where_words_are_swapped(program);
  return test;
}

}  // namespace cmi::test
