// Defines what ranks and supervisor report about themselves: progress, results, exits. Each file
// has one JSON object.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/run_dir/paths.h"

namespace trainyard::run_dir {

// A rank may be a program of a user's, and write anything. No more than this and the limits of
// common/base/report_limits.h is taken over, so that its worker can always report, and a page of
// jobs fits into a message.
inline constexpr size_t kLastMetricsMax = 500;  // metrics with a last value

// Says how a finished rank or attempt ended. `hardware` and `transient` are retried, `user_error`
// never.
enum class Outcome { kSucceeded, kStopped, kUserError, kTransient, kHardware };

absl::string_view OutcomeName(Outcome outcome);  // "succeeded", "stopped", "user_error", ...
absl::StatusOr<Outcome> ParseOutcome(absl::string_view name);

// Exit codes of a trainer.
inline constexpr int kExitSucceeded = 0;
inline constexpr int kExitUserError = 2;
inline constexpr int kExitStopped = 15;
inline constexpr int kExitTransient = 75;
inline constexpr int kExitHardware = 76;
int ExitCode(Outcome outcome);
// Returns the outcome of an exit. An exit code that is not listed above, and any signal (> 0), is
// transient.
Outcome OutcomeOfExit(int exit_code, int signal);

// The replicas that a rank computes.
struct RankHosting {
  int rank = 0;
  int first_replica = 0;
  int replicas = 0;
  int stage = 0;  // of the pipeline
  // The speed of the rank by itself, without waiting for others; 0 if unknown.
  double samples_per_s = 0;

  friend bool operator==(const RankHosting&, const RankHosting&) = default;
};

// The content of ranks/<r>/progress.json: the progress of the rank.
struct Progress {
  enum class State { kStarting, kRunning, kEvaluating, kCheckpointing, kFinished };
  State state = State::kStarting;
  int64_t step = 0;  // updates done
  int64_t total_steps = 0;
  int64_t epoch = 0;
  int64_t epochs = 0;
  int64_t steps_per_epoch = 0;
  double samples_per_s = 0;
  double data_wait_fraction = 0;
  int64_t rss_bytes = 0;
  int64_t planned_bytes = 0;
  int64_t checkpoint_request = 0;  // the last number of control/checkpoint that was answered
  int64_t last_checkpoint_step = 0;
  std::string data_digest = {};
  std::string model_digest = {};
  int64_t update_time_us = 0;             // since 1970
  std::vector<RankHosting> hosting = {};  // of all ranks; only rank 0 writes it
  std::string hosting_reason = {};        // for people
  // The number of operations that a GPU computes with slower kernels of ours, and one of them with
  // its layer and the reason, for people. The log names all.
  int64_t fallbacks = 0;
  std::string first_fallback = {};
  // Says what the rank cannot write because its disk is full, for people. It is empty otherwise.
  std::string disk_full = {};
  // The rank writes this file again by this time, or it is stuck. 0 means that it promises nothing.
  int64_t silent_until_boottime_us = 0;

  friend bool operator==(const Progress&, const Progress&) = default;
};
absl::string_view ProgressStateName(Progress::State state);

// The content of ranks/<r>/result.json: the rank's own account of its end, which it writes last.
struct RankResult {
  Outcome outcome = Outcome::kSucceeded;
  std::string reason = {};   // UPPER_SNAKE_CASE name of the error, or empty
  std::string message = {};  // the first error
  int64_t step = 0;
  std::map<std::string, double> metrics = {};
  // For a collective that failed: the rank that did not take part in it (-1 if unknown), and which
  // collective it was. All ranks count alike, so the number finds the same call on each.
  int stuck_rank = -1;
  std::string operation = {};  // "all_reduce"
  int64_t sequence = 0;

  friend bool operator==(const RankResult&, const RankResult&) = default;
};

// The content of ranks/<r>/exit.json: how the rank ended, as the supervisor saw it.
struct RankExit {
  int rank = 0;
  int exit_code = 0;
  int signal = 0;  // 0 if it exited by itself
  Outcome outcome = Outcome::kSucceeded;
  std::string reason = {};
  std::string message = {};
  int64_t end_time_us = 0;

  friend bool operator==(const RankExit&, const RankExit&) = default;
};

// The content of exit.json: how the attempt ended on this host.
struct AttemptExit {
  int exit_code = 0;
  int signal = 0;
  Outcome outcome = Outcome::kSucceeded;
  std::string reason = {};
  std::string message = {};
  int64_t end_time_us = 0;
  int failed_rank = 0;  // the rank that failed first; 0 if none did
  std::vector<RankExit> ranks = {};

  friend bool operator==(const AttemptExit&, const AttemptExit&) = default;
};

// The content of supervisor.json: the processes of the attempt on this host. Start ticks (field 22
// of /proc/<pid>/stat) and the boot id distinguish them from later processes that got the same pid.
struct SupervisorRecord {
  struct Process {
    int rank = 0;
    int64_t pid = 0;
    int64_t start_ticks = 0;
    friend bool operator==(const Process&, const Process&) = default;
  };
  int64_t pid = 0;
  int64_t start_ticks = 0;
  int64_t process_group = 0;  // of the ranks
  std::string boot_id = {};
  std::vector<Process> ranks = {};

  friend bool operator==(const SupervisorRecord&, const SupervisorRecord&) = default;
};

// These make one line each. Decoding returns DATA_LOSS (CORRUPT_FILE) with `file` and the field
// that is wrong.
std::string EncodeProgress(const Progress& progress);
std::string EncodeRankResult(const RankResult& result);
std::string EncodeRankExit(const RankExit& exit);
std::string EncodeAttemptExit(const AttemptExit& exit);
std::string EncodeSupervisorRecord(const SupervisorRecord& record);
absl::StatusOr<Progress> DecodeProgress(absl::string_view text, absl::string_view file);
absl::StatusOr<RankResult> DecodeRankResult(absl::string_view text, absl::string_view file);
absl::StatusOr<RankExit> DecodeRankExit(absl::string_view text, absl::string_view file);
absl::StatusOr<AttemptExit> DecodeAttemptExit(absl::string_view text, absl::string_view file);
absl::StatusOr<SupervisorRecord> DecodeSupervisorRecord(absl::string_view text,
                                                        absl::string_view file);

// Returns NOT_FOUND if the file does not exist (yet).
absl::StatusOr<Progress> ReadProgress(const RunDir& dir, int rank);
absl::StatusOr<RankResult> ReadRankResult(const RunDir& dir, int rank);
absl::StatusOr<RankExit> ReadRankExit(const RunDir& dir, int rank);
absl::StatusOr<AttemptExit> ReadAttemptExit(const RunDir& dir);
absl::StatusOr<SupervisorRecord> ReadSupervisorRecord(const RunDir& dir);

// Only the attempt's exit is durable. The other records matter only to processes of this boot:
// after a power loss the attempt is over, or begins again if nothing of it is left.
// Sets space aside for all records of the attempt that are to come, for its lease and for requests
// to it, so that they can be written while the disk is full.
absl::Status ReserveRecords(const RunDir& dir, const std::vector<int>& ranks);
absl::Status WriteProgress(const RunDir& dir, int rank, const Progress& progress);
absl::Status WriteRankResult(const RunDir& dir, int rank, const RankResult& result);
absl::Status WriteRankExit(const RunDir& dir, const RankExit& exit);
absl::Status WriteAttemptExit(const RunDir& dir, const AttemptExit& exit);
absl::Status WriteSupervisorRecord(const RunDir& dir, const SupervisorRecord& record);

}  // namespace trainyard::run_dir
