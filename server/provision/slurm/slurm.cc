// Calls sbatch, squeue, scancel, sacct and scontrol.
#include "server/provision/slurm/slurm.h"

#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "server/provision/slurm/parse.h"

namespace trainyard::provision::slurm {

std::vector<std::string> CleanEnvironment(const std::vector<std::string>& environment) {
  std::vector<std::string> clean;
  for (const std::string& variable : environment) {
    for (const absl::string_view name : {"PATH=", "HOME=", "USER=", "LOGNAME=", "SHELL=", "LANG=",
                                         "LD_LIBRARY_PATH=", "SLURM_CONF="}) {
      if (absl::StartsWith(variable, name)) clean.push_back(variable);
    }
  }
  return clean;
}

Slurm::Slurm(std::string server_id, ProviderSpec spec, SlurmOptions options,
             const std::vector<std::string>& environment, Clock& clock,
             const std::atomic<bool>& is_stopping)
    : server_id_(std::move(server_id)),
      prefix_(absl::StrCat("ty-", server_id_, "-")),
      spec_(std::move(spec)),
      options_(std::move(options)),
      environment_(CleanEnvironment(environment)),
      clock_(clock),
      is_stopping_(is_stopping) {}

absl::StatusOr<CommandResult> Slurm::Call(std::vector<std::string> words, std::string input) const {
  Command command;
  // Variables of sbatch go on to the pilot, which lives in the time zone of its node.
  const bool shows_times = words[0] != "sbatch";
  command.words = std::move(words);
  command.environment = environment_;
  if (shows_times) command.environment.push_back("TZ=UTC");
  command.input = std::move(input);
  command.timeout = kCallTimeout;
  return RunCommand(command, is_stopping_);
}

absl::Status Slurm::TryOut() const {
  TY_RETURN_IF_ERROR(CheckSlurmOptions(options_));
  const std::string pilot = PilotName(server_id_, spec_.name, 0);
  TY_ASSIGN_OR_RETURN(const CommandResult result,
                      Call(SbatchWords(server_id_, spec_, options_, pilot, /*is_trial=*/true),
                           PilotScript(spec_, options_, pilot)));
  if (result.exit_code == 0) return absl::OkStatus();
  return error::ProviderRefuses(spec_.name, absl::StrCat("sbatch says: ", ErrorLine(result.err)));
}

SubmitResult Slurm::Submit(const std::string& pilot, const std::vector<std::string>& tokens) const {
  for (size_t node = 0; node < tokens.size(); ++node) {
    const std::string worker = PilotWorkerName(pilot, spec_.nodes, static_cast<int32_t>(node));
    const absl::Status status =
        WriteFileAtomically(TokenPath(options_, worker), tokens[node], 0600);
    if (!status.ok()) {
      return {pilot, SubmitResult::Kind::kRefused, "", std::string(status.message())};
    }
  }
  return JudgeSubmission(pilot, Call(SbatchWords(server_id_, spec_, options_, pilot),
                                     PilotScript(spec_, options_, pilot)));
}

Listing Slurm::List(const std::vector<std::string>& foreign_ids) const {
  Listing listing;
  listing.begin_us = absl::ToUnixMicros(clock_.Now());
  const auto fail = [&](std::string why) {
    listing.failure = std::move(why);
    listing.pilots.clear();
    return listing;
  };
  const auto result = Call({"squeue", "-h", "--me", "-t", "all", "-o", kSqueueFormat});
  if (!result.ok()) return fail(std::string(result.status().message()));
  if (result->exit_code != 0) {
    return fail(
        absl::StrCat("squeue exited with code ", result->exit_code, ": ", ErrorLine(result->err)));
  }
  auto pilots = ParseSqueue(result->out, prefix_);
  if (!pilots.ok()) return fail(std::string(pilots.status().message()));
  listing.pilots = *std::move(pilots);
  std::set<std::string> seen;
  for (const ListedPilot& pilot : listing.pilots) seen.insert(pilot.foreign_id);
  std::vector<std::string> gone;
  for (const std::string& id : foreign_ids) {
    if (!seen.contains(id) && gone.size() < kLookUpsMax) gone.push_back(id);
  }
  for (ListedPilot& pilot : LookUp(gone)) listing.pilots.push_back(std::move(pilot));
  return listing;
}

std::vector<ListedPilot> Slurm::LookUp(const std::vector<std::string>& foreign_ids) const {
  if (foreign_ids.empty()) return {};
  std::vector<ListedPilot> found;
  const auto accounting =
      Call({"sacct", "-X", "-P", "-n", "-j", absl::StrJoin(foreign_ids, ","), "-o", kSacctFormat});
  const bool has_accounting = accounting.ok() && accounting->exit_code == 0;
  if (has_accounting) found = ParseSacct(accounting->out, prefix_);
  if (!has_accounting) {
    for (const std::string& id : foreign_ids) {
      const auto shown = Call({"scontrol", "-o", "show", "job", id});
      if (!shown.ok()) break;
      if (auto pilot = ParseScontrol(shown->out, prefix_); pilot.has_value()) {
        found.push_back(*std::move(pilot));
      }
    }
  }
  // A record of accounting that was never closed must not keep a pilot alive that squeue lacks.
  found.erase(std::remove_if(found.begin(), found.end(),
                             [](const ListedPilot& pilot) { return !HasEnded(pilot.state); }),
              found.end());
  return found;
}

absl::Status Slurm::Cancel(const std::string& foreign_id) const {
  TY_ASSIGN_OR_RETURN(const CommandResult result, Call({"scancel", foreign_id}));
  if (result.exit_code == 0 || absl::StrContains(result.err, "Invalid job id") ||
      absl::StrContains(result.err, "already completing or completed")) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(
      absl::StrCat("scancel exited with code ", result.exit_code, ": ", ErrorLine(result.err)));
}

void Slurm::DropTokens(const std::string& pilot) const {
  for (int32_t node = 0; node < spec_.nodes; ++node) {
    (void)unlink(TokenPath(options_, PilotWorkerName(pilot, spec_.nodes, node)).c_str());
  }
}

}  // namespace trainyard::provision::slurm
