// Walks folders, looks into files, cuts long ones between words. Sorted, so that every run is the
// same.
#include "input.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "failure.hpp"

namespace wordcount {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMiB = 1024 * 1024;

class File {
 public:
  explicit File(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }

  [[nodiscard]] bool is_open() const { return fd_ >= 0; }

  [[nodiscard]] uint64_t size() const {
    struct stat info = {};
    return ::fstat(fd_, &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
  }

  // Bytes read: fewer than `length` only at the end of the file or after an error.
  size_t read(char* into, size_t length, uint64_t offset) const {
    size_t done = 0;
    while (done < length) {
      const ssize_t got =
          ::pread(fd_, into + done, length - done, static_cast<off_t>(offset + done));
      if (got <= 0) break;
      done += static_cast<size_t>(got);
    }
    return done;
  }

 private:
  int fd_;
};

bool in_word(char c) { return kInWord[static_cast<unsigned char>(c)]; }

std::vector<std::string> list_files(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& given : paths) {
    std::error_code error;
    const fs::path path = fs::canonical(given, error);
    if (error) fail("{}: {}", given, error.message());
    if (!fs::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    const auto options = fs::directory_options::skip_permission_denied;
    for (fs::recursive_directory_iterator at(path, options, error), end; !error && at != end;
         at.increment(error)) {
      std::error_code no_status;
      if (fs::is_regular_file(at->symlink_status(no_status))) files.push_back(at->path());
    }
    if (error) fail("{}: {}", given, error.message());
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

// Size of a file that is to be counted, 0 for any other.
uint64_t text_size(const std::string& path, const File& file) {
  if (!file.is_open() || path.ends_with(".gz") || path.find('\n') != std::string::npos) return 0;
  std::array<char, 8192> start{};
  const size_t length = file.read(start.data(), start.size(), 0);
  const bool binary =
      std::find(start.begin(), start.begin() + length, '\0') != start.begin() + length;
  return binary ? 0 : file.size();
}

// The first place at or after `wanted` where no word is cut; the end of the file if that is nearer.
uint64_t place_to_cut(const File& file, uint64_t wanted, uint64_t size) {
  std::array<char, 4096> window{};
  for (uint64_t at = wanted; at < size;) {
    const size_t length = file.read(window.data(), window.size(), at - 1);
    if (length < 2) return size;
    for (size_t i = 1; i < length; i++, at++) {
      if (!in_word(window[i - 1]) || !in_word(window[i])) return at;
    }
  }
  return size;
}

}  // namespace

Plan make_plan(const std::vector<std::string>& paths, uint64_t limit, unsigned nodes) {
  struct Text {
    std::string path;
    uint64_t size;
  };
  Plan plan;
  std::vector<Text> texts;
  for (const std::string& path : list_files(paths)) {
    if (limit != 0 && plan.bytes >= limit) break;
    const File file(path);
    uint64_t size = text_size(path, file);
    if (limit != 0 && size > limit - plan.bytes)
      size = place_to_cut(file, limit - plan.bytes, size);
    if (size == 0) continue;
    texts.push_back({path, size});
    plan.bytes += size;
    plan.files++;
  }

  // Some sixteen chunks for each node, so that a slow one delays nobody for long.
  const uint64_t chunk_bytes = std::clamp(plan.bytes / (16 * nodes), kMiB / 64, kMiB);
  uint64_t room = 0;
  for (const Text& text : texts) {
    const File file(text.path);
    for (uint64_t at = 0; at < text.size;) {
      if (room == 0) {
        plan.chunks.emplace_back();
        room = chunk_bytes;
      }
      uint64_t end = text.size;
      if (file.is_open() && end - at > chunk_bytes) end = place_to_cut(file, at + chunk_bytes, end);
      plan.chunks.back().push_back({text.path, at, end - at});
      room -= std::min(room, end - at);
      at = end;
    }
  }
  return plan;
}

std::string encode_chunk(const Chunk& chunk) {
  std::string text;
  for (const Piece& piece : chunk) {
    text += fmt::format("{} {} {}\n", piece.offset, piece.length, piece.path);
  }
  return text;
}

Chunk decode_chunk(std::string_view text) {
  Chunk chunk;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) fail("the list of files ends within a line");
    const char* const stop = text.data() + end;
    Piece piece;
    const auto offset = std::from_chars(text.data(), stop, piece.offset);
    const auto length = std::from_chars(std::min(offset.ptr + 1, stop), stop, piece.length);
    if (offset.ec != std::errc() || length.ec != std::errc() || length.ptr >= stop) {
      fail("the list of files has a bad line: {}", text.substr(0, end));
    }
    piece.path.assign(length.ptr + 1, stop);
    chunk.push_back(std::move(piece));
    text.remove_prefix(end + 1);
  }
  return chunk;
}

void read_piece(const Piece& piece, std::string& text) {
  const File file(piece.path);
  text.resize(piece.length);
  if (!file.is_open() || file.read(text.data(), text.size(), piece.offset) != piece.length) {
    fail("{} is not as it was when the home node listed it", piece.path);
  }
}

}  // namespace wordcount
