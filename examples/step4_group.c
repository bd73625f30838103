/* Step 4: a group. The calls of a group progress together, so one thread can drive four ranks, and a ring of
 * sends and receives cannot deadlock. */
#include "check.h"

enum { kRanks = 4 };

int main(void) {
  tutti_comm_t* comms[kRanks];
  CHECK(tutti_comm_create_all(comms, kRanks, NULL));

  int mine[kRanks];
  int from_left[kRanks];
  CHECK(tutti_group_start());
  for (int rank = 0; rank < kRanks; ++rank) {
    const int right = (rank + 1) % kRanks;
    const int left = (rank + kRanks - 1) % kRanks;
    mine[rank] = 100 + rank;
    CHECK(tutti_send(&mine[rank], 1, TUTTI_INT32, right, 0, comms[rank], TUTTI_BLOCKING));
    CHECK(tutti_recv(&from_left[rank], 1, TUTTI_INT32, left, 0, comms[rank], TUTTI_BLOCKING));
  }
  CHECK(tutti_group_end()); /* the calls above run here */

  for (int rank = 0; rank < kRanks; ++rank) {
    printf("rank %d received %d\n", rank, from_left[rank]);
    CHECK(tutti_comm_destroy(comms[rank]));
  }
  return 0;
}
