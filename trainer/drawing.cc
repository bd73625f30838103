#include "trainer/drawing.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

#include "trainer/timeline.h"

namespace tutti::trainer {
namespace {

constexpr size_t kMostStrokes = 4096;  // of a rank; a drawing of more cannot be read
constexpr const char* kColors[] = {"#9ecae1", "#a1d99b", "#bcbddc", "#fdae6b", "#fdd0a2", "#fb6a4a"};
constexpr const char* kNames[] = {"forward", "backward", "process", "collective", "message", "pause"};

/// A text that grows by formatted lines.
class Lines {
 public:
  template <class... Values>
  void add(const char* format, Values... values) {
    std::array<char, 320> line{};
    std::snprintf(line.data(), line.size(), format, values...);
    text_ += line.data();
  }
  void add(const char* text) { text_ += text; }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace

Stroke Stroke::of(uint32_t row, Kind kind, double begin, double end, const std::string& label) {
  Stroke stroke{.row = row, .kind = kind, .begin = begin, .end = end};
  label.copy(stroke.label, sizeof stroke.label - 1);
  return stroke;
}

void Sketch::begin() {
  begin_ns_ = now_ns();
}

double Sketch::now() const {
  return static_cast<double>(now_ns() - begin_ns_) / 1e9;
}

void Sketch::add(Stroke::Kind kind, double begin, const std::string& label) {
  const Stroke stroke = Stroke::of(rank_, kind, begin, now(), label);
  const std::lock_guard lock(mutex_);
  strokes_.push_back(stroke);
  if (strokes_.size() > kMostStrokes) strokes_.pop_front();
}

std::vector<Stroke> Sketch::strokes(double since) const {
  const std::lock_guard lock(mutex_);
  std::vector<Stroke> found;
  std::copy_if(strokes_.begin(), strokes_.end(), std::back_inserter(found),
               [&](const Stroke& stroke) { return stroke.end > since; });
  return found;
}

double idle_share(std::span<const Stroke> strokes, size_t row_count) {
  double first = 0;
  double last = 0;
  double busy = 0;
  for (const Stroke& stroke : strokes) {
    if (stroke.kind != Stroke::Kind::kForward && stroke.kind != Stroke::Kind::kBackward) continue;
    first = busy == 0 ? stroke.begin : std::min(first, stroke.begin);
    last = std::max(last, stroke.end);
    busy += stroke.end - stroke.begin;
  }
  return busy == 0 ? 0 : 1 - busy / ((last - first) * static_cast<double>(row_count));
}

std::string draw(std::span<const Stroke> strokes, size_t row_count, const std::string& title,
                 const std::string& row_name) {
  constexpr double kWidth = 900;
  constexpr double kLeft = 70;
  constexpr double kRow = 34;
  double first = strokes.empty() ? 0 : strokes.front().begin;
  double last = first;
  std::array<bool, std::size(kColors)> used{};
  for (const Stroke& stroke : strokes) {
    first = std::min(first, stroke.begin);
    last = std::max(last, stroke.end);
    used[static_cast<size_t>(stroke.kind)] = true;
  }
  const double scale = (kWidth - kLeft) / std::max(last - first, 1e-9);
  Lines svg;
  svg.add("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" ", kWidth + 10,
          30 + kRow * static_cast<double>(row_count));
  svg.add(
      "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"white\"/>\n");
  svg.add("<text x=\"4\" y=\"14\">%.120s</text>\n", title.c_str());
  double at = kWidth;
  for (size_t kind = std::size(kColors); kind-- > 0;)
    if (used[kind]) {
      at -= 74;
      svg.add("<text x=\"%.0f\" y=\"14\"><tspan fill=\"%s\">&#9632;</tspan> %s</text>\n", at, kColors[kind],
              kNames[kind]);
    }
  for (size_t row = 0; row < row_count; ++row)
    svg.add("<text x=\"4\" y=\"%.0f\">%s %zu</text>\n", 42 + kRow * static_cast<double>(row),
            row_name.c_str(), row);
  for (const Stroke& stroke : strokes) {
    const bool below = stroke.is_communication();
    const double x = kLeft + (stroke.begin - first) * scale;
    const double width = std::max((stroke.end - stroke.begin) * scale - 0.5, 0.5);  // bars stay apart
    const double y = 24 + kRow * stroke.row + (below ? 20 : 0);
    svg.add("<rect x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>\n", x, y, width,
            below ? 9 : 19, kColors[static_cast<size_t>(stroke.kind)]);
    if (width > 4 + 6.5 * static_cast<double>(std::strlen(stroke.label)) && stroke.label[0] != '\0' && !below)
      svg.add("<text x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%s</text>\n", x + width / 2, y + 14,
              stroke.label);
  }
  return svg.take() + "</svg>\n";
}

}  // namespace tutti::trainer
