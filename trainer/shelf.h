// Shelf: a file for numbers that are not in use.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "trainer/error.h"

namespace tutti::trainer {

/// The file has no name and ends with this object. Places and counts are in numbers. Throws Error: the
/// folder, the disk.
class Shelf {
 public:
  explicit Shelf(const std::filesystem::path& folder)
      : folder_(folder), file_(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)) {
    if (file_ < 0) throw Error("--offload " + folder.string() + ": " + std::strerror(errno));
  }
  ~Shelf() { ::close(file_); }
  Shelf(const Shelf&) = delete;
  Shelf& operator=(const Shelf&) = delete;

  void put(size_t at, const float* values, size_t count) const {
    finish(::pwrite(file_, values, count * sizeof(float), offset(at)), count);
  }
  void get(size_t at, float* values, size_t count) const {
    finish(::pread(file_, values, count * sizeof(float), offset(at)), count);
  }

  /// Writes the lists, one behind the other, and frees them.
  void put_away(size_t at, std::vector<std::vector<float>>* lists) const {
    for (std::vector<float>& list : *lists) {
      put(at, list.data(), list.size());
      at += list.size();
      std::vector<float>().swap(list);
    }
  }
  /// The way back, for lists of `count` numbers each.
  void bring_back(size_t at, size_t count, std::vector<std::vector<float>>* lists) const {
    for (std::vector<float>& list : *lists) {
      list.resize(count);
      get(at, list.data(), count);
      at += count;
    }
  }

 private:
  static off_t offset(size_t at) { return static_cast<off_t>(at * sizeof(float)); }
  void finish(ssize_t bytes, size_t count) const {
    if (bytes != static_cast<ssize_t>(count * sizeof(float)))
      throw Error("--offload " + folder_.string() + ": " +
                  (bytes < 0 ? std::strerror(errno) : "the disk is full"));
  }
  std::filesystem::path folder_;
  int file_;
};

}  // namespace tutti::trainer
