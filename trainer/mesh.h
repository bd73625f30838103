// Mesh: the ranks of a run as a grid, with a communicator along every axis.
//
// Each way to train in parallel is a way to cut work along an axis: data, pipeline, tensor, expert. The ranks
// get coordinates, the last axis first, so that neighbours in rank, which share a host, are neighbours on the
// last axis, which talks most. An axis is a split of the run's communicator: ranks that differ in this
// coordinate only.
#pragma once

#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/drawing.h"
#include "trainer/error.h"
#include "tutti/tutti.h"

namespace tutti::trainer {

struct ModeContext;

/// A communicator of float32 buffers in host memory. Counts the bytes that this rank has to send with
/// bandwidth-optimal algorithms, and sketches when calls blocked. Calls block unless `stream` says otherwise,
/// and throw Error. One thread at a time.
class Axis {
 public:
  /// Collective on the run's ranks: the ranks of one `color` (TUTTI_NO_COLOR: none) get an axis, ordered by
  /// rank. `name` is for messages.
  Axis(const ModeContext& context, int color, const std::string& name);
  /// The same for a part of an axis.
  Axis(Axis& parent, int color, const std::string& name);
  /// During an exception, ends the calls of the other ranks if calls have begun.
  ~Axis();
  Axis(const Axis&) = delete;
  Axis& operator=(const Axis&) = delete;

  /// False for a rank without a color. Such a rank must not use the axis.
  bool is_member() const { return comm_ != nullptr; }
  int rank() const { return rank_; }
  int count() const { return count_; }
  tutti_comm_t* comm() const { return comm_; }
  double sent_bytes() const { return sent_bytes_; }

  /// values, [n], become their sums (or another `op`) over the ranks.
  void all_reduce(std::span<float> values, tutti_op_t op = TUTTI_SUM, tutti_stream_t stream = TUTTI_BLOCKING);
  /// recv, [n], becomes this rank's part of the sums of send, [count() * n].
  void reduce_scatter(const float* send, std::span<float> recv, tutti_stream_t stream = TUTTI_BLOCKING);
  /// recv, [count() * n], becomes all ranks' send, [n], in order of rank.
  void all_gather(std::span<const float> send, float* recv, tutti_stream_t stream = TUTTI_BLOCKING);
  void send(std::span<const float> values, int peer, tutti_stream_t stream = TUTTI_BLOCKING);
  void recv(std::span<float> values, int peer);
  /// Rows of `width` numbers: send_rows[r] of `send` go to rank r. send and recv: rows in order of rank.
  void all_to_all(const float* send, std::span<const size_t> send_rows, float* recv,
                  std::span<const size_t> recv_rows, size_t width);
  /// recv[r] = rank r's send[this rank].
  std::vector<size_t> exchange(std::span<const size_t> send);

 private:
  void split(tutti_comm_t* parent, int color);
  /// Makes a call, which sends `bytes`. Throws Error.
  template <class Call>
  void make(Stroke::Kind kind, const char* what, tutti_stream_t stream, double bytes, const Call& call);
  /// Bytes that leave this rank when `count` numbers are spread over all ranks.
  double spread(size_t count) const;

  std::string name_;
  int rank_in_run_;
  Sketch* sketch_;
  tutti_comm_t* comm_ = nullptr;
  int rank_ = 0;
  int count_ = 0;
  double sent_bytes_ = 0;
  bool in_use_ = false;
  int exceptions_ = std::uncaught_exceptions();
};

class Mesh {
 public:
  struct Extent {
    std::string name;
    int count = 1;
  };

  /// Collective on the run's ranks, which must be as many as the product of the extents. Throws Error.
  Mesh(const ModeContext& context, std::vector<Extent> extents);

  Axis& axis(const std::string& name);
  /// The grid, and the ranks of each axis, for people.
  std::string text() const;

 private:
  std::vector<Extent> extents_;
  std::vector<std::unique_ptr<Axis>> axes_;
};

/// Streams of tutti, for calls beside a computation. Destroy the axis of a failed call first.
class HostStream {
 public:
  HostStream() { check(tutti_host_stream_create(&stream_), "making a stream"); }
  ~HostStream() { (void)tutti_host_stream_destroy(stream_); }
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;
  tutti_host_stream_t* get() const { return stream_; }
  tutti_stream_t handle() const { return tutti_stream_host(stream_); }
  /// Blocks until all calls issued so far are complete. Throws Error if one failed.
  void wait() const { check(tutti_host_stream_synchronize(stream_), "waiting for a stream"); }

 private:
  tutti_host_stream_t* stream_ = nullptr;
};

}  // namespace tutti::trainer
