// Encodes and decodes assignment.json. The spec in it is passed on as text and not parsed.
#include "worker/run_dir/assignment.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "worker/run_dir/json_fields.h"

namespace trainyard::run_dir {
namespace {

constexpr int kFormat = 1;
constexpr int kMaxRanks = 4096;
constexpr int kMaxThreads = 4096;
constexpr int64_t kMaxCpu = 65535;

RankAssignment ReadRank(FieldReader& reader, int world_size) {
  RankAssignment rank;
  reader.Require("rank");
  reader.Integer("rank", rank.rank, 0, world_size - 1);
  reader.Integer("local_rank", rank.local_rank, 0, kMaxRanks - 1);
  reader.String("device", rank.device);
  reader.String("device_type", rank.device_type);
  reader.Integers("cpus", rank.cpus, 0, kMaxCpu);
  reader.Integer("threads", rank.threads, 1, kMaxThreads);
  reader.Integer("memory_bytes", rank.memory_bytes, 0, kMaxNumber);
  reader.Integer("host_memory_bytes", rank.host_memory_bytes, 0, kMaxNumber);
  return rank;
}

Json IsolationJson(const Isolation& isolation) {
  Json json;
  json["level"] = std::string(IsolationName(isolation.level));
  if (!isolation.runtime.empty()) json["runtime"] = isolation.runtime;
  if (!isolation.program.empty()) json["program"] = isolation.program;
  if (!isolation.cgroup.empty()) json["cgroup"] = isolation.cgroup;
  return json;
}

Isolation ReadIsolation(FieldReader reader) {
  Isolation isolation;
  std::string level;
  reader.Require("level");
  reader.String("level", level);
  if (const auto known = ParseIsolation(level); known.has_value()) {
    isolation.level = *known;
  } else {
    reader.Violate(
        "level", absl::StrCat("is '", level, "'; expected process, cgroup, sandbox or container"));
  }
  reader.String("runtime", isolation.runtime);
  reader.String("program", isolation.program);
  reader.String("cgroup", isolation.cgroup);
  return isolation;
}

}  // namespace

const RankAssignment* Assignment::FindRank(int rank) const {
  for (const RankAssignment& candidate : ranks) {
    if (candidate.rank == rank) return &candidate;
  }
  return nullptr;
}

absl::StatusOr<std::string> EncodeAssignment(const Assignment& assignment) {
  auto spec = ParseJsonObject(assignment.spec_json, "spec");
  if (!spec.ok()) return absl::InvalidArgumentError(spec.status().message());
  Json json;
  json["format"] = kFormat;
  json["job"] = assignment.job;
  json["attempt"] = assignment.attempt;
  json["fencing_token"] = assignment.fencing_token;
  json["world_size"] = assignment.world_size;
  Json ranks = Json::array();
  for (const RankAssignment& rank : assignment.ranks) {
    Json item;
    item["rank"] = rank.rank;
    item["local_rank"] = rank.local_rank;
    item["device"] = rank.device;
    item["device_type"] = rank.device_type;
    item["cpus"] = rank.cpus;
    item["threads"] = rank.threads;
    if (rank.memory_bytes > 0) item["memory_bytes"] = rank.memory_bytes;
    if (rank.host_memory_bytes > 0) item["host_memory_bytes"] = rank.host_memory_bytes;
    ranks.push_back(std::move(item));
  }
  json["ranks"] = std::move(ranks);
  json["backend"] = assignment.backend;
  json["interface"] = assignment.interface;
  if (!assignment.worker.empty()) json["worker"] = assignment.worker;
  json["dataset_dir"] = assignment.dataset_dir;
  json["resume_from"] = assignment.resume_from;
  if (!assignment.init_from.empty()) json["init_from"] = assignment.init_from;
  if (assignment.failures > 0) json["failures"] = assignment.failures;
  if (assignment.run_time > absl::ZeroDuration()) {
    json["run_time_ms"] = absl::ToInt64Milliseconds(assignment.run_time);
  }
  if (assignment.isolation.level != IsolationLevel::kUnknown) {
    json["isolation"] = IsolationJson(assignment.isolation);
  }
  json["spec"] = *std::move(spec);
  return DumpJson(json, 2) + "\n";
}

absl::StatusOr<Assignment> DecodeAssignment(absl::string_view text, absl::string_view file) {
  TY_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, file));
  std::vector<FieldViolation> violations;
  FieldReader reader(json, "", violations);
  int64_t format = 0;
  reader.Require("format");
  reader.Integer("format", format);
  if (violations.empty() && format != kFormat) {
    return absl::UnimplementedError(
        absl::StrCat("'", file, "' has format ", format, "; this program reads ", kFormat));
  }
  Assignment assignment;
  reader.Integer("job", assignment.job, 0, kMaxNumber);
  reader.Integer("attempt", assignment.attempt, 0, kMaxNumber);
  reader.Integer("fencing_token", assignment.fencing_token, 0, kMaxNumber);
  reader.Require("world_size");
  reader.Integer("world_size", assignment.world_size, 1, kMaxRanks);
  reader.Require("ranks");
  std::set<int> seen;
  for (FieldReader& rank : reader.Objects("ranks")) {
    assignment.ranks.push_back(ReadRank(rank, assignment.world_size));
    const int number = assignment.ranks.back().rank;
    if (!seen.insert(number).second) rank.Violate("rank", absl::StrCat("is ", number, " twice"));
  }
  if (violations.empty() && assignment.ranks.empty()) reader.Violate("ranks", "is empty");
  reader.String("backend", assignment.backend);
  reader.String("interface", assignment.interface);
  reader.String("worker", assignment.worker);
  reader.String("dataset_dir", assignment.dataset_dir);
  reader.String("resume_from", assignment.resume_from);
  reader.String("init_from", assignment.init_from);
  reader.Integer("failures", assignment.failures, 0, kMaxNumber);
  int64_t run_time_ms = 0;
  reader.Integer("run_time_ms", run_time_ms, 0, kMaxNumber);
  assignment.run_time = absl::Milliseconds(run_time_ms);
  if (reader.Has("isolation")) assignment.isolation = ReadIsolation(reader.Object("isolation"));
  reader.Require("spec");
  reader.Object("spec");
  TY_RETURN_IF_ERROR(FileStatus(file, violations));
  assignment.spec_json = DumpJson(reader.Raw("spec"));
  return assignment;
}

absl::Status WriteAssignment(const RunDir& dir, const Assignment& assignment) {
  TY_ASSIGN_OR_RETURN(const std::string text, EncodeAssignment(assignment));
  return ReplaceFile(dir.AssignmentPath(), text);
}

absl::StatusOr<Assignment> ReadAssignment(const RunDir& dir) {
  const std::string path = dir.AssignmentPath();
  TY_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(path, kMaxJsonBytes));
  return DecodeAssignment(text, path);
}

}  // namespace trainyard::run_dir
