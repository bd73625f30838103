#include "core/variables.h"

#include <algorithm>
#include <numeric>

#include "core/config.h"
#include "core/result.h"

namespace tutti {
namespace {

constexpr std::string_view kOurs = "TUTTI_";
constexpr std::string_view kOfTests = "TUTTI_TEST_";

/// Read outside read_config: by the bootstrap, libtutti_malloc.so and perf/launch.cc.
constexpr const char* kOtherReaders[] = {"TUTTI_ID_FILE", "TUTTI_MALLOC_BYTES", "TUTTI_PERF_WORKER"};

/// Levenshtein distance, one row of the table at a time.
size_t distance(std::string_view from, std::string_view to) {
  std::vector<size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < from.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < to.size(); ++j) {
      const size_t replaced = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::vector<std::string> collect() {
  std::vector<std::string> names(std::begin(kOtherReaders), std::end(kOtherReaders));
  // An empty environment has no wrong value.
  (void)read_config([&](const char* name) -> const char* {
    names.emplace_back(name);
    return nullptr;
  });
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()),
              names.end());  // clang 14 cannot compile ranges::unique
  return names;
}

}  // namespace

const std::vector<std::string>& known_variables() {
  // Never destroyed: a thread may call during exit.
  static const auto* names = new std::vector<std::string>(collect());
  return *names;
}

std::string_view nearest_name(std::string_view name, std::span<const std::string> known) {
  return *std::ranges::min_element(known, {}, [name](const std::string& one) { return distance(name, one); });
}

std::string unknown_variables(std::span<const std::string> environment) {
  std::vector<std::string> ours;
  for (const std::string& name : known_variables()) {
    if (name.starts_with(kOurs)) ours.push_back(name);
  }
  std::string list;
  for (const std::string& variable : environment) {
    const std::string name = variable.substr(0, variable.find('='));
    if (!name.starts_with(kOurs) || name.starts_with(kOfTests)) continue;
    if (std::ranges::binary_search(ours, name)) continue;
    add_to_list(list, name + " (did you mean " + std::string(nearest_name(name, ours)) + "?)");
  }
  if (list.empty()) return "";
  return "nothing reads these environment variables: " + list + "; docs/configuration.md lists the names";
}

}  // namespace tutti
