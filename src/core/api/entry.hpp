// What every C entry does: find the context, check the thread, clear the error, call, translate,
// trace: a line of level ERROR for a call that failed, with its cause, of level DEBUG for one that
// did not.
//
// Order of errors: a pointer that is not this process's context is INVAL and is not followed; then
// the calling thread must be registered (INIT); then arguments.
#pragma once

#include <cmi.h>
#include <pthread.h>
#include <signal.h>

#include <new>
#include <type_traits>

#include "core/api/last_error.hpp"
#include "core/base/cause.hpp"
#include "core/base/log.hpp"
#include "core/context/context.hpp"

namespace cmi::api {

using context::Context;

inline cmi_error translate(Status s) {
  switch (s) {
    case Status::kOk:
      return CMI_ERR_NONE;
    case Status::kInit:
      return CMI_ERR_INIT;
    case Status::kInval:
      return CMI_ERR_INVAL;
    case Status::kNoMem:
      return CMI_ERR_NOMEM;
    case Status::kPerm:
      return CMI_ERR_PERM;
    case Status::kNotSupp:
      return CMI_ERR_NOTSUPP;
    case Status::kBound:
      return CMI_ERR_BOUND;
    case Status::kHw:
      return CMI_ERR_HW;
    case Status::kStore:
      return CMI_ERR_STORE;
    case Status::kReconfig:
      return CMI_ERR_RECONFIG;
  }
  return CMI_ERR_INVAL;
}

inline const char* error_name(cmi_error error) {
  switch (error) {
    case CMI_ERR_NONE:
      return "ok";
    case CMI_ERR_INIT:
      return "CMI_ERR_INIT";
    case CMI_ERR_INVAL:
      return "CMI_ERR_INVAL";
    case CMI_ERR_NOMEM:
      return "CMI_ERR_NOMEM";
    case CMI_ERR_PERM:
      return "CMI_ERR_PERM";
    case CMI_ERR_NOTSUPP:
      return "CMI_ERR_NOTSUPP";
    case CMI_ERR_BOUND:
      return "CMI_ERR_BOUND";
    case CMI_ERR_HW:
      return "CMI_ERR_HW";
    case CMI_ERR_STORE:
      return "CMI_ERR_STORE";
    case CMI_ERR_RECONFIG:
      return "CMI_ERR_RECONFIG";
  }
  return "an unknown error";
}

// The error of the calling thread, with a sentence, which is its trace line, too.
template <class... Args>
void fail(Facility facility, cmi_error error, fmt::format_string<const Args&...> words,
          const Args&... args) {
  context::t_error = error;
  set_error_text(words, args...);
  trace(facility, kError, "{}", error_text());
}

// The context, or null with the thread's error set. `registered`: the thread must be.
inline Context* enter(const cmi_ctxt* ctxt, Facility facility, const char* call,
                      bool registered = true) {
  bool forked = false;
  Context* c = Context::find(ctxt, &forked);
  if (c == nullptr) {
    const cmi_error error = forked ? CMI_ERR_INIT : CMI_ERR_INVAL;
    fail(facility, error, "{}: {}, not the context of this process", call, error_name(error));
    return nullptr;
  }
  if (registered && (context::t_thread == nullptr || context::t_thread->context != c)) {
    fail(facility, CMI_ERR_INIT, "{}: CMI_ERR_INIT, this thread is not registered", call);
    return nullptr;
  }
  context::t_error = CMI_ERR_NONE;
  t_cause = {};
  return c;
}

// One line: the call with its arguments, and what it gave. Costs a branch for a call that succeeds
// where nobody listens. The line of a failure becomes the thread's sentence.
template <class Value, class... Args>
void trace_call(Facility facility, Status status, Value value,
                fmt::format_string<const Args&...> call, const Args&... args) {
  const Level level = ok(status) ? kDebug : kError;
  if (ok(status) && !Trace::get().on(facility, level)) return;
  char line[256];
  *fmt::format_to_n(line, sizeof line - 1, call, args...).out = '\0';
  if (!ok(status)) {
    fail(facility, translate(status), "{}: {}, {}", line, error_name(translate(status)),
         words_of_failure(status));
  } else if constexpr (std::is_pointer_v<Value> && !std::is_same_v<Value, const char*>) {
    trace(facility, level, "{}: {}", line, fmt::ptr(value));
  } else {
    trace(facility, level, "{}: {}", line, value);
  }
}

// A thread that uses views must be able to take the faults of its accesses, and exceptions: with
// these signals blocked, as servers block all in their workers, the kernel ends the process at the
// first one.
inline void let_faults_in() {
  sigset_t faults;
  sigemptyset(&faults);
  sigaddset(&faults, SIGBUS);
  sigaddset(&faults, SIGSEGV);
  pthread_sigmask(SIG_UNBLOCK, &faults, nullptr);
}

// Runs `body`, which returns a Status; -1 and the error on failure. Allocation failures end here.
// `call` and `args` are for the trace: "name(what {})".
template <class Body, class... Args>
int finish(Facility facility, Body body, fmt::format_string<const Args&...> call,
           const Args&... args) {
  Status s = Status::kNoMem;
  try {
    s = body();
  } catch (const std::bad_alloc&) {
  }
  trace_call(facility, s, "ok", call, args...);
  context::t_error = translate(s);
  return ok(s) ? 0 : -1;
}

// The same for calls that return an object: `body` returns a Result.
template <class T, class Body, class... Args>
T finish_object(Facility facility, T failure, Body body, fmt::format_string<const Args&...> call,
                const Args&... args) {
  Status s = Status::kNoMem;
  T object = failure;
  try {
    auto r = body();
    s = r.status();
    if (r) object = *r;
  } catch (const std::bad_alloc&) {
  }
  trace_call(facility, s, object, call, args...);
  context::t_error = translate(s);
  return object;
}

}  // namespace cmi::api
