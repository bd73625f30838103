/* A user's smallest program, legal C11 and C++20: version, two ranks driven by one thread in a group, a sum,
 * clean-up. Prints the version; status 1 with the reason when something is wrong. */
#include <stdio.h>
#include <tutti/tutti.h>

static const tutti_stream_t kNow = TUTTI_BLOCKING;

static int failed(const char* call, tutti_result_t result) {
  if (result == TUTTI_SUCCESS) return 0;
  fprintf(stderr, "%s: %s: %s\n", call, tutti_error_string(result), tutti_last_error());
  return 1;
}

static int sum_of_two(tutti_comm_t** comms) {
  float send[2][3] = {{1, 2, 3}, {10, 20, 30}};
  float recv[2][3] = {{0, 0, 0}, {0, 0, 0}};
  if (failed("group_start", tutti_group_start())) return 1;
  for (int rank = 0; rank < 2; ++rank) {
    tutti_result_t result =
        tutti_all_reduce(send[rank], recv[rank], 3, TUTTI_FLOAT32, TUTTI_SUM, comms[rank], kNow);
    if (failed("all_reduce", result)) return 1;
  }
  if (failed("group_end", tutti_group_end())) return 1;
  for (int i = 0; i < 6; ++i) {
    if (recv[i / 3][i % 3] != send[0][i % 3] + send[1][i % 3]) {
      fprintf(stderr, "element %d of rank %d is %g\n", i % 3, i / 3, (double)recv[i / 3][i % 3]);
      return 1;
    }
  }
  return 0;
}

int main(void) {
  int version = 0;
  tutti_comm_t* comms[2] = {NULL, NULL};
  if (failed("get_version", tutti_get_version(&version))) return 1;
  if (version != TUTTI_VERSION_CODE) {
    fprintf(stderr, "header %d, library %d\n", TUTTI_VERSION_CODE, version);
    return 1;
  }
  if (failed("comm_create_all", tutti_comm_create_all(comms, 2, NULL))) return 1;
  if (sum_of_two(comms)) return 1;
  for (int rank = 0; rank < 2; ++rank) {
    if (failed("comm_destroy", tutti_comm_destroy(comms[rank]))) return 1;
  }
  printf("%d\n", version);
  return 0;
}
