/* Ranks as processes of this machine, for examples that run without a launcher. step1_two_ranks.c shows the
 * idea. */
#ifndef EXAMPLES_RANKS_H_
#define EXAMPLES_RANKS_H_

#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* Forks rank_count processes. Each calls rank_main with its communicator. Returns how many of them ended with
 * status 0. */
static inline int run_ranks(int rank_count, void (*rank_main)(tutti_comm_t* comm, int rank)) {
  tutti_unique_id_t id;
  CHECK(tutti_get_unique_id(&id));
  for (int rank = 0; rank < rank_count; ++rank) {
    if (fork() != 0) continue;
    tutti_comm_t* comm;
    CHECK(tutti_comm_create(&comm, rank_count, id, rank, NULL));
    rank_main(comm, rank);
    exit(0);
  }
  int good = 0;
  for (int status; wait(&status) > 0;) good += status == 0;
  return good;
}

#endif /* EXAMPLES_RANKS_H_ */
