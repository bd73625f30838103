// Files that exist whole or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

namespace tutti::trainer {

/// Writes beside `path`, flushes to the disk, then renames over `path`. So readers see the old file or the
/// new file, whatever fails. Throws Error and then leaves no draft.
void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes);
/// Checks that write_file can begin, without a change to `path`. Throws Error if not, so that a long run does
/// not fail at its end.
void try_to_write(const std::filesystem::path& path);
/// Reads a regular file. Throws Error.
std::vector<std::byte> read_file(const std::filesystem::path& path);

}  // namespace tutti::trainer
