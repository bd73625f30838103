// Drawing: what every rank did and when, as an image. Modes draw their own measured runs with it.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace tutti::trainer {

/// A bar in a drawing: from `begin` to `end`, in seconds or any other unit.
struct Stroke {
  enum class Kind : uint32_t { kForward, kBackward, kLife, kCollective, kMessage, kPause };
  uint32_t row = 0;  ///< the rank
  Kind kind = Kind::kForward;
  double begin = 0;
  double end = 0;
  char label[24] = {};  ///< shown where it fits

  static Stroke of(uint32_t row, Kind kind, double begin, double end, const std::string& label);
  /// Communication is drawn below computation, because both may happen at once.
  bool is_communication() const { return kind == Kind::kCollective || kind == Kind::kMessage; }
};

/// The last strokes of one rank, in seconds since its clock began. Any thread may add.
class Sketch {
 public:
  explicit Sketch(int rank) : rank_(static_cast<uint32_t>(rank)) {}
  /// Time 0 of the drawing: call it at about the same time on all ranks.
  void begin();
  double now() const;
  void add(Stroke::Kind kind, double begin, const std::string& label);
  /// The strokes that end after `since`.
  std::vector<Stroke> strokes(double since) const;

 private:
  uint32_t rank_;
  uint64_t begin_ns_ = 0;
  mutable std::mutex mutex_;
  std::deque<Stroke> strokes_;
};

/// The share of time that rows do not compute, from the first computation to the last.
double idle_share(std::span<const Stroke> strokes, size_t row_count);

/// An SVG image: a row each, computation above, communication below, and how long all of it took.
std::string draw(std::span<const Stroke> strokes, size_t row_count, const std::string& title,
                 const std::string& row_name = "rank");

}  // namespace tutti::trainer
