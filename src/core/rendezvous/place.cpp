#include "core/rendezvous/place.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "core/base/cause.hpp"
#include "core/base/fd.hpp"

namespace cmi::rendezvous {

namespace {

constexpr std::string_view kTcp = "tcp://", kPmix = "pmix:", kSecretOf = "?secret=";
constexpr size_t kMaxHost = 255;

Status no_place() {
  return because(Status::kInval, "where is none of a folder, tcp://HOST:PORT and pmix:");
}

bool is_port(std::string_view text) {
  if (text.empty() || text.size() > 5 || text.front() == '0') return false;
  unsigned port = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return false;
    port = port * 10 + static_cast<unsigned>(c - '0');
  }
  return port <= 65535;
}

// Of names and addresses: what else comes is no host, and goes to no resolver.
bool is_host(std::string_view text) {
  return !text.empty() && text.size() <= kMaxHost && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '-' || c == '_' || c == ':' || c == '%';
         });
}

Result<std::string> secret_in(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat file;
  if (!fd && (errno == EACCES || errno == EPERM)) {
    return because(Status::kPerm, "the file of the secret may not be read");
  }
  if (!fd && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) return Status::kNoMem;
  if (!fd || ::fstat(fd.get(), &file) != 0 || !S_ISREG(file.st_mode)) {
    return because(Status::kInval, "there is no file with the secret");
  }
  std::string text(kMaxSecret + 2, '\0');
  const ssize_t got = ::pread(fd.get(), text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  if (text.ends_with('\n')) text.pop_back();
  if (text.empty() || text.size() > kMaxSecret) {
    return because(Status::kInval, "a secret has 1 to 1024 bytes");
  }
  return text;
}

Result<Place> parse_tcp(std::string_view at, const std::string& secret) {
  Place place;
  place.kind = Place::Kind::kTcp;
  place.secret = secret;
  if (const size_t question = at.find('?'); question != std::string_view::npos) {
    const std::string_view rest = at.substr(question);
    if (!rest.starts_with(kSecretOf) || rest.size() == kSecretOf.size()) return no_place();
    auto read = secret_in(std::string(rest.substr(kSecretOf.size())));
    if (!read) return read.status();
    place.secret = read.take();
    at = at.substr(0, question);
  }
  const size_t colon = at.rfind(':');
  if (colon == std::string_view::npos) return no_place();
  std::string_view host = at.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (!is_host(host) || (!bracketed && host.find(':') != std::string_view::npos)) {
    return no_place();
  }
  if (!is_port(at.substr(colon + 1))) {
    return because(Status::kInval, "a port is a number from 1 to 65535");
  }
  place.host = host;
  place.port = at.substr(colon + 1);
  return place;
}

Result<Place> parse_pmix(std::string_view rank) {
  constexpr uint32_t kMaxRank = 1 << 30;
  Place place;
  place.kind = Place::Kind::kPmix;
  if (rank.empty()) return place;
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(rank.data(), rank.data() + rank.size(), number);
  if (error != std::errc{} || end != rank.data() + rank.size() || number > kMaxRank) {
    return because(Status::kInval, "a rank is a number of a process of the job");
  }
  place.rank = number;
  return place;
}

}  // namespace

Result<Place> parse_place(std::string_view where, const std::string& secret) {
  if (where.empty() || where.size() > kMaxWhere) return no_place();
  if (where.starts_with(kTcp)) return parse_tcp(where.substr(kTcp.size()), secret);
  if (where.starts_with(kPmix)) return parse_pmix(where.substr(kPmix.size()));
  if (where.find("://") != std::string_view::npos) return no_place();
  Place place;
  place.folder = where;
  return place;
}

}  // namespace cmi::rendezvous
