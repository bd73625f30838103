#include "api/forced_algorithm.h"

#include "algorithms/algorithm.h"
#include "api/handle.h"
#include "api/work.h"

namespace tutti {

Status force_algorithm(tutti_comm_t* comm, const char* name) {
  const HandleRef hold(comm);
  if (!hold) return no_handle(comm);
  TUTTI_TRY(check_ready(comm));
  if (name != nullptr && !is_algorithm(name)) {
    return {Code::kInvalidArgument,
            format("no collective has an algorithm \"%.64s\": tutti-plan --list shows them", name)};
  }
  wait_for_queue(comm);
  if (comm->comm->has_error()) return comm->comm->error();
  return contained([&] {
    comm->repeat.valid = false;
    comm->comm->force_algorithm(name == nullptr ? comm->comm->options().algorithm : name);
    return Status::ok();
  });
}

}  // namespace tutti
