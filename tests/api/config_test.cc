// tutti_config_t, and how long the text of an error lives.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <utility>

#include "tests/support/cluster.h"
#include "tutti/tutti.h"

namespace tutti::test {
namespace {

// Static: the macro is a constant.
const tutti_stream_t kNow = TUTTI_BLOCKING;
constexpr tutti_stream_t kConstant = TUTTI_BLOCKING_INIT;
static_assert(kConstant.kind == 0 && kConstant.handle == nullptr);

// Goal: a config of zeros but for its size means the defaults: ranks in host memory, which compute.
TEST(ConfigTest, OfZerosIsTheDefault) {
  EXPECT_EQ(run_child([] {
              tutti_config_t zeroed{};
              zeroed.size = sizeof(zeroed);
              tutti_comm_t* comm = nullptr;
              if (tutti_comm_create_all(&comm, 1, &zeroed) != TUTTI_SUCCESS)
                return std::string(tutti_last_error());
              const float sent = 3;
              float received = 0;
              const tutti_result_t result =
                  tutti_all_reduce(&sent, &received, 1, TUTTI_FLOAT32, TUTTI_SUM, comm, kNow);
              (void)tutti_comm_destroy(comm);
              const bool good = result == TUTTI_SUCCESS && received == sent;
              return good ? std::string() : std::string(tutti_last_error());
            }),
            "");
}

// Goal: a struct of an older or a newer header is read as far as both know it.
TEST(ConfigTest, IsVersionedByItsSize) {
  EXPECT_EQ(run_child([] {
              std::string failures;
              struct Newer {
                tutti_config_t known = TUTTI_CONFIG_INIT;
                uint64_t unknown = 0;
              } newer;
              newer.known.size = sizeof(newer);
              tutti_config_t older = TUTTI_CONFIG_INIT;
              older.size = offsetof(tutti_config_t, timeout_ms);
              older.timeout_ms = 1;
              tutti_comm_t* comms[2] = {};
              for (const tutti_config_t* config : {&newer.known, &older}) {
                if (tutti_comm_create_all(comms, 2, config) != TUTTI_SUCCESS)
                  return std::string(tutti_last_error());
                for (tutti_comm_t* comm : comms) {
                  if (tutti_comm_destroy(comm) != TUTTI_SUCCESS) failures += tutti_last_error();
                }
              }
              newer.unknown = 1;
              comms[0] = comms[1] = nullptr;
              if (tutti_comm_create_all(comms, 2, &newer.known) != TUTTI_UNSUPPORTED)
                failures += "unknown field accepted\n";
              if (comms[0] != nullptr || comms[1] != nullptr) failures += "a communicator was left\n";
              return failures;
            }),
            "");
}

// Goal: the text of a failure stays where it is until the thread's next failing call.
// Method: a pointer to the text is kept over calls that succeed and one that is in progress.
TEST(LastErrorTest, LivesUntilTheNextFailingCall) {
  EXPECT_EQ(run_child([] {
              (void)tutti_get_version(nullptr);
              const char* const text = tutti_last_error();
              const std::string before = text;
              int version = 0;
              tutti_unique_id_t id;
              tutti_comm_t* comm = nullptr;
              tutti_config_t config = TUTTI_CONFIG_INIT;
              config.nonblocking = 1;
              if (tutti_get_version(&version) != TUTTI_SUCCESS || tutti_get_unique_id(&id) != TUTTI_SUCCESS ||
                  tutti_comm_create(&comm, 2, id, 0, &config) != TUTTI_IN_PROGRESS ||
                  tutti_comm_abort(comm) != TUTTI_SUCCESS)
                return "a call that should not fail: " + std::string(tutti_last_error());
              if (before.find("version") == before.npos || before != text || tutti_last_error() != text)
                return before + "\n" + text;
              (void)tutti_get_unique_id(nullptr);
              return std::string(tutti_last_error()).find("id") != before.npos ? ""
                                                                               : std::string("not replaced");
            }),
            "");
}

}  // namespace
}  // namespace tutti::test
