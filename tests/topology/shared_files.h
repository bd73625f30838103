// Files of real machines, which lie beside the source tree where a developer has them.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace tutti::topology::test {

/// All files of the folder, sorted; empty if there is no folder.
inline std::vector<std::string> files_under(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code failure;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, failure)) {
    const auto extension = entry.path().extension();
    if (extension == ".xml" || extension == ".topo") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace tutti::topology::test
