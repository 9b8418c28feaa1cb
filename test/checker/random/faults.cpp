// Delays by seed, and what the library knows.
#include "checker/random/faults.hpp"

#include <cmi.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <random>

namespace cmi::checker {

namespace {

// Each between two steps of the protocol that another node may come between.
constexpr std::array kPoints = {"store_before_unprotect", "fetch_before_read",
                                "fetch_before_deliver",   "publish_before_send",
                                "sent_before_protect",    "publish_notified",
                                "invalidate_before_ack",  "home_scanned_before_publish",
                                "cas_before_send",        "present_before_reply",
                                "server_before_reply",    "link_reply_before_answer",
                                "subscribe_before_send",  "update_before_apply",
                                "cas_before_patch",       "invalidate_before_zap",
                                "publish_before_page",    "write_back_begun",
                                "intent_before_send",     "intent_granted",
                                "mutation_behind_taken"};
constexpr std::array kMicros = {50, 200, 1000, 3000};

// The bytes of the library's file.
const std::string& library() {
  static const std::string bytes = [] {
    Dl_info info{};
    if (::dladdr(reinterpret_cast<void*>(&cmi_ini), &info) == 0) return std::string();
    std::ifstream file(info.dli_fname, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }();
  return bytes;
}

bool in_name(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; }

// A name, and not the end of a longer one. What lies before it may be anything: the linker puts it
// where it likes.
bool begins_at(size_t at) { return at == 0 || !in_name(library()[at - 1]); }

}  // namespace

std::vector<std::string> library_mutations() {
  const std::string start("mutate_");
  const std::string& bytes = library();
  std::vector<std::string> names;
  for (size_t at = bytes.find(start); at != std::string::npos; at = bytes.find(start, at + 1)) {
    if (!begins_at(at)) continue;
    const auto first = bytes.begin() + static_cast<ptrdiff_t>(at);
    const auto last = std::find_if_not(first, bytes.end(), in_name);
    if (last != bytes.end() && *last == '\0') names.emplace_back(first, last);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::vector<std::string> unknown_delays() {
  std::vector<std::string> unknown;
  for (const char* point : kPoints) {
    const std::string literal = std::string(point) + '\0';
    size_t at = library().find(literal);
    while (at != std::string::npos && !begins_at(at)) at = library().find(literal, at + 1);
    if (at == std::string::npos) unknown.emplace_back(point);
  }
  return unknown;
}

std::string random_delays(uint64_t seed, uint32_t node) {
  std::mt19937_64 random(seed * 31 + node);
  std::string spec;
  for (uint64_t left = random() % 4; left > 0; --left) {
    const auto micros = kMicros[random() % kMicros.size()];
    if (!spec.empty()) spec += ';';
    spec += std::string(kPoints[random() % kPoints.size()]) + "=delay:" + std::to_string(micros);
  }
  // Programs have too few pages for stores in order.
  if (random() % 2 == 0)
    spec += std::string(spec.empty() ? "" : ";") + "always_in_order=fail;write_behind_soon=fail";
  return spec;
}

}  // namespace cmi::checker
