#include "tools/tutti_plan/timeline.h"

#include <algorithm>
#include <array>
#include <map>

#include "core/result.h"
#include "tools/machine.h"
#include "topology/xml.h"

namespace tutti::tool {

using topology::Simulation;
using topology::Span;
using topology::SpanKind;

namespace {

constexpr size_t kRowsMax = 32;  // 8 GPUs, whose stripes are walked in four groups
constexpr size_t kBoxesMax = 20'000;
constexpr int kLeft = 90;
constexpr int kTop = 64;
constexpr int kRow = 22;
constexpr int kWidth = 1040;
constexpr std::array<const char*, 4> kNames = {"works in memory", "sends", "receives", "receives and sends"};
constexpr std::array<const char*, 4> kColours = {"#9498a0", "#4269d0", "#3ca951", "#efb118"};
constexpr const char* kStyle =
    "<style>text{font-family:sans-serif;font-size:12px;fill:#333}.t{font-size:15px;font-weight:bold}"
    ".g{stroke:#e4e4e4}.c{stroke:#c00;stroke-width:1.5}.m{text-anchor:middle}.e{text-anchor:end}</style>\n";

size_t number_of(SpanKind kind) {
  return static_cast<size_t>(kind);
}

/// The distance of marks on the axis: 1, 2 or 5 times a power of 10, about 10 marks.
double mark_distance(double length_us) {
  double distance = 1e-3;
  while (distance * 10 < length_us / 10) distance *= 10;
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (distance * factor >= length_us / 10) return distance * factor;
  }
  return distance * 10;
}

std::string text(int x, int y, const std::string& words, const char* kind = "") {
  return format("<text class=\"%s\" x=\"%d\" y=\"%d\">%s</text>\n", kind, x, y,
                topology::xml_escaped(words).c_str());
}

}  // namespace

std::vector<bool> longest_chain(const std::vector<Span>& spans) {
  std::vector<bool> is_on(spans.size(), false);
  if (spans.empty()) return is_on;
  const auto last = std::ranges::max_element(spans, {}, [](const Span& span) { return span.end_us; });
  for (auto at = static_cast<uint32_t>(last - spans.begin()); at != topology::kNoSpan; at = spans[at].cause)
    is_on[at] = true;
  return is_on;
}

std::string chrome_trace(const std::string& title, const Simulation& simulation) {
  const std::vector<bool> is_on = longest_chain(simulation.spans);
  std::string out =
      "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"title\":\"" + title + "\"},\"traceEvents\":[";
  std::map<uint32_t, bool> seen;
  for (size_t i = 0; i < simulation.spans.size(); ++i) {
    const Span& span = simulation.spans[i];
    if (seen.emplace(span.rank, true).second) {
      out += format("%s{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%u,\"args\":{\"name\":\"rank %u\"}}",
                    i == 0 ? "\n" : ",\n", span.rank, span.rank);
    }
    out += format(
        ",\n{\"ph\":\"X\",\"name\":\"step %u\",\"cat\":\"%s\",\"pid\":%u,\"tid\":%u,\"ts\":%.4f,\"dur\":%.4f,"
        "\"args\":{\"round\":%u,\"on the longest chain\":%s}}",
        span.step, kNames[number_of(span.kind)], span.rank, span.lane, span.start_us,
        span.end_us - span.start_us, span.round, is_on[i] ? "true" : "false");
  }
  return out + "\n]}\n";
}

std::string draw_timeline(const std::string& title, const Simulation& simulation) {
  const std::vector<bool> is_on = longest_chain(simulation.spans);
  std::map<std::pair<uint32_t, uint32_t>, int> row_of;
  double length_us = 1e-3;
  for (const Span& span : simulation.spans) {
    row_of.try_emplace({span.rank, span.lane}, 0);
    length_us = std::max(length_us, span.end_us);
  }
  int rows = 0;
  for (auto& [lane, row] : row_of) row = rows++;
  const int shown = std::min(rows, static_cast<int>(kRowsMax));
  const int bottom = kTop + shown * kRow;
  const auto x_at = [&](double us) { return kLeft + us / length_us * kWidth; };
  std::string body = text(kLeft, 22, title, "t");
  for (double us = 0; us <= length_us * 1.001; us += mark_distance(length_us)) {
    const int x = static_cast<int>(x_at(us));
    body += format("<line class=\"g\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>\n", x, kTop, x, bottom);
    body += text(x, bottom + 16, short_time(us), "m");
  }
  for (const auto& [lane, row] : row_of) {
    if (row < shown) body += text(kLeft - 8, kTop + row * kRow + 15, format("rank %u", lane.first), "e");
  }
  size_t boxes = 0;
  for (size_t i = 0; i < simulation.spans.size() && boxes < kBoxesMax; ++i) {
    const Span& span = simulation.spans[i];
    const int row = row_of[{span.rank, span.lane}];
    if (row >= shown) continue;
    ++boxes;
    body += format(
        "<rect %sfill=\"%s\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"><title>step %u, round %u: %s"
        "</title></rect>\n",
        is_on[i] ? "class=\"c\" " : "", kColours[number_of(span.kind)], x_at(span.start_us),
        kTop + row * kRow + 3, std::max(0.6, x_at(span.end_us) - x_at(span.start_us)), kRow - 6, span.step,
        span.round, short_time(span.end_us - span.start_us).c_str());
  }
  int x = kLeft;
  for (size_t kind = 0; kind < kNames.size(); ++kind) {
    body += format("<rect fill=\"%s\" x=\"%d\" y=\"34\" width=\"14\" height=\"12\"/>\n", kColours[kind], x);
    body += text(x + 20, 45, kNames[kind]);
    x += 160;
  }
  body += format("<rect class=\"c\" fill=\"#fff\" x=\"%d\" y=\"34\" width=\"14\" height=\"12\"/>\n", x);
  body += text(x + 20, 45, "on the longest chain: what the others wait for");
  if (shown < rows) body += text(kLeft, bottom + 36, format("and %d more lanes", rows - shown));
  const int width = kLeft + kWidth + 40;
  const int height = bottom + 48;
  return format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n",
             width, height, width, height) +
         kStyle + "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n" + body + "</svg>\n";
}

}  // namespace tutti::tool
