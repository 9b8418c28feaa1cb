// What mutations (core/base/mutation.hpp) of the importer do beyond a condition. Defined with
// CMI_FAULT_INJECTION only: elsewhere mutated() is false when compiled, and nothing calls these.
#pragma once

#include <cstddef>

#include "core/base/codec.hpp"
#include "core/memory/wire/wire.hpp"

namespace cmi::memory {

struct Import;
class Userfault;
struct View;

namespace mutation {

// Replaces the bytes in packed diffs by what the pages hold now.
void read_again(const Import& imp, Bytes diffs);

// Renews a twin from the page, which may have been stored to since it was compared.
void renew_from_page(std::byte* twin, const std::byte* page);

// Lets stores into a page whose twin is not copied yet.
void open_without_twin(Userfault& userfault, const View& view, uint32_t page);

// Lets loads see pages of which it is not known yet whether they are stale, and takes them back.
void show_unchecked(Userfault& userfault, const View& view, PageRange pages);

}  // namespace mutation
}  // namespace cmi::memory
