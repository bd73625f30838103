// What nearly every test reads, compiled once for all (tests/meson.build). A source still includes what it
// uses: clang-tidy and the fuzz targets read sources without this. GCC compiles this as a main file, where it
// warns of #pragma once.
#ifndef TUTTI_TESTS_SUPPORT_PRECOMPILED_H
#define TUTTI_TESTS_SUPPORT_PRECOMPILED_H

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#endif
