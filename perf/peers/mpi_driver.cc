// Benchmark driver for an MPI library, compiled once against Open MPI and once against MPICH.
#define OMPI_SKIP_MPICXX 1  // the C interface only: the C++ interface needs another library
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include "driver.h"

namespace peers {
namespace {

class MpiLibrary {
 public:
  MpiLibrary() {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SINGLE, &provided);  // the fastest level
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &rank_count_);
  }
  ~MpiLibrary() { MPI_Finalize(); }
  MpiLibrary(const MpiLibrary&) = delete;
  MpiLibrary& operator=(const MpiLibrary&) = delete;

#ifdef OPEN_MPI
  const char* name() const {
    return "openmpi";
  }
  std::string version() const {
    return std::to_string(OMPI_MAJOR_VERSION) + "." + std::to_string(OMPI_MINOR_VERSION) + "." +
           std::to_string(OMPI_RELEASE_VERSION);
  }
#else
  const char* name() const {
    return "mpich";
  }
  std::string version() const {
    return MPICH_VERSION;
  }
#endif
  int rank() const {
    return rank_;
  }
  int rank_count() const {
    return rank_count_;
  }
  bool supports(Collective, ElementType type) const {
    return type == ElementType::kFloat32;
  }
  std::function<void()> progress() {
    return [] {
      int found = 0;
      MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
    };
  }
  void begin(ElementType) {}
  void* allocate(size_t bytes) {
    void* memory = nullptr;
    MPI_Alloc_mem(static_cast<MPI_Aint>(bytes), MPI_INFO_NULL, &memory);
    return memory;
  }
  void release(void* memory) {
    MPI_Free_mem(memory);
  }

  void all_reduce(const void* send, void* recv, size_t count) {
    MPI_Allreduce(send, recv, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  void all_gather(const void* send, void* recv, size_t count) {
    MPI_Allgather(send, static_cast<int>(count), MPI_FLOAT, recv, static_cast<int>(count), MPI_FLOAT,
                  MPI_COMM_WORLD);
  }
  void reduce_scatter(const void* send, void* recv, size_t count) {
    MPI_Reduce_scatter_block(send, recv, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  void broadcast(void* buffer, size_t count, int root) {
    MPI_Bcast(buffer, static_cast<int>(count), MPI_FLOAT, root, MPI_COMM_WORLD);
  }
  void reduce(const void* send, void* recv, size_t count, int root) {
    MPI_Reduce(send, recv, static_cast<int>(count), MPI_FLOAT, MPI_SUM, root, MPI_COMM_WORLD);
  }
  void all_to_all(const void* send, void* recv, size_t count) {
    MPI_Alltoall(send, static_cast<int>(count), MPI_FLOAT, recv, static_cast<int>(count), MPI_FLOAT,
                 MPI_COMM_WORLD);
  }
  void send(const void* buffer, size_t count, int peer) {
    MPI_Send(buffer, static_cast<int>(count), MPI_FLOAT, peer, 0, MPI_COMM_WORLD);
  }
  void recv(void* buffer, size_t count, int peer) {
    MPI_Recv(buffer, static_cast<int>(count), MPI_FLOAT, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  void barrier() {
    MPI_Barrier(MPI_COMM_WORLD);
  }
  std::optional<double> create_microseconds(Board&) {
    return std::nullopt;
  }

 private:
  int rank_ = 0;
  int rank_count_ = 1;
};

}  // namespace
}  // namespace peers

int main(int argc, char** argv) {
  return peers::guarded_main([&] {
    const peers::Arguments arguments = peers::parse_arguments(argc, argv);
    peers::MpiLibrary library;
    return peers::serve(library, arguments);
  });
}
