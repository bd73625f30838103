// Variables: what a user is told who misspells a name.
#include "core/variables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tutti {
namespace {

std::string told(std::vector<std::string> environment) {
  return unknown_variables(environment);
}

// Goal: a misspelt name is told with the nearest name that exists.
TEST(VariablesTest, AMisspeltNameIsToldWithTheNearest) {
  const std::string text = told({"TUTTI_TIMOUT_MS=5", "HOME=/", "TUTTI_SOCKET_IFNAM=eth0"});
  EXPECT_NE(text.find("TUTTI_TIMOUT_MS (did you mean TUTTI_TIMEOUT_MS?)"), text.npos) << text;
  EXPECT_NE(text.find("TUTTI_SOCKET_IFNAM (did you mean TUTTI_SOCKET_IFNAME?)"), text.npos) << text;
  EXPECT_EQ(text.find("HOME"), text.npos) << text;
}

// Goal: a value is not repeated, because it may be a misspelt key's.
TEST(VariablesTest, NoValueIsRepeated) {
  EXPECT_EQ(told({"TUTTI_KEYY=hunter2hunter2hunter2"}).find("hunter2"), std::string::npos);
}

// Goal: nothing is said of names that something reads, of tests' names and of other programs' names.
TEST(VariablesTest, KnownNamesAreNotTold) {
  std::vector<std::string> environment = {"TUTTI_TEST_FULL=1", "tutti_slots=4", "NCCL_DEBGU=INFO", "TUTTI=1"};
  for (const std::string& name : known_variables()) environment.push_back(name + "=1");
  EXPECT_EQ(told(environment), "");
  EXPECT_EQ(told({}), "");
}

// Goal: the list holds what read_config asks for and what the bootstrap reads, sorted and once.
TEST(VariablesTest, TheListIsSorted) {
  const std::vector<std::string>& names = known_variables();
  EXPECT_TRUE(std::ranges::is_sorted(names));
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
  for (const char* name : {"TUTTI_KEY", "TUTTI_KEY_FILE", "TUTTI_ID_FILE", "NCCL_SOCKET_IFNAME"})
    EXPECT_TRUE(std::ranges::binary_search(names, name)) << name;
}

TEST(VariablesTest, TheProcessesVariablesAreRead) {
  const std::vector<std::string> variables = process_variables();
  EXPECT_TRUE(
      std::ranges::any_of(variables, [](const std::string& one) { return one.starts_with("PATH="); }));
}

}  // namespace
}  // namespace tutti
