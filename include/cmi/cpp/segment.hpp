/*
 * cmi/cpp/segment.hpp: views, handles, tokens, segments and offers. Part of <cmi/cmi.hpp>.
 */
#ifndef CMI_CPP_SEGMENT_HPP
#define CMI_CPP_SEGMENT_HPP

#include <cmi.h>
#include <cmi/ofi/cmi_impl.h>

#include <algorithm>
#include <cmi/cpp/error.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

namespace cmi {

/* ---- Views ---------------------------------------------------------------------------------- */

/** Whether objects of this type may lie in a segment: bytes that mean the same to every process. */
template <class T>
concept shareable = std::is_trivially_copyable_v<T>;

/** A segment attached in this process, as an array of T. Detached by the destructor. */
template <shareable T>
class view {
 public:
  view() = default;
  /** Takes over what seg_at() has returned for the segment of so many bytes. */
  view(cmi_ctxt* ctxt, cmi_seg segment, void* at, size_t bytes) noexcept
      : at_(at), ctxt_(ctxt), segment_(segment), size_(bytes / sizeof(T)) {}
  view(view&&) noexcept = default;
  view& operator=(view&& other) noexcept {
    if (this != &other) {
      reset();
      at_ = std::move(other.at_);
      ctxt_ = other.ctxt_;
      segment_ = other.segment_;
      size_ = other.size_;
    }
    return *this;
  }
  ~view() { reset(); }

  T* data() const noexcept { return static_cast<T*>(at_.get()); }
  size_t size() const noexcept { return size_; }
  T& operator[](size_t i) const noexcept { return data()[i]; }
  T& operator*() const noexcept { return *data(); }
  T* operator->() const noexcept { return data(); }
  T* begin() const noexcept { return data(); }
  T* end() const noexcept { return data() + size_; }
  std::span<T> span() const noexcept { return {data(), size_}; }
  explicit operator bool() const noexcept { return static_cast<bool>(at_); }

  /** So many of T from one on are about to be loaded, or all; see cmi_ofi_prefetch(). */
  void prefetch(size_t first, size_t count, std::error_code& code) const noexcept {
    code.clear();
    if (first >= size_) return;
    const size_t bytes = std::min(count, size_ - first) * sizeof(T);
    detail::set(code, cmi_ofi_prefetch(ctxt_, data() + first, bytes) == 0);
  }
  void prefetch(size_t first = 0, size_t count = SIZE_MAX) const {
    detail::throwing([&](std::error_code& code) { prefetch(first, count, code); });
  }

  /** Detaches now. */
  void reset() noexcept {
    if (at_) CMIFN(ctxt_, 10, seg_dt)(ctxt_, segment_, at_.get());
    at_ = {};
  }

 private:
  detail::slot<void*> at_;
  cmi_ctxt* ctxt_ = nullptr;
  cmi_seg segment_ = CMI_SEG_INVALID;
  size_t size_ = 0;
};

/* ---- Handles and tokens --------------------------------------------------------------------- */

/** The handle that others import a segment by; deleted by the destructor. */
class handle {
 public:
  handle() = default;
  handle(cmi_ctxt* ctxt, cmi_rseg* rseg) noexcept : rseg_(rseg), ctxt_(ctxt) {}
  handle(handle&&) noexcept = default;
  handle& operator=(handle&& other) noexcept {
    if (this != &other) {
      reset();
      rseg_ = std::move(other.rseg_);
      ctxt_ = other.ctxt_;
    }
    return *this;
  }
  ~handle() { reset(); }
  cmi_rseg* get() const noexcept { return rseg_.get(); }
  /** One printable word; see cmi_ofi_format(). */
  std::string text(std::error_code& code) const { return detail::text_of(get(), code); }
  std::string text() const {
    return detail::throwing([&](std::error_code& code) { return text(code); });
  }
  void reset() noexcept {
    if (rseg_) CMIFN(ctxt_, 10, rseg_del)(ctxt_, rseg_.get());
    rseg_ = {};
  }

 private:
  detail::slot<cmi_rseg*> rseg_;
  cmi_ctxt* ctxt_ = nullptr;
};

/** A right to access a segment; revoked by the destructor. */
class token {
 public:
  token() = default;
  token(cmi_ctxt* ctxt, cmi_token* tok) noexcept : token_(tok), ctxt_(ctxt) {}
  token(token&&) noexcept = default;
  token& operator=(token&& other) noexcept {
    if (this != &other) {
      reset();
      token_ = std::move(other.token_);
      ctxt_ = other.ctxt_;
    }
    return *this;
  }
  ~token() { reset(); }
  cmi_token* get() const noexcept { return token_.get(); }
  /** One printable word. It grants what the token grants. See cmi_ofi_format(). */
  std::string text(std::error_code& code) const { return detail::text_of(get(), code); }
  std::string text() const {
    return detail::throwing([&](std::error_code& code) { return text(code); });
  }
  /** Revokes it: accesses with it raise CMI_ERROR_TOKEN from then on. */
  void revoke(std::error_code& code) noexcept {
    detail::set(code, CMIFN(ctxt_, 10, tok_del)(ctxt_, token_.get()) == 0);
    if (!code) token_ = {};
  }
  void revoke() {
    std::error_code code;
    revoke(code);
    detail::throw_if(code);
  }
  void reset() noexcept {
    if (token_) CMIFN(ctxt_, 10, tok_del)(ctxt_, token_.get());
    token_ = {};
  }

 private:
  detail::slot<cmi_token*> token_;
  cmi_ctxt* ctxt_ = nullptr;
};

/* ---- Segments ------------------------------------------------------------------------------- */

/** A segment of this node, or an imported one; marked for deletion by the destructor. */
class segment {
 public:
  segment() = default;
  /** Takes over what seg_get() or seg_imp() has returned. */
  segment(cmi_ctxt* ctxt, cmi_seg id) noexcept : id_(id), ctxt_(ctxt) {}
  segment(segment&&) noexcept = default;
  segment& operator=(segment&& other) noexcept {
    if (this != &other) {
      reset();
      id_ = std::move(other.id_);
      ctxt_ = other.ctxt_;
    }
    return *this;
  }
  ~segment() { reset(); }
  cmi_seg id() const noexcept { return id_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(id_); }

  /** Bytes, of an extensible one up to its break. */
  size_t size(std::error_code& code) const noexcept {
    cmi_ds ds = {};
    detail::set(code, CMIFN(ctxt_, 10, seg_ctl)(ctxt_, id(), CMI_SEG_INFO, &ds) == 0);
    return code ? 0 : ds.info.seg_brk;
  }
  size_t size() const {
    std::error_code code;
    const size_t bytes = size(code);
    detail::throw_if(code);
    return bytes;
  }

  /** Attaches it. flags: CMI_SEG_READ for loads alone, which a const T asks for as well. */
  template <shareable T = std::byte>
  view<T> attach(int32_t flags, std::error_code& code) const noexcept {
    const size_t bytes = size(code);
    if (code) return {};
    if constexpr (std::is_const_v<T>) flags |= CMI_SEG_READ;
    void* const at = CMIFN(ctxt_, 10, seg_at)(ctxt_, id(), nullptr, flags);
    detail::set(code, at != nullptr);
    return code ? view<T>() : view<T>(ctxt_, id(), const_cast<void*>(at), bytes);
  }
  template <shareable T = std::byte>
  view<T> attach(int32_t flags = 0) const {
    std::error_code code;
    view<T> made = attach<T>(flags, code);
    detail::throw_if(code);
    return made;
  }

  /** The handle to import it by; attrib as for seg_exp(). Of a segment of this process. */
  handle export_handle(int32_t attrib, std::error_code& code) const noexcept {
    cmi_rseg* const rseg = CMIFN(ctxt_, 10, seg_exp)(ctxt_, id(), attrib);
    detail::set(code, rseg != nullptr);
    return rseg != nullptr ? handle(ctxt_, rseg) : handle();
  }
  handle export_handle(int32_t attrib = 0) const {
    std::error_code code;
    handle made = export_handle(attrib, code);
    detail::throw_if(code);
    return made;
  }

  /** A token with these CMI_ACC_ rights, for one node or for all. Of a segment of this process. */
  token grant(cmi_acc rights, cmi_naddr* node, std::error_code& code) const noexcept {
    cmi_token* const tok = CMIFN(ctxt_, 10, tok_new)(ctxt_, id(), node, rights);
    detail::set(code, tok != nullptr);
    return tok != nullptr ? token(ctxt_, tok) : token();
  }
  token grant(cmi_acc rights = CMI_ACC_READ | CMI_ACC_WRITE | CMI_ACC_ATOMIC,
              cmi_naddr* node = CMI_NADDR_ANY) const {
    std::error_code code;
    token made = grant(rights, node, code);
    detail::throw_if(code);
    return made;
  }

  /** Marks it for deletion now. */
  void reset() noexcept {
    if (id_) CMIFN(ctxt_, 10, seg_ctl)(ctxt_, id(), CMI_SEG_RM, nullptr);
    id_ = {};
  }

 private:
  detail::slot<cmi_seg> id_; /* 0 is no segment */
  cmi_ctxt* ctxt_ = nullptr;
};

/** A segment under a name at a place; see cmi_ofi_offer(). Withdrawn by the destructor. */
class offer {
 public:
  offer() = default;
  offer(cmi_ctxt* ctxt, std::string where, std::string name, const handle& rseg, const token& tok,
        std::error_code& code)
      : ctxt_(ctxt), where_(std::move(where)), name_(std::move(name)) {
    detail::set(code,
                cmi_ofi_offer(ctxt, where_.c_str(), name_.c_str(), rseg.get(), tok.get()) == 0);
    if (code) ctxt_ = {};
  }
  offer(offer&&) noexcept = default;
  offer& operator=(offer&& other) noexcept {
    if (this != &other) {
      reset();
      ctxt_ = std::move(other.ctxt_);
      where_ = std::move(other.where_);
      name_ = std::move(other.name_);
    }
    return *this;
  }
  ~offer() { reset(); }
  void reset() noexcept {
    if (ctxt_) cmi_ofi_offer(ctxt_.get(), where_.c_str(), name_.c_str(), nullptr, nullptr);
    ctxt_ = {};
  }

 private:
  detail::slot<cmi_ctxt*> ctxt_;
  std::string where_, name_;
};

}  // namespace cmi

#endif
