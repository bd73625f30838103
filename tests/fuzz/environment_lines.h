// EnvironmentLines: fuzz data as an environment, a line NAME=VALUE each.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

namespace tutti::test {

class EnvironmentLines {
 public:
  explicit EnvironmentLines(std::string_view text) {
    while (!text.empty()) {
      const std::string_view line = text.substr(0, text.find('\n'));
      const size_t equals = line.find('=');
      if (equals != line.npos) variables_[std::string(line.substr(0, equals))] = line.substr(equals + 1);
      text.remove_prefix(std::min(text.size(), line.size() + 1));
    }
  }

  const char* operator()(const char* name) const {
    const auto found = variables_.find(std::string_view(name));
    return found == variables_.end() ? nullptr : found->second.c_str();
  }

 private:
  std::map<std::string, std::string, std::less<>> variables_;
};

}  // namespace tutti::test
