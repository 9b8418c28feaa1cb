// What the address sanitizer changes for a test: it makes mlock do nothing, and takes memory for
// itself wherever some was unmapped.
#pragma once

namespace cmi::test {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// With any sanitizer that counts each access.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kInstrumented = true;
#else
inline constexpr bool kInstrumented = kSanitized;
#endif

}  // namespace cmi::test
