// Mesh: some ranks of this process, each joined to each other one by one transport, whatever the transport
// needs for that. Nothing here knows a particular transport, but for the list of those under test.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/file_descriptor.h"
#include "engine/links.h"
#include "tests/transports/traffic.h"
#include "transports/peer_rings.h"
#include "transports/registry.h"

namespace tutti::test {

/// A transport under test, with settings.
struct TransportCase {
  std::string name;  ///< letters and digits, for the names of tests
  const TransportEntry* entry = nullptr;
  Config config = {};
  bool over_loopback = false;  ///< its sockets are TCP over 127.0.0.1, else Unix sockets
};

/// Every transport of the library's registry, the simulator, the example, and some settings of TCP.
const std::vector<TransportCase>& transport_cases();

/// Both ends of a connection, as a transport's sockets: TCP over 127.0.0.1, or Unix sockets.
std::array<FileDescriptor, 2> connect_ends(bool over_loopback);
/// A key of the label that all ranks share.
std::array<std::byte, 32> key_of_label(const std::string& label);

struct MeshOptions {
  uint32_t rank_count = 2;
  RingShape shape{.slots = 8, .slot_bytes = 1024};
  uint32_t channels = kLinkChannels;
  const SymmetricHeap* heap = nullptr;
  OrderCards order_cards = nullptr;
};

class Mesh {
 public:
  Mesh(const TransportCase& under_test, const MeshOptions& options);
  ~Mesh();

  /// The links of `rank` to `peer`.
  TrafficSide& side(uint32_t rank, uint32_t peer);
  LinkTable& links(uint32_t rank);
  Transport& transport(uint32_t rank);
  /// Destroys the rank's transport, as a process that ends.
  void destroy(uint32_t rank);
  /// Cuts all sockets between the ranks. False: the transport has none.
  bool cut();
  /// Of each socket between ranks, one end.
  const std::vector<FileDescriptor>& wires() const { return wires_; }

 private:
  class Side;
  struct Rank;
  void join(uint32_t low, uint32_t high);

  const TransportCase& case_;
  MeshOptions options_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<FileDescriptor> wires_;  ///< one end of each socket between ranks
};

/// Runs traffic between ranks 0 and 1 to its end. What was wrong, or empty.
std::string run_traffic(Mesh& mesh, Traffic& traffic, uint64_t seed);

}  // namespace tutti::test
