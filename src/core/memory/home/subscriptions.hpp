// Pages that importers subscribe to (protocol rule 25): what goes to them along with the
// notification. Under HomeCore::mu, like the notification: what has a higher number was read later.
#pragma once

#include <optional>
#include <vector>

#include "core/memory/home/segment.hpp"
#include "core/memory/page/update_protocol.hpp"

namespace cmi::memory {

// Whether any importer subscribes to the page.
bool subscribed(Segment& s, uint32_t page);
// Whether any may: true for longer. Under the segment's lock `mu`, or HomeCore::mu.
bool may_be_subscribed(const Segment& s, uint32_t page);
// What is new when this word is, or these whole pages may be; of those that are subscribed to.
std::vector<StoredPage> word_of(Segment& s, uint64_t offset);
std::vector<StoredPage> whole_pages(Segment& s, const std::vector<PageRange>& ranges);
// Of what is new, that which goes to this sharer; the pages leave *ranges, which it is to drop.
// `words`: of each of `stored` as a diff, read for the first sharer that subscribes to it; an empty
// one: its memory is broken.
using NewWords = std::vector<std::optional<std::vector<std::byte>>>;
std::vector<std::byte> updates_for(Segment& s, Sharer& h, const std::vector<StoredPage>& stored,
                                   NewWords* words, std::vector<PageRange>* ranges);

}  // namespace cmi::memory
