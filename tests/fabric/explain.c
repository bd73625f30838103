/* One checked all_reduce of RANK and WORLD_SIZE's ranks. Prints what tutti_comm_explain says of it. */
#include <inttypes.h>

#include "examples/check.h"

enum { kCount = 50000, kTextBytes = 2048 };

int main(void) {
  int rank = 0;
  int rank_count = 0;
  CHECK(tutti_launcher_context(&rank, &rank_count, NULL, NULL));
  tutti_unique_id_t id;
  if (rank == 0) CHECK(tutti_get_unique_id(&id));
  CHECK(tutti_share_unique_id(&id, "launcher", rank, rank_count, 0));
  tutti_comm_t* comm;
  CHECK(tutti_comm_create(&comm, rank_count, id, rank, NULL));

  static int64_t values[kCount];
  for (int64_t i = 0; i < kCount; ++i) values[i] = i * (rank + 1);
  CHECK(tutti_all_reduce(values, values, kCount, TUTTI_INT64, TUTTI_SUM, comm, TUTTI_BLOCKING));
  for (int64_t i = 0; i < kCount; ++i) {
    const int64_t right = i * rank_count * (rank_count + 1) / 2;
    if (values[i] == right) continue;
    fprintf(stderr, "element %" PRId64 " is %" PRId64 " instead of %" PRId64 "\n", i, values[i], right);
    return 1;
  }
  char text[kTextBytes];
  CHECK(tutti_comm_explain(comm, text, sizeof(text)));
  puts(text);
  CHECK(tutti_comm_destroy(comm));
  return 0;
}
