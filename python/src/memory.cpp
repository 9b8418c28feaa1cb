// Segments, views with the buffer protocol, handles, tokens, offers.
#include <pybind11/stl.h>

#include <cstring>

#include "objects.hpp"

namespace cmi_python {

namespace {

constexpr cmi_acc kAllRights = CMI_ACC_READ | CMI_ACC_WRITE | CMI_ACC_ATOMIC;

// Python's own structures ask for an address; what they cannot be given is BufferError.
int get_buffer(PyObject* self, Py_buffer* buffer, int flags) {
  buffer->obj = nullptr;
  try {
    View& view = py::cast<View&>(py::handle(self));
    std::byte* const at = view.at(0, view.size());
    if (PyBuffer_FillInfo(buffer, self, at, static_cast<Py_ssize_t>(view.size()),
                          view.read_only() ? 1 : 0, flags) != 0) {
      return -1;
    }
    view.hold();
    return 0;
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_BufferError, e.what());
    return -1;
  }
}

void release_buffer(PyObject* self, Py_buffer*) { py::cast<View&>(py::handle(self)).release(); }

void add_buffer_protocol(PyHeapTypeObject* type) {
  type->as_buffer.bf_getbuffer = get_buffer;
  type->as_buffer.bf_releasebuffer = release_buffer;
  type->ht_type.tp_as_buffer = &type->as_buffer;
}

// Someone else's contiguous bytes, for the time of a call.
class Bytes {
 public:
  Bytes(const py::buffer& from, bool to_be_written) {
    const int flags = to_be_written ? PyBUF_WRITABLE : PyBUF_SIMPLE;
    if (PyObject_GetBuffer(from.ptr(), &buffer_, flags) != 0) throw py::error_already_set();
  }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  ~Bytes() { PyBuffer_Release(&buffer_); }
  void* data() const { return buffer_.buf; }
  size_t size() const { return static_cast<size_t>(buffer_.len); }

 private:
  Py_buffer buffer_;
};

void copy(void* to, const void* from, size_t bytes) {
  guarded_call([=] { std::memcpy(to, from, bytes); });
}

py::bytes read(View& view, size_t offset, size_t bytes) {
  const Hold hold(view);
  const std::byte* const from = view.at(offset, bytes);
  PyObject* const made = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(bytes));
  if (made == nullptr) throw py::error_already_set();
  auto result = py::reinterpret_steal<py::bytes>(made);
  copy(PyBytes_AsString(made), from, bytes);
  return result;
}

void read_into(View& view, size_t offset, const py::buffer& target) {
  const Hold hold(view);
  const Bytes to(target, true);
  copy(to.data(), view.at(offset, to.size()), to.size());
}

void write(View& view, size_t offset, const py::buffer& source) {
  const Hold hold(view);
  const Bytes from(source, false);
  copy(view.at(offset, from.size()), from.data(), from.size());
}

// So many bytes are about to be loaded; none: all that follow.
void prefetch(View& view, size_t offset, std::optional<size_t> bytes) {
  const Hold hold(view);
  static_cast<void>(view.at(offset, bytes.value_or(0)));
  const size_t count = bytes.value_or(view.size() - offset);
  std::error_code code;
  plain_call([&] { view.get().prefetch(offset, count, code); });
  if (code) raise_last_error();
}

py::object array(const py::object& self, const py::object& dtype, const py::object& shape,
                 size_t offset) {
  const py::module_ numpy = py::module_::import("numpy");
  const py::object type = numpy.attr("dtype")(dtype);
  const auto& view = py::cast<const View&>(self);
  const auto item = py::cast<size_t>(type.attr("itemsize"));
  if (item == 0) throw py::value_error("items of no bytes");
  static_cast<void>(view.at(offset, 0));
  const py::object count = shape.is_none()
                               ? py::object(py::int_((view.size() - offset) / item))
                               : py::object(numpy.attr("prod")(shape, py::arg("dtype") = "object"));
  const size_t items = py::cast<size_t>(py::int_(count));
  if (items > view.size() / item) throw py::index_error("the array is larger than the view");
  static_cast<void>(view.at(offset, items * item));
  // Of this call alone the array keeps a memoryview, and so the view in use as long as it lives.
  const py::object flat = numpy.attr("frombuffer")(self, type, items, offset);
  return shape.is_none() ? flat : flat.attr("reshape")(shape);
}

std::shared_ptr<View> attach(const std::shared_ptr<Segment>& segment, bool read_only, bool alike) {
  const Hold hold(*segment);
  const cmi::context& context = segment->context()->get();
  if (read_only && alike) throw py::value_error("a view at one address everywhere is for stores");
  cmi::view<std::byte> view;
  if (alike) {
    guarded_call([&] { view = cmi::attach_alike(context, segment->get()); });
  } else {
    view = segment->get().attach<std::byte>(read_only ? CMI_SEG_READ : 0);
  }
  return make_in<View>(segment->context(), segment, std::move(view), read_only);
}

std::shared_ptr<Offer> offer(const std::shared_ptr<Context>& context, const std::string& where,
                             const std::string& name, const std::shared_ptr<Segment>& segment,
                             cmi_acc rights) {
  const Hold hold(*segment);
  const auto handle = make_in<Handle>(context, "handle", segment->get().export_handle());
  const auto token = make_in<Token>(context, "token", segment->get().grant(rights));
  return make_in<Offer>(context, handle, token,
                        context->get().offer(where, name, handle->get(), token->get()));
}

std::shared_ptr<Segment> find(const std::shared_ptr<Context>& context, const std::string& where,
                              const std::string& name, std::optional<double> timeout) {
  const Hold hold(*context);
  const Deadline deadline(timeout);
  for (;;) {
    cmi::segment found;
    std::error_code code;
    const std::chrono::milliseconds piece(deadline.left(kPiece));
    plain_call([&] { found = context->get().find(where, name, piece, code); });
    if (!code) return make_in<Segment>(context, std::move(found));
    if (code != CMI_ERR_RECONFIG || deadline.passed()) raise_last_error();
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
}

void define_views(py::module_& module) {
  py::class_<View, std::shared_ptr<View>>(module, "View",
                                          py::custom_type_setup(add_buffer_protocol))
      .def("__len__", &View::size)
      .def_property_readonly("readonly", &View::read_only)
      .def_property_readonly("closed", &View::closed)
      .def("read", &read, py::arg("offset"), py::arg("size"))
      .def("readinto", &read_into, py::arg("offset"), py::arg("buffer"))
      .def("write", &write, py::arg("offset"), py::arg("data"))
      .def("prefetch", &prefetch, py::arg("offset") = 0, py::arg("size") = py::none())
      .def("array", &array, py::arg("dtype") = "uint8", py::arg("shape") = py::none(),
           py::arg("offset") = 0)
      .def("close", &View::close);
}

}  // namespace

void define_memory(py::module_& module) {
  define_views(module);
  py::class_<Handle, std::shared_ptr<Handle>>(module, "Handle")
      .def_property_readonly("text", &Handle::text)
      .def("close", &Handle::close);
  py::class_<Token, std::shared_ptr<Token>>(module, "Token")
      .def_property_readonly("text", &Token::text)
      .def("revoke", &Token::close);
  py::class_<Offer, std::shared_ptr<Offer>>(module, "Offer").def("close", &Offer::close);
  py::class_<Segment, std::shared_ptr<Segment>>(module, "Segment")
      .def("__len__", [](const Segment& self) { return self.get().size(); })
      .def_property_readonly("id", [](const Segment& self) { return self.get().id(); })
      .def_property_readonly("closed", &Segment::closed)
      .def("attach", &attach, py::arg("readonly") = false, py::arg("alike") = false)
      .def("export",
           [](const Segment& self) {
             return make_in<Handle>(self.context(), "handle", self.get().export_handle());
           })
      .def(
          "grant",
          [](const Segment& self, cmi_acc rights) {
            return make_in<Token>(self.context(), "token", self.get().grant(rights));
          },
          py::arg("rights") = kAllRights)
      .def("close", &Segment::close);
  module.def("_offer", &offer);
  module.def("_find", &find);
  module.attr("READ") = CMI_ACC_READ;
  module.attr("WRITE") = CMI_ACC_WRITE;
  module.attr("ATOMIC") = CMI_ACC_ATOMIC;
  module.attr("CLIENT_CONSIST") = CMI_SEG_CLIENT_CONSIST;
  module.attr("CLIENT_INCONSIST") = CMI_SEG_CLIENT_INCONSIST;
  module.attr("NORESERVE") = CMI_SEG_NORESERVE;
  module.attr("LARGE_PAGES") = CMI_SEG_LARGE_PAGES;
}

}  // namespace cmi_python
