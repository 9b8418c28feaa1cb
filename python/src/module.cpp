// The extension module cmi._cmi: what package cmi is made of. What the C++ layer throws becomes an
// exception of cmi._errors here.
#include <pybind11/pybind11.h>

#include "objects.hpp"

namespace {

void translate(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const cmi::error& e) {
    // what() is the sentence, and behind it the meaning of the code.
    cmi_python::set_error("Error", e.code().value(), e.what());
  }
}

}  // namespace

PYBIND11_MODULE(_cmi, module) {
  pybind11::register_exception_translator(&translate);
  cmi_python::define_memory(module);
  cmi_python::define_context(module);
  cmi_python::define_atomic(module);
  cmi_python::define_sync(module);
  module.def("_error_name",
             [](int code) { return cmi_ofi_error_name(static_cast<cmi_error>(code)); });
}
