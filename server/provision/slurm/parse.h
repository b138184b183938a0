// Reads what the programs of Slurm print.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/command/command.h"
#include "server/provision/core/inputs.h"

namespace trainyard::provision::slurm {

// The format of squeue that ParseSqueue reads. Its times must be in UTC.
inline constexpr char kSqueueFormat[] = "%A|%T|%r|%S|%e|%N|%j";
inline constexpr char kSacctFormat[] = "JobIDRaw,State,JobName";

// Returns the allocations whose names begin with `prefix`. Lines of other jobs may look as they
// like. Returns DATA_LOSS with the line if one of ours has another form: a list with a gap would be
// taken for the end of a pilot.
absl::StatusOr<std::vector<ListedPilot>> ParseSqueue(absl::string_view text,
                                                     absl::string_view prefix);

// Returns what accounting says of ended allocations. Other lines are skipped.
std::vector<ListedPilot> ParseSacct(absl::string_view text, absl::string_view prefix);
// Returns the allocation of `scontrol -o show job ID`, or nothing if it is none of ours.
std::optional<ListedPilot> ParseScontrol(absl::string_view text, absl::string_view prefix);

// Judges the end of sbatch. A submission counts as refused only if the controller has said so, or
// if sbatch has not even asked it: after any other failure, the job may exist.
SubmitResult JudgeSubmission(const std::string& pilot, const absl::StatusOr<CommandResult>& result);

// Returns the state for Slurm's word. An unknown word counts as active, so that a later version of
// Slurm makes nobody ask for more pilots.
ForeignState StateOfWord(absl::string_view word);

// Returns the last line that a program has written about an error, without the program's name.
std::string ErrorLine(absl::string_view text);

}  // namespace trainyard::provision::slurm
