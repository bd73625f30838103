#include "trainer/modes/flags.h"

#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <functional>
#include <set>
#include <sstream>

#include "trainer/error.h"
#include "trainer/mode.h"
#include "trainer/options.h"

namespace tutti::trainer {
namespace {

constexpr size_t kMany = size_t{1} << 30;
// Read by every mode but data, and by data too.
constexpr const char* kOtherModes = "--slow --kill --pace-ms --drawing --drawing-steps";
constexpr const char* kAllModes = "--mode --parameters --emulate-hosts";
constexpr const char* kDataReads = "--experts";

CLI::Validator whole(size_t least) {
  return CLI::Range(least, kMany).description("WHOLE");
}

bool contains(const char* flags, const std::string& flag) {
  std::istringstream words(flags);
  for (std::string word; words >> word;)
    if (word == flag) return true;
  return false;
}

/// Whether a mode reads a flag of the modes' group.
bool reads(const std::string& mode, const std::string& flag) {
  if (contains(kAllModes, flag)) return true;
  if (mode == "data") return contains(kDataReads, flag);
  if (contains(kOtherModes, flag)) return true;
  return std::any_of(modes().begin(), modes().end(), [&](const ModeEntry& entry) {
    return mode == entry.name && contains(entry.flags, flag);
  });
}

/// RANK:NUMBER.
CLI::Option* add_of_rank(CLI::App& app, const std::string& name, int* rank, const std::string& about,
                         const std::function<void(double)>& set) {
  return app
      .add_option_function<std::string>(
          name,
          [=](const std::string& text) {
            const size_t colon = text.find(':');
            double number = 0;
            if (colon == std::string::npos || !CLI::detail::lexical_cast(text.substr(0, colon), *rank) ||
                !CLI::detail::lexical_cast(text.substr(colon + 1), number) || *rank < 0 ||
                !std::isfinite(number) || number < 0)
              throw CLI::ValidationError(name, "'" + text + "' is not RANK:NUMBER");
            set(number);
          },
          about)
      ->type_name("RANK:NUMBER");
}

}  // namespace

void add_mode_flags(CLI::App& app, Options& options) {
  ParallelOptions& p = options.parallel;
  std::string ideas = "how to train in parallel: data (buckets of gradients)";
  std::set<std::string> names = {"data"};
  for (const ModeEntry& entry : modes()) {
    ideas += std::string(", ") + entry.name + " (" + entry.idea + ")";
    names.insert(entry.name);
  }
  app.add_option("--mode", p.mode, ideas)->check(CLI::IsMember(names))->capture_default_str();
  app.add_option("--schedule", p.schedule, "pipeline, grid: gpipe, 1f1b; pipeline: pipedream")
      ->check(CLI::IsMember({"gpipe", "1f1b", "pipedream"}))
      ->capture_default_str();
  app.add_option("--chunks", p.chunks, "pipeline: stages of each rank (interleaved)")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--pipeline-ranks", p.pipeline_ranks, "grid: stages")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--tensor-ranks", p.tensor_ranks, "grid: ranks that share each matrix")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_flag("--sequence", p.sequence, "tensor, grid: cut the rows between blocks too (sequence parallel)");
  app.add_option("--zero-stage", p.zero_stage,
                 "zero: 1 optimizer, 2 and gradients, 3 and parameters are sharded")
      ->check(CLI::Range(1, 3))
      ->capture_default_str();
  app.add_option("--offload", p.offload, "zero, stage 3: a folder for shards that are not in use");
  app.add_option("--period", p.period, "local: steps between averages")
      ->check(whole(1))
      ->capture_default_str();
  app.add_option("--outer-rate", p.outer_rate, "local: rate of the outer step")
      ->check(real(1e-9, 1e3))
      ->capture_default_str();
  app.add_option("--outer-momentum", p.outer_momentum,
                 "local: Nesterov momentum of the outer step (DiLoCo: 0.9)")
      ->check(real(0, 1))
      ->capture_default_str();
  app.add_option("--servers", p.servers, "server: ranks that hold the parameters")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--staleness", p.staleness,
                 "server: steps that a worker may be ahead of another; 0: synchronous, -1: any")
      ->check(CLI::Range(-1, 1 << 20))
      ->capture_default_str();
  app.add_option("--fusion-ms", p.fusion_ms, "fusion: time between reductions")
      ->check(real(0, 1e4))
      ->capture_default_str();
  app.add_option("--experts", options.model.experts,
                 "transformer: experts in each block, of which a character uses one; 0: none")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  add_of_rank(app, "--slow", &p.slow_rank, "prolong a rank's passes by this factor, 1 or more",
              [&p](double factor) { p.slow_factor = factor; });
  add_of_rank(app, "--kill", &p.kill_rank, "kill a rank before this step; elastic: every so many steps",
              [&p](double step) { p.kill_step = static_cast<size_t>(step); });
  app.add_option("--pace-ms", p.pace_ms,
                 "least time of a forward pass; a backward pass takes twice that (zero: of each layer)")
      ->check(real(0, 1e4));
  app.add_option("--drawing", p.drawing, "file for a drawing (SVG) of the last steps, as measured");
  app.add_option("--drawing-steps", p.drawing_steps, "number of these steps")
      ->check(whole(1))
      ->capture_default_str();
  app.add_option("--emulate-hosts", p.hosts,
                 "spread the ranks over this many emulated hosts, which talk by TCP on this machine")
      ->check(CLI::Range(2, 1024));
  app.add_option("--parameters", p.parameters, "file for all parameters at the end, raw float32");
}

namespace {

/// A flag that was given and that the mode does not read.
std::string find_unread(const CLI::App& app, const std::string& mode) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0) continue;
    const std::string flag = option->get_name();
    if (option->get_group() == kDataGroup && mode != "data")
      return "--mode " + mode + " does not read " + flag + ", which belongs to --mode data";
    if (option->get_group() != kModeGroup || reads(mode, flag)) continue;
    std::string readers = reads("data", flag) ? "data" : "";
    for (const ModeEntry& entry : modes())
      if (reads(entry.name, flag)) readers += (readers.empty() ? "" : ", ") + std::string(entry.name);
    return "--mode " + mode + " does not read " + flag + ", which belongs to --mode " + readers;
  }
  return "";
}

}  // namespace

namespace {

/// Into how many runs of layers the mode cuts the model, as far as the options alone tell; else 1.
size_t stage_count(const Options& options) {
  const ParallelOptions& p = options.parallel;
  const auto ranks = static_cast<size_t>(std::max(options.ranks, 1));
  if (p.mode == "layers") return ranks;
  if (p.mode == "pipeline") return ranks * p.chunks;
  // --sequence adds layers that only a rank of the tensor axis can make.
  return p.mode == "grid" && !p.sequence ? static_cast<size_t>(p.pipeline_ranks) : 1;
}

/// Before any rank starts: a thousand ranks would start for the same sentence.
std::string find_stage_mistake(const Options& options) {
  ModelOptions model = options.model;
  model.classes = 1;  // unknown before the data is read, and of no account here
  try {
    const Model trial(model, options.seed, SumOverRanks(), multiply, host_backend(),
                      {.stage_count = stage_count(options), .allocates = false});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

std::string find_mode_mistake(const CLI::App& app, const Options& options) {
  const ParallelOptions& p = options.parallel;
  if (const std::string unread = find_unread(app, p.mode); !unread.empty()) return unread;
  if (p.hosts > 0 && options.threads) return "--emulate-hosts needs processes: leave out --threads";
  if (options.ranks > 0 && p.hosts > options.ranks)
    return "--emulate-hosts " + std::to_string(p.hosts) + " needs a rank for each host, and there are " +
           std::to_string(options.ranks);
  if (p.kill_rank >= 0 && options.threads) return "--kill needs processes: leave out --threads";
  if (p.slow_factor < 1) return "--slow RANK:FACTOR: a factor of 1 or more";
  if (app.count("--drawing-steps") > 0 && p.drawing.empty()) return "--drawing-steps needs --drawing FILE";
  if (p.mode == "data") return "";
  const std::string mode = "--mode " + p.mode;
  if (options.device == "cuda") return mode + " computes on the host: leave out --device cuda";
  if (options.uneven) return mode + " needs batches that divide: leave out --uneven";
  if (options.clip > 0) return mode + " does not clip gradients: leave out --clip";
  if (options.model.name == "cnn") return mode + " trains transformer or mlp: batch norm is for --mode data";
  if (p.mode == "zero" && !p.offload.empty() && p.zero_stage < 3)
    return "--offload moves parameters out of memory: it needs --zero-stage 3";
  if (p.mode == "expert" && (options.model.name != "transformer" || options.model.experts == 0))
    return "--mode expert needs a transformer with experts: --experts 4";
  if (const std::string mistake = find_stage_mistake(options); !mistake.empty()) return mistake;
  if (p.mode != "elastic") return "";
  if (options.ranks < 2 || options.threads)
    return mode + " starts its own processes: --ranks 2 or more, without --threads";
  if (options.accumulate > 1) return mode + " takes a batch in one part: leave out --accumulate";
  if (options.reproducible)
    return mode + " changes its ranks, and the sums with them: leave out --reproducible";
  if (p.kill_rank >= options.ranks)
    return "--kill names rank " + std::to_string(p.kill_rank) + ", but there are " +
           std::to_string(options.ranks) + " ranks, from 0";
  if (p.kill_rank >= 0 && p.kill_step == 0) return "--kill RANK:STEPS: 1 step or more";
  return "";
}

}  // namespace tutti::trainer
