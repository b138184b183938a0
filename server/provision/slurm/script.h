// Writes what sbatch is given for a pilot: its arguments, and the script that starts the workers.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/provision/core/provider.h"

namespace trainyard::provision::slurm {

// The part of a provider that only Slurm has.
struct SlurmOptions {
  // A folder that the nodes see too, and that only the user of this server can read. It holds the
  // tokens and the logs of pilots.
  std::string folder;
  // The worker's program on the nodes, and the arguments that all pilots share: where the server is
  // and its fingerprint.
  std::vector<std::string> worker;
  // Further arguments of sbatch, word by word: -p gpu -A lab.
  std::vector<std::string> arguments;
};

// Returns OK, or INVALID_ARGUMENT (INVALID_SPEC) with all violations. Arguments are refused that
// make more or less of a submission than one job that begins by itself and is found again.
absl::Status CheckSlurmOptions(const SlurmOptions& options);

// Returns sbatch's words for a pilot, or for a trial, which asks for nothing. Those of the operator
// come before ours, since the last one of equal options counts, and names, limits and sizes are
// known from the spec alone.
std::vector<std::string> SbatchWords(const std::string& server_id, const ProviderSpec& spec,
                                     const SlurmOptions& options, const std::string& pilot,
                                     bool is_trial = false);

// Returns the script. On each node it runs the worker with its name, a state directory of its own
// and the file of its token. Slurm's warning before the time limit (USR1) becomes a SIGTERM for the
// workers, upon which they drain.
std::string PilotScript(const ProviderSpec& spec, const SlurmOptions& options,
                        const std::string& pilot);

// Returns the path of the token of a worker, and that of the log of a pilot.
std::string TokenPath(const SlurmOptions& options, const std::string& worker);
std::string LogPath(const SlurmOptions& options, const std::string& pilot);

// Returns a text as one word of a shell.
std::string ShellWord(const std::string& text);

}  // namespace trainyard::provision::slurm
