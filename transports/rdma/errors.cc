#include "transports/rdma/errors.h"

#include "core/result.h"

namespace tutti::rdma {
namespace {

struct Words {
  const char* what;
  const char* remedy;
};

Words words_of(ibv_wc_status status) {
  constexpr const char* kReport = "this is an error of tutti or of the driver: report it with this line";
  switch (status) {
    case IBV_WC_SUCCESS: return {"success", ""};
    case IBV_WC_RETRY_EXC_ERR:
      return {
          "the peer's device did not acknowledge a packet in all retries",
          "check that both ports are up (ibv_devinfo, rdma link), that the GIDs reach each other (ping "
          "between their addresses), that firewalls pass UDP port 4791 for RoCE v2, and that the MTU fits "
          "the switches; or the peer's process has ended"};
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return {"the peer had no receive posted in all retries", "the peer is stopped or overloaded"};
    case IBV_WC_WR_FLUSH_ERR:
      return {"the queue pair was already in error",
              "an earlier failure of the connection is the cause: see the device's events in the kernel log"};
    case IBV_WC_REM_ACCESS_ERR:
      return {"the peer's device refused access to its memory: the key or the address is not valid there",
              "the peer has left or reset its rings"};
    case IBV_WC_REM_INV_REQ_ERR: return {"the peer's device refused the request as invalid", kReport};
    case IBV_WC_REM_OP_ERR:
      return {"the peer's device could not complete the request", "see the peer's kernel log"};
    case IBV_WC_LOC_LEN_ERR: return {"a message was longer than its buffer", kReport};
    case IBV_WC_LOC_PROT_ERR: return {"the memory of a message is not registered", kReport};
    case IBV_WC_LOC_QP_OP_ERR:
      return {"the queue pair could not carry out the request",
              "Soft-RoCE reports a port that is down so (rdma link); on other devices report this line"};
    case IBV_WC_LOC_ACCESS_ERR: return {"the peer wrote to memory without the right to do so", kReport};
    case IBV_WC_BAD_RESP_ERR: return {"the peer's device answered with what was not asked for", kReport};
    case IBV_WC_REM_ABORT_ERR: return {"the peer aborted the request", "see the peer's error"};
    case IBV_WC_FATAL_ERR:
    case IBV_WC_GENERAL_ERR: return {"the device failed", "see the kernel log; the device may need a reset"};
    case IBV_WC_LOC_EEC_OP_ERR:
    case IBV_WC_LOC_RDD_VIOL_ERR:
    case IBV_WC_REM_INV_RD_REQ_ERR:
    case IBV_WC_INV_EECN_ERR:
    case IBV_WC_INV_EEC_STATE_ERR:
      return {"the device reports an error of reliable datagrams, which are not in use",
              "update the driver and firmware of the device"};
    case IBV_WC_MW_BIND_ERR: return {"a memory window could not be bound", kReport};
    case IBV_WC_TM_ERR:
    case IBV_WC_TM_RNDV_INCOMPLETE: return {"the device failed to match a tag", kReport};
    case IBV_WC_RESP_TIMEOUT_ERR: return {"the peer's device did not answer in time", "check the network"};
  }
  return {"the request failed", "see the kernel log"};
}

}  // namespace

std::string describe_completion(ibv_wc_status status) {
  const Words words = words_of(status);
  return format("%s (completion status %d); %s", words.what, static_cast<int>(status), words.remedy);
}

std::string describe_event(ibv_event_type event) {
  switch (event) {
    case IBV_EVENT_PORT_ERR: return "the port went down: check cable, switch and `rdma link`";
    case IBV_EVENT_PORT_ACTIVE: return "the port is up";
    case IBV_EVENT_DEVICE_FATAL: return "the device failed: see the kernel log; it may need a reset";
    case IBV_EVENT_QP_FATAL: return "a queue pair failed: see the kernel log";
    case IBV_EVENT_QP_REQ_ERR: return "a queue pair got a request that is invalid";
    case IBV_EVENT_QP_ACCESS_ERR: return "a peer used a key that is not valid here";
    case IBV_EVENT_CQ_ERR: return "a completion queue overflowed: report this as an error of tutti";
    case IBV_EVENT_LID_CHANGE: return "the subnet manager gave the port another LID";
    case IBV_EVENT_GID_CHANGE: return "the port's GID table changed, as after a change of IP addresses";
    case IBV_EVENT_PKEY_CHANGE: return "the port's partition table changed";
    case IBV_EVENT_PATH_MIG_ERR: return "a queue pair could not move to its second path";
    case IBV_EVENT_SRQ_ERR: return "a shared receive queue failed: see the kernel log";
    case IBV_EVENT_WQ_FATAL: return "a work queue failed: see the kernel log";
    case IBV_EVENT_SM_CHANGE: return "another subnet manager is in charge";
    case IBV_EVENT_CLIENT_REREGISTER: return "the subnet manager has restarted";
    default: return "";
  }
}

bool ends_connections(ibv_event_type event) {
  return event == IBV_EVENT_DEVICE_FATAL || event == IBV_EVENT_CQ_ERR;
}

}  // namespace tutti::rdma
