/* Step 6: a program for NCCL. It knows only nccl.h. Without a GPU the buffers are in host memory, as here;
 * with GPUs they come from cudaMalloc. */
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                               \
  do {                                                            \
    if ((call) != ncclSuccess) {                                  \
      fprintf(stderr, "%s: %s\n", #call, ncclGetLastError(NULL)); \
      exit(1);                                                    \
    }                                                             \
  } while (0)

enum { kRanks = 2, kCount = 1000 };

int main(void) {
  static float gradients[kRanks][kCount];
  ncclComm_t comms[kRanks];
  CHECK(ncclCommInitAll(comms, kRanks, NULL));
  for (int rank = 0; rank < kRanks; ++rank) {
    for (int i = 0; i < kCount; ++i) gradients[rank][i] = (float)(rank + 1);
  }

  CHECK(ncclGroupStart());
  for (int rank = 0; rank < kRanks; ++rank) {
    CHECK(ncclAllReduce(gradients[rank], gradients[rank], kCount, ncclFloat, ncclSum, comms[rank], NULL));
  }
  CHECK(ncclGroupEnd());

  for (int rank = 0; rank < kRanks; ++rank) {
    printf("rank %d: %g\n", rank, gradients[rank][kCount - 1]);
    CHECK(ncclCommDestroy(comms[rank]));
  }
  return 0;
}
