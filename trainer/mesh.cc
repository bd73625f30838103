#include "trainer/mesh.h"

#include <numeric>

#include "trainer/mode.h"

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

Axis::Axis(const ModeContext& context, int color, const std::string& name)
    : name_(name), rank_in_run_(context.rank), sketch_(&context.sketch) {
  split(context.team.gradients(), color);
}

Axis::Axis(Axis& parent, int color, const std::string& name)
    : name_(name), rank_in_run_(parent.rank_in_run_), sketch_(parent.sketch_) {
  split(parent.comm_, color);
}

void Axis::split(tutti_comm_t* parent, int color) {
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

template <class Call>
void Axis::make(Stroke::Kind kind, const char* what, tutti_stream_t stream, double bytes, const Call& call) {
  in_use_ = true;
  const double begin = sketch_->now();
  if (const tutti_result_t result = call(); result != TUTTI_SUCCESS)
    check(result, (name_ + ": " + what).c_str());
  if (stream.kind == TUTTI_BLOCKING.kind) sketch_->add(kind, begin, what);
  sent_bytes_ += bytes;
}

double Axis::spread(size_t count) const {
  return static_cast<double>(count * sizeof(float)) * (count_ - 1) / count_;
}

void Axis::all_reduce(std::span<float> values, tutti_op_t op, tutti_stream_t stream) {
  make(Stroke::Kind::kCollective, "all_reduce", stream, 2 * spread(values.size()), [&] {
    return tutti_all_reduce(values.data(), values.data(), values.size(), TUTTI_FLOAT32, op, comm_, stream);
  });
}

void Axis::reduce_scatter(const float* send, std::span<float> recv, tutti_stream_t stream) {
  make(Stroke::Kind::kCollective, "reduce_scatter", stream, spread(recv.size() * static_cast<size_t>(count_)),
       [&] {
         return tutti_reduce_scatter(send, recv.data(), recv.size(), TUTTI_FLOAT32, TUTTI_SUM, comm_, stream);
       });
}

void Axis::all_gather(std::span<const float> send, float* recv, tutti_stream_t stream) {
  make(Stroke::Kind::kCollective, "all_gather", stream, spread(send.size() * static_cast<size_t>(count_)),
       [&] { return tutti_all_gather(send.data(), recv, send.size(), TUTTI_FLOAT32, comm_, stream); });
}

void Axis::send(std::span<const float> values, int peer, tutti_stream_t stream) {
  make(Stroke::Kind::kMessage, "send", stream, static_cast<double>(values.size_bytes()),
       [&] { return tutti_send(values.data(), values.size(), TUTTI_FLOAT32, peer, 0, comm_, stream); });
}

void Axis::recv(std::span<float> values, int peer) {
  make(Stroke::Kind::kMessage, "recv", TUTTI_BLOCKING, 0, [&] {
    return tutti_recv(values.data(), values.size(), TUTTI_FLOAT32, peer, 0, comm_, TUTTI_BLOCKING);
  });
}

void Axis::all_to_all(const float* send, std::span<const size_t> send_rows, float* recv,
                      std::span<const size_t> recv_rows, size_t width) {
  std::vector<size_t> sends(send_rows.begin(), send_rows.end());
  std::vector<size_t> recvs(recv_rows.begin(), recv_rows.end());
  for (size_t& count : sends) count *= width;
  for (size_t& count : recvs) count *= width;
  const size_t away =
      std::accumulate(sends.begin(), sends.end(), size_t{0}) - sends[static_cast<size_t>(rank_)];
  make(Stroke::Kind::kCollective, "all_to_all", TUTTI_BLOCKING, static_cast<double>(away * sizeof(float)),
       [&] {
         return tutti_all_to_all_v(send, sends.data(), nullptr, recv, recvs.data(), nullptr, TUTTI_FLOAT32,
                                   comm_, TUTTI_BLOCKING);
       });
}

std::vector<size_t> Axis::exchange(std::span<const size_t> send) {
  static_assert(sizeof(size_t) == sizeof(uint64_t));
  std::vector<size_t> recv(send.size());
  make(Stroke::Kind::kCollective, "exchanging counts", TUTTI_BLOCKING,
       static_cast<double>(send.size_bytes() - sizeof(size_t)),
       [&] { return tutti_all_to_all(send.data(), recv.data(), 1, TUTTI_UINT64, comm_, TUTTI_BLOCKING); });
  return recv;
}

Mesh::Mesh(const ModeContext& context, std::vector<Extent> extents) : extents_(std::move(extents)) {
  const int count = context.team.count();
  if (product(extents_) != count)
    throw Error("a mesh of " + text() + " does not fit " + std::to_string(count) + " ranks: change --ranks");
  for (size_t i = 0; i < extents_.size(); ++i)
    axes_.push_back(
        std::make_unique<Axis>(context, line_of(extents_, i, context.rank), extents_[i].name + " axis"));
}

Axis& Mesh::axis(const std::string& name) {
  for (size_t i = 0; i < extents_.size(); ++i)
    if (extents_[i].name == name) return *axes_[i];
  throw std::logic_error("the mesh has no axis " + name);
}

std::string Mesh::text() const {
  const int count = product(extents_);
  std::string text;
  for (const Extent& extent : extents_)
    text += (text.empty() ? "" : " x ") + extent.name + " " + std::to_string(extent.count);
  for (size_t i = 0; i < extents_.size(); ++i) {
    text += "\n  " + extents_[i].name + ":";
    for (int first = 0; first < count; ++first) {
      if (line_of(extents_, i, first) != first) continue;
      text += " {";
      for (int rank = first; rank < count; ++rank)
        if (line_of(extents_, i, rank) == first) text += (rank == first ? "" : " ") + std::to_string(rank);
      text += "}";
    }
  }
  return text;
}

}  // namespace tutti::trainer
