// A plot as SVG: lines over two logarithmic axes, in panels side by side.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tutti::tool {

struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;  ///< x, y; both positive
};

struct Panel {
  std::string title;
  std::vector<Curve> curves;
};

struct Plot {
  std::string title;
  std::string x_name;
  std::string y_name;
  bool x_is_bytes = false;
  std::vector<Panel> panels;
};

/// Curves of equal names have equal colours in all panels.
std::string draw_plot(const Plot& plot);

}  // namespace tutti::tool
