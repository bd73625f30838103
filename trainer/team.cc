#include "trainer/team.h"

#include <numeric>
#include <utility>

#include "trainer/gpu_backend.h"

namespace tutti::trainer {
namespace {

constexpr size_t kProblemBytes = 512;  // length limit of a problem's text; the rest is cut off

}  // namespace

Team::Team(tutti_unique_id_t id, int rank, int rank_count, bool reproducible)
    : rank_(rank), count_(rank_count), reproducible_(reproducible) {
  tutti_config_t config = TUTTI_CONFIG_INIT;
  config.reproducible = reproducible ? 1 : 0;
  check(tutti_comm_create(&control_, rank_count, id, rank, &config), "joining the communicator");
  if (tutti_comm_split(control_, 0, rank, &gradients_, nullptr) != TUTTI_SUCCESS) {
    const Error error(std::string("splitting the communicator: ") + tutti_last_error());
    (void)tutti_comm_abort(control_);
    throw error;
  }
}

Team::~Team() {
  (void)tutti_comm_destroy(control_);
  (void)tutti_comm_destroy(gradients_);
}

void Team::abort() {
  if (agreed_) return;
  (void)tutti_comm_abort(std::exchange(control_, nullptr));
  (void)tutti_comm_abort(std::exchange(gradients_, nullptr));
}

std::string Team::reduce_on(const std::shared_ptr<const Gpu>& gpu) {
  std::string problem = first_problem(gpu == nullptr ? "it has no GPU that works" : "");
  if (!problem.empty()) return problem;
  tutti_config_t config = TUTTI_CONFIG_INIT;
  config.device = TUTTI_CUDA_DEVICE(gpu->number());
  config.reproducible = reproducible_ ? 1 : 0;
  tutti_comm_t* comm = nullptr;
  BackendPointer backend;
  try {
    check(tutti_comm_split(control_, 0, rank_, &comm, &config), "joining a communicator on GPUs");
    backend = gpu_backend(gpu, comm);
  } catch (const Error& error) {
    problem = error.what();
  }
  problem = first_problem(problem);
  if (problem.empty()) {
    std::swap(gradients_, comm);
    std::swap(backend_, backend);
  }
  (void)tutti_comm_destroy(comm);
  return problem;
}

void Team::sum(std::span<double> values) {
  check(tutti_all_reduce(values.data(), values.data(), values.size(), TUTTI_FLOAT64, TUTTI_SUM, control_,
                         TUTTI_BLOCKING),
        "summing over ranks");
}

std::string Team::first_problem(const std::string& problem) {
  std::vector<char> texts(kProblemBytes * static_cast<size_t>(count_));
  char* mine = texts.data() + kProblemBytes * static_cast<size_t>(rank_);
  problem.copy(mine, kProblemBytes - 1);
  check(tutti_all_gather(mine, texts.data(), kProblemBytes, TUTTI_INT8, control_, TUTTI_BLOCKING),
        "asking whether all ranks are well");
  for (int rank = 0; rank < count_; ++rank) {
    const char* text = texts.data() + kProblemBytes * static_cast<size_t>(rank);
    if (*text != '\0') return "rank " + std::to_string(rank) + ": " + text;
  }
  return "";
}

void Team::agree(const std::string& problem) {
  const std::string found = first_problem(problem);
  if (found.empty()) return;
  agreed_ = true;
  throw Error(found);
}

void Team::broadcast(std::vector<std::byte>* bytes) {
  uint64_t count = bytes->size();
  check(tutti_broadcast(&count, &count, 1, TUTTI_UINT64, 0, control_, TUTTI_BLOCKING), "broadcasting a size");
  bytes->resize(count);
  check(tutti_broadcast(bytes->data(), bytes->data(), count, TUTTI_INT8, 0, control_, TUTTI_BLOCKING),
        "broadcasting bytes");
}

void Team::broadcast(std::span<float> values) {
  check(tutti_broadcast(values.data(), values.data(), values.size(), TUTTI_FLOAT32, 0, control_,
                        TUTTI_BLOCKING),
        "broadcasting from rank 0");
}

std::vector<std::vector<std::byte>> Team::gather(std::span<const std::byte> bytes) {
  std::vector<size_t> counts(static_cast<size_t>(count_));
  counts[static_cast<size_t>(rank_)] = bytes.size();
  check(tutti_all_gather(&counts[static_cast<size_t>(rank_)], counts.data(), 1, TUTTI_UINT64, control_,
                         TUTTI_BLOCKING),
        "gathering sizes");
  std::vector<std::byte> all(std::reduce(counts.begin(), counts.end()));
  check(tutti_all_gather_v(bytes.data(), all.data(), counts.data(), nullptr, TUTTI_INT8, control_,
                           TUTTI_BLOCKING),
        "gathering bytes");
  std::vector<std::vector<std::byte>> parts;
  auto begin = all.begin();
  for (const size_t count : counts) {
    parts.emplace_back(begin, begin + static_cast<ptrdiff_t>(count));
    begin += static_cast<ptrdiff_t>(count);
  }
  return parts;
}

}  // namespace tutti::trainer
