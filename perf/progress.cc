#include "perf/progress.h"

#include <cstdio>

namespace tutti::perf {

void Progress::show(size_t done, const std::string& what) {
  if (!enabled_) return;
  const auto elapsed = std::chrono::steady_clock::now() - start_;
  if (elapsed < std::chrono::seconds(1)) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(elapsed).count();
  if (total_ > 0)
    std::fprintf(stderr, "\r\033[K[%zu/%zu, %lld s] %s", done, total_, static_cast<long long>(seconds),
                 what.c_str());
  else
    std::fprintf(stderr, "\r\033[K[%zu, %lld s] %s", done, static_cast<long long>(seconds), what.c_str());
  std::fflush(stderr);
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace tutti::perf
