#include "core/access/offer.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "core/access/handles.hpp"
#include "core/access/text_form.hpp"
#include "core/base/cause.hpp"
#include "core/base/fd.hpp"

namespace cmi::access {

namespace {

constexpr size_t kMaxName = 200;
constexpr size_t kMaxFile = 2 * (kMaxText + 1);

std::string path_of(const std::string& folder, const std::string& name) {
  return folder + "/" + name + ".cmi";
}

Status status_of(int error) {
  switch (error) {
    case EACCES:
    case EPERM:
    case EROFS:
      return because(Status::kPerm, "the folder or the file may not be accessed");
    case ENOENT:
    case ENOTDIR:
    case ENAMETOOLONG:
    case ELOOP:
      return because(Status::kInval, "there is no such folder");
    default:
      return because(Status::kNoMem, "no room for the file, or no descriptors");
  }
}

bool of_one_segment(const Offer& offer) {
  const auto rseg = decode_rseg(offer.rseg.data());
  const auto token = decode_token(offer.token.data());
  return rseg && token && rseg->uid == token->uid;
}

// A file that goes away again unless it gets its name.
struct Part {
  explicit Part(std::string p) : path(std::move(p)) {}
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  ~Part() {
    if (!path.empty()) ::unlink(path.c_str());
  }
  std::string path;
};

// Up to `most` bytes; nullopt: it cannot be read, or there are more.
Result<std::string> read_bounded(int fd, size_t most) {
  std::string text(most + 1, '\0');
  size_t got = 0;
  while (got < text.size()) {
    const ssize_t n = ::read(fd, text.data() + got, text.size() - got);
    if (n == 0) break;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return status_of(errno);
    got += static_cast<size_t>(n);
  }
  if (got > most) return because(Status::kInval, "the offer is damaged");
  text.resize(got);
  return text;
}

// The two words, each with the end of its line.
Result<Offer> parse(std::string_view text) {
  const size_t end = text.find('\n');
  if (end != std::string_view::npos && text.ends_with('\n') && end + 1 < text.size()) {
    const auto rseg = from_text(text.substr(0, end));
    const auto token = from_text(text.substr(end + 1, text.size() - end - 2));
    if (rseg && token && rseg->kind == ObjectKind::kRseg && token->kind == ObjectKind::kToken) {
      Offer offer{rseg->bytes, token->bytes};
      if (of_one_segment(offer)) return offer;
    }
  }
  return because(Status::kInval, "the offer is damaged");
}

}  // namespace

bool legal_offer_name(const std::string& name) {
  return !name.empty() && name.size() <= kMaxName && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '-' || c == '_';
         });
}

Status write_offer(const std::string& folder, const std::string& name, const Offer& offer) {
  if (!of_one_segment(offer)) {
    return because(Status::kInval, "not a handle and a token of the same segment");
  }
  const auto rseg = to_text(offer.rseg.data());
  const auto token = to_text(offer.token.data());
  if (!rseg || !token) return Status::kInval;
  std::string pattern = fmt::format("{}/.{}.XXXXXX", folder, name);
  const Fd fd(::mkostemp(pattern.data(), O_CLOEXEC));  // with mode 0600
  if (!fd) return status_of(errno);
  Part part(std::move(pattern));
  const std::string text = *rseg + "\n" + *token + "\n";
  if (!write_all(fd.get(), text.data(), text.size(), 0)) return status_of(ENOSPC);
  if (::rename(part.path.c_str(), path_of(folder, name).c_str()) != 0) return status_of(errno);
  part.path.clear();
  return Status::kOk;
}

Result<Offer> read_offer(const std::string& folder, const std::string& name) {
  // A pipe of somebody else's must not hold us up.
  const Fd fd(
      ::open(path_of(folder, name).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd && errno == ENOENT) return because(Status::kReconfig, "nobody offers it yet");
  if (!fd) return status_of(errno);
  struct stat file;
  if (::fstat(fd.get(), &file) != 0) return status_of(errno);
  if (!S_ISREG(file.st_mode) || file.st_uid != ::geteuid()) {
    return because(Status::kPerm, "the offer is another user's, or no file");
  }
  const auto text = read_bounded(fd.get(), kMaxFile);
  if (!text) return text.status();
  return parse(*text);
}

Status remove_offer(const std::string& folder, const std::string& name) {
  if (::unlink(path_of(folder, name).c_str()) == 0 || errno == ENOENT) return Status::kOk;
  return status_of(errno);
}

}  // namespace cmi::access
