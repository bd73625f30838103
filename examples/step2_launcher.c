/* Step 2: any number of ranks, on any hosts, started by mpirun, srun, torchrun or Kubernetes. */
#include "check.h"

int main(void) {
  int rank = 0;
  int rank_count = 0;
  CHECK(tutti_launcher_context(&rank, &rank_count, NULL, NULL));
  tutti_unique_id_t id;
  if (rank == 0) CHECK(tutti_get_unique_id(&id));
  CHECK(tutti_share_unique_id(&id, "launcher", rank, rank_count, 0));
  tutti_comm_t* comm;
  CHECK(tutti_comm_create(&comm, rank_count, id, rank, NULL));
  CHECK(tutti_forget_file("launcher", rank));

  int sum = rank + 1;
  CHECK(tutti_all_reduce(&sum, &sum, 1, TUTTI_INT32, TUTTI_SUM, comm, TUTTI_BLOCKING));
  if (rank == 0) printf("%d ranks: the sum is %d\n", rank_count, sum);
  CHECK(tutti_comm_destroy(comm));
  return 0;
}
