/* A program as users of NCCL write them: it knows <nccl.h> and nothing of tutti. Compiled against tutti's
 * nccl.h and, where it is installed, against NVIDIA's, unchanged.
 *
 * usage: program COUNT            all ranks in this process, one thread
 *        program COUNT 0          rank 0 of COUNT; prints its unique id first, in hexadecimal
 *        program COUNT RANK ID    another rank
 * Prints "correct" and returns 0 when every result was right. */
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                                                                            \
  do {                                                                                         \
    ncclResult_t check_result = (call);                                                        \
    if (check_result != ncclSuccess) {                                                         \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, ncclGetErrorString(check_result), \
              ncclGetLastError(NULL));                                                         \
      exit(1);                                                                                 \
    }                                                                                          \
  } while (0)

enum { kElements = 1000, kMaxRanks = 16 };

static int wrong(const char* what, int rank) {
  fprintf(stderr, "rank %d: %s is wrong\n", rank, what);
  return 1;
}

static void fill(float* data, int count, float value) {
  int i;
  for (i = 0; i < count; ++i) data[i] = value;
}

static int differs(const float* data, int count, float value) {
  int i;
  for (i = 0; i < count; ++i) {
    if (data[i] != value) return 1;
  }
  return 0;
}

/* The ranks [0, local) of this process, whose first is `first`, each step as one group. */
static int run(ncclComm_t* comms, int local, int first, int count) {
  static float send[kMaxRanks][kElements];
  static float recv[kMaxRanks][kElements];
  int i;
  int failures = 0;
  for (i = 0; i < local; ++i) fill(send[i], kElements, (float)(first + i + 1));

  CHECK(ncclGroupStart());
  for (i = 0; i < local; ++i) {
    CHECK(ncclAllReduce(send[i], recv[i], kElements, ncclFloat, ncclSum, comms[i], NULL));
  }
  CHECK(ncclGroupEnd());
  for (i = 0; i < local; ++i) {
    if (differs(recv[i], kElements, (float)(count * (count + 1)) / 2))
      failures += wrong("ncclAllReduce", first + i);
  }

  CHECK(ncclGroupStart());
  for (i = 0; i < local; ++i)
    CHECK(ncclBroadcast(send[i], recv[i], kElements, ncclFloat, count - 1, comms[i], NULL));
  CHECK(ncclGroupEnd());
  for (i = 0; i < local; ++i) {
    if (differs(recv[i], kElements, (float)count)) failures += wrong("ncclBroadcast", first + i);
  }

  /* Round the ring. */
  CHECK(ncclGroupStart());
  for (i = 0; i < local; ++i) {
    const int rank = first + i;
    CHECK(ncclSend(send[i], kElements, ncclFloat, (rank + 1) % count, comms[i], NULL));
    CHECK(ncclRecv(recv[i], kElements, ncclFloat, (rank + count - 1) % count, comms[i], NULL));
  }
  CHECK(ncclGroupEnd());
  for (i = 0; i < local; ++i) {
    const int left = (first + i + count - 1) % count;
    if (differs(recv[i], kElements, (float)(left + 1))) failures += wrong("ncclSend and ncclRecv", first + i);
  }

  for (i = 0; i < local; ++i) {
    int rank = -1;
    int ranks = -1;
    ncclResult_t state = ncclInternalError;
    CHECK(ncclCommUserRank(comms[i], &rank));
    CHECK(ncclCommCount(comms[i], &ranks));
    CHECK(ncclCommGetAsyncError(comms[i], &state));
    if (rank != first + i || ranks != count || state != ncclSuccess) failures += wrong("a query", first + i);
  }
  return failures;
}

static void read_id(const char* text, ncclUniqueId* id) {
  int i;
  for (i = 0; i < NCCL_UNIQUE_ID_BYTES; ++i) {
    unsigned byte = 0;
    if (sscanf(text + 2 * i, "%2x", &byte) != 1) exit(2);
    id->internal[i] = (char)byte;
  }
}

static void print_id(const ncclUniqueId* id) {
  int i;
  for (i = 0; i < NCCL_UNIQUE_ID_BYTES; ++i) printf("%02x", (unsigned char)id->internal[i]);
  printf("\n");
  fflush(stdout);
}

int main(int argc, char** argv) {
  ncclComm_t comms[kMaxRanks];
  int version = 0;
  int failures = 0;
  int i;
  const int count = argc > 1 ? atoi(argv[1]) : 0;
  const int rank = argc > 2 ? atoi(argv[2]) : -1;
  const int local = rank < 0 ? count : 1;
  if (count < 1 || count > kMaxRanks || (rank > 0 && argc < 4)) return 2;
  CHECK(ncclGetVersion(&version));
  if (version < NCCL_VERSION_CODE) fprintf(stderr, "an older library than the header\n");
  if (rank < 0) {
    CHECK(ncclCommInitAll(comms, count, NULL));
  } else {
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    if (rank == 0) {
      CHECK(ncclGetUniqueId(&id));
      print_id(&id);
    } else {
      read_id(argv[3], &id);
    }
    CHECK(ncclCommInitRankConfig(&comms[0], count, id, rank, &config));
  }
  failures = run(comms, local, rank < 0 ? 0 : rank, count);
  for (i = 0; i < local; ++i) CHECK(ncclCommFinalize(comms[i]));
  for (i = 0; i < local; ++i) CHECK(ncclCommDestroy(comms[i]));
  if (failures == 0) printf("correct\n");
  return failures == 0 ? 0 : 1;
}
