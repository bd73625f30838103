// What programs like these begin with: checks that end the program, and processes that know each other's NCCL
// id.
#pragma once

#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "nccl.h"

#define CUDA_CHECK(call)                                                                             \
  do {                                                                                               \
    const cudaError_t error = (call);                                                                \
    if (error != cudaSuccess) {                                                                      \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error)); \
      std::exit(1);                                                                                  \
    }                                                                                                \
  } while (0)

#define NCCL_CHECK(call)                                                                                  \
  do {                                                                                                    \
    const ncclResult_t result = (call);                                                                   \
    if (result != ncclSuccess) {                                                                          \
      std::fprintf(stderr, "%s:%d: %s: %s (%s)\n", __FILE__, __LINE__, #call, ncclGetErrorString(result), \
                   ncclGetLastError(nullptr));                                                            \
      std::exit(1);                                                                                       \
    }                                                                                                     \
  } while (0)

/// Runs `rank_main(rank, ranks, id)` in a process for each rank; 0: all of them returned 0.
template <class F>
int run_ranks(int ranks, F rank_main) {
  // The id comes from rank 0 over pipes, as MPI would carry it. No process calls CUDA before it is forked.
  std::vector<int> writers;
  std::vector<int> readers;
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2];
    if (pipe(ends) != 0) return 1;
    readers.push_back(ends[0]);
    writers.push_back(ends[1]);
  }
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child < 0) return 1;
    if (child == 0) {
      ncclUniqueId id;
      if (rank == 0) {
        NCCL_CHECK(ncclGetUniqueId(&id));
        for (const int writer : writers) {
          if (write(writer, &id, sizeof id) != static_cast<ssize_t>(sizeof id)) std::exit(1);
        }
      }
      if (read(readers[rank], &id, sizeof id) != static_cast<ssize_t>(sizeof id)) std::exit(1);
      std::exit(rank_main(rank, ranks, id));
    }
    children.push_back(child);
  }
  int failed = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    failed |= WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
  }
  return failed;
}
