// See images.h: digits as strokes. A stroke is a line through points of a unit square, y downwards. A pixel
// is dark if its middle is near a stroke.
#include <algorithm>
#include <array>
#include <cmath>

#include "trainer/images.h"
#include "trainer/random.h"

namespace tutti::trainer {
namespace {

constexpr size_t kSide = 28;

struct Point {
  double x;
  double y;
};
using Stroke = std::vector<Point>;

const std::array<std::vector<Stroke>, 10>& glyphs() {
  static const std::array<std::vector<Stroke>, 10> kAll = {{
      {{{.5, .1}, {.3, .2}, {.25, .5}, {.3, .8}, {.5, .9}, {.7, .8}, {.75, .5}, {.7, .2}, {.5, .1}}},
      {{{.35, .25}, {.55, .1}, {.55, .9}}},
      {{{.27, .25}, {.4, .1}, {.62, .12}, {.7, .3}, {.6, .5}, {.27, .9}, {.75, .9}}},
      {{{.28, .15},
        {.55, .1},
        {.7, .25},
        {.6, .43},
        {.45, .48},
        {.65, .55},
        {.72, .72},
        {.55, .9},
        {.27, .85}}},
      {{{.6, .1}, {.25, .62}, {.78, .62}}, {{.62, .4}, {.62, .92}}},
      {{{.7, .1}, {.35, .1}, {.3, .45}, {.55, .42}, {.72, .6}, {.65, .82}, {.45, .9}, {.27, .83}}},
      {{{.65, .12},
        {.4, .3},
        {.28, .62},
        {.38, .87},
        {.6, .88},
        {.72, .7},
        {.6, .52},
        {.4, .52},
        {.29, .66}}},
      {{{.25, .1}, {.75, .1}, {.45, .9}}},
      {{{.5, .48},
        {.32, .35},
        {.35, .16},
        {.5, .1},
        {.65, .16},
        {.68, .35},
        {.5, .48},
        {.28, .66},
        {.35, .85},
        {.5, .9},
        {.65, .85},
        {.72, .66},
        {.5, .48}}},
      {{{.7, .36},
        {.55, .5},
        {.35, .45},
        {.28, .28},
        {.4, .12},
        {.6, .12},
        {.71, .3},
        {.66, .65},
        {.45, .9}}},
  }};
  return kAll;
}

double distance_to_segment(Point p, Point a, Point b) {
  const Point along{b.x - a.x, b.y - a.y};
  const Point to{p.x - a.x, p.y - a.y};
  const double length2 = along.x * along.x + along.y * along.y;
  const double t = std::clamp((to.x * along.x + to.y * along.y) / std::max(length2, 1e-12), 0.0, 1.0);
  return std::hypot(to.x - t * along.x, to.y - t * along.y);
}

/// Varies the glyph's strokes like handwriting.
std::vector<Stroke> bend(const std::vector<Stroke>& glyph, Random& random) {
  const double angle = random.uniform(-0.3, 0.3);
  const double slant = random.uniform(-0.2, 0.2);
  const Point scale{random.uniform(0.65, 1.0), random.uniform(0.65, 1.0)};
  const Point shift{random.uniform(-0.12, 0.12), random.uniform(-0.12, 0.12)};
  std::vector<Stroke> bent = glyph;
  for (Stroke& stroke : bent)
    for (Point& point : stroke) {
      const double x = (point.x - 0.5) * scale.x + slant * (point.y - 0.5) + random.uniform(-0.02, 0.02);
      const double y = (point.y - 0.5) * scale.y + random.uniform(-0.02, 0.02);
      point = {0.5 + shift.x + x * std::cos(angle) - y * std::sin(angle),
               0.5 + shift.y + x * std::sin(angle) + y * std::cos(angle)};
    }
  return bent;
}

void draw(const std::vector<Stroke>& strokes, Random& random, float* pixels) {
  const double thickness = random.uniform(0.035, 0.065);
  const double noise = random.uniform(0, 0.15);
  constexpr double kEdge = 1.0 / kSide;  // width of the edge from dark to bright: one pixel
  for (size_t i = 0; i < kSide * kSide; ++i) {
    const size_t row = i / kSide;
    const Point middle{(static_cast<double>(i % kSide) + 0.5) / kSide,
                       (static_cast<double>(row) + 0.5) / kSide};
    double distance = 1;
    for (const Stroke& stroke : strokes)
      for (size_t j = 1; j < stroke.size(); ++j)
        distance = std::min(distance, distance_to_segment(middle, stroke[j - 1], stroke[j]));
    const double ink = std::clamp((thickness - distance) / kEdge + 0.5, 0.0, 1.0);
    pixels[i] = static_cast<float>(std::clamp(ink + noise * random.uniform(-1, 1), 0.0, 1.0));
  }
}

std::unique_ptr<Dataset> draw_set(size_t count, Random random) {
  Matrix pixels(count, kSide * kSide);
  std::vector<int> labels(count);
  for (size_t i = 0; i < count; ++i) {
    labels[i] = static_cast<int>(random.below(10));
    draw(bend(glyphs()[static_cast<size_t>(labels[i])], random), random, pixels.row(i));
  }
  return std::make_unique<ImageDataset>(std::move(pixels), std::move(labels));
}

}  // namespace

Data draw_digits(size_t train_count, size_t held_out_count, uint64_t seed) {
  Data data;
  data.train = draw_set(train_count, Random(seed, 0));
  data.held_out = draw_set(held_out_count, Random(seed, 1));
  data.classes = glyphs().size();
  data.side = kSide;
  return data;
}

}  // namespace tutti::trainer
