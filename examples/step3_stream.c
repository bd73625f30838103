/* Step 3: a stream. A progress thread reduces one bucket of gradients while this thread computes the next. */
#include "ranks.h"

enum { kBuckets = 4, kCount = 1 << 16 };

/* Stands for the backward pass of one part of a model. */
static void backward(float* gradients, int bucket, int rank) {
  for (int i = 0; i < kCount; ++i) gradients[i] = (float)(bucket + 2 * rank);
}

static void train(tutti_comm_t* comm, int rank) {
  void* memory = NULL;
  CHECK(tutti_mem_alloc(&memory, kBuckets * kCount * sizeof(float))); /* faster than malloc */
  float* gradients = memory;
  tutti_host_stream_t* stream;
  CHECK(tutti_host_stream_create(&stream));

  const tutti_stream_t queue = tutti_stream_host(stream);
  for (int b = 0; b < kBuckets; ++b) {
    float* bucket = gradients + b * kCount;
    backward(bucket, b, rank);
    CHECK(tutti_all_reduce(bucket, bucket, kCount, TUTTI_FLOAT32, TUTTI_AVG, comm, queue));
  }
  CHECK(tutti_host_stream_synchronize(stream)); /* now the buckets may be read */

  if (rank == 0) {
    for (int b = 0; b < kBuckets; ++b) printf("bucket %d: %g\n", b, gradients[b * kCount]);
  }
  CHECK(tutti_host_stream_destroy(stream));
  CHECK(tutti_comm_destroy(comm));
  CHECK(tutti_mem_free(memory));
}

int main(void) {
  return run_ranks(2, train) == 2 ? 0 : 1;
}
