// Errors of the library as exceptions of Python, and deadlines.
#include "call.hpp"

#include <cmath>

namespace cmi_python {

void set_error(const char* name, int code, const std::string& sentence) {
  const py::object type = py::module_::import("cmi._errors").attr(name);
  const py::object error = type(code, sentence);
  PyErr_SetObject(type.ptr(), error.ptr());
}

void raise_last_error() {
  const auto code = cmi_get_error(nullptr);
  set_error("Error", code, cmi_ofi_error_text(nullptr));
  throw py::error_already_set();
}

void raise_lost(const cmi::loss& lost) {
  const py::object type = py::module_::import("cmi._errors").attr("Lost");
  const py::object error = type(lost.exception, std::string(lost.name()),
                                reinterpret_cast<uintptr_t>(lost.address), lost.segment);
  PyErr_SetObject(type.ptr(), error.ptr());
  throw py::error_already_set();
}

void raise_owner_dead(const char* sentence) {
  set_error("OwnerDead", CMI_OFI_OWNER_DEAD, sentence);
  throw py::error_already_set();
}

Deadline::Deadline(std::optional<double> seconds) {
  if (!seconds) return;
  if (!std::isfinite(*seconds)) throw py::value_error("a timeout is a number of seconds, or None");
  const double bounded = std::clamp(*seconds, 0.0, 1e9);
  end_ = Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(bounded));
}

uint32_t Deadline::left(uint32_t at_most) const {
  if (!end_) return at_most;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*end_ - Clock::now()).count();
  return static_cast<uint32_t>(std::clamp<decltype(left)>(left, 0, at_most));
}

}  // namespace cmi_python
