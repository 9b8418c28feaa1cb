// The context: threads, segments, meeting others, events, counters, barriers.
#include <pybind11/stl.h>

#include <cstring>
#include <vector>

#include "objects.hpp"

namespace cmi_python {

namespace {

// A further thread: `with context.thread():`. Entered and left in that thread.
class Thread {
 public:
  explicit Thread(std::shared_ptr<Context> context) : context_(std::move(context)) {}
  void enter() {
    if (scope_) throw py::value_error("the thread is registered already");
    const Hold hold(*context_);
    scope_.emplace(context_->get());
  }
  void leave() { scope_.reset(); }

 private:
  std::shared_ptr<Context> context_;
  std::optional<cmi::thread_scope> scope_;
};

// What happened, given back to the library when nobody refers to it any more.
class Event {
 public:
  Event(std::shared_ptr<Context> context, cmi::event what)
      : context_(std::move(context)), what_(std::move(what)) {}
  int type() const { return (*what_)->type; }
  std::string name() const { return what_->name(); }
  std::vector<cmi_seg> segments() const {
    const cmi_event& event = **what_;
    switch (event.type) {
      case CMI_EVENT_QUIESCE:
      case CMI_EVENT_RESUME:
        return {event.seg.einfo_seg};
      case CMI_EVENT_STORE_FAILURE:
      case CMI_EVENT_HW:
        return {event.serr.einfo_seg};
      case CMI_EVENT_RCTXT_DOWN:
      case CMI_EVENT_HCTXT_DOWN:
        return {event.down.einfo_segs, event.down.einfo_segs + event.down.einfo_nsegs};
      default:
        return {};
    }
  }
  void done(bool failed) {
    if (failed && what_) what_->fail();
    what_.reset();
  }
  bool given_back() const { return !what_; }

 private:
  std::shared_ptr<Context> context_;
  std::optional<cmi::event> what_;
};

std::shared_ptr<Event> next_event(const std::shared_ptr<Context>& context) {
  const Hold hold(*context);
  std::optional<cmi::event> event = context->get().next_event();
  if (!event) return nullptr;
  return std::make_shared<Event>(context, std::move(*event));
}

Event& given(Event& event) {
  if (event.given_back()) throw py::value_error("the event has been given back");
  return event;
}

py::dict stats(Context& context) {
  const Hold hold(context);
  cmi_ofi_stats counted = {};
  counted.size = sizeof counted;
  if (cmi_ofi_get_stats(context.get().get(), &counted) != 0) raise_last_error();
  py::dict result;
#define CMI_COUNTER(name) result[#name] = counted.name
  CMI_COUNTER(load_misses);
  CMI_COUNTER(store_misses);
  CMI_COUNTER(store_faults);
  CMI_COUNTER(pages_fetched);
  CMI_COUNTER(bytes_fetched);
  CMI_COUNTER(pages_written_back);
  CMI_COUNTER(bytes_written_back);
  CMI_COUNTER(publications);
  CMI_COUNTER(invalidations_received);
  CMI_COUNTER(cas_calls);
  CMI_COUNTER(cas_lost);
  CMI_COUNTER(exceptions);
  CMI_COUNTER(pages_evicted);
  CMI_COUNTER(pages_updated);
#undef CMI_COUNTER
  return result;
}

std::shared_ptr<Segment> make_segment(const std::shared_ptr<Context>& context, size_t size,
                                      int32_t flags) {
  return make_in<Segment>(context, context->get().make(size, flags));
}

std::shared_ptr<Segment> import_text(const std::shared_ptr<Context>& context,
                                     const std::string& handle, const std::string& token) {
  const Hold hold(*context);
  cmi::segment imported;
  plain_call([&] { imported = context->get().import_text(handle, token); });
  return make_in<Segment>(context, std::move(imported));
}

// Leaves the context open where an exception passes that keeps arrays alive by its traceback: it
// says more than a second one would.
void leave(Context& context, const py::object& type, const py::object&, const py::object&) {
  if (!type.is_none() && context.any_in_use()) return;
  context.close();
}

void define_events(py::module_& module) {
  py::class_<Event, std::shared_ptr<Event>>(module, "Event")
      .def_property_readonly("type", [](Event& self) { return given(self).type(); })
      .def_property_readonly("name", [](Event& self) { return given(self).name(); })
      .def_property_readonly("segments", [](Event& self) { return given(self).segments(); })
      .def("done", [](Event& self) { self.done(false); })
      .def("fail", [](Event& self) { self.done(true); });
  module.attr("EVENT_QUIESCE") = static_cast<int>(CMI_EVENT_QUIESCE);
  module.attr("EVENT_RESUME") = static_cast<int>(CMI_EVENT_RESUME);
  module.attr("EVENT_RCTXT_DOWN") = static_cast<int>(CMI_EVENT_RCTXT_DOWN);
  module.attr("EVENT_HCTXT_DOWN") = static_cast<int>(CMI_EVENT_HCTXT_DOWN);
  module.attr("EVENT_STORE_FAILURE") = static_cast<int>(CMI_EVENT_STORE_FAILURE);
  module.attr("EVENT_HW") = static_cast<int>(CMI_EVENT_HW);
  module.attr("EVENT_CMAP") = static_cast<int>(CMI_EVENT_CMAP);
}

}  // namespace

void define_context(py::module_& module) {
  define_events(module);
  py::class_<Thread, std::shared_ptr<Thread>>(module, "Thread")
      .def("__enter__",
           [](const std::shared_ptr<Thread>& self) {
             self->enter();
             return self;
           })
      .def("__exit__", [](Thread& self, const py::args&) { self.leave(); });
  py::class_<Context, std::shared_ptr<Context>>(module, "_Context")
      .def(py::init<>())
      .def("__enter__", [](const std::shared_ptr<Context>& self) { return self; })
      .def("__exit__", &leave)
      .def("close", &Context::close)
      .def_property_readonly("closed", &Context::closed)
      .def("segment", &make_segment, py::arg("size"), py::arg("flags") = 0)
      .def("import_text", &import_text, py::arg("handle"), py::arg("token"))
      .def("thread",
           [](const std::shared_ptr<Context>& self) { return std::make_shared<Thread>(self); })
      .def("next_event", &next_event)
      .def_property_readonly("event_fd",
                             [](const Context& self) { return self.get().event_descriptor(); })
      .def("stats", &stats);
  module.def("publish", [] { checked_call([] { return cmi_wmb(); }); });
  module.def("fence", [] { checked_call([] { return cmi_mb(); }); });
}

}  // namespace cmi_python
