// Benchmark driver for tutti itself, through the C API.
#include <tutti/tutti.h>

#include "driver.h"

namespace peers {
namespace {

void require(tutti_result_t result) {
  if (result == TUTTI_SUCCESS) return;
  throw std::runtime_error(std::string(tutti_error_string(result)) + ": " + tutti_last_error());
}

tutti_type_t type_of(ElementType type) {
  switch (type) {
    case ElementType::kFloat16: return TUTTI_FLOAT16;
    case ElementType::kBfloat16: return TUTTI_BFLOAT16;
    default: return TUTTI_FLOAT32;
  }
}

class TuttiLibrary {
 public:
  explicit TuttiLibrary(const Arguments& arguments)
      : rank_(arguments.rank), rank_count_(arguments.rank_count) {
    Board board(arguments.dir + "/board", rank_, rank_count_);
    comm_ = create_timed(board, first_create_us_);
  }
  ~TuttiLibrary() { tutti_comm_destroy(comm_); }
  TuttiLibrary(const TuttiLibrary&) = delete;
  TuttiLibrary& operator=(const TuttiLibrary&) = delete;

  const char* name() const { return "tutti"; }
  std::string version() const {
    int code = 0;
    require(tutti_get_version(&code));
    return std::to_string(code / 10000) + "." + std::to_string(code / 100 % 100) + "." +
           std::to_string(code % 100);
  }
  int rank() const { return rank_; }
  int rank_count() const { return rank_count_; }
  bool supports(Collective, ElementType) const { return true; }
  std::function<void()> progress() { return {}; }  // a blocking call is complete on return
  void begin(ElementType type) { type_ = type_of(type); }
  void* allocate(size_t bytes) {
    void* memory = nullptr;
    require(tutti_mem_alloc(&memory, bytes));
    return memory;
  }
  void release(void* memory) { tutti_mem_free(memory); }

  void all_reduce(const void* send, void* recv, size_t count) {
    require(tutti_all_reduce(send, recv, count, type_, TUTTI_SUM, comm_, TUTTI_BLOCKING));
  }
  void all_gather(const void* send, void* recv, size_t count) {
    require(tutti_all_gather(send, recv, count, type_, comm_, TUTTI_BLOCKING));
  }
  void reduce_scatter(const void* send, void* recv, size_t count) {
    require(tutti_reduce_scatter(send, recv, count, type_, TUTTI_SUM, comm_, TUTTI_BLOCKING));
  }
  void broadcast(void* buffer, size_t count, int root) {
    require(tutti_broadcast(buffer, buffer, count, type_, root, comm_, TUTTI_BLOCKING));
  }
  void reduce(const void* send, void* recv, size_t count, int root) {
    require(tutti_reduce(send, recv, count, type_, TUTTI_SUM, root, comm_, TUTTI_BLOCKING));
  }
  void all_to_all(const void* send, void* recv, size_t count) {
    require(tutti_all_to_all(send, recv, count, type_, comm_, TUTTI_BLOCKING));
  }
  void send(const void* buffer, size_t count, int peer) {
    require(tutti_send(buffer, count, type_, peer, 0, comm_, TUTTI_BLOCKING));
  }
  void recv(void* buffer, size_t count, int peer) {
    require(tutti_recv(buffer, count, type_, peer, 0, comm_, TUTTI_BLOCKING));
  }
  void barrier() { require(tutti_barrier(comm_, TUTTI_BLOCKING)); }

  /// Time from the moment when all ranks have the unique id until the last rank has its communicator.
  std::optional<double> create_microseconds(Board& board) {
    double microseconds = 0;
    require(tutti_comm_destroy(create_timed(board, microseconds)));
    return microseconds;
  }
  /// The same for the first communicator of these processes.
  double first_create_microseconds() const { return first_create_us_; }

 private:
  tutti_comm_t* create_timed(Board& board, double& microseconds) {
    tutti_comm_t* comm = nullptr;
    share_unique_id(board);
    microseconds = static_cast<double>(run_batch(board, 1, [&](int64_t) { comm = create(board); })) / 1e3;
    return comm;
  }
  void share_unique_id(Board& board) {
    static_assert(sizeof(tutti_unique_id_t) <= sizeof(BoardPage::blob));
    if (rank_ == 0) {
      tutti_unique_id_t id;
      require(tutti_get_unique_id(&id));
      std::memcpy(board.page().blob, &id, sizeof(id));
    }
    board.barrier();
  }
  tutti_comm_t* create(Board& board) {
    tutti_unique_id_t id;
    std::memcpy(&id, board.page().blob, sizeof(id));
    tutti_comm_t* comm = nullptr;
    require(tutti_comm_create(&comm, rank_count_, id, rank_, nullptr));
    return comm;
  }
  int rank_;
  int rank_count_;
  tutti_comm_t* comm_ = nullptr;
  double first_create_us_ = 0;
  tutti_type_t type_ = TUTTI_FLOAT32;
};

}  // namespace
}  // namespace peers

int main(int argc, char** argv) {
  return peers::guarded_main([&] {
    const peers::Arguments arguments = peers::parse_arguments(argc, argv);
    peers::TuttiLibrary library(arguments);
    return peers::serve(library, arguments);
  });
}
