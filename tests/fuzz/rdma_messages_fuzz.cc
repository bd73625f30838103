// Fuzz target: what a peer may send to a rank over RDMA. Its ports and the ends of its queue pairs are read
// or refused. Any bytes on the socket of the pair, with the pieces of lanes that have no rail, are messages
// of the links or an error that names the peer.
#include <cstdint>
#include <span>

#include "tests/rdma/hostile_peer.h"
#include "tests/rdma/provider/control.h"
#include "transports/rdma/control.h"
#include "transports/rdma/hello.h"

namespace {

void read_set_up(std::span<const std::byte> bytes) {
  (void)tutti::rdma::decode_ports(bytes);
  (void)tutti::rdma::decode_resume(bytes);
  if (bytes.size() >= tutti::rdma::kHelloBytes)
    (void)tutti::rdma::decode_hello(bytes.first<tutti::rdma::kHelloBytes>(),
                                    {.piece_bytes = tutti::rdma::kPieceBytes, .is_ethernet = true});
  if (bytes.size() >= tutti::rdma::kControlBytes)
    (void)tutti::rdma::decode_control(bytes.first<tutti::rdma::kControlBytes>());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t data_bytes) {
  read_set_up(std::as_bytes(std::span(data, data_bytes)));
  tutti::test::fake_verbs::reset(1);
  tutti::test::survive_hostile_peer({data, data_bytes});
  return 0;
}
