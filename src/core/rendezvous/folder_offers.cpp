#include "core/rendezvous/folder_offers.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "core/base/cause.hpp"
#include "core/base/fd.hpp"

namespace cmi::rendezvous {

namespace {

constexpr int kTries = 100;  // of a replacement, while others replace the same offer

std::string path_of(const std::string& folder, const std::string& name) {
  return folder + "/" + name + ".cmi";
}
std::string part_of(const std::string& folder, const std::string& name) {
  return folder + "/." + name + ".part";
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

// Up to `most` bytes. kInval: there are more.
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

// Gives a nameless file its name. 0, or an errno. By way of the thread: /proc/self has no
// descriptors once the first thread of the process has ended.
int name_file(int fd, const std::string& path) {
  const std::string nameless = fmt::format("/proc/thread-self/fd/{}", fd);
  return ::linkat(AT_FDCWD, nameless.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) == 0
             ? 0
             : errno;
}

// The same over an offer that is there. Others may replace it at the same time, and then one of
// them is the last.
int name_over(int fd, const std::string& part, const std::string& path) {
  for (int i = 0; i < kTries; ++i) {
    ::unlink(part.c_str());
    int error = name_file(fd, part);
    if (error == EEXIST) continue;
    if (error != 0) return error;
    if (::rename(part.c_str(), path.c_str()) == 0) return 0;
    error = errno;
    ::unlink(part.c_str());
    if (error != ENOENT) return error;
  }
  return EBUSY;
}

// Without nameless files.
Status write_under_a_random_name(const std::string& folder, const std::string& name,
                                 const std::string& text) {
  std::string pattern = fmt::format("{}/.{}.XXXXXX", folder, name);
  const Fd fd(::mkostemp(pattern.data(), O_CLOEXEC));  // with mode 0600
  if (!fd) return status_of(errno);
  Part part(std::move(pattern));
  if (!write_all(fd.get(), text.data(), text.size(), 0)) return status_of(ENOSPC);
  if (::rename(part.path.c_str(), path_of(folder, name).c_str()) != 0) return status_of(errno);
  part.path.clear();
  return Status::kOk;
}

}  // namespace

Status write_offer(const std::string& folder, const std::string& name, const Offer& offer) {
  const auto text = offer_text(offer);
  if (!text) return text.status();
  const Fd fd(::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
  // Kernels and file systems that know none of it say so in one of these ways.
  if (!fd && errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) return status_of(errno);
  if (!fd) return write_under_a_random_name(folder, name, *text);
  if (!write_all(fd.get(), text->data(), text->size(), 0)) return status_of(ENOSPC);
  const std::string path = path_of(folder, name);
  const int error = name_file(fd.get(), path);
  if (error == 0) return Status::kOk;
  // Without /proc there is no way to the file.
  if (error == ENOENT) return write_under_a_random_name(folder, name, *text);
  if (error != EEXIST) return status_of(error);
  const int over = name_over(fd.get(), part_of(folder, name), path);
  return over == 0 ? Status::kOk : status_of(over);
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
  const auto text = read_bounded(fd.get(), kMaxOfferText);
  if (!text) return text.status();
  return parse_offer(*text);
}

Status remove_offer(const std::string& folder, const std::string& name) {
  ::unlink(part_of(folder, name).c_str());
  if (::unlink(path_of(folder, name).c_str()) == 0 || errno == ENOENT) return Status::kOk;
  return status_of(errno);
}

}  // namespace cmi::rendezvous
