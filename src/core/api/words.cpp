// What the library says in words: cmi_ofi_strerror, cmi_ofi_exception_name, cmi_ofi_event_name,
// cmi_ofi_error_text. None fails, and none touches the thread's error.
#include <cmi/ofi/cmi_impl.h>

#include "core/api/entry.hpp"
#include "core/memory/vm/exception.hpp"

using namespace cmi;  // the C names live outside of any namespace

extern "C" const char* cmi_ofi_strerror(cmi_error error) {
  switch (error) {
    case CMI_ERR_NONE:
      return "nothing failed";
    case CMI_ERR_INIT:
      return "the calling thread is not registered";
    case CMI_ERR_INVAL:
      return "an argument, an object or the environment is not valid";
    case CMI_ERR_NOMEM:
      return "out of memory, space or slots, or a buffer is too small";
    case CMI_ERR_PERM:
      return "the caller may not do this";
    case CMI_ERR_NOTSUPP:
      return "not supported by this version, machine or process";
    case CMI_ERR_BOUND:
      return "exists already, and there can be one only";
    case CMI_ERR_HW:
      return "a fault of the local hardware, provider or network";
    case CMI_ERR_STORE:
      return "stores were lost on the way to their home";
    case CMI_ERR_RECONFIG:
      return "quiesced, or a process of this node that is needed does not run: try again later";
  }
  return "an unknown error";
}

extern "C" const char* cmi_ofi_error_name(cmi_error error) {
  return error == CMI_ERR_NONE ? "CMI_ERR_NONE" : api::error_name(error);
}

extern "C" const char* cmi_ofi_exception_name(int exception) {
  return exception == 0 ? "no exception" : memory::exception_name(exception);
}

extern "C" const char* cmi_ofi_event_name(cmi_event_type type) {
  switch (type) {
    case CMI_EVENT_QUIESCE:
      return "CMI_EVENT_QUIESCE";
    case CMI_EVENT_RESUME:
      return "CMI_EVENT_RESUME";
    case CMI_EVENT_RCTXT_DOWN:
      return "CMI_EVENT_RCTXT_DOWN";
    case CMI_EVENT_HCTXT_DOWN:
      return "CMI_EVENT_HCTXT_DOWN";
    case CMI_EVENT_STORE_FAILURE:
      return "CMI_EVENT_STORE_FAILURE";
    case CMI_EVENT_HW:
      return "CMI_EVENT_HW";
    case CMI_EVENT_CMAP:
      return "CMI_EVENT_CMAP";
  }
  return "an unknown event";
}

extern "C" const char* cmi_ofi_error_text(cmi_ctxt*) {
  return context::t_error == CMI_ERR_NONE ? "" : api::error_text();
}
