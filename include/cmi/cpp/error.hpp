/*
 * cmi/cpp/error.hpp: failures as std::error_code and as exceptions; barriers. Part of
 * <cmi/cmi.hpp>.
 */
#ifndef CMI_CPP_ERROR_HPP
#define CMI_CPP_ERROR_HPP

#include <cmi.h>
#include <cmi/ofi/cmi_impl.h>

#include <cstddef>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace std {
template <>
struct is_error_code_enum<cmi_error> : true_type {};
}  // namespace std

namespace cmi {

/* ---- Errors --------------------------------------------------------------------------------- */

/** The category of cmi_error values: name() is "cmi", message() what cmi_ofi_strerror() says. */
inline const std::error_category& category() noexcept {
  class cmi_category final : public std::error_category {
   public:
    const char* name() const noexcept override { return "cmi"; }
    std::string message(int value) const override {
      return cmi_ofi_strerror(static_cast<cmi_error>(value));
    }
  };
  static const cmi_category the_category;
  return the_category;
}

/** A call that failed. code() is the cmi_error, what() begins with cmi_ofi_error_text(). */
class error : public std::system_error {
 public:
  error(std::error_code code, const std::string& sentence) : std::system_error(code, sentence) {}
};

namespace detail {

inline std::error_code last_error() noexcept {
  return {static_cast<int>(cmi_get_error(nullptr)), category()};
}
inline void set(std::error_code& code, bool ok) noexcept {
  code = ok ? std::error_code() : last_error();
}
inline void throw_if(const std::error_code& code) {
  if (code) throw error(code, cmi_ofi_error_text(nullptr));
}

/* What f(code) gives; throws where it has failed. */
template <class F>
auto throwing(F&& f) {
  std::error_code code;
  if constexpr (std::is_void_v<std::invoke_result_t<F&, std::error_code&>>) {
    f(code);
    throw_if(code);
  } else {
    auto made = f(code);
    throw_if(code);
    return made;
  }
}

/* An owned value, T{} when there is none. */
template <class T>
class slot {
 public:
  slot() = default;
  explicit slot(T value) noexcept : value_(value) {}
  slot(slot&& other) noexcept : value_(std::exchange(other.value_, T{})) {}
  slot& operator=(slot&& other) noexcept {
    value_ = std::exchange(other.value_, T{});
    return *this;
  }
  T get() const noexcept { return value_; }
  explicit operator bool() const noexcept { return value_ != T{}; }

 private:
  T value_{};
};

inline std::string text_of(const void* object, std::error_code& code) {
  std::string text(CMI_OFI_TEXT_SIZE, '\0');
  size_t size = text.size();
  set(code, cmi_ofi_format(object, text.data(), &size) == 0);
  text.resize(code ? 0 : size - 1);
  return text;
}

inline std::vector<std::byte> object_of(const std::string& text, std::error_code& code) {
  std::vector<std::byte> object(CMI_OFI_TEXT_SIZE);
  size_t size = object.size();
  set(code, cmi_ofi_parse(text.c_str(), object.data(), &size) == 0);
  object.resize(code ? 0 : size);
  return object;
}

}  // namespace detail

/* ---- Barriers ------------------------------------------------------------------------------- */

/** cmi_wmb(): what this thread has stored is seen by all nodes when this returns. */
inline void publish(std::error_code& code) noexcept { detail::set(code, cmi_wmb() == 0); }
inline void publish() {
  std::error_code code;
  publish(code);
  detail::throw_if(code);
}

/** cmi_mb(): publish(), and later loads are not made before. */
inline void fence(std::error_code& code) noexcept { detail::set(code, cmi_mb() == 0); }
inline void fence() {
  std::error_code code;
  fence(code);
  detail::throw_if(code);
}

}  // namespace cmi

/** For std::error_code and the comparison with a cmi_error; found by argument-dependent lookup. */
inline std::error_code make_error_code(cmi_error value) noexcept {
  return {static_cast<int>(value), cmi::category()};
}

#endif
