#include "topology/kept.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <system_error>

#include "core/file_descriptor.h"
#include "core/hash.h"
#include "core/random.h"
#include "core/version.h"
#include "core/version_line.h"
#include "topology/file.h"
#include "topology/text.h"

namespace tutti::topology {
namespace {

/// A graph of the most nodes has a text of 20 MB.
constexpr size_t kBytesMax = size_t{32} << 20;

bool has_choices(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opendir(folder.c_str()), closedir);
  while (entries != nullptr) {
    const dirent* entry = readdir(entries.get());
    if (entry == nullptr) break;
    if (std::string_view(entry->d_name).ends_with(".choice")) return true;
  }
  return false;
}

std::string found_path(const MachineSource& source) {
  if (source.folder.empty()) return {};
  return source.folder + format("/found-%016llx.topo",
                                static_cast<unsigned long long>(machine_key(source.files, source.cpus)));
}

/// The last line of a found file, a comment: the hash of what stands before. The first lines of a graph are a
/// graph, too, so without this a file that lost its end would be a smaller machine.
std::string last_line(std::string_view text) {
  return format("# %016llx\n", static_cast<unsigned long long>(hash_bytes(text.data(), text.size())));
}

bool is_whole(std::string_view text) {
  const size_t end_bytes = last_line("").size();
  return text.size() > end_bytes && text.ends_with(last_line(text.substr(0, text.size() - end_bytes)));
}

/// Without measurements.
Result<Graph> find_graph(const MachineSource& source) {
  const std::string path = found_path(source);
  if (const auto text = read_text(path); text && is_whole(*text)) {
    // What cannot be read is detected again.
    if (auto graph = parse_graph(*text)) return graph;
  }
  auto found = source.detect();
  if (!found) return found.status();
  // A folder that cannot be written only costs the next process the same time. What another process would
  // know better is not kept: its measurements would be those of another machine.
  if (!path.empty() && found->is_complete) {
    const std::string text = print_graph(found->graph);
    (void)keep_text(path, text + last_line(text)).is_ok();
  }
  return std::move(found->graph);
}

}  // namespace

std::string kept_folder(const Environment& environment) {
  const auto config = read_config(environment);
  return config ? config->cache_folder : std::string();
}

std::string kept_path(const std::string& folder, uint64_t machine, const char* kind) {
  if (folder.empty()) return {};
  return folder + format("/%016llx.%s", static_cast<unsigned long long>(machine), kind);
}

Result<std::string> read_text(const std::string& path) {
  struct stat about = {};
  if (stat(path.c_str(), &about) != 0) return system_error(path, errno);
  if (!S_ISREG(about.st_mode)) return Status(Code::kInvalidArgument, path + " is no plain file");
  std::ifstream file(path, std::ios::binary);
  if (!file) return system_error(path, errno);
  std::string text;
  char buffer[1 << 16];
  while (file.read(buffer, sizeof buffer) || file.gcount() > 0) {
    text.append(buffer, static_cast<size_t>(file.gcount()));
    if (text.size() > kBytesMax) return Status(Code::kInvalidArgument, path + " is longer than 32 MiB");
  }
  return text;
}

Result<std::vector<Measurements>> read_kept(const std::string& path, uint64_t machine) {
  const auto text = read_text(path);
  TUTTI_TRY(text.status());
  auto measurements = parse_measurements(*text);
  if (!measurements) {
    return Status(measurements.status().code(), path + ": " + std::string(measurements.status().text()) +
                                                    "; delete the file, or name another");
  }
  const auto is_other = [&](const Measurements& one) { return one.machine != machine; };
  if (std::ranges::any_of(*measurements, is_other)) {
    return Status(Code::kMismatch,
                  path + " is of another kind of machine; delete the file, or measure again");
  }
  return measurements;
}

namespace {

/// Where the pages of a start lie changes times by a tenth and more, so all starts count, the new ones whole.
void add_time(const CallTime& before, CallTime& now) {
  if (now.ns.value == 0) {
    now = before;
    return;
  }
  const uint32_t earlier = std::min(before.starts, kStartsMost - now.starts);
  const auto log_sum = [](const CallTime& time, uint32_t starts) {
    return starts * std::log(static_cast<double>(time.ns.value));
  };
  const uint32_t starts = earlier + now.starts;
  const double mean = std::exp((log_sum(before, earlier) + log_sum(now, now.starts)) / starts);
  now.ns.value = static_cast<uint64_t>(std::llround(mean));
  now.starts = starts;
}

}  // namespace

Status keep(const std::string& path, std::vector<Measurements> measurements) {
  if (measurements.empty()) return {};
  measurements.erase(
      measurements.begin() + static_cast<ptrdiff_t>(std::min(measurements.size(), kDistancesMax)),
      measurements.end());
  const auto former = read_kept(path, measurements.front().machine);
  if (former.status().code() == Code::kInvalidArgument) return former.status();
  for (const Measurements& one : former ? *former : std::vector<Measurements>()) {
    const uint64_t own_ns = one.slices.apart_ns.value;
    const auto same = std::ranges::find_if(measurements, [&](const Measurements& other) {
      const uint64_t apart_ns = other.slices.apart_ns.value;
      return (own_ns == 0) == (apart_ns == 0) && is_same_distance(own_ns, apart_ns);
    });
    if (same != measurements.end()) {
      if (!same->slices.are_known() && one.slices.are_known()) same->slices = one.slices;
      for (const auto& [call, sizes] : one.calls) {
        for (const auto& [bytes, before] : sizes) add_time(before, same->calls[call][bytes]);
      }
    } else if (measurements.size() < kDistancesMax) {
      measurements.push_back(one);
    }
  }
  return keep_text(path, print_measurements(measurements));
}

Status keep_text(const std::string& path, const std::string& text) {
  std::error_code failure;
  const auto folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, failure);
  if (failure) return system_error(path, failure.value());
  // A name of this call alone: processes of two containers may share the folder and have equal ids. mkstemp()
  // would hide the file from others who share the folder.
  unsigned long long number = 0;
  TUTTI_TRY(fill_random(std::as_writable_bytes(std::span(&number, 1))));
  const std::string fresh = path + format(".%016llx", number);
  FileDescriptor file(open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file.is_open()) return system_error(path, errno);
  const bool is_written = write_all(file.get(), std::as_bytes(std::span(text))) && close(file.release()) == 0;
  if (!is_written || std::rename(fresh.c_str(), path.c_str()) != 0) {
    const int error = errno;
    std::remove(fresh.c_str());
    return system_error(path, error);
  }
  return {};
}

Status check_can_keep(const std::string& path) {
  if (std::error_code failure; std::filesystem::is_directory(path, failure))
    return system_error(path, EISDIR);
  const std::string trial = path + ".trial-" + std::to_string(getpid());
  TUTTI_TRY(keep_text(trial, ""));
  std::remove(trial.c_str());
  return {};
}

uint64_t machine_key(const FileTree& files, const std::string& cpus) {
  uint64_t hash = hash_bytes(&kVersionCode, sizeof kVersionCode);
  const auto add = [&](const std::string& text) {
    const uint64_t size = text.size();
    hash = hash_bytes(&size, sizeof size, hash);
    hash = hash_bytes(text.data(), text.size(), hash);
  };
  for (const char* path :
       {"devices/system/cpu/online", "devices/system/cpu/modalias", "devices/system/node/online"}) {
    add(files.read(path).value_or(""));
  }
  add(cpus);
  for (const std::string& device : files.list("bus/pci/devices")) {
    add(device);
    add(card_texts(files, device));
  }
  return hash;
}

Result<FoundMachine> find_machine(const MachineSource& source) {
  if (!source.file.empty()) {
    auto read = read_topology(source.file);
    if (!read) return read.status();
    return FoundMachine{std::move(read->graph), source.file};
  }
  auto graph = find_graph(source);
  if (!graph) return graph.status();
  const uint64_t kind = fingerprint(*graph);
  const std::string path = kept_path(source.folder, kind, "measured");
  if (path.empty()) return FoundMachine{std::move(*graph), "detected"};
  const auto measured = read_kept(path, kind);
  if (!measured) return FoundMachine{std::move(*graph), "detected"};
  return FoundMachine{with_measurements(*graph, measured->front()), "detected, with measurements"};
}

std::string tuned_title() {
  return "# Measured by " + version_line("tutti-tune or tutti-topo") +
         ". The times are those of the first size of a row.\n";
}

Result<std::string> find_tuned(const MachineSource& source) {
  if (source.folder.empty() || !has_choices(source.folder)) return std::string();
  const auto graph = find_graph(source);
  if (!graph) return std::string();
  auto text = read_text(kept_path(source.folder, fingerprint(*graph), "choice"));
  if (!text) return std::string();
  const std::string title = text->substr(0, text->find('\n'));
  if (title.find(version_line("")) != std::string::npos) return text;
  const size_t version = title.find("tutti ");
  const size_t end = title.find(')', version);
  const bool is_named = version != std::string::npos && end != std::string::npos;
  const std::string by = is_named ? title.substr(version, end - version) : "another version";
  return Status(Code::kMismatch, "measured by " + by + "; call tutti-tune again");
}

}  // namespace tutti::topology
