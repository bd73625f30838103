// Files that are there as a whole or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

namespace tutti::trainer {

/// Writes beside `path`, flushes to the disk, then renames over it: whoever reads, and whatever fails, sees
/// the old file or the new one. Throws Error; then nothing is left of the attempt.
void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes);
/// Whether write_file could begin, without touching what is there: throws Error where it could not, so that a
/// long run does not end with that news.
void try_to_write(const std::filesystem::path& path);
/// Of a regular file. Throws Error.
std::vector<std::byte> read_file(const std::filesystem::path& path);

}  // namespace tutti::trainer
