// What the publications of a page say of how programs use it, in words. Pure.
#pragma once

#include <string>

#include "core/node/context_report.hpp"

namespace cmi::adm {

struct Diagnosis {
  const char* name;  // "false sharing" and so on
  const char* mend;  // what makes the page cheaper; empty: nothing has to
};

Diagnosis diagnose(const node::PublishedPageLine& page);

// The bytes of a page that these words are, as "0-7, 64-71"; the first few ranges of many.
std::string bytes_text(const decltype(node::PageWriterLine::words)& words);

}  // namespace cmi::adm
