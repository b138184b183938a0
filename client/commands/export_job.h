// Writes jobs of a server into bundles.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "client/commands/context.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::commands {

struct ExportOptions {
  std::string checkpoints = "none";  // or best, latest, all
  bool has_metrics = true;
  bool has_logs = false;
};

struct Exported {
  v1::Job job;
  int64_t points = 0;
  int64_t checkpoints = 0;       // in the bundle
  int64_t checkpoints_left = 0;  // of the job, which are not
  bool has_code = false;
  int64_t bytes = 0;  // of the file
};

// Writes the job into the file at `path`, which appears under its name once it is whole; "-" is
// standard output. Checkpoints wait in a folder beside the file meanwhile, since their hashes stand
// at its beginning.
absl::StatusOr<Exported> ExportJob(const Context& context, link::ServerLink& link,
                                   const std::string& job, const ExportOptions& options,
                                   const std::string& path);

}  // namespace trainyard::commands
