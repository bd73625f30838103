/* Step 1: two processes add two vectors. */
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static void run(int rank, tutti_unique_id_t id) {
  tutti_comm_t* comm;
  CHECK(tutti_comm_create(&comm, 2, id, rank, NULL));

  float values[3] = {1.0f + (float)rank, 10, 100};
  CHECK(tutti_all_reduce(values, values, 3, TUTTI_FLOAT32, TUTTI_SUM, comm, TUTTI_BLOCKING));
  printf("rank %d: %g %g %g\n", rank, values[0], values[1], values[2]);

  CHECK(tutti_comm_destroy(comm));
}

int main(void) {
  tutti_unique_id_t id;
  CHECK(tutti_get_unique_id(&id)); /* before fork, so that both processes have it */
  const pid_t child = fork();
  run(child == 0 ? 1 : 0, id);
  int status = 0;
  return child != 0 && (waitpid(child, &status, 0) < 0 || status != 0);
}
