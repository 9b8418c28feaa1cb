/*
 * cmi/cpp/context.hpp: the context, its threads, events and flush epochs. Part of <cmi/cmi.hpp>.
 */
#ifndef CMI_CPP_CONTEXT_HPP
#define CMI_CPP_CONTEXT_HPP

#include <cmi.h>
#include <cmi/ofi/cmi_impl.h>

#include <chrono>
#include <cmi/cpp/error.hpp>
#include <cmi/cpp/segment.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace cmi {

/* ---- Events --------------------------------------------------------------------------------- */

/** What happened; given back by the destructor, as CMI_EVENT_RET_DONE unless fail() was called. */
class event {
 public:
  event(cmi_ctxt* ctxt, cmi_event* what) noexcept : event_(what), ctxt_(ctxt) {}
  event(event&&) noexcept = default;
  event& operator=(event&&) = delete;
  ~event() {
    if (event_) CMIFN(ctxt_, 10, evt_ret)(event_.get(), ret_);
  }
  const cmi_event* operator->() const noexcept { return event_.get(); }
  const cmi_event& operator*() const noexcept { return *event_.get(); }
  const char* name() const noexcept { return cmi_ofi_event_name(event_.get()->type); }
  /** It could not be dealt with. */
  void fail() noexcept { ret_ = CMI_EVENT_RET_FAILED; }

 private:
  detail::slot<cmi_event*> event_;
  cmi_ctxt* ctxt_;
  cmi_event_ret ret_ = CMI_EVENT_RET_DONE;
};

/* ---- The context ---------------------------------------------------------------------------- */

/**
 * The process's context. open() registers the calling thread and enables it for imported memory;
 * the destructor takes the thread off the register again, and with the last one the context ends.
 * Other threads register with class thread_scope.
 */
class context {
 public:
  context() = default;
  static context open(cmi_cbs* callbacks, std::error_code& code) noexcept {
    context made;
    cmi_ctxt* const ctxt = cmi_ini(CMI_VERNO, callbacks);
    detail::set(code, ctxt != nullptr);
    if (code) return made;
    made.ctxt_ = detail::slot<cmi_ctxt*>(ctxt);
    detail::set(code, CMIFN(ctxt, 10, cmi_enb)(ctxt, 1) == 0);
    return made;
  }
  static context open(cmi_cbs* callbacks = nullptr) {
    std::error_code code;
    context made = open(callbacks, code);
    detail::throw_if(code);
    return made;
  }
  context(context&&) noexcept = default;
  context& operator=(context&& other) noexcept {
    if (this != &other) {
      reset();
      ctxt_ = std::move(other.ctxt_);
    }
    return *this;
  }
  ~context() { reset(); }
  cmi_ctxt* get() const noexcept { return ctxt_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(ctxt_); }

  /** A new segment of this node; size in bytes, flags as for seg_get(). */
  segment make(size_t size, int32_t flags, std::error_code& code) const noexcept {
    return taken(CMIFN(get(), 10, seg_get)(get(), size, flags), code);
  }
  segment make(size_t size, int32_t flags = 0) const {
    std::error_code code;
    segment made = make(size, flags, code);
    detail::throw_if(code);
    return made;
  }

  /** Leaves handle and token at a place under a name, for find(); see cmi_ofi_offer(). */
  cmi::offer offer(const std::string& where, const std::string& name, const handle& rseg,
                   const token& tok, std::error_code& code) const {
    return cmi::offer(get(), where, name, rseg, tok, code);
  }
  cmi::offer offer(const std::string& where, const std::string& name, const handle& rseg,
                   const token& tok) const {
    return detail::throwing(
        [&](std::error_code& code) { return offer(where, name, rseg, tok, code); });
  }
  /** Waits for such an offer and imports it; see cmi_ofi_find(). */
  segment find(const std::string& where, const std::string& name, std::chrono::milliseconds timeout,
               std::error_code& code) const noexcept {
    const auto ms = static_cast<uint32_t>(timeout.count() < 0 ? 0 : timeout.count());
    return taken(cmi_ofi_find(get(), where.c_str(), name.c_str(), ms), code);
  }
  segment find(const std::string& where, const std::string& name,
               std::chrono::milliseconds timeout) const {
    std::error_code code;
    segment found = find(where, name, timeout, code);
    detail::throw_if(code);
    return found;
  }
  /** Imports what the words of a handle and a token stand for; see handle::text(). */
  segment import_text(const std::string& handle_text, const std::string& token_text,
                      std::error_code& code) const {
    auto rseg = detail::object_of(handle_text, code);
    if (code) return {};
    auto tok = detail::object_of(token_text, code);
    if (code) return {};
    segment imported =
        taken(CMIFN(get(), 10, seg_imp)(get(), reinterpret_cast<cmi_rseg*>(rseg.data())), code);
    if (code) return {};
    cmi_ds ds = {};
    ds.token.tok = reinterpret_cast<cmi_token*>(tok.data());
    detail::set(code, CMIFN(get(), 10, seg_ctl)(get(), imported.id(), CMI_SEG_TOKEN, &ds) == 0);
    return code ? segment() : std::move(imported);
  }
  segment import_text(const std::string& handle_text, const std::string& token_text) const {
    std::error_code code;
    segment imported = import_text(handle_text, token_text, code);
    detail::throw_if(code);
    return imported;
  }

  /** The next event, if there is one. */
  std::optional<event> next_event(std::error_code& code) const noexcept {
    cmi_event* const what = CMIFN(get(), 10, evt_get)(get());
    code = what != nullptr ? std::error_code() : detail::last_error();
    if (what != nullptr) return event(get(), what);
    return std::nullopt;
  }
  std::optional<event> next_event() const {
    return detail::throwing([&](std::error_code& code) { return next_event(code); });
  }
  /** Polls readable while there is an event; see cmi_ofi_evt_fd(). */
  int event_descriptor(std::error_code& code) const noexcept {
    const int fd = cmi_ofi_evt_fd(get());
    detail::set(code, fd >= 0);
    return fd;
  }
  int event_descriptor() const {
    return detail::throwing([&](std::error_code& code) { return event_descriptor(code); });
  }

  void reset() noexcept {
    if (ctxt_) CMIFN(get(), 10, fini)(get());
    ctxt_ = {};
  }

 private:
  segment taken(cmi_seg id, std::error_code& code) const noexcept {
    detail::set(code, id != CMI_SEG_INVALID);
    return code ? segment() : segment(get(), id);
  }

  detail::slot<cmi_ctxt*> ctxt_;
};

/** A further thread of the process, registered and enabled while this lives. Made in that thread.
 */
class thread_scope {
 public:
  /** Empty where it fails. */
  thread_scope(const context& of, std::error_code& code) noexcept {
    detail::set(code, CMIFN(of.get(), 10, ini_th)(of.get()) == 0);
    if (code) return;
    detail::set(code, CMIFN(of.get(), 10, cmi_enb)(of.get(), 1) == 0);
    if (code) {
      CMIFN(of.get(), 10, fini)(of.get());
    } else {
      ctxt_ = of.get();
    }
  }
  explicit thread_scope(const context& of) {
    std::error_code code;
    detail::set(code, CMIFN(of.get(), 10, ini_th)(of.get()) == 0);
    detail::throw_if(code);
    detail::set(code, CMIFN(of.get(), 10, cmi_enb)(of.get(), 1) == 0);
    ctxt_ = of.get();
    if (!code) return;
    const error failure(code, cmi_ofi_error_text(nullptr));
    CMIFN(ctxt_, 10, fini)(ctxt_);
    throw failure;
  }
  thread_scope(const thread_scope&) = delete;
  thread_scope& operator=(const thread_scope&) = delete;
  ~thread_scope() {
    if (ctxt_ != nullptr) CMIFN(ctxt_, 10, fini)(ctxt_);
  }

 private:
  cmi_ctxt* ctxt_ = nullptr;
};

/** A flush epoch of the calling thread, closed by the destructor; see open_fb(). */
class epoch {
 public:
  /** Empty where it fails. */
  epoch(const context& of, std::error_code& code) noexcept
      : ctxt_(of.get()), epoch_(CMIFN(ctxt_, 10, open_fb)(ctxt_)) {
    detail::set(code, epoch_ != nullptr);
  }
  explicit epoch(const context& of) : ctxt_(of.get()), epoch_(CMIFN(ctxt_, 10, open_fb)(ctxt_)) {
    if (epoch_ == nullptr) detail::throw_if(detail::last_error());
  }
  epoch(const epoch&) = delete;
  epoch& operator=(const epoch&) = delete;
  ~epoch() {
    if (epoch_ != nullptr) CMIFN(ctxt_, 10, close_fb)(ctxt_, epoch_);
  }
  /** What was stored since it was opened, or flushed last, is at its home when this returns. */
  void flush(std::error_code& code) noexcept {
    detail::set(code, CMIFN(ctxt_, 10, flush_fb)(ctxt_, epoch_) == 0);
  }
  void flush() {
    std::error_code code;
    flush(code);
    detail::throw_if(code);
  }

 private:
  cmi_ctxt* ctxt_;
  cmi_fb epoch_;
};

}  // namespace cmi

#endif
