// The library's variables, and copies of values.
#include "sim/variables.hpp"

#include <cxxabi.h>

#include <cerrno>
#include <cstring>

#include "core/base/cause.hpp"
#include "core/base/fault_point.hpp"
#include "core/base/library_thread.hpp"
#include "core/base/lock.hpp"
#include "core/base/log.hpp"
#include "core/context/lifetime.hpp"
#include "core/context/start_stage.hpp"
#include "core/context/threads.hpp"
#include "core/memory/vm/guarded_copy.hpp"
#include "core/memory/vm/sigbus.hpp"
#include "core/node/lock_file.hpp"

namespace cmi::test {

namespace {

// Of the C++ library: the exceptions that a thread has caught, and their number that is under way.
constexpr size_t kExceptionState = 16;

Variables of_threads() {
  Variables v;
  v.add(errno);
  v.add({reinterpret_cast<std::byte*>(abi::__cxa_get_globals()), kExceptionState});
  v.add(t_signals_blocked);
  v.add(t_cause);
  v.add(t_library_thread);
  v.add(t_in_fault_handler);
  v.add(node::t_exclusive);
  v.add(memory::t_access_enabled);
  v.add(memory::t_guarded_copy);
  v.add(context::t_thread);
  v.add(context::t_error);
  v.add(context::t_stage);
  return v;
}

Variables of_processes() {
  Variables v;
  v.add(fault_point_table());
  v.add(Trace::get());
  v.add(context::process::context);
  v.add(context::process::handle);
  v.add(memory::g_fault_target);
  return v;
}

}  // namespace

void Variables::add(std::span<std::byte> bytes) {
  all_.push_back(bytes);
  size_ += bytes.size();
}

Variables::Values Variables::get() const {
  Values values;
  get(&values);
  return values;
}

void Variables::get(Values* values) const {
  values->resize(size_);
  std::byte* to = values->data();
  for (const auto& bytes : all_) {
    std::memcpy(to, bytes.data(), bytes.size());
    to += bytes.size();
  }
}

void Variables::set(const Values& values) const {
  const std::byte* from = values.data();
  for (const auto& bytes : all_) {
    std::memcpy(bytes.data(), from, bytes.size());
    from += bytes.size();
  }
}

Variables& thread_variables() {
  static Variables variables = of_threads();
  return variables;
}

Variables& process_variables() {
  static Variables variables = of_processes();
  return variables;
}

}  // namespace cmi::test
