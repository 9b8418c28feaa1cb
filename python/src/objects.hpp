// What the module's classes hold. All of it is read and changed under Python's lock alone; what a
// call uses while that is released is held (class Hold), so that another thread cannot close it.
//
// A context keeps weak references to what was made in it, and closes that before itself. What was
// closed raises ValueError. Members are declared in the order in which they depend on each other,
// so that what nobody refers to any more goes before what it needs.
#ifndef CMI_PYTHON_OBJECTS_HPP
#define CMI_PYTHON_OBJECTS_HPP

#include <cmi/cmi.hpp>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "call.hpp"

namespace cmi_python {

/** What can be closed unless it is in use. */
class Closable {
 public:
  explicit Closable(const char* what) : what_(what) {}
  Closable(const Closable&) = delete;
  Closable& operator=(const Closable&) = delete;
  virtual ~Closable() = default;

  bool closed() const { return closed_; }
  bool in_use() const { return holds_ != 0; }
  void hold() { ++holds_; }
  void release() { --holds_; }
  /** Raises ValueError where it is closed. */
  void must_be_open() const;
  /** Gives back what it holds; again: does nothing. Raises BufferError where it is in use. */
  void close();

 protected:
  virtual void give_back() = 0;

 private:
  const char* what_;
  size_t holds_ = 0;
  bool closed_ = false;
};

/** Keeps something open while a call uses it without Python's lock. */
class Hold {
 public:
  explicit Hold(Closable& used) : used_(used) {
    used.must_be_open();
    used.hold();
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  ~Hold() { used_.release(); }

 private:
  Closable& used_;
};

class Context final : public Closable {
 public:
  Context();
  const cmi::context& get() const {
    must_be_open();
    return context_;
  }
  void adopt(const std::shared_ptr<Closable>& made);
  /** Whether anything that was made in it is in use. */
  bool any_in_use() const;

 private:
  void give_back() override;
  cmi::context context_;
  std::vector<std::weak_ptr<Closable>> made_;
};

/** Makes an object of a context that is closed with it. */
template <class T, class... Arguments>
std::shared_ptr<T> make_in(const std::shared_ptr<Context>& context, Arguments&&... arguments) {
  auto made = std::make_shared<T>(context, std::forward<Arguments>(arguments)...);
  context->adopt(made);
  return made;
}

class Segment final : public Closable {
 public:
  Segment(std::shared_ptr<Context> context, cmi::segment segment)
      : Closable("segment"), context_(std::move(context)), segment_(std::move(segment)) {}
  const cmi::segment& get() const {
    must_be_open();
    return segment_;
  }
  const std::shared_ptr<Context>& context() const { return context_; }

 private:
  void give_back() override { segment_.reset(); }
  std::shared_ptr<Context> context_;
  cmi::segment segment_;
};

/** A segment attached in this process; what NumPy's arrays and memoryviews are made of. */
class View final : public Closable {
 public:
  View(std::shared_ptr<Context> context, std::shared_ptr<Segment> segment,
       cmi::view<std::byte> view, bool read_only)
      : Closable("view"),
        context_(std::move(context)),
        segment_(std::move(segment)),
        view_(std::move(view)),
        read_only_(read_only) {}
  const std::shared_ptr<Context>& context() const { return context_; }
  bool read_only() const { return read_only_; }
  size_t size() const { return view_.size(); }
  const cmi::view<std::byte>& get() const { return view_; }
  /** The address of so many bytes in it. Raises IndexError where they are not all in it. */
  std::byte* at(size_t offset, size_t bytes) const;

 private:
  void give_back() override { view_.reset(); }
  std::shared_ptr<Context> context_;
  std::shared_ptr<Segment> segment_;
  cmi::view<std::byte> view_;
  bool read_only_;
};

/** What has a text: a handle or a token. Closing a token revokes it. */
template <class T>
class Named final : public Closable {
 public:
  Named(std::shared_ptr<Context> context, const char* what, T object)
      : Closable(what), context_(std::move(context)), object_(std::move(object)) {}
  const T& get() const {
    must_be_open();
    return object_;
  }
  std::string text() const { return get().text(); }

 private:
  void give_back() override { object_.reset(); }
  std::shared_ptr<Context> context_;
  T object_;
};
using Handle = Named<cmi::handle>;
using Token = Named<cmi::token>;

class Offer final : public Closable {
 public:
  Offer(std::shared_ptr<Context> context, std::shared_ptr<Handle> handle,
        std::shared_ptr<Token> token, cmi::offer offer)
      : Closable("offer"),
        context_(std::move(context)),
        handle_(std::move(handle)),
        token_(std::move(token)),
        offer_(std::move(offer)) {}

 private:
  void give_back() override { offer_.reset(); }
  std::shared_ptr<Context> context_;
  std::shared_ptr<Handle> handle_;
  std::shared_ptr<Token> token_;
  cmi::offer offer_;
};

/** An object of so many bytes that lies in a view: an atomic word, a lock. */
class Placed {
 public:
  Placed(std::shared_ptr<View> view, size_t offset, size_t bytes, size_t alignment);
  const cmi::context& context() const { return view_->context()->get(); }
  cmi_ctxt* ctxt() const { return context().get(); }
  View& view() const { return *view_; }
  template <class T>
  T* at() const {
    return reinterpret_cast<T*>(view_->at(offset_, bytes_));
  }

 private:
  std::shared_ptr<View> view_;
  size_t offset_;
  size_t bytes_;
};

void define_context(py::module_& module);
void define_memory(py::module_& module);
void define_atomic(py::module_& module);
void define_sync(py::module_& module);

}  // namespace cmi_python

#endif
