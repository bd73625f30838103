// nccl-tests' table, character for character, plus the algorithm as a last column.
//
// The layout is that of nccl-tests 2.19 (header, "%12li  %12li  %8s  %6s  %6s" and "  %7s  %6s  %6s  %6g" per
// measurement, footer). Functions return text; the caller prints it.
#pragma once

#include <string>
#include <vector>

#include "perf/floors.h"
#include "perf/report.h"

namespace tutti::perf {

/// From "# Collective test starting ..." to the list of ranks, and the floors if they were measured.
std::string table_preamble(const Options& options, const std::string& test_name, int library_version,
                           const std::vector<RankInfo>& ranks, const std::optional<Floors>& floors = {});

std::string table_header(const Options& options);

std::string table_row(const Options& options, const Row& row);

/// From "# Out of bounds values" to the end.
std::string table_footer(const std::string& test_name, const Summary& summary);

/// `value` in `width` characters with at most 2 decimals; larger values get fewer (nccl-tests' rule).
std::string table_number(double value, int width);

/// "12.3 MB", as in nccl-tests' memory report.
std::string memory_text(double bytes);

}  // namespace tutti::perf
