// Kept files: what was found out about a machine, in a folder of the user (Config::cache_folder). Names begin
// with the machine's fingerprint(), so equal machines may share the folder, and a file may be copied to other
// machines of its kind. Deleting a file is safe.
//
//   FINGERPRINT.measured   speeds and latencies (measurements.h), by tutti-topo --measure. A version without
//                          distances takes a file with several of them for no file, one without starts a file
//                          with starts
//   FINGERPRINT.choice     the fastest algorithms (algorithms/choice.txt), by tutti-tune, or else --measure.
//                          The first line names the version, which alone uses the file
//   found-KEY.topo         the detected graph, if it is complete, so that it is detected once. The last line
//                          is the hash of the text; without it the machine is detected again
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/config.h"
#include "topology/detect.h"
#include "topology/measurements.h"

namespace tutti::topology {

/// As Config::cache_folder, for tools.
std::string kept_folder(const Environment& environment);
/// FOLDER/FINGERPRINT.KIND. Empty if the folder is.
std::string kept_path(const std::string& folder, uint64_t machine, const char* kind);

/// A file of at most 32 MiB, whole. Errors: kSystemError; kInvalidArgument: it is longer, or no plain file.
Result<std::string> read_text(const std::string& path);

/// Errors: kSystemError if there is no such file; kInvalidArgument with the path and the line; kMismatch if
/// the file is of another kind of machine.
Result<std::vector<Measurements>> read_kept(const std::string& path, uint64_t machine);

/// Puts them first, in place of those of the same machine and distances. Of these, times of calls stay for
/// sizes that were not tried again; of sizes that were, the geometric mean of all starts is kept, in which
/// the earlier ones count as four at most. Replaces the file at once, so that no reader sees half of it; of
/// two writers at once the last one wins. Makes the folder. Errors: kSystemError; kInvalidArgument: the file
/// is none of measurements, or damaged, and stays.
Status keep(const std::string& path, std::vector<Measurements> measurements);
Status keep_text(const std::string& path, const std::string& text);
/// Whether both could write, to be asked before long work. Makes the folder. Errors: kSystemError.
Status check_can_keep(const std::string& path);

/// What a machine's parts are known by before they are detected: equal unless parts, the state of network
/// cards, or this process's share (`cpus`) have changed. Takes a few reads of small files, and some
/// for each PCI device.
uint64_t machine_key(const FileTree& files, const std::string& cpus);

/// Where find_machine looks.
struct MachineSource {
  std::string file;    ///< a topology file of the user, in place of detection
  std::string folder;  ///< empty: nothing is kept
  const FileTree& files;
  std::string cpus;  ///< cgroup_cpus(): jobs that share a machine may share the folder, too
  std::function<Result<Detected>()> detect;
};

struct FoundMachine {
  Graph graph;         ///< with the latest kept measurements, if there are any
  std::string source;  ///< "detected", or the path of the user's file
};

/// The graph of this machine: the user's, the kept one, or a new one, which is kept if it is complete. All
/// names are those of any host, so equal hosts have equal graphs. Errors: those of the user's file; of
/// detect().
Result<FoundMachine> find_machine(const MachineSource& source);

/// The first line of a FINGERPRINT.choice.
std::string tuned_title();
/// The text of the machine's FINGERPRINT.choice; empty if there is none. Detects the machine only if the
/// folder has such a file of some machine. Errors: kMismatch: another version has measured it.
Result<std::string> find_tuned(const MachineSource& source);

}  // namespace tutti::topology
