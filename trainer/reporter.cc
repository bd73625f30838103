#include "trainer/reporter.h"

#include <algorithm>
#include <cstdio>
#include <numbers>

#include "trainer/modes/data.h"

namespace tutti::trainer {
namespace {

constexpr double kBytesPerMb = 1e6;

}  // namespace

double Reporter::Times::samples_per_s() const {
  return training_ns == 0 ? 0 : 1e9 * static_cast<double>(samples) / static_cast<double>(training_ns);
}

double Reporter::Times::hidden_percent() const {
  if (communication_ns == 0) return 100;
  return std::max(0.0, 100 * (1 - static_cast<double>(exposed_ns) / static_cast<double>(communication_ns)));
}

void Reporter::head(const DataParallel& parallel, const std::string& about) {
  since_ns_ = now_ns();
  if (!prints_) return;
  std::printf("%s\n%zu buckets, %.2f MB from each rank a step", about.c_str(),
              parallel.bucketer().buckets().size(), parallel.wire_bytes() / kBytesPerMb);
  if (parallel.wire_bytes() < parallel.plain_wire_bytes())
    std::printf(" instead of %.2f MB (%.1f %% saved by compression)",
                parallel.plain_wire_bytes() / kBytesPerMb,
                100 * (1 - parallel.wire_bytes() / parallel.plain_wire_bytes()));
  std::printf("\n%8s %12s %12s %12s %8s\n", "step", text_ ? "bits/char" : "train %",
              text_ ? "held-out" : "test %", "samples/s", "hidden %");
  std::fflush(stdout);
}

void Reporter::pause() {
  const uint64_t now = now_ns();
  for (Times* times : {&recent_, &total_}) times->training_ns += now - since_ns_;
}

void Reporter::resume() {
  since_ns_ = now_ns();
}

void Reporter::count(size_t samples, const Bucketer& bucketer) {
  for (Times* times : {&recent_, &total_}) {
    times->samples += samples;
    times->communication_ns += bucketer.communication_ns();
    times->exposed_ns += bucketer.exposed_ns();
  }
}

void Reporter::progress(size_t step, const Loss& train, const std::optional<Loss>& held_out) {
  const Times times = recent_;
  recent_ = {};
  if (!prints_) return;
  const auto shown = [&](const Loss& loss) { return text_ ? loss.bits() : loss.correct_percent(); };
  std::printf("%8zu %12.3f ", step, shown(train));
  if (held_out)
    std::printf("%12.3f ", shown(*held_out));
  else
    std::printf("%12s ", "");
  std::printf("%12.1f %8.0f\n", times.samples_per_s(), times.hidden_percent());
  std::fflush(stdout);
}

void Reporter::summary(const DataParallel& parallel, size_t steps, const Loss& held_out,
                       std::optional<double> trigram_nats) {
  if (!prints_) return;
  const double seconds = static_cast<double>(total_.training_ns) / 1e9;
  std::printf(
      "%zu steps in %.1f s, %.3f ms a step, %.0f samples/s, %.1f %% of communication hidden, %.2f MB a "
      "step\n",
      steps, seconds, 1e3 * seconds / static_cast<double>(std::max<size_t>(steps, 1)), total_.samples_per_s(),
      total_.hidden_percent(), parallel.wire_bytes() / kBytesPerMb);
  if (text_)
    std::printf("held-out loss %.3f bits a character", held_out.bits());
  else
    std::printf("test accuracy %.2f %%", held_out.correct_percent());
  if (trigram_nats) std::printf(", a trigram model of the same text %.3f", *trigram_nats / std::numbers::ln2);
  std::printf("\n");
}

}  // namespace tutti::trainer
