// Encodes and decodes the records. Unknown fields are ignored, so that programs of different
// versions can read each other's files.
#include "worker/run_dir/records.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/full_disk.h"
#include "common/base/report_limits.h"
#include "common/base/status_macros.h"
#include "worker/run_dir/json_fields.h"

namespace trainyard::run_dir {
namespace {

constexpr int kMaxRank = 4095;
constexpr int64_t kMaxFallbacks = 1'000'000;
constexpr int kMaxReplica = 4095;
constexpr int kMaxStage = 63;

struct OutcomeRow {
  Outcome outcome;
  int exit_code;
  absl::string_view name;
};
constexpr OutcomeRow kOutcomes[] = {
    {Outcome::kSucceeded, kExitSucceeded, "succeeded"},
    {Outcome::kStopped, kExitStopped, "stopped"},
    {Outcome::kUserError, kExitUserError, "user_error"},
    {Outcome::kTransient, kExitTransient, "transient"},
    {Outcome::kHardware, kExitHardware, "hardware"},
};

constexpr std::pair<Progress::State, absl::string_view> kStates[] = {
    {Progress::State::kStarting, "starting"},
    {Progress::State::kRunning, "running"},
    {Progress::State::kEvaluating, "evaluating"},
    {Progress::State::kCheckpointing, "checkpointing"},
    {Progress::State::kFinished, "finished"},
};

void ReadOutcome(FieldReader& reader, Outcome& outcome) {
  std::string name;
  reader.Require("outcome");
  reader.String("outcome", name);
  const auto parsed = ParseOutcome(name);
  if (parsed.ok()) {
    outcome = *parsed;
  } else if (reader.Raw("outcome").is_string()) {
    reader.Violate("outcome", parsed.status().message());
  }
}

// The fields that the exit of a rank and that of an attempt share.
template <typename Exit>
void PutExit(const Exit& exit, Json& json) {
  json["exit_code"] = exit.exit_code;
  json["signal"] = exit.signal;
  json["outcome"] = std::string(OutcomeName(exit.outcome));
  json["reason"] = exit.reason;
  json["message"] = exit.message;
  json["end_time_us"] = exit.end_time_us;
}

template <typename Exit>
void GetExit(FieldReader& reader, Exit& exit) {
  reader.Integer("exit_code", exit.exit_code);
  reader.Integer("signal", exit.signal);
  ReadOutcome(reader, exit.outcome);
  reader.Text("reason", exit.reason, kFailureReasonBytesMax);
  reader.Text("message", exit.message, kFailureMessageBytesMax);
  reader.Integer("end_time_us", exit.end_time_us, 0, kMaxNumber);
}

Json RankExitJson(const RankExit& exit) {
  Json json;
  json["rank"] = exit.rank;
  PutExit(exit, json);
  return json;
}

RankExit GetRankExit(FieldReader& reader) {
  RankExit exit;
  reader.Require("rank");
  reader.Integer("rank", exit.rank, 0, kMaxRank);
  GetExit(reader, exit);
  return exit;
}

Json HostingJson(const std::vector<RankHosting>& hosting) {
  Json json = Json::array();
  for (const RankHosting& host : hosting) {
    Json item;
    item["rank"] = host.rank;
    item["first_replica"] = host.first_replica;
    item["replicas"] = host.replicas;
    item["stage"] = host.stage;
    item["samples_per_s"] = NumberJson(host.samples_per_s);
    json.push_back(std::move(item));
  }
  return json;
}

std::vector<RankHosting> GetHosting(FieldReader& reader) {
  std::vector<RankHosting> hosting;
  for (FieldReader& item : reader.Objects("hosting")) {
    RankHosting host;
    item.Require("rank");
    item.Integer("rank", host.rank, 0, kMaxRank);
    item.Integer("first_replica", host.first_replica, 0, kMaxReplica);
    item.Integer("replicas", host.replicas, 0, kMaxReplica + 1);
    item.Integer("stage", host.stage, 0, kMaxStage);
    item.Double("samples_per_s", host.samples_per_s);
    hosting.push_back(host);
  }
  if (hosting.size() > kMaxRank + 1) {
    reader.Violate("hosting", absl::StrCat("lists ", hosting.size(), " ranks; expected at most ",
                                           kMaxRank + 1));
  }
  return hosting;
}

// Parses `text`, lets `read` fill a T from it, and turns violations into a status.
template <typename T, typename Read>
absl::StatusOr<T> Decode(absl::string_view text, absl::string_view file, Read read) {
  TY_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, file));
  std::vector<FieldViolation> violations;
  FieldReader reader(json, "", violations);
  T value = read(reader);
  TY_RETURN_IF_ERROR(FileStatus(file, violations));
  return value;
}

template <typename T>
absl::StatusOr<T> ReadRecord(const std::string& path,
                             absl::StatusOr<T> (*decode)(absl::string_view, absl::string_view)) {
  TY_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(path, kMaxJsonBytes));
  return decode(text, path);
}

}  // namespace

absl::string_view OutcomeName(Outcome outcome) {
  for (const OutcomeRow& row : kOutcomes) {
    if (row.outcome == outcome) return row.name;
  }
  return "";
}

absl::StatusOr<Outcome> ParseOutcome(absl::string_view name) {
  for (const OutcomeRow& row : kOutcomes) {
    if (row.name == name) return row.outcome;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "is '", name, "'; expected succeeded, stopped, user_error, transient or hardware"));
}

int ExitCode(Outcome outcome) {
  for (const OutcomeRow& row : kOutcomes) {
    if (row.outcome == outcome) return row.exit_code;
  }
  return kExitTransient;
}

Outcome OutcomeOfExit(int exit_code, int signal) {
  if (signal > 0) return Outcome::kTransient;
  for (const OutcomeRow& row : kOutcomes) {
    if (row.exit_code == exit_code) return row.outcome;
  }
  return Outcome::kTransient;
}

absl::string_view ProgressStateName(Progress::State state) {
  for (const auto& [candidate, name] : kStates) {
    if (candidate == state) return name;
  }
  return "";
}

std::string EncodeProgress(const Progress& progress) {
  Json json;
  json["state"] = std::string(ProgressStateName(progress.state));
  json["step"] = progress.step;
  json["total_steps"] = progress.total_steps;
  json["epoch"] = progress.epoch;
  json["epochs"] = progress.epochs;
  json["steps_per_epoch"] = progress.steps_per_epoch;
  json["samples_per_s"] = NumberJson(progress.samples_per_s);
  json["data_wait_fraction"] = NumberJson(progress.data_wait_fraction);
  json["rss_bytes"] = progress.rss_bytes;
  json["planned_bytes"] = progress.planned_bytes;
  json["checkpoint_request"] = progress.checkpoint_request;
  json["last_checkpoint_step"] = progress.last_checkpoint_step;
  json["hosting"] = HostingJson(progress.hosting);
  json["hosting_reason"] = progress.hosting_reason;
  json["fallbacks"] = progress.fallbacks;
  json["first_fallback"] = progress.first_fallback;
  json["disk_full"] = progress.disk_full;
  json["data_digest"] = progress.data_digest;
  json["model_digest"] = progress.model_digest;
  json["update_time_us"] = progress.update_time_us;
  json["silent_until_boottime_us"] = progress.silent_until_boottime_us;
  return DumpJson(json) + "\n";
}

absl::StatusOr<Progress> DecodeProgress(absl::string_view text, absl::string_view file) {
  return Decode<Progress>(text, file, [](FieldReader& reader) {
    Progress progress;
    std::string state;
    reader.Require("state");
    reader.String("state", state);
    bool known = false;
    for (const auto& [candidate, name] : kStates) {
      if (name != state) continue;
      progress.state = candidate;
      known = true;
    }
    if (!known) {
      reader.Violate("state", absl::StrCat("is '", state, "'; expected starting, running, ",
                                           "evaluating, checkpointing or finished"));
    }
    reader.Integer("step", progress.step, 0, kMaxNumber);
    reader.Integer("total_steps", progress.total_steps, 0, kMaxNumber);
    reader.Integer("epoch", progress.epoch, 0, kMaxNumber);
    reader.Integer("epochs", progress.epochs, 0, kMaxNumber);
    reader.Integer("steps_per_epoch", progress.steps_per_epoch, 0, kMaxNumber);
    reader.Double("samples_per_s", progress.samples_per_s);
    reader.Double("data_wait_fraction", progress.data_wait_fraction);
    reader.Integer("rss_bytes", progress.rss_bytes, 0, kMaxNumber);
    reader.Integer("planned_bytes", progress.planned_bytes, 0, kMaxNumber);
    reader.Integer("checkpoint_request", progress.checkpoint_request, 0, kMaxNumber);
    reader.Integer("last_checkpoint_step", progress.last_checkpoint_step, 0, kMaxNumber);
    progress.hosting = GetHosting(reader);
    reader.String("hosting_reason", progress.hosting_reason);
    reader.Integer("fallbacks", progress.fallbacks, 0, kMaxFallbacks);
    reader.String("first_fallback", progress.first_fallback);
    reader.String("disk_full", progress.disk_full);
    reader.String("data_digest", progress.data_digest);
    reader.String("model_digest", progress.model_digest);
    reader.Integer("update_time_us", progress.update_time_us, 0, kMaxNumber);
    reader.Integer("silent_until_boottime_us", progress.silent_until_boottime_us, 0, kMaxNumber);
    return progress;
  });
}

std::string EncodeRankResult(const RankResult& result) {
  Json json;
  json["outcome"] = std::string(OutcomeName(result.outcome));
  json["reason"] = result.reason;
  json["message"] = result.message;
  json["step"] = result.step;
  json["metrics"] = Json::object();
  for (const auto& [name, value] : result.metrics) json["metrics"][name] = NumberJson(value);
  json["stuck_rank"] = result.stuck_rank;
  json["operation"] = result.operation;
  json["sequence"] = result.sequence;
  return DumpJson(json) + "\n";
}

absl::StatusOr<RankResult> DecodeRankResult(absl::string_view text, absl::string_view file) {
  return Decode<RankResult>(text, file, [](FieldReader& reader) {
    RankResult result;
    ReadOutcome(reader, result.outcome);
    reader.Text("reason", result.reason, kFailureReasonBytesMax);
    reader.Text("message", result.message, kFailureMessageBytesMax);
    reader.Integer("step", result.step, 0, kMaxNumber);
    FieldReader metrics = reader.Object("metrics");
    for (const std::string& name : metrics.Keys()) {
      if (result.metrics.size() == kLastMetricsMax) break;
      if (name.size() > kMetricNameBytesMax) continue;
      metrics.Require(name);  // a null counts as no value
      metrics.Double(name, result.metrics[name]);
    }
    reader.Integer("stuck_rank", result.stuck_rank, -1, kMaxRank);
    reader.Text("operation", result.operation, kFailureMessageBytesMax);
    reader.Integer("sequence", result.sequence, 0, kMaxNumber);
    return result;
  });
}

std::string EncodeRankExit(const RankExit& exit) {
  return DumpJson(RankExitJson(exit)) + "\n";
}

absl::StatusOr<RankExit> DecodeRankExit(absl::string_view text, absl::string_view file) {
  return Decode<RankExit>(text, file, GetRankExit);
}

std::string EncodeAttemptExit(const AttemptExit& exit) {
  Json json;
  PutExit(exit, json);
  json["failed_rank"] = exit.failed_rank;
  json["ranks"] = Json::array();
  for (const RankExit& rank : exit.ranks) json["ranks"].push_back(RankExitJson(rank));
  return DumpJson(json) + "\n";
}

absl::StatusOr<AttemptExit> DecodeAttemptExit(absl::string_view text, absl::string_view file) {
  return Decode<AttemptExit>(text, file, [](FieldReader& reader) {
    AttemptExit exit;
    GetExit(reader, exit);
    reader.Integer("failed_rank", exit.failed_rank, 0, kMaxRank);
    for (FieldReader& rank : reader.Objects("ranks")) exit.ranks.push_back(GetRankExit(rank));
    return exit;
  });
}

std::string EncodeSupervisorRecord(const SupervisorRecord& record) {
  Json json;
  json["pid"] = record.pid;
  json["start_ticks"] = record.start_ticks;
  json["process_group"] = record.process_group;
  json["boot_id"] = record.boot_id;
  json["ranks"] = Json::array();
  for (const SupervisorRecord::Process& process : record.ranks) {
    Json item;
    item["rank"] = process.rank;
    item["pid"] = process.pid;
    item["start_ticks"] = process.start_ticks;
    json["ranks"].push_back(std::move(item));
  }
  return DumpJson(json) + "\n";
}

absl::StatusOr<SupervisorRecord> DecodeSupervisorRecord(absl::string_view text,
                                                        absl::string_view file) {
  return Decode<SupervisorRecord>(text, file, [](FieldReader& reader) {
    SupervisorRecord record;
    reader.Require("pid");
    reader.Integer("pid", record.pid, 1, kMaxNumber);
    reader.Integer("start_ticks", record.start_ticks, 0, kMaxNumber);
    reader.Integer("process_group", record.process_group, 0, kMaxNumber);
    reader.String("boot_id", record.boot_id);
    for (FieldReader& item : reader.Objects("ranks")) {
      SupervisorRecord::Process process;
      item.Require("rank");
      item.Integer("rank", process.rank, 0, kMaxRank);
      item.Require("pid");
      item.Integer("pid", process.pid, 1, kMaxNumber);
      item.Integer("start_ticks", process.start_ticks, 0, kMaxNumber);
      record.ranks.push_back(process);
    }
    return record;
  });
}

absl::StatusOr<Progress> ReadProgress(const RunDir& dir, int rank) {
  return ReadRecord(dir.ProgressPath(rank), &DecodeProgress);
}
absl::StatusOr<RankResult> ReadRankResult(const RunDir& dir, int rank) {
  return ReadRecord(dir.ResultPath(rank), &DecodeRankResult);
}
absl::StatusOr<RankExit> ReadRankExit(const RunDir& dir, int rank) {
  return ReadRecord(dir.RankExitPath(rank), &DecodeRankExit);
}
absl::StatusOr<AttemptExit> ReadAttemptExit(const RunDir& dir) {
  return ReadRecord(dir.ExitPath(), &DecodeAttemptExit);
}
absl::StatusOr<SupervisorRecord> ReadSupervisorRecord(const RunDir& dir) {
  return ReadRecord(dir.SupervisorPath(), &DecodeSupervisorRecord);
}

absl::Status ReserveRecords(const RunDir& dir, const std::vector<int>& ranks) {
  // Most records have a few hundred bytes. Those of gangs name all ranks.
  constexpr int64_t kRecordBytes = 16 << 10;
  std::vector<std::string> paths = {dir.LeasePath(), dir.CheckpointRequestPath(),
                                    dir.StopRequestPath(), dir.ExitPath()};
  for (const int rank : ranks) {
    paths.insert(paths.end(),
                 {dir.ProgressPath(rank), dir.ResultPath(rank), dir.RankExitPath(rank)});
  }
  for (const std::string& path : paths) TY_RETURN_IF_ERROR(ReserveSpace(path, kRecordBytes));
  return absl::OkStatus();
}

absl::Status WriteProgress(const RunDir& dir, int rank, const Progress& progress) {
  return ReplaceFile(dir.ProgressPath(rank), EncodeProgress(progress));
}
absl::Status WriteRankResult(const RunDir& dir, int rank, const RankResult& result) {
  return ReplaceFile(dir.ResultPath(rank), EncodeRankResult(result));
}
absl::Status WriteRankExit(const RunDir& dir, const RankExit& exit) {
  return ReplaceFile(dir.RankExitPath(exit.rank), EncodeRankExit(exit));
}
absl::Status WriteAttemptExit(const RunDir& dir, const AttemptExit& exit) {
  return WriteFileAtomically(dir.ExitPath(), EncodeAttemptExit(exit));
}
absl::Status WriteSupervisorRecord(const RunDir& dir, const SupervisorRecord& record) {
  return ReplaceFile(dir.SupervisorPath(), EncodeSupervisorRecord(record));
}

}  // namespace trainyard::run_dir
