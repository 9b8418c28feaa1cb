// Locks between threads of any nodes that survive the death of their owner: the calls of
// <cmi/ofi/cmi_sync.h>. Those of Barrier, Queue and TicketLock are of one thread.
#include <pybind11/stl.h>

#include "objects.hpp"

namespace cmi_python {

namespace {

using Timeout = std::optional<double>;

// How long a wait goes on that must not be cut in pieces, since that would lose its place in line.
constexpr double kLongest = 300;

// For `with`: what is not whole is given back, and raised.
template <class Lock>
void enter(Lock& lock) {
  if (lock.acquire(std::nullopt) != cmi::taken::owner_dead) return;
  lock.release();
  raise_owner_dead("an owner has died, and nobody has repaired what it guards");
}

class Mutex {
 public:
  static constexpr size_t kSize = sizeof(cmi_ofi_mutex);
  Mutex(std::shared_ptr<View> view, size_t offset)
      : place_(std::move(view), offset, kSize, alignof(cmi_ofi_mutex)) {}
  cmi::taken acquire(Timeout timeout) {
    const Hold hold(place_.view());
    return static_cast<cmi::taken>(waited_call(
        timeout,
        [at = at(), of = place_.ctxt()](uint32_t ms) { return cmi_ofi_mutex_lock(of, at, ms); }));
  }
  void release() {
    const Hold hold(place_.view());
    checked_call([at = at(), of = place_.ctxt()] { return cmi_ofi_mutex_unlock(of, at); });
  }
  void repaired() {
    const Hold hold(place_.view());
    checked_call([at = at(), of = place_.ctxt()] { return cmi_ofi_mutex_repaired(of, at); });
  }

 private:
  cmi_ofi_mutex* at() const { return place_.at<cmi_ofi_mutex>(); }
  Placed place_;
};

class SharedMutex {
 public:
  static constexpr size_t kSize = sizeof(cmi_ofi_shared_mutex);
  SharedMutex(std::shared_ptr<View> view, size_t offset)
      : place_(std::move(view), offset, kSize, alignof(cmi_ofi_shared_mutex)) {}
  cmi::taken acquire(Timeout timeout) { return waited(cmi_ofi_shared_mutex_lock, timeout); }
  void release() { done(cmi_ofi_shared_mutex_unlock); }
  void repaired() { done(cmi_ofi_shared_mutex_repaired); }
  // Not taken where it is owner_dead: a writer has to repair first.
  cmi::taken acquire_shared(Timeout timeout) {
    return waited(cmi_ofi_shared_mutex_lock_shared, timeout);
  }
  void release_shared() { done(cmi_ofi_shared_mutex_unlock_shared); }

 private:
  using Wait = int (*)(cmi_ctxt*, cmi_ofi_shared_mutex*, uint32_t);
  using Call = int (*)(cmi_ctxt*, cmi_ofi_shared_mutex*);
  cmi::taken waited(Wait call, Timeout timeout) {
    const Hold hold(place_.view());
    return static_cast<cmi::taken>(waited_call(
        timeout, [=, at = at(), of = place_.ctxt()](uint32_t ms) { return call(of, at, ms); }));
  }
  void done(Call call) {
    const Hold hold(place_.view());
    checked_call([=, at = at(), of = place_.ctxt()] { return call(of, at); });
  }
  cmi_ofi_shared_mutex* at() const { return place_.at<cmi_ofi_shared_mutex>(); }
  Placed place_;
};

class TicketLock {
 public:
  static constexpr size_t kSize = sizeof(cmi_ofi_ticket_lock);
  TicketLock(std::shared_ptr<View> view, size_t offset)
      : place_(std::move(view), offset, kSize, alignof(cmi_ofi_ticket_lock)) {}
  cmi::taken acquire(Timeout timeout) {
    const Hold hold(place_.view());
    const uint32_t ms = Deadline(timeout.value_or(kLongest)).left(UINT32_MAX);
    const auto result =
        static_cast<cmi::taken>(checked_call([this, ms, at = at(), of = place_.ctxt()] {
          return cmi_ofi_ticket_lock_lock(of, at, ms, &ticket_);
        }));
    if (result == cmi::taken::no && !timeout) {
      set_error("Error", CMI_ERR_RECONFIG, "the lock was not free within five minutes");
      throw py::error_already_set();
    }
    return result;
  }
  void release() {
    const Hold hold(place_.view());
    checked_call([this, at = at(), of = place_.ctxt()] {
      return cmi_ofi_ticket_lock_unlock(of, at, ticket_);
    });
  }
  void repaired() {
    const Hold hold(place_.view());
    checked_call([this, at = at(), of = place_.ctxt()] {
      return cmi_ofi_ticket_lock_repaired(of, at, ticket_);
    });
  }

 private:
  cmi_ofi_ticket_lock* at() const { return place_.at<cmi_ofi_ticket_lock>(); }
  Placed place_;
  uint32_t ticket_ = 0;
};

class Semaphore {
 public:
  static constexpr size_t kSize = sizeof(cmi_ofi_semaphore);
  Semaphore(std::shared_ptr<View> view, size_t offset, uint32_t permits)
      : place_(std::move(view), offset, kSize, alignof(cmi_ofi_semaphore)) {
    const Hold hold(place_.view());
    checked_call(
        [=, at = at(), of = place_.ctxt()] { return cmi_ofi_semaphore_init(of, at, permits); });
  }
  cmi::taken acquire(Timeout timeout) {
    const Hold hold(place_.view());
    return static_cast<cmi::taken>(
        waited_call(timeout, [at = at(), of = place_.ctxt()](uint32_t ms) {
          return cmi_ofi_semaphore_acquire(of, at, ms);
        }));
  }
  void release() {
    const Hold hold(place_.view());
    checked_call([at = at(), of = place_.ctxt()] { return cmi_ofi_semaphore_release(of, at); });
  }

 private:
  cmi_ofi_semaphore* at() const { return place_.at<cmi_ofi_semaphore>(); }
  Placed place_;
};

class Barrier {
 public:
  static constexpr size_t kSize = sizeof(cmi_ofi_barrier);
  Barrier(std::shared_ptr<View> view, size_t offset, uint32_t parties)
      : place_(std::move(view), offset, kSize, alignof(cmi_ofi_barrier)) {
    const Hold hold(place_.view());
    checked_call(
        [=, at = at(), of = place_.ctxt()] { return cmi_ofi_barrier_init(of, at, parties); });
  }
  cmi::taken wait(Timeout timeout) {
    const Hold hold(place_.view());
    return static_cast<cmi::taken>(
        waited_call(timeout, [this, at = at(), of = place_.ctxt()](uint32_t ms) {
          return cmi_ofi_barrier_wait(of, at, &party_, ms);
        }));
  }

 private:
  cmi_ofi_barrier* at() const { return place_.at<cmi_ofi_barrier>(); }
  Placed place_;
  cmi_ofi_party party_ = {};
};

class Latch {
 public:
  static constexpr size_t kSize = sizeof(cmi_ofi_latch);
  Latch(std::shared_ptr<View> view, size_t offset, uint64_t count)
      : place_(std::move(view), offset, kSize, alignof(cmi_ofi_latch)) {
    const Hold hold(place_.view());
    checked_call([=, at = at(), of = place_.ctxt()] { return cmi_ofi_latch_init(of, at, count); });
  }
  void count_down(uint64_t by) {
    const Hold hold(place_.view());
    checked_call(
        [=, at = at(), of = place_.ctxt()] { return cmi_ofi_latch_count_down(of, at, by); });
  }
  bool wait(Timeout timeout) {
    const Hold hold(place_.view());
    return waited_call(timeout, [at = at(), of = place_.ctxt()](uint32_t ms) {
             return cmi_ofi_latch_wait(of, at, ms);
           }) == 0;
  }

 private:
  cmi_ofi_latch* at() const { return place_.at<cmi_ofi_latch>(); }
  Placed place_;
};

// Items of one size; the shorter ones end in zeros.
class Queue {
 public:
  static size_t size(uint32_t cells, uint32_t item_size) {
    return cmi_ofi_queue_size(cells, item_size);
  }
  Queue(std::shared_ptr<View> view, size_t offset, uint32_t cells, uint32_t item_size)
      : item_(item_size), place_(std::move(view), offset, size(cells, item_size), 8) {
    const Hold hold(place_.view());
    checked_call([=, this, at = place_.at<void>(), of = place_.ctxt()] {
      return cmi_ofi_queue_open(of, &queue_, at, cells, item_size);
    });
  }
  bool push(const py::bytes& item, Timeout timeout) {
    const std::string given = item;
    if (given.size() > item_.size()) throw py::value_error("the item is too large");
    const Hold hold(place_.view());
    std::fill(std::copy(given.begin(), given.end(), item_.begin()), item_.end(), '\0');
    return done(waited_call(timeout, [this, of = place_.ctxt()](uint32_t ms) {
      return cmi_ofi_queue_push(of, &queue_, item_.data(), ms);
    }));
  }
  std::optional<py::bytes> pop(Timeout timeout) {
    const Hold hold(place_.view());
    const bool popped = done(waited_call(timeout, [this, of = place_.ctxt()](uint32_t ms) {
      return cmi_ofi_queue_pop(of, &queue_, item_.data(), ms);
    }));
    if (!popped) return std::nullopt;
    return py::bytes(item_.data(), item_.size());
  }

 private:
  static bool done(int result) {
    if (result == CMI_OFI_OWNER_DEAD) {
      raise_owner_dead("a process died in a push of its own; call again");
    }
    return result == 0;
  }
  std::vector<char> item_;
  Placed place_;
  cmi_ofi_queue queue_ = {};
};

template <class Lock>
py::class_<Lock> define_lock(py::module_& module, const char* name) {
  py::class_<Lock> defined(module, name);
  defined.def("acquire", &Lock::acquire, py::arg("timeout") = py::none())
      .def("release", &Lock::release);
  defined.attr("SIZE") = Lock::kSize;
  return defined;
}

// What guards something that may have to be repaired.
template <class Lock>
py::class_<Lock> define_mutex(py::module_& module, const char* name) {
  return define_lock<Lock>(module, name)
      .def(py::init<std::shared_ptr<View>, size_t>(), py::arg("view"), py::arg("offset") = 0)
      .def("repaired", &Lock::repaired)
      .def("__enter__",
           [](py::object self) {
             enter(py::cast<Lock&>(self));
             return self;
           })
      .def("__exit__", [](Lock& self, const py::args&) { self.release(); });
}

void define_counted(py::module_& module) {
  define_lock<Semaphore>(module, "Semaphore")
      .def(py::init<std::shared_ptr<View>, size_t, uint32_t>(), py::arg("view"), py::arg("offset"),
           py::arg("permits"));
  py::class_<Barrier> barrier(module, "Barrier");
  barrier
      .def(py::init<std::shared_ptr<View>, size_t, uint32_t>(), py::arg("view"), py::arg("offset"),
           py::arg("parties"))
      .def("wait", &Barrier::wait, py::arg("timeout") = py::none());
  barrier.attr("SIZE") = Barrier::kSize;
  py::class_<Latch> latch(module, "Latch");
  latch
      .def(py::init<std::shared_ptr<View>, size_t, uint64_t>(), py::arg("view"), py::arg("offset"),
           py::arg("count"))
      .def("count_down", &Latch::count_down, py::arg("by") = 1)
      .def("wait", &Latch::wait, py::arg("timeout") = py::none());
  latch.attr("SIZE") = Latch::kSize;
}

}  // namespace

void define_sync(py::module_& module) {
  py::enum_<cmi::taken>(module, "Taken")
      .value("YES", cmi::taken::yes)
      .value("OWNER_DEAD", cmi::taken::owner_dead)
      .value("NO", cmi::taken::no)
      .def("__bool__", [](cmi::taken self) { return self != cmi::taken::no; });
  define_mutex<Mutex>(module, "Mutex");
  define_mutex<TicketLock>(module, "TicketLock");
  define_mutex<SharedMutex>(module, "SharedMutex")
      .def("acquire_shared", &SharedMutex::acquire_shared, py::arg("timeout") = py::none())
      .def("release_shared", &SharedMutex::release_shared);
  define_counted(module);
  py::class_<Queue>(module, "Queue")
      .def(py::init<std::shared_ptr<View>, size_t, uint32_t, uint32_t>(), py::arg("view"),
           py::arg("offset"), py::arg("cells"), py::arg("item_size"))
      .def("push", &Queue::push, py::arg("item"), py::arg("timeout") = py::none())
      .def("pop", &Queue::pop, py::arg("timeout") = py::none())
      .def_static("size", &Queue::size, py::arg("cells"), py::arg("item_size"));
}

}  // namespace cmi_python
