#include "trainer/options.h"

#include <CLI/CLI.hpp>
#include <limits>
#include <sstream>

#include "core/version_line.h"
#include "perf/exit_status.h"

namespace tutti::trainer {

CLI::Validator real(double least, double most) {
  // CLI11's range lets nan through.
  return CLI::Validator(
      [=](const std::string& text) {
        double number = 0;
        if (CLI::detail::lexical_cast(text, number) && number >= least && number <= most)
          return std::string();
        std::ostringstream problem;
        problem << "Value " << text << " not in range " << least << " to " << most;
        return problem.str();
      },
      "NUMBER");
}

namespace {

constexpr size_t kMany = size_t{1} << 30;
constexpr size_t kMostBytes = size_t{1} << 40;

CLI::Validator whole(size_t least) {
  return CLI::Range(least, kMany).description("WHOLE");
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
  app.add_option("--report-every", options.report_every,
                 "steps between progress lines (default: a twentieth)")
      ->check(whole(1));
  app.add_option("--seed", options.seed, "seed of parameters, drawn digits and the order of samples")
      ->check(CLI::Range(int64_t{0}, std::numeric_limits<int64_t>::max()).description("WHOLE"))
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
  app.add_option("--clip", options.clip,
                 "largest norm of all gradients together; 0: no limit (default: 1; other modes than data: 0)")
      ->check(real(0, 1e9));
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
  app.add_option("--evaluate-every", options.evaluate_every,
                 "steps between held-out losses (default: a fifth)")
      ->check(whole(1));
  app.add_option("--sample", options.sample, "transformer: characters of text to generate at the end")
      ->check(CLI::Range(0, 100000))
      ->capture_default_str();
}

/// Fills in missing numbers, by model and optimizer. Measured: docs/trainer.md.
void choose_defaults(Options& options) {
  const bool text = options.model.name == "transformer";
  if (options.steps == 0) options.steps = text ? 1000 : 400;
  if (options.batch == 0) options.batch = text ? 16 : 64;
  if (options.clip < 0) options.clip = options.parallel.mode == "data" ? 1 : 0;
  if (options.learning_rate == 0) options.learning_rate = options.optimizer.name == "sgd" ? 0.05 : 3e-3;
  if (options.report_every == 0) options.report_every = std::max<size_t>(options.steps / 20, 1);
  if (options.evaluate_every == 0) options.evaluate_every = std::max<size_t>(options.steps / 5, 1);
}

/// What is wrong if two of these flags name one file.
std::string find_equal_outputs(const std::vector<std::pair<const char*, std::filesystem::path>>& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto& [flag, path] = outputs[i];
    for (size_t k = i + 1; k < outputs.size(); ++k) {
      if (!path.empty() && path.lexically_normal() == outputs[k].second.lexically_normal())
        return std::string(flag) + " and " + outputs[k].first + " name the same file";
    }
  }
  return "";
}

std::string find_mistake(const CLI::App& app, const Options& options) {
  if (const std::string mistake = find_mode_mistake(app, options); !mistake.empty()) return mistake;
  if (options.threads && options.ranks == 0) return "--threads needs --ranks";
  if (options.model.name == "transformer" && options.data.empty())
    return "the transformer needs text: --data FILE or FOLDER";
  if (options.model.name != "transformer" && options.data.size() > 1)
    return "images come from one folder: --data FOLDER";
  if (options.checkpoint_every > 0 && options.checkpoint.empty())
    return "--checkpoint-every needs --checkpoint FILE";
  return find_equal_outputs({{"--timeline", options.timeline},
                             {"--checkpoint", options.checkpoint},
                             {"--parameters", options.parallel.parameters},
                             {"--drawing", options.parallel.drawing}});
}

}  // namespace

ParsedOptions parse_options(int argc, const char* const* argv) {
  ParsedOptions parsed;
  CLI::App app("Trains a small model over tutti: with data parallelism, or in another --mode.", "trainer");
  add_run_flags(app, parsed.options);
  add_model_flags(app, parsed.options);
  add_device_flag(app, parsed.options);
  add_optimizer_flags(app, parsed.options);
  app.set_version_flag("--version", version_line("trainer"));
  app.option_defaults()->group(kDataGroup);
  add_communication_flags(app, parsed.options);
  add_file_flags(app, parsed.options);
  app.option_defaults()->group(kModeGroup);
  add_mode_flags(app, parsed.options);
  try {
    app.parse(argc, argv);
    choose_defaults(parsed.options);
    if (const std::string mistake = find_mistake(app, parsed.options); !mistake.empty())
      throw CLI::ValidationError(mistake);
    parsed.run = true;
  } catch (const CLI::CallForHelp&) {
    parsed.text = app.help();
  } catch (const CLI::CallForVersion& version) {
    parsed.text = version.what();
  } catch (const CLI::ParseError& error) {
    parsed.text = std::string("trainer: ") + error.what() + "\nSee trainer --help.";
    parsed.exit_code = perf::kExitUsage;
  }
  return parsed;
}

}  // namespace tutti::trainer
