#include "trainer/mesh.h"

#include <numeric>

namespace tutti::trainer {
namespace {

/// The ranks that differ from `rank` in coordinate `axis` only have the same value.
int line_of(const std::vector<Mesh::Extent>& extents, size_t axis, int rank) {
  int stride = 1;
  for (size_t i = extents.size(); i-- > axis + 1;) stride *= extents[i].count;
  return rank - rank / stride % extents[axis].count * stride;
}

int product(const std::vector<Mesh::Extent>& extents) {
  int count = 1;
  for (const Mesh::Extent& extent : extents) count *= extent.count;
  return count;
}

}  // namespace

Axis::Axis(tutti_comm_t* parent, int color, const std::string& name) {
  int rank_in_run = 0;
  check(tutti_comm_rank(parent, &rank_in_run), "asking for the rank");
  split(parent, color, name, rank_in_run);
}

Axis::Axis(Axis& parent, int color, const std::string& name) {
  split(parent.comm_, color, name, parent.rank_in_run_);
}

void Axis::split(tutti_comm_t* parent, int color, const std::string& name, int rank_in_run) {
  name_ = name;
  rank_in_run_ = rank_in_run;
  check(tutti_comm_split(parent, color, 0, &comm_, nullptr), ("splitting off " + name_).c_str());
  if (comm_ == nullptr) return;
  check(tutti_comm_rank(comm_, &rank_), "asking for the rank");
  check(tutti_comm_count(comm_, &count_), "asking for the rank count");
  // The library's messages number the ranks of the axis: say which ranks of the run these are.
  std::vector<int> members(static_cast<size_t>(count_));
  check(tutti_all_gather(&rank_in_run_, members.data(), 1, TUTTI_INT32, comm_, TUTTI_BLOCKING),
        ("asking who is on " + name_).c_str());
  std::string numbers;
  for (int i = 0; i < count_; ++i) {
    const int member = members[static_cast<size_t>(i)];
    if (member != i)
      numbers +=
          (numbers.empty() ? "" : ", ") + std::to_string(i) + " there is rank " + std::to_string(member);
  }
  if (!numbers.empty()) name_ += " (" + numbers + ")";
}

Axis::~Axis() {
  if (in_use_ && std::uncaught_exceptions() > exceptions_)
    (void)tutti_comm_abort(comm_);
  else
    (void)tutti_comm_destroy(comm_);
}

void Axis::note(tutti_result_t result, const char* what, double bytes) {
  in_use_ = true;
  if (result != TUTTI_SUCCESS) check(result, (name_ + ": " + what).c_str());
  sent_bytes_ += bytes;
}

double Axis::spread(size_t count) const {
  return static_cast<double>(count * sizeof(float)) * (count_ - 1) / count_;
}

void Axis::all_reduce(std::span<float> values, tutti_op_t op, tutti_stream_t stream) {
  note(tutti_all_reduce(values.data(), values.data(), values.size(), TUTTI_FLOAT32, op, comm_, stream),
       "all_reduce", 2 * spread(values.size()));
}

void Axis::reduce_scatter(const float* send, std::span<float> recv, tutti_stream_t stream) {
  note(tutti_reduce_scatter(send, recv.data(), recv.size(), TUTTI_FLOAT32, TUTTI_SUM, comm_, stream),
       "reduce_scatter", spread(recv.size() * static_cast<size_t>(count_)));
}

void Axis::all_gather(std::span<const float> send, float* recv, tutti_stream_t stream) {
  note(tutti_all_gather(send.data(), recv, send.size(), TUTTI_FLOAT32, comm_, stream), "all_gather",
       spread(send.size() * static_cast<size_t>(count_)));
}

void Axis::broadcast(std::span<float> values, int root) {
  note(tutti_broadcast(values.data(), values.data(), values.size(), TUTTI_FLOAT32, root, comm_,
                       TUTTI_BLOCKING),
       "broadcast", rank_ == root ? static_cast<double>(values.size_bytes()) : 0);
}

void Axis::send(std::span<const float> values, int peer, tutti_stream_t stream) {
  note(tutti_send(values.data(), values.size(), TUTTI_FLOAT32, peer, 0, comm_, stream), "send",
       static_cast<double>(values.size_bytes()));
}

void Axis::recv(std::span<float> values, int peer, tutti_stream_t stream) {
  note(tutti_recv(values.data(), values.size(), TUTTI_FLOAT32, peer, 0, comm_, stream), "recv", 0);
}

void Axis::all_to_all(const float* send, std::span<const size_t> send_rows, float* recv,
                      std::span<const size_t> recv_rows, size_t width) {
  std::vector<size_t> sends(send_rows.begin(), send_rows.end());
  std::vector<size_t> recvs(recv_rows.begin(), recv_rows.end());
  for (size_t& count : sends) count *= width;
  for (size_t& count : recvs) count *= width;
  const size_t away =
      std::accumulate(sends.begin(), sends.end(), size_t{0}) - sends[static_cast<size_t>(rank_)];
  note(tutti_all_to_all_v(send, sends.data(), nullptr, recv, recvs.data(), nullptr, TUTTI_FLOAT32, comm_,
                          TUTTI_BLOCKING),
       "all_to_all", static_cast<double>(away * sizeof(float)));
}

std::vector<size_t> Axis::exchange(std::span<const size_t> send) {
  static_assert(sizeof(size_t) == sizeof(uint64_t));
  std::vector<size_t> recv(send.size());
  note(tutti_all_to_all(send.data(), recv.data(), 1, TUTTI_UINT64, comm_, TUTTI_BLOCKING),
       "exchanging counts", static_cast<double>(send.size_bytes() - sizeof(size_t)));
  return recv;
}

Mesh::Mesh(tutti_comm_t* comm, std::vector<Extent> extents) : extents_(std::move(extents)) {
  int rank = 0;
  int count = 0;
  check(tutti_comm_rank(comm, &rank), "asking for the rank");
  check(tutti_comm_count(comm, &count), "asking for the rank count");
  if (product(extents_) != count)
    throw Error("a mesh of " + text() + " does not fit " + std::to_string(count) + " ranks: change --ranks");
  for (size_t i = 0; i < extents_.size(); ++i)
    axes_.push_back(std::make_unique<Axis>(comm, line_of(extents_, i, rank), extents_[i].name + " axis"));
}

Axis& Mesh::axis(const std::string& name) {
  for (size_t i = 0; i < extents_.size(); ++i)
    if (extents_[i].name == name) return *axes_[i];
  throw std::logic_error("the mesh has no axis " + name);
}

double Mesh::sent_bytes() const {
  double sum = 0;
  for (const auto& axis : axes_) sum += axis->sent_bytes();
  return sum;
}

std::string Mesh::text_of(const std::vector<Extent>& extents) {
  const int count = product(extents);
  std::string text;
  for (const Extent& extent : extents)
    text += (text.empty() ? "" : " x ") + extent.name + " " + std::to_string(extent.count);
  for (size_t i = 0; i < extents.size(); ++i) {
    text += "\n  " + extents[i].name + ":";
    for (int first = 0; first < count; ++first) {
      if (line_of(extents, i, first) != first) continue;
      text += " {";
      for (int rank = first; rank < count; ++rank)
        if (line_of(extents, i, rank) == first) text += (rank == first ? "" : " ") + std::to_string(rank);
      text += "}";
    }
  }
  return text;
}

}  // namespace tutti::trainer
