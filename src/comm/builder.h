// CommunicatorBuilder: creates a communicator in phases. After each phase:
//   join       the bootstrap knows this rank; a failure of any rank now reaches all ranks
//   describe   this rank's memory exists, and its files have names
//   introduce  every rank has the facts of all ranks, and may fetch their files
//   choose     all ranks have derived equal settings, hosts, cores, slots and topology from these facts
//   connect    memory is mapped; connections and the control plane are open
//   allocate   the executor exists: on the host, on a device, or staged
//   watch      all ranks are ready; heartbeats are expected
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "comm/communicator.h"
#include "comm/rank_facts.h"
#include "core/result.h"

namespace tutti {

class CommunicatorBuilder {
 public:
  CommunicatorBuilder(Process& process, uint32_t rank, uint32_t rank_count, const CommOptions& options);

  /// Runs all phases. Blocks until all ranks have come. Errors: as Communicator::create. By then all ranks
  /// know the error, and this rank has left.
  Status build(const BootstrapOptions& options);
  std::unique_ptr<Communicator> take() { return std::move(communicator_); }

 private:
  /// Files that other ranks may fetch while they connect.
  struct OwnFiles;

  Status run_phases(Bootstrap& bootstrap);
  Status build_alone(Bootstrap& bootstrap, const Status& opened);
  Status start_workers();
  Status describe(OwnFiles& own);
  Status make_segment(OwnFiles& own);
  Status open_files(OwnFiles& own);
  Result<RankTable> introduce(Bootstrap& bootstrap, OwnFiles& own);
  RankFacts own_facts(const PackedEndpoints& data, const FileSecret& secret) const;
  Status choose(Bootstrap& bootstrap, const std::vector<RankFacts>& facts);
  Status agree_on_topology(Bootstrap& bootstrap, const std::vector<RankFacts>& facts);
  void count_cores(const std::vector<RankFacts>& facts);
  void choose_waiting(uint32_t ranks_here);

  Status connect(Bootstrap& bootstrap, const std::vector<RankFacts>& facts, std::vector<KeptFiles>& kept);
  Status reach_peers(Bootstrap& bootstrap, const std::vector<RankFacts>& facts, std::vector<KeptFiles>& kept);
  Status find_peers(const std::vector<RankFacts>& facts);
  Result<std::vector<FileDescriptor>> fetch_from(Bootstrap& bootstrap, uint32_t peer,
                                                 const RankFacts& theirs) const;
  Status map_peer(uint32_t peer, const RankFacts& theirs, const std::vector<FileDescriptor>& files,
                  PeerSegment& result);
  Status connect_hosts(Bootstrap& bootstrap, const std::vector<RankFacts>& facts);
  Status open_control_plane(const Bootstrap& bootstrap);
  Status watch_life(const std::vector<RankFacts>& facts, std::vector<KeptFiles>& files);
  Status start_heartbeat();

  Status watch(Bootstrap& bootstrap);
  Status compare_digests(Bootstrap& bootstrap, uint64_t digest) const;

  // allocate: builder_executor.cc
  Status open_device();
  DeviceIdentity device_identity() const;
  Status allocate(Bootstrap& bootstrap, std::span<const RankFacts> facts, std::span<const KeptFiles> files);
  Status allocate_host();
  Status allocate_device();
  Status allocate_staged(const std::string& why, uint32_t sharers);
  std::string why_no_kernels(std::span<const RankFacts> facts) const;
  uint32_t count_sharers(std::span<const RankFacts> facts) const;
  Result<std::string> join_devices(Bootstrap& bootstrap, std::span<const RankFacts> facts,
                                   std::span<const KeptFiles> files);
  Status join_multicast(Bootstrap& bootstrap, std::span<const RankFacts> facts,
                        std::span<const KeptFiles> files);
  Status agree_on_cards(Bootstrap& bootstrap);
  Status try_cards() const;
  Result<std::string> first_failure(Bootstrap& bootstrap, const Status& own, const char* consequence) const;

  Process& process_;
  uint32_t rank_;
  uint32_t rank_count_;
  CommOptions options_;
  std::unique_ptr<CommunicatorParts> parts_;    ///< until the communicator has them
  std::unique_ptr<Communicator> communicator_;  ///< null until all is allocated
  Peers& peers_;                                ///< of the parts
  SegmentShape shape_;
  SegmentHeader* header_ = nullptr;
  std::vector<uint32_t> host_of_;  ///< by rank; numbered in the order of their lowest ranks
  uint32_t host_count_ = 1;
  uint32_t cores_ = 1;           ///< of the host with the fewest
  uint32_t own_cores_ = 1;       ///< of this machine
  bool are_containers_ = false;  ///< the hosts are parts of one machine
  WaitMode wait_mode_ = WaitMode::kYield;
  WaitMode striped_wait_mode_ = WaitMode::kYield;
  uint64_t longest_sleep_ns_ = Waiter::kLongestSleepNs;
  std::shared_ptr<Segment> segment_;
  uint64_t segment_key_ = 0;  ///< 0: none
  std::vector<PeerSegment> memory_;
  std::vector<ControlPlane::Peer> control_peers_;
  TransportTraits network_traits_ = {};  ///< of transports between hosts
  std::unique_ptr<NetworkConnections> network_;
  std::unique_ptr<Workers> workers_;
  std::unique_ptr<DeviceRank> device_;     ///< until an executor takes it
  uint32_t multiprocessors_ = UINT32_MAX;  ///< of the device with the fewest
  uint32_t ranks_on_device_ = 1;           ///< on the device with the most
  bool has_multicast_ = false;
};

}  // namespace tutti
