#include "trainer/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "trainer/error.h"

namespace tutti::trainer {
namespace {

class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int flags)
      : number_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

Error failure(const char* what, const std::filesystem::path& path) {
  return Error(std::string(what) + " " + path.string() + ": " + std::strerror(errno));
}

void write_all(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  const Descriptor file(path, O_WRONLY | O_CREAT | O_TRUNC);
  if (file.number() < 0) throw failure("cannot create", path);
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.number(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw failure("cannot write", path);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  if (::fsync(file.number()) != 0) throw failure("cannot write", path);
}

/// Only a regular file may be replaced: a device, for example, would be lost.
void check_replaceable(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto about = std::filesystem::status(path, ignored);
  if (std::filesystem::is_directory(about)) throw Error("cannot write " + path.string() + ": it is a folder");
  if (std::filesystem::exists(about) && !std::filesystem::is_regular_file(about))
    throw Error("cannot write " + path.string() + ": it is not a regular file");
}

std::filesystem::path draft_of(const std::filesystem::path& path) {
  return path.string() + ".new";
}

}  // namespace

void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  check_replaceable(path);
  const std::filesystem::path draft = draft_of(path);
  try {
    write_all(draft, bytes);
    if (::rename(draft.c_str(), path.c_str()) != 0) throw failure("cannot rename to", path);
  } catch (const Error&) {
    ::unlink(draft.c_str());
    throw;
  }
  // The rename is durable once the folder is on the disk.
  const Descriptor folder(path.has_parent_path() ? path.parent_path() : ".", O_RDONLY | O_DIRECTORY);
  if (folder.number() >= 0) ::fsync(folder.number());
}

void try_to_write(const std::filesystem::path& path) {
  check_replaceable(path);
  const std::filesystem::path draft = draft_of(path);
  const Descriptor file(draft, O_WRONLY | O_CREAT);
  if (file.number() < 0) throw failure("cannot create", draft);
  ::unlink(draft.c_str());
}

std::vector<std::byte> read_file(const std::filesystem::path& path) {
  // Only regular files: ranks read one after the other or all at once, and /dev/zero has no end.
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored))
    throw Error("cannot read " + path.string() + ": it is not a regular file");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw failure("cannot open", path);
  std::vector<std::byte> bytes(std::filesystem::file_size(path));
  if (!file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size())))
    throw failure("cannot read", path);
  return bytes;
}

}  // namespace tutti::trainer
