// Reports: what ranks are doing, in words.
#include "comm/communicator.h"

namespace tutti {

std::string Communicator::report() const {
  std::string text =
      format("  rank %u of %u on %u host%s\n", rank_, rank_count_, host_count_, host_count_ == 1 ? "" : "s");
  if (has_error()) text += "    failed: " + std::string(error().text()) + "\n";
  for (uint32_t peer = 0; peer < links_.peers().size(); ++peer) {
    const StatusPage& page = links_.peers()[peer].segment->header().status;
    if (!is_remote(peer)) {
      text +=
          "    " + describe_status(peer, StatusCopy::of(page)) + (peer == rank_ ? " (this rank)\n" : "\n");
      continue;
    }
    ControlPlane::View view = plane_->view(peer);
    plane_->ask(peer);
    view.copy.has_left = page.has_left.load(std::memory_order_acquire);
    text += "    " +
            (view.answers > 0 || view.copy.has_left != StatusPage::kHere
                 ? describe_status(peer, view.copy) + ", when it last answered"
                 : format("rank %u, on another host, has not been asked before", peer)) +
            "\n";
  }
  return text;
}

}  // namespace tutti
