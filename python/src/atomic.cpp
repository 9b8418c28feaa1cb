// Words that the threads of all nodes change: cmi::atomic_ref, by a format of module struct.
#include <limits>
#include <tuple>
#include <type_traits>
#include <variant>

#include "objects.hpp"

namespace cmi_python {

namespace {

// A number of Python as a T. Raises OverflowError where it is none.
template <class T>
T number(const py::object& value) {
  if constexpr (std::is_floating_point_v<T>) {
    const double given = PyFloat_AsDouble(value.ptr());
    if (given == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
    return static_cast<T>(given);
  } else {
    using Wide = std::conditional_t<std::is_signed_v<T>, long long, unsigned long long>;
    Wide given = 0;
    if constexpr (std::is_signed_v<T>) {
      given = PyLong_AsLongLong(value.ptr());
    } else {
      given = PyLong_AsUnsignedLongLong(value.ptr());
    }
    if (given == static_cast<Wide>(-1) && PyErr_Occurred() != nullptr) {
      throw py::error_already_set();
    }
    if (given < std::numeric_limits<T>::min() || given > std::numeric_limits<T>::max()) {
      PyErr_SetString(PyExc_OverflowError, "the number does not fit the word");
      throw py::error_already_set();
    }
    return static_cast<T>(given);
  }
}

template <class T>
py::object python(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return py::float_(value);
  } else {
    return py::int_(value);
  }
}

using AnyType = std::variant<uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, uint64_t,
                             int64_t, float, double>;

AnyType type_of(const std::string& format) {
  const char letter = format.size() == 1 ? format[0] : '\0';
  switch (letter) {
    case 'B':
      return uint8_t{};
    case 'b':
      return int8_t{};
    case 'H':
      return uint16_t{};
    case 'h':
      return int16_t{};
    case 'I':
      return uint32_t{};
    case 'i':
      return int32_t{};
    case 'Q':
      return uint64_t{};
    case 'q':
      return int64_t{};
    case 'f':
      return float{};
    case 'd':
      return double{};
    default:
      throw py::value_error("format is one of B b H h I i Q q f d");
  }
}

size_t size_of(const AnyType& type) {
  return std::visit([](auto value) { return sizeof value; }, type);
}

class Atomic {
 public:
  Atomic(std::shared_ptr<View> view, size_t offset, const std::string& format)
      : type_(type_of(format)), place_(std::move(view), offset, size_of(type_), size_of(type_)) {}

  py::object load() {
    return with([](auto& word, auto value) {
      guarded_call([&] { value = word.load(); });
      return python(value);
    });
  }
  void store(const py::object& desired) {
    with([&](auto& word, auto type) {
      const auto value = number<decltype(type)>(desired);
      guarded_call([&] { word.store(value); });
      return py::object();
    });
  }
  py::object exchange(const py::object& desired) {
    return with([&](auto& word, auto before) {
      const auto value = number<decltype(before)>(desired);
      guarded_call([&] { before = word.exchange(value); });
      return python(before);
    });
  }
  // Whether it was so, and what it was.
  py::tuple compare_exchange(const py::object& expected, const py::object& desired) {
    return with([&](auto& word, auto type) {
      auto before = number<decltype(type)>(expected);
      const auto value = number<decltype(type)>(desired);
      bool done = false;
      guarded_call([&] { done = word.compare_exchange(before, value); });
      return py::object(py::make_tuple(done, python(before)));
    });
  }
  py::object fetch_add(const py::object& more) {
    return with([&](auto& word, auto before) {
      const auto value = number<decltype(before)>(more);
      guarded_call([&] { before = word.fetch_add(value); });
      return python(before);
    });
  }
  py::object fetch_sub(const py::object& less) {
    return with([&](auto& word, auto before) {
      const auto value = number<decltype(before)>(less);
      guarded_call([&] { before = word.fetch_sub(value); });
      return python(before);
    });
  }

 private:
  // f(the word, a value of its type)
  template <class F>
  py::object with(F&& f) {
    const Hold hold(place_.view());
    return std::visit(
        [&](auto value) -> py::object {
          using T = decltype(value);
          cmi::atomic_ref<T> word(place_.context(), *place_.at<T>());
          return f(word, value);
        },
        type_);
  }

  AnyType type_;
  Placed place_;
};

}  // namespace

void define_atomic(py::module_& module) {
  py::class_<Atomic>(module, "Atomic")
      .def(py::init<std::shared_ptr<View>, size_t, const std::string&>(), py::arg("view"),
           py::arg("offset") = 0, py::arg("format") = "Q")
      .def("load", &Atomic::load)
      .def("store", &Atomic::store, py::arg("desired"))
      .def("exchange", &Atomic::exchange, py::arg("desired"))
      .def("compare_exchange", &Atomic::compare_exchange, py::arg("expected"), py::arg("desired"))
      .def("fetch_add", &Atomic::fetch_add, py::arg("more") = 1)
      .def("fetch_sub", &Atomic::fetch_sub, py::arg("less") = 1);
}

}  // namespace cmi_python
