/* Step 5: a failure. Rank 2 of 3 dies. The other ranks get an error, not a hang, and go on without rank 2. */
#include <signal.h>

#include "ranks.h"

static void survive(tutti_comm_t* comm, int rank) {
  if (rank == 2) raise(SIGKILL);

  int sum = 1;
  const tutti_result_t result = tutti_all_reduce(&sum, &sum, 1, TUTTI_INT32, TUTTI_SUM, comm, TUTTI_BLOCKING);
  if (result == TUTTI_PEER_LOST) {
    if (rank == 0) printf("error: %s\n", tutti_last_error());
    tutti_comm_t* survivors;
    CHECK(tutti_comm_shrink(comm, NULL, 0, 0, &survivors, NULL));
    tutti_comm_destroy(comm); /* returns the error again */
    comm = survivors;
    sum = 1; /* after a failure the buffers are undefined */
    CHECK(tutti_all_reduce(&sum, &sum, 1, TUTTI_INT32, TUTTI_SUM, comm, TUTTI_BLOCKING));
  }
  if (rank == 0) printf("the sum of the survivors is %d\n", sum);
  CHECK(tutti_comm_destroy(comm));
}

int main(void) {
  return run_ranks(3, survive) == 2 ? 0 : 1;
}
