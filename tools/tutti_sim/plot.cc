#include "tools/tutti_sim/plot.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/result.h"
#include "tools/machine.h"
#include "topology/xml.h"

namespace tutti::tool {
namespace {

constexpr int kWidth = 420;  // of a panel's field
constexpr int kHeight = 300;
constexpr int kLeft = 92;  // before the first panel
constexpr int kTop = 56;
constexpr int kGap = 26;  // between panels
constexpr int kBottom = 52;
constexpr int kLegendLine = 17;
constexpr const char* kColours[] = {"#4269d0", "#ff725c", "#3ca951", "#a463f2", "#efb118", "#6cc5b0",
                                    "#9c6b4e", "#97bbf5", "#ff8ab7", "#9498a0", "#2f4b26", "#7a1f5c"};
constexpr const char* kStyle =
    "<style>text{font-family:sans-serif;font-size:12px;fill:#333}.t{font-size:15px;font-weight:bold}"
    ".p{font-weight:bold}.g{stroke:#e4e4e4}.f{fill:none;stroke:#999}.m{text-anchor:middle}.e{text-anchor:end}"
    "polyline{fill:none;stroke-width:2}</style>\n";

/// A logarithmic axis.
struct Axis {
  double low = 1e300;
  double high = 0;

  void cover(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  void finish() {
    if (high <= 0) low = high = 1;
    if (high / low < 2) low /= 2, high *= 2;
  }
  double place(double value) const { return std::log(value / low) / std::log(high / low); }
};

class Drawing {
 public:
  explicit Drawing(const Plot& plot) : plot_(plot) {
    for (const Panel& panel : plot.panels) {
      for (const Curve& curve : panel.curves) {
        colours_.try_emplace(curve.name, kColours[colours_.size() % std::size(kColours)]);
        for (const auto& [x, y] : curve.points) x_.cover(x), y_.cover(y);
      }
    }
    x_.finish();
    y_.finish();
  }

  std::string run() {
    const int panels = static_cast<int>(std::max<size_t>(1, plot_.panels.size()));
    const int columns = std::max(1, (panels * (kWidth + kGap)) / 210);
    const int lines = (static_cast<int>(colours_.size()) + columns - 1) / columns;
    const int width = kLeft + panels * (kWidth + kGap);
    const int height = kTop + kHeight + kBottom + lines * kLegendLine + 12;
    text(kLeft, 22, plot_.title, "t");
    for (size_t i = 0; i < plot_.panels.size(); ++i)
      draw(plot_.panels[i], kLeft + static_cast<int>(i) * (kWidth + kGap), i == 0);
    out_ += format("<text class=\"m\" transform=\"translate(18 %d) rotate(-90)\">%s</text>\n",
                   kTop + kHeight / 2, plot_.y_name.c_str());
    int number = 0;
    for (const auto& [name, colour] : colours_) {
      const int x = kLeft + number % columns * 210;
      const int y = kTop + kHeight + kBottom + number / columns * kLegendLine + 6;
      out_ += format("<polyline stroke=\"%s\" points=\"%d,%d %d,%d\"/>\n", colour.c_str(), x, y - 4, x + 22,
                     y - 4);
      text(x + 28, y, name, "");
      ++number;
    }
    return format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d "
               "%d\">\n",
               width, height, width, height) +
           kStyle + "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n" + out_ + "</svg>\n";
  }

 private:
  void text(int x, int y, const std::string& words, const char* kind) {
    out_ += format("<text class=\"%s\" x=\"%d\" y=\"%d\">%s</text>\n", kind, x, y,
                   topology::xml_escaped(words).c_str());
  }
  void line(int x1, int y1, int x2, int y2) {
    out_ += format("<line class=\"g\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>\n", x1, y1, x2, y2);
  }

  void draw(const Panel& panel, int left, bool is_first) {
    const int bottom = kTop + kHeight;
    const auto x_at = [&](double x) { return left + static_cast<int>(x_.place(x) * kWidth); };
    const auto y_at = [&](double y) { return bottom - static_cast<int>(y_.place(y) * kHeight); };
    for (double y = std::pow(10, std::ceil(std::log10(y_.low))); y <= y_.high * 1.0001; y *= 10) {
      line(left, y_at(y), left + kWidth, y_at(y));
      if (is_first) text(left - 8, y_at(y) + 4, short_time(y), "e");
    }
    const double step = plot_.x_is_bytes ? 32 : 4;
    for (double x = x_.low; x <= x_.high * 1.0001; x *= step) {
      line(x_at(x), kTop, x_at(x), bottom);
      text(x_at(x), bottom + 16, plot_.x_is_bytes ? short_bytes(static_cast<uint64_t>(x)) : format("%.0f", x),
           "m");
    }
    out_ += format("<rect class=\"f\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", left, kTop, kWidth,
                   kHeight);
    text(left, kTop - 8, panel.title, "p");
    text(left + kWidth / 2, bottom + 34, plot_.x_name, "m");
    for (const Curve& curve : panel.curves) {
      out_ += format("<polyline stroke=\"%s\" points=\"", colours_[curve.name].c_str());
      for (const auto& [x, y] : curve.points) out_ += format("%d,%d ", x_at(x), y_at(y));
      out_ += "\"/>\n";
    }
  }

  const Plot& plot_;
  Axis x_;
  Axis y_;
  std::map<std::string, std::string> colours_;
  std::string out_;
};

}  // namespace

std::string draw_plot(const Plot& plot) {
  return Drawing(plot).run();
}

}  // namespace tutti::tool
