// cmi_ofi_format, cmi_ofi_parse. What a pointer of the client's names is read before and written
// after all else, with no lock held and no signal blocked, since it may lie in a view.
#include "core/access/text_form.hpp"

#include <cmi/ofi/cmi_impl.h>

#include <cstring>

#include "core/api/entry.hpp"

using namespace cmi;  // the C names live outside of any namespace

static_assert(CMI_OFI_TEXT_SIZE > access::kMaxText);

// Copies the result out where it fits, and says how long it is in any case.
static Status copy_out(const void* from, size_t length, void* to, size_t* room) {
  const size_t had = *room;
  *room = length;
  if (had < length) return because(Status::kNoMem, "the buffer is too small");
  if (to == nullptr) return because(Status::kInval, "the buffer is null");
  std::memcpy(to, from, length);
  return Status::kOk;
}

extern "C" int cmi_ofi_format(const void* object, char* text, size_t* len) {
  t_cause = {};
  return api::finish(
      kFacSeg,
      [&] {
        if (len == nullptr) return because(Status::kInval, "len is null");
        const auto word = access::to_text(object);
        if (!word) return because(word.status(), "not a handle, token or node address");
        return copy_out(word->c_str(), word->size() + 1, text, len);
      },
      "cmi_ofi_format({})", fmt::ptr(object));
}

extern "C" int cmi_ofi_parse(const char* text, void* object, size_t* len) {
  t_cause = {};
  return api::finish(
      kFacSeg,
      [&] {
        if (text == nullptr || len == nullptr) return because(Status::kInval, "a pointer is null");
        const auto found = access::from_text({text, ::strnlen(text, CMI_OFI_TEXT_SIZE)});
        if (!found) {
          return because(found.status(), access::is_of_other_version(text)
                                             ? "the text of an object, of a version not known here"
                                             : "not the text of an object, or a damaged one");
        }
        return copy_out(found->bytes.data(), found->bytes.size(), object, len);
      },
      "cmi_ofi_parse({} characters)", text == nullptr ? 0 : ::strnlen(text, CMI_OFI_TEXT_SIZE));
}
