// What every C entry does: find the context, check the thread, clear the error, call, translate.
//
// Order of errors: a pointer that is not this process's context is INVAL and is not followed; then
// the calling thread must be registered (INIT); then arguments.
#pragma once

#include <cmi.h>

#include <new>

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

// The context, or null with the thread's error set. `registered`: the thread must be.
inline Context* enter(const cmi_ctxt* ctxt, bool registered = true) {
  bool forked = false;
  Context* c = Context::find(ctxt, &forked);
  if (c == nullptr) {
    context::t_error = forked ? CMI_ERR_INIT : CMI_ERR_INVAL;
    return nullptr;
  }
  if (registered && (context::t_thread == nullptr || context::t_thread->context != c)) {
    context::t_error = CMI_ERR_INIT;
    return nullptr;
  }
  context::t_error = CMI_ERR_NONE;
  return c;
}

// Runs `body`, which returns a Status; -1 and the error on failure. Allocation failures end here.
template <class Body>
int finish(Facility facility, const char* call, Body body) {
  Status s = Status::kNoMem;
  try {
    s = body();
  } catch (const std::bad_alloc&) {
  }
  trace(facility, ok(s) ? kDebug : kInfo, "{}: {}", call, status_name(s));
  context::t_error = translate(s);
  return ok(s) ? 0 : -1;
}

// The same for calls that return an object: `body` returns a Result.
template <class T, class Body>
T finish_object(Facility facility, const char* call, T failure, Body body) {
  T object = failure;
  finish(facility, call, [&] {
    auto r = body();
    if (r) object = *r;
    return r.status();
  });
  return object;
}

}  // namespace cmi::api
