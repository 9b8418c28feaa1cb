// See kernel_thread.hpp.
#include "litmus/kernel_thread.hpp"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <utility>

namespace cmi::test {

namespace {

bool is_letter(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// ---- Statements -----------------------------------------------------------------------------

// What an expression comes to: a number, or what a local has.
struct Operand {
  uint8_t number = 0;
  uint8_t local = kLocals;
};
// A variable, or the local that has its address.
struct Place {
  uint8_t variable = 0;
  uint8_t local = kLocals;
};

bool starts_with(const std::string& word, const char* with) { return word.rfind(with, 0) == 0; }

// The name of a call without what it says of its order: ours have the strongest one.
std::string without_order(std::string name) {
  for (const char* const order : {"_relaxed", "_acquire", "_release", "_mb"}) {
    const std::string end = order;
    if (name.size() > end.size() && name.ends_with(end) && !starts_with(name, "smp_")) {
      name.resize(name.size() - end.size());
    }
  }
  return name;
}

class Compiler {
 public:
  Compiler(Words& words, size_t number, Names& names) : words_(words), names_(names) {
    for (const auto& [name, value] : names.first_locals[number]) {
      emit({.act = Act::kCompute, .value = value, .to = local(name), .op = Op::kSecond});
    }
    for (const auto& [name, cell] : names.cells_of(number)) cells_[name] = cell;
    thread_.process = static_cast<uint8_t>(number);
  }

  Thread read() {
    block();
    for (const auto& [name, cell] : cells_) {
      emit({.act = Act::kTell, .reg = cell, .first = local(name)});
    }
    emit(wmb());  // for those that still wait for what it has stored
    return thread_;
  }

 private:
  uint8_t emit(const Step& s) {
    if (thread_.count == kMaxSteps) throw NotPlayed("a thread has too many steps");
    thread_.steps[thread_.count] = s;
    return thread_.count++;
  }
  uint8_t local(const std::string& name) {
    const auto [found, added] = locals_.try_emplace(name, static_cast<uint8_t>(locals_.size()));
    if (added && locals_.size() > kLocals) throw NotPlayed("a thread has too many registers");
    return found->second;
  }
  uint8_t new_local() { return local("." + std::to_string(locals_.size())); }
  bool is_local(const std::string& name) const { return locals_.contains(name); }

  void block() {
    words_.expect("{");
    while (!words_.skip("}")) statement();
  }

  void statement() {
    if (words_.skip(";")) return;
    if (words_.is("{")) return block();
    if (words_.skip("if")) return branch();
    for (const char* const loop : {"while", "for", "do", "goto"}) {
      if (words_.is(loop)) throw NotPlayed("it has a loop");
    }
    if (words_.skip("*")) return plain_store();
    if (words_.is("(")) {  // (void) before a call
      (void)expression();
      return words_.expect(";");
    }
    const std::string word = words_.take();
    if (words_.is("(")) {
      (void)call(word);
    } else if (words_.skip("=")) {
      assign(word);
    } else {
      declare();
    }
    words_.expect(";");
  }

  void plain_store() {
    const Place to = place();
    words_.expect("=");
    store(to, expression());
    words_.expect(";");
  }

  // Behind the first word of a type.
  void declare() {
    std::string name;
    while (!words_.is(";") && !words_.is("=")) {
      if (words_.peek().empty()) throw NotPlayed("a statement without an end");
      if (words_.skip(",")) local(name);
      name = words_.take();
    }
    if (words_.skip("=")) {
      assign(name);
    } else {
      local(name);
    }
  }

  void assign(const std::string& name) {
    const uint32_t before = thread_.count;
    const Operand value = expression();
    const uint8_t to = local(name);
    for (uint32_t i = before; i < thread_.count; ++i) {
      Step& s = thread_.steps[i];
      if (s.act == Act::kLoad && s.to == value.local) linger(name, &s);
    }
    emit(value.local < kLocals
             ? Step{.act = Act::kCompute, .first = value.local, .to = to, .op = Op::kPlus}
             : Step{.act = Act::kCompute, .value = value.number, .to = to, .op = Op::kSecond});
  }
  // What the condition wants to have been loaded is waited for.
  void linger(const std::string& name, Step* load) {
    const auto cell = cells_.find(name);
    if (cell == cells_.end()) return;
    for (const uint8_t value : names_.wanted[cell->second]) {
      if (value == 0) continue;
      load->act = Act::kLinger;
      load->value = value;
    }
  }

  void branch() {
    words_.expect("(");
    const Operand condition = expression();
    words_.expect(")");
    const uint8_t skip = emit(skip_unless(condition));
    statement();
    if (!words_.skip("else")) {
      thread_.steps[skip].value = static_cast<uint8_t>(thread_.count - skip - 1);
      return;
    }
    const uint8_t over = emit({.act = Act::kSkip});  // its first operand is the number 0
    thread_.steps[skip].value = static_cast<uint8_t>(thread_.count - skip - 1);
    statement();
    thread_.steps[over].value = static_cast<uint8_t>(thread_.count - over - 1);
  }
  static Step skip_unless(const Operand& condition) {
    return {.act = Act::kSkip, .expected = condition.number, .first = condition.local};
  }

  // ---- Expressions ----

  Operand computed(Op op, const Operand& a, const Operand& b) {
    const uint8_t to = new_local();
    emit({.act = Act::kCompute,
          .value = b.number,
          .expected = a.number,
          .first = a.local,
          .second = b.local,
          .to = to,
          .op = op});
    return {.local = to};
  }

  // By precedence, lowest first.
  Operand expression(size_t level = 0) {
    static const std::vector<std::vector<std::pair<const char*, Op>>> kLevels = {
        {{"||", Op::kOr}},
        {{"&&", Op::kAnd}},
        {{"|", Op::kOr}},
        {{"^", Op::kXor}},
        {{"&", Op::kAnd}},
        {{"==", Op::kEqual}, {"!=", Op::kUnequal}},
        {{"<", Op::kLess}, {"<=", Op::kLessOrEqual}},
        {{"+", Op::kPlus}, {"-", Op::kMinus}}};
    if (level == kLevels.size()) return unary();
    Operand left = expression(level + 1);
    for (bool more = true; more;) {
      more = false;
      for (const auto& [word, op] : kLevels[level]) {
        if (!words_.skip(word)) continue;
        more = true;
        const bool logical = word[0] == word[1] && word[0] != '=';
        const uint32_t before = thread_.count;
        Operand right = expression(level + 1);
        if (logical && accesses_since(before)) {
          throw NotPlayed("it has an access behind && or ||");
        }
        if (logical) {
          left = computed(Op::kUnequal, left, {});
          right = computed(Op::kUnequal, right, {});
        }
        left = computed(op, left, right);
        break;
      }
    }
    return left;
  }
  bool accesses_since(uint32_t step) const {
    return std::any_of(thread_.steps.begin() + step, thread_.steps.begin() + thread_.count,
                       [](const Step& s) { return s.act != Act::kCompute; });
  }

  Operand unary() {
    if (words_.skip("!")) return computed(Op::kEqual, unary(), {});
    if (words_.skip("&")) return {.number = names_.address_of(words_.take())};
    if (words_.skip("*")) return load(place());
    if (words_.skip("(")) return in_parentheses();
    const std::string word = words_.take();
    if (is_number(word)) return {.number = small_number(word)};
    if (word.empty() || !is_letter(word[0])) throw NotPlayed("it has a \"" + word + "\"");
    if (words_.is("(")) return call(word);
    if (is_local(word) || !names_.knows(word)) return {.local = local(word)};
    return {.number = names_.address_of(word)};
  }
  // An expression, or a type in front of one.
  Operand in_parentheses() {
    static const std::set<std::string> kTypes = {"void",  "int",      "long",
                                                 "short", "intptr_t", "unsigned"};
    if (kTypes.contains(words_.peek())) {
      while (!words_.skip(")")) words_.take();
      return unary();
    }
    const Operand inner = expression();
    words_.expect(")");
    return inner;
  }

  // ---- Accesses ----

  // *x, &x or x; the name of a register is that of the variable whose address it has.
  Place place() {
    if (words_.skip("(")) {
      const Place inner = place();
      words_.expect(")");
      return inner;
    }
    while (words_.skip("*") || words_.skip("&")) {
    }
    const std::string name = words_.take();
    if (name.empty() || !is_letter(name[0])) throw NotPlayed("it has a \"" + name + "\"");
    if (words_.is("[") || words_.is("->") || words_.is(".")) {
      throw NotPlayed("it has an array or a structure");
    }
    if (is_local(name)) return {.local = local(name)};
    return {.variable = names_.variable(name)};
  }

  Operand load(const Place& from) {
    const uint8_t to = new_local();
    emit({.act = Act::kLoad,
          .variable = from.variable,
          .reg = names_.free_cell(),
          .at = from.local,
          .to = to});
    return {.local = to};
  }
  void store(const Place& to, const Operand& value) {
    emit({.act = Act::kStore,
          .variable = to.variable,
          .value = value.number,
          .at = to.local,
          .second = value.local});
  }
  Operand update(Op op, const Place& at, const Operand& by, uint8_t unless = 0) {
    const uint8_t to = new_local();
    emit({.act = Act::kUpdate,
          .variable = at.variable,
          .value = by.number,
          .expected = unless,
          .at = at.local,
          .second = by.local,
          .to = to,
          .op = op});
    return {.local = to};
  }
  Operand swap(const Place& at, const Operand& from, const Operand& to) {
    const uint8_t found = new_local();
    emit({.act = Act::kCas,
          .variable = at.variable,
          .value = to.number,
          .expected = from.number,
          .at = at.local,
          .first = from.local,
          .second = to.local,
          .to = found});
    return {.local = found};
  }

  // ---- Calls ----

  Operand call(const std::string& name) {
    words_.expect("(");
    for (const char* const rcu : {"rcu_read_", "synchronize_rcu", "srcu_", "call_rcu"}) {
      if (starts_with(name, rcu)) throw NotPlayed("it has RCU");
    }
    std::optional<Operand> result = fence(name);
    if (!result) result = plain_call(name);
    if (!result) result = lock_call(name);
    if (!result) result = atomic_call(without_order(name));
    if (!result) throw NotPlayed("it calls " + name);
    words_.expect(")");
    return *result;
  }

  std::optional<Operand> fence(const std::string& name) {
    static const std::map<std::string, Act> kFences = {{"smp_mb", Act::kMb},
                                                       {"smp_wmb", Act::kWmb},
                                                       {"smp_rmb", Act::kRmb},
                                                       {"smp_mb__before_atomic", Act::kMb},
                                                       {"smp_mb__after_atomic", Act::kMb},
                                                       {"smp_mb__after_spinlock", Act::kMb},
                                                       {"smp_mb__after_unlock_lock", Act::kMb},
                                                       {"smp_acquire__after_ctrl_dep", Act::kRmb},
                                                       {"smp_read_barrier_depends", Act::kNothing},
                                                       {"barrier", Act::kNothing}};
    const auto found = kFences.find(name);
    if (found == kFences.end()) return std::nullopt;
    if (found->second != Act::kNothing) emit({.act = found->second});
    return Operand{};
  }

  std::optional<Operand> plain_call(const std::string& name) {
    static const std::set<std::string> kLoads = {
        "READ_ONCE",   "ACCESS_ONCE",      "rcu_dereference",     "lockless_dereference",
        "atomic_read", "smp_load_acquire", "atomic_read_acquire", "atomic64_read"};
    static const std::set<std::string> kStores = {
        "WRITE_ONCE",   "atomic_set",   "atomic_set_release", "rcu_assign_pointer",
        "smp_store_mb", "atomic64_set", "smp_store_release"};
    if (kLoads.contains(name)) {
      const Operand seen = load(place());
      if (name.ends_with("_acquire")) emit(rmb());
      return seen;
    }
    if (!kStores.contains(name)) return std::nullopt;
    const Place to = place();
    words_.expect(",");
    const Operand value = expression();
    if (name.ends_with("_release") || name == "rcu_assign_pointer") emit(wmb());
    store(to, value);
    if (name == "smp_store_mb") emit(mb());
    return Operand{};
  }

  std::optional<Operand> lock_call(std::string name) {
    if (starts_with(name, "raw_")) name = name.substr(4);
    if (name == "spin_lock") {
      const Place at = place();
      emit({.act = Act::kTake, .variable = at.variable, .value = 1, .at = at.local});
      return Operand{};
    }
    if (name == "spin_unlock") return swap(place(), {.number = 1}, {});
    if (name == "spin_trylock") return computed(Op::kEqual, swap(place(), {}, {.number = 1}), {});
    if (name == "spin_is_locked") return load(place());
    return std::nullopt;
  }

  std::optional<Operand> atomic_call(const std::string& name) {
    const auto next = [&] {
      words_.expect(",");
      return expression();
    };
    if (name == "xchg" || name == "atomic_xchg") {
      const Place at = place();
      return update(Op::kSecond, at, next());
    }
    if (name == "cmpxchg" || name == "atomic_cmpxchg") {
      const Place at = place();
      const Operand from = next();
      return swap(at, from, next());
    }
    if (name == "atomic_add_unless") {
      const Place at = place();
      const Operand by = next(), unless = next();
      if (unless.local < kLocals) throw NotPlayed("it adds unless a register's value is there");
      const Operand old = update(Op::kPlusUnless, at, by, unless.number);
      return computed(Op::kUnequal, old, unless);
    }
    return counting_call(name);
  }

  // atomic_[fetch_]{inc,dec,add,sub,and,or,xor}[_return|_and_test]
  std::optional<Operand> counting_call(const std::string& name) {
    static const std::map<std::string, Op> kOps = {
        {"inc", Op::kPlus}, {"add", Op::kPlus}, {"dec", Op::kMinus}, {"sub", Op::kMinus},
        {"and", Op::kAnd},  {"or", Op::kOr},    {"xor", Op::kXor}};
    if (!starts_with(name, "atomic_")) return std::nullopt;
    std::string what = name.substr(7);
    const bool fetches = starts_with(what, "fetch_");
    if (fetches) what = what.substr(6);
    const bool returns = what.ends_with("_return"), tests = what.ends_with("_and_test");
    if (returns) what.resize(what.size() - 7);
    if (tests) what.resize(what.size() - 9);
    const auto op = kOps.find(what);
    if (op == kOps.end()) return std::nullopt;
    Operand by{.number = 1};
    if (what != "inc" && what != "dec") {
      by = expression();
      words_.expect(",");
    }
    const Operand old = update(op->second, place(), by);
    if (!returns && !tests) return old;
    const Operand now = computed(op->second, old, by);
    return tests ? computed(Op::kEqual, now, {}) : now;
  }

  Words& words_;
  Names& names_;
  Thread thread_;
  std::map<std::string, uint8_t> locals_;
  std::map<std::string, uint8_t> cells_;  // of registers that the condition names
};

}  // namespace

// ---- Words ----------------------------------------------------------------------------------

bool is_number(const std::string& word) {
  return !word.empty() && std::all_of(word.begin(), word.end(),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
}
size_t number_of(const std::string& word) {
  if (!is_number(word) || word.size() > 3) throw NotPlayed("\"" + word + "\" is no small number");
  return std::stoul(word);
}
uint8_t small_number(const std::string& word) {
  const size_t number = number_of(word);
  if (number >= kAddress) throw NotPlayed(word + " is too large a number");
  return static_cast<uint8_t>(number);
}

void Words::next() {
  static const std::array<const char*, 12> kSigns = {
      "/\\", "\\/", "==", "!=", "<=", ">=", "&&", "||", "->", "++", "--", "+="};
  while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  begins_ = at_;
  if (at_ == text_.size()) return word_.clear();
  const std::string two = text_.substr(at_, 2);
  size_t length = 1;
  if (is_letter(text_[at_])) {
    while (at_ + length < text_.size() && is_letter(text_[at_ + length])) ++length;
  } else if (std::find(kSigns.begin(), kSigns.end(), two) != kSigns.end()) {
    length = 2;
  }
  word_ = text_.substr(at_, length);
  at_ += length;
}
std::string Words::take() {
  if (word_.empty()) throw NotPlayed("it ends too early");
  std::string word = word_;
  next();
  return word;
}
bool Words::skip(const std::string& word) {
  if (word_ != word) return false;
  next();
  return true;
}
void Words::expect(const std::string& word) {
  if (!skip(word)) throw NotPlayed("\"" + word_ + "\" stands where \"" + word + "\" is expected");
}
std::string Words::rest_of_line() {
  const size_t end = std::min(text_.find('\n', begins_), text_.size());
  std::string rest = text_.substr(begins_, end - begins_);
  at_ = end;
  next();
  return rest;
}
bool Words::is_thread() const {
  return word_.size() > 1 && word_[0] == 'P' && is_number(word_.substr(1));
}
Words Words::take_thread() {
  take();
  const size_t from = begins_;
  while (!is("{")) (void)take();
  int depth = 0;
  do {
    depth += is("{") ? 1 : is("}") ? -1 : 0;
    if (depth > 0) (void)take();
  } while (depth > 0);
  next();
  return Words(text_.substr(from, begins_ - from));
}

// ---- Names ----------------------------------------------------------------------------------

uint8_t Names::variable(const std::string& name) {
  const auto [found, added] = variables_.try_emplace(name, static_cast<uint8_t>(variables_.size()));
  if (added && variables_.size() > kVariables) throw NotPlayed("it has too many variables");
  return found->second;
}
uint8_t Names::address_of(const std::string& name) {
  return static_cast<uint8_t>(kAddress + variable(name));
}
size_t Names::cell_of(size_t thread, const std::string& reg) {
  const auto [found, added] = registers_[thread].try_emplace(reg, cells_);
  if (added && ++cells_ > kRegisters) throw NotPlayed("it has too many registers");
  return found->second;
}
const std::map<std::string, uint8_t>& Names::cells_of(size_t thread) const {
  static const std::map<std::string, uint8_t> kNone;
  const auto found = registers_.find(thread);
  return found == registers_.end() ? kNone : found->second;
}

// ---- Threads --------------------------------------------------------------------------------

void read_parameters(Words& body, Names& names) {
  body.expect("(");
  std::string last;
  while (!body.is(")") || !last.empty()) {
    if (body.is(",") || body.is(")")) {
      if (!last.empty()) names.variable(last);
      last.clear();
      if (body.is(")")) break;
      body.take();
    } else {
      last = body.take();
      if (last == "]") throw NotPlayed("it has an array");
      if (last == "void" && body.is(")")) last.clear();
    }
  }
  body.expect(")");
}

Thread read_thread(Words& body, size_t number, Names& names) {
  return Compiler(body, number, names).read();
}

void store_by_swaps_where_words_are_swapped(Program& program) {
  std::array<bool, kVariables> swapped{};
  const auto each_step = [&](auto what) {
    for (uint8_t t = 0; t < program.count; ++t) {
      Thread& thread = program.threads[t];
      std::for_each(thread.steps.begin(), thread.steps.begin() + thread.count, what);
    }
  };
  each_step([&](const Step& s) {
    if (s.act == Act::kCas || s.act == Act::kUpdate || s.act == Act::kTake) {
      swapped[s.variable] = true;
    }
  });
  each_step([&](Step& s) {
    if (s.act != Act::kStore || s.at < kLocals || !swapped[s.variable]) return;
    s.act = Act::kUpdate;
    s.op = Op::kSecond;
  });
}

}  // namespace cmi::test
