// Strangers at a job: whoever comes to its ports and does not know the key costs the ranks a line of log, no
// more.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "bootstrap/unique_id.h"
#include "core/file_descriptor.h"
#include "net/endpoint.h"
#include "net/handshake.h"
#include "tests/support/cluster.h"

namespace tutti::test {
namespace {

Endpoint rendezvous_of(const tutti_unique_id_t& bytes) {
  UniqueId id;
  std::memcpy(static_cast<void*>(&id), bytes.bytes, sizeof(id));
  return (*unpack_endpoints(id.endpoints))[0];
}

/// A connection that says `bytes`; closed when the result goes.
FileDescriptor come(const Endpoint& where, std::string_view bytes) {
  sockaddr_storage storage;
  const socklen_t length = where.to_sockaddr(storage);
  FileDescriptor socket(::socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&storage), length) != 0) return {};
  (void)send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  return socket;
}

/// What the process writes to standard error from here on.
class ErrorOutput {
 public:
  ErrorOutput() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return;
    reader_ = FileDescriptor(ends[0]);
    before_ = FileDescriptor(dup(STDERR_FILENO));
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
  }
  ~ErrorOutput() { dup2(before_.get(), STDERR_FILENO); }
  std::string text() {
    std::array<char, 65536> buffer;
    const ssize_t bytes = read(reader_.get(), buffer.data(), buffer.size());
    return {buffer.data(), static_cast<size_t>(std::max<ssize_t>(bytes, 0))};
  }

 private:
  FileDescriptor reader_;
  FileDescriptor before_;
};

size_t count_of(const std::string& text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Goal: a scanner, another protocol, half a hello that stalls, a hello without the key and ten thousand
// connections: the ranks meet all the same, and each kind is logged once, with address and reason. Method:
// rank 1's process plays the strangers at the rendezvous in rank 0's, then the ranks meet.
TEST(StrangersTest, AJobMeetsAmidStrangersWhichAreLoggedOnce) {
  ClusterOptions options{.layout = {1, 1}, .hosts = {0, 1}, .create = false};
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) {
                          const tutti_unique_id_t id = rank.id();
                          std::optional<ErrorOutput> errors;
                          if (rank.rank() == 0) errors.emplace();
                          rank.meet();
                          if (rank.rank() == 1) {
                            const Endpoint where = rendezvous_of(id);
                            const FileDescriptor stalled = come(where, std::string(kResponseBytes / 2, 'x'));
                            rank.expect_true(stalled.is_open(), "the rendezvous listens");
                            for (int i = 0; i < 10'000; ++i) come(where, "");
                            for (int i = 0; i < 100; ++i) come(where, "GET / HTTP/1.1");
                            for (int i = 0; i < 100; ++i) come(where, std::string(kResponseBytes, '\0'));
                          }
                          rank.expect_ok(tutti_comm_create(&rank.comm, 2, id, rank.rank(), nullptr),
                                         "create");
                          rank.expect_ok(tutti_barrier(rank.comm, TUTTI_BLOCKING), "barrier");
                          if (rank.rank() != 0) return;
                          const std::string text = errors->text();
                          const size_t lines = count_of(text, "refused a connection from ");
                          rank.expect_true(lines >= 2 && lines <= 5, text);
                          rank.expect_true(count_of(text, "does not know the key") == 1, text);
                        }),
            "");
}

// The ranks' own connections to several addresses at once were logged as strangers.
// Method: so many processes on few cores that attempts at other addresses begin; what they write is read.
TEST(StrangersTest, RanksAreNoStrangersToEachOther) {
  ClusterOptions options;
  options.layout = processes(32);
  for (int process = 0; process < 32; ++process) options.hosts.push_back(process / 8);
  testing::internal::CaptureStderr();
  const std::string failures = run_cluster(
      options, [](Rank& rank) { rank.expect_ok(tutti_barrier(rank.comm, TUTTI_BLOCKING), "barrier"); });
  const std::string written = testing::internal::GetCapturedStderr();
  EXPECT_EQ(failures, "");
  EXPECT_EQ(written.find("refused a connection"), std::string::npos) << written;
}

}  // namespace
}  // namespace tutti::test
