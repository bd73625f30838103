#include "trainer/options.h"

#include <CLI/CLI.hpp>
#include <functional>
#include <limits>
#include <set>

#include "core/version_line.h"
#include "perf/exit_status.h"
#include "trainer/mode.h"

namespace tutti::trainer {
namespace {

constexpr size_t kMany = size_t{1} << 30;
constexpr size_t kMostBytes = size_t{1} << 40;

CLI::Validator whole(size_t least) {
  return CLI::Range(least, kMany).description("WHOLE");
}
CLI::Validator real(double least, double most) {
  return CLI::Range(least, most).description("NUMBER");
}

void add_run_flags(CLI::App& app, Options& options) {
  app.add_option(
         "--ranks", options.ranks,
         "start this many ranks on this machine; default: the ranks of the launcher (RANK and WORLD_SIZE, or "
         "mpirun, mpiexec, srun, torchrun), or one rank")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--threads", options.threads, "run the ranks of --ranks as threads of one process");
  app.add_option("--steps", options.steps, "training steps (default: chosen for the model)")->check(whole(1));
  app.add_option("--batch", options.batch,
                 "samples of a step, on all ranks together (default: chosen for the model)")
      ->check(whole(1));
  app.add_option("--accumulate", options.accumulate,
                 "parts of a rank's batch; their gradients add up before the reduction")
      ->check(whole(1))
      ->capture_default_str();
  app.add_flag("--uneven", options.uneven,
               "allow batches that do not divide, and the short batch at the end of an epoch: samples keep "
               "equal weight");
  app.add_option("--seed", options.seed, "seed of parameters, drawn digits and the order of samples")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_flag("--reproducible", options.reproducible,
               "sums have the same bits for any buckets and any spread of ranks");
}

void add_model_flags(CLI::App& app, Options& options) {
  ModelOptions& model = options.model;
  app.add_option("--model", model.name, "transformer (text), mlp or cnn (images)")
      ->check(CLI::IsMember({"transformer", "mlp", "cnn"}))
      ->capture_default_str();
  app.add_option(
      "--data", options.data,
      "transformer: text files, and folders of text files; mlp, cnn: a folder with MNIST's four IDX "
      "files, decompressed (default: digits that the trainer draws)");
  app.add_option("--digits", options.digits,
                 "mlp, cnn: drawn images for training; an eighth as many for testing")
      ->check(whole(8))
      ->capture_default_str();
  app.add_option("--context", model.context, "transformer: visible characters")
      ->check(CLI::Range(2, 4096))
      ->capture_default_str();
  app.add_option("--width", model.width, "transformer: numbers a character")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--depth", model.depth, "transformer: blocks")
      ->check(CLI::Range(1, 128))
      ->capture_default_str();
  app.add_option("--heads", model.heads, "transformer: heads of attention")
      ->check(CLI::Range(1, 128))
      ->capture_default_str();
  app.add_flag("--local-norm", model.local_norm, "cnn: batch statistics of each rank instead of all ranks");
}

void add_device_flag(CLI::App& app, Options& options) {
  app.add_option(
         "--device", options.device,
         "device for matrix products and reductions: host (OpenBLAS, a host stream), cuda (cuBLAS on a "
         "GPU, a CUDA stream), or auto: a GPU if there is one, else the host")
      ->check(CLI::IsMember({"auto", "host", "cuda"}))
      ->capture_default_str();
}

void add_optimizer_flags(CLI::App& app, Options& options) {
  app.add_option("--optimizer", options.optimizer.name, "adamw, or sgd with momentum")
      ->check(CLI::IsMember({"adamw", "sgd"}))
      ->capture_default_str();
  app.add_option("--learning-rate", options.learning_rate,
                 "highest learning rate (default: chosen for the optimizer)")
      ->check(real(1e-9, 1e3));
  app.add_option("--momentum", options.optimizer.momentum, "sgd: momentum")
      ->check(real(0, 1))
      ->capture_default_str();
  app.add_option("--weight-decay", options.optimizer.weight_decay, "weight decay of matrices")
      ->check(real(0, 10))
      ->capture_default_str();
  app.add_option("--clip", options.clip, "largest norm of all gradients together; 0: no limit")
      ->check(real(0, 1e9))
      ->capture_default_str();
}

void add_communication_flags(CLI::App& app, Options& options) {
  app.add_option("--bucket-bytes", options.buckets.bytes,
                 "bytes at which a bucket of gradients closes; 0: one bucket for each tensor")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(size_t{0}, kMostBytes))
      ->capture_default_str();
  app.add_option("--first-bucket-bytes", options.buckets.first_bytes, "the same for the first bucket")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(size_t{0}, kMostBytes))
      ->capture_default_str();
  app.add_option("--compression", options.compression.name,
                 "compression of gradients: none, f16, bf16, topk, powersgd")
      ->check(CLI::IsMember({"none", "f16", "bf16", "topk", "powersgd"}))
      ->capture_default_str();
  app.add_option("--share", options.compression.share, "topk: share of the gradients that is sent")
      ->check(real(1e-9, 1))
      ->capture_default_str();
  app.add_option("--compression-rank", options.compression.rank, "powersgd: rank")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
}

void add_file_flags(CLI::App& app, Options& options) {
  app.add_option("--checkpoint", options.checkpoint, "file to write at the end");
  app.add_option("--checkpoint-every", options.checkpoint_every, "also write the file every this many steps")
      ->check(whole(1));
  app.add_option("--resume", options.resume,
                 "checkpoint to resume from; --steps counts from the first step of all runs");
  app.add_option("--timeline", options.timeline,
                 "file for a timeline of three steps in the middle, for chrome://tracing or ui.perfetto.dev");
  app.add_option("--report-every", options.report_every,
                 "steps between progress lines (default: a twentieth)")
      ->check(whole(1));
  app.add_option("--evaluate-every", options.evaluate_every,
                 "steps between held-out losses (default: a fifth)")
      ->check(whole(1));
  app.add_option("--sample", options.sample, "transformer: characters of text to generate at the end")
      ->check(CLI::Range(0, 100000))
      ->capture_default_str();
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
                !CLI::detail::lexical_cast(text.substr(colon + 1), number) || *rank < 0 || number < 0)
              throw CLI::ValidationError(name, "'" + text + "' is not RANK:NUMBER");
            set(number);
          },
          about)
      ->type_name("RANK:NUMBER");
}

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
  app.add_flag("--sequence", p.sequence, "tensor: cut the rows between blocks too (sequence parallel)");
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
  add_of_rank(app, "--slow", &p.slow_rank, "prolong a rank's computations by this factor",
              [&p](double factor) { p.slow_factor = std::max(factor, 1.0); });
  add_of_rank(app, "--kill", &p.kill_rank, "kill a rank before this step; elastic: every so many steps",
              [&p](double step) { p.kill_step = static_cast<size_t>(step); });
  app.add_option("--pace-ms", p.pace_ms,
                 "pipeline: least time of a forward pass; a backward pass takes twice that")
      ->check(real(0, 1e4));
  app.add_option("--drawing", p.drawing, "pipeline: file for a drawing (SVG) of the last step");
  app.add_option("--parameters", p.parameters, "file for all parameters at the end, raw float32");
}

/// Fills in missing numbers, by model and optimizer. Measured: docs/trainer.md.
void choose_defaults(Options& options) {
  const bool text = options.model.name == "transformer";
  if (options.steps == 0) options.steps = text ? 1000 : 400;
  if (options.batch == 0) options.batch = text ? 16 : 64;
  if (options.learning_rate == 0) options.learning_rate = options.optimizer.name == "sgd" ? 0.05 : 3e-3;
  if (options.report_every == 0) options.report_every = std::max<size_t>(options.steps / 20, 1);
  if (options.evaluate_every == 0) options.evaluate_every = std::max<size_t>(options.steps / 5, 1);
}

/// Modes train plainly: what only the data-parallel loop does is refused.
std::string find_mode_mistake(const Options& options) {
  const std::string mode = "--mode " + options.parallel.mode;
  if (!options.checkpoint.empty() || !options.resume.empty())
    return mode + " writes no checkpoints: leave out --checkpoint and --resume";
  if (!options.timeline.empty()) return mode + " has no --timeline; pipeline has --drawing";
  if (options.compression.name != "none") return mode + " does not compress: leave out --compression";
  if (options.device == "cuda") return mode + " computes on the host: leave out --device cuda";
  if (options.uneven) return mode + " needs batches that divide: leave out --uneven";
  if (options.parallel.mode == "elastic" && (options.ranks < 2 || options.threads))
    return mode + " starts its own processes: --ranks 2 or more, without --threads";
  if (options.parallel.mode == "elastic" && options.parallel.kill_rank >= 0 &&
      options.parallel.kill_step == 0)
    return "--kill RANK:STEPS: 1 step or more";
  if (options.model.name == "cnn") return mode + " trains transformer or mlp: batch norm is for --mode data";
  return "";
}

std::string find_mistake(const Options& options) {
  if (options.parallel.mode != "data")
    if (const std::string mistake = find_mode_mistake(options); !mistake.empty()) return mistake;
  if (options.threads && options.ranks == 0) return "--threads needs --ranks";
  if (options.model.name == "transformer" && options.data.empty())
    return "the transformer needs text: --data FILE or FOLDER";
  if (options.model.name != "transformer" && options.data.size() > 1)
    return "images come from one folder: --data FOLDER";
  if (options.checkpoint_every > 0 && options.checkpoint.empty())
    return "--checkpoint-every needs --checkpoint FILE";
  if (!options.timeline.empty() &&
      options.timeline.lexically_normal() == options.checkpoint.lexically_normal())
    return "--timeline and --checkpoint name the same file";
  return "";
}

}  // namespace

ParsedOptions parse_options(int argc, const char* const* argv) {
  ParsedOptions parsed;
  CLI::App app("Trains a small model with data parallelism over tutti. One rank is one copy of the model.",
               "trainer");
  add_run_flags(app, parsed.options);
  add_model_flags(app, parsed.options);
  add_device_flag(app, parsed.options);
  add_optimizer_flags(app, parsed.options);
  add_communication_flags(app, parsed.options);
  add_file_flags(app, parsed.options);
  app.set_version_flag("--version", version_line("trainer"));
  add_mode_flags(app, parsed.options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    parsed.text = app.help();
    return parsed;
  } catch (const CLI::CallForVersion& version) {
    parsed.text = version.what();
    return parsed;
  } catch (const CLI::ParseError& error) {
    parsed.text = std::string("trainer: ") + error.what() + "\nSee trainer --help.";
    parsed.exit_code = perf::kExitUsage;
    return parsed;
  }
  choose_defaults(parsed.options);
  if (const std::string mistake = find_mistake(parsed.options); !mistake.empty()) {
    parsed.text = "trainer: " + mistake;
    parsed.exit_code = perf::kExitUsage;
    return parsed;
  }
  parsed.run = true;
  return parsed;
}

}  // namespace tutti::trainer
