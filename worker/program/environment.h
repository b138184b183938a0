// Makes the environment of a rank's program.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "worker/program/program_spec.h"
#include "worker/run_dir/assignment.h"

namespace trainyard::program {

// Tells a rank where it stands among the processes of the job, and where it meets them. Terms are
// those of torchrun: a node is a host.
struct Place {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int node_rank = 0;
  int nodes = 1;
  std::string master_address = "127.0.0.1";
  int master_port = 0;
  // The network interface by which the hosts of the job reach each other, such as "eth0". Empty on
  // one host, where libraries find their way by themselves.
  std::string interface = {};
};

// The folders and files of a rank's program.
struct Files {
  std::string folder;       // the rank's own folder, where it writes metrics.jsonl
  std::string params;       // the JSON file with its parameters
  std::string checkpoints;  // where it renames its checkpoints to
  std::string resume_from;  // the checkpoint to start from, or empty
  std::string data;         // the folder of its data set, or empty
  std::string secrets;      // the folder of its secrets, or empty
  std::string work;         // where it starts if the spec names no directory
  std::string code = {};    // the folder of its code, or empty
};

// Returns the variables to set, in addition to those of this process. One without a
// value is to be removed. `path` is $PATH and `home` is $HOME of this process.
using Variables = std::map<std::string, std::optional<std::string>>;
Variables ProgramVariables(const ProgramSpec& spec, const run_dir::Assignment& assignment,
                           const run_dir::RankAssignment& rank, const Place& place,
                           const Files& files, const std::string& path, const std::string& home);

// Returns the folder in which the program starts.
std::string StartFolder(const ProgramSpec& spec, const Files& files, const std::string& home);

// Returns `path` with a `~` at its beginning replaced by `home`.
std::string Expanded(const std::string& path, const std::string& home);

}  // namespace trainyard::program
