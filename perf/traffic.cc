#include "perf/traffic.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace tutti::perf {
namespace {

constexpr double kMostBytes = 0x1p60;  // as parse_size

Status bad_value(size_t row, size_t column, const std::string& word, const char* why) {
  return {Code::kInvalidArgument,
          format("row %zu, column %zu is \"%s\": %s", row + 1, column + 1, word.c_str(), why)};
}

}  // namespace

std::vector<size_t> traffic_by_distance(size_t total, int rank_count, double spread) {
  const double distances = 0.5 * rank_count * (rank_count - 1);
  std::vector<size_t> counts;
  for (int step = 0; step < rank_count; ++step) {
    const double far = distances > 0 ? step / distances : 1.0;
    const double share = (1.0 - spread) / rank_count + spread * far;
    counts.push_back(static_cast<size_t>(static_cast<double>(total) * share));
  }
  return counts;
}

Result<TrafficMatrix> TrafficMatrix::parse(const std::string& text, double scale) {
  TrafficMatrix matrix;
  std::istringstream lines(text);
  size_t rows = 0;
  size_t columns = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    size_t column = 0;
    for (std::string word; words >> word; ++column) {
      char* end = nullptr;
      const double value = std::strtod(word.c_str(), &end);
      if (*end != '\0' || !std::isfinite(value)) return bad_value(rows, column, word, "it is not a number");
      if (value < 0 || value * scale > kMostBytes)
        return bad_value(rows, column, word, "it must be at least 0 and, scaled, at most 2^60");
      matrix.bytes_.push_back(static_cast<size_t>(value * scale) / 16 * 16);
    }
    if (column == 0) continue;
    if (rows > 0 && column != columns)
      return Status(Code::kInvalidArgument,
                    format("row %zu has %zu numbers, the first row %zu", rows + 1, column, columns));
    columns = column;
    ++rows;
  }
  if (rows == 0 || rows != columns)
    return Status(Code::kInvalidArgument, format("%zu rows of %zu numbers are no square", rows, columns));
  matrix.dimension_ = static_cast<int>(rows);
  return matrix;
}

Result<TrafficMatrix> TrafficMatrix::read(const std::string& path, double scale) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!file) return system_error("opening " + path, errno);
  text << file.rdbuf();
  auto matrix = parse(text.str(), scale);
  if (matrix) return matrix;
  return Status(matrix.status().code(), path + ": " + std::string(matrix.status().text()));
}

size_t TrafficMatrix::sent(int rank, int peer_count) const {
  size_t sum = 0;
  for (int peer = 0; peer < peer_count; ++peer) sum += bytes(rank, peer);
  return sum;
}

size_t TrafficMatrix::received(int rank, int peer_count) const {
  size_t sum = 0;
  for (int peer = 0; peer < peer_count; ++peer) sum += bytes(peer, rank);
  return sum;
}

size_t TrafficMatrix::largest_total(int rank_count) const {
  size_t largest = 0;
  for (int rank = 0; rank < rank_count; ++rank)
    largest = std::max({largest, sent(rank, rank_count), received(rank, rank_count)});
  return largest;
}

}  // namespace tutti::perf
