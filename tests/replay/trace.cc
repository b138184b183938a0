// Reads and writes workloads, one JSON object a line.
#include "tests/replay/trace.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"

namespace trainyard::replay {
namespace {

using JsonValue = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kCountMax = 1'000'000;
constexpr double kSecondsMax = 1e9;

// The fields of one object. The first mistake is kept; whatever is read after it does not count.
class Fields {
 public:
  Fields(const JsonValue& object, std::string path) : object_(object), path_(std::move(path)) {
    if (!object_.is_object()) Fail("", object_, "an object");
  }

  void Read(const char* key, std::string& value) {
    const JsonValue* found = Find(key);
    if (found == nullptr) return;
    if (!found->is_string()) return Fail(key, *found, "a string");
    value = found->get<std::string>();
  }
  void Read(const char* key, bool& value) {
    const JsonValue* found = Find(key);
    if (found == nullptr) return;
    if (!found->is_boolean()) return Fail(key, *found, "true or false");
    value = found->get<bool>();
  }
  template <typename Integer>
  void Read(const char* key, Integer& value, int64_t least, int64_t most = kCountMax) {
    const JsonValue* found = Find(key);
    if (found == nullptr) return;
    if (!found->is_number_integer() || found->get<int64_t>() < least ||
        found->get<int64_t>() > most) {
      return Fail(key, *found, absl::StrCat("an integer of ", least, " to ", most));
    }
    value = static_cast<Integer>(found->get<int64_t>());
  }
  // Seconds, with up to three decimals.
  void ReadSeconds(const char* key, int64_t& value_us, bool is_needed = false) {
    const JsonValue* found = Find(key);
    if (found == nullptr) {
      if (is_needed) Fail(key, JsonValue(), "seconds; it must be given");
      return;
    }
    if (!found->is_number() || found->get<double>() < 0 || found->get<double>() > kSecondsMax) {
      return Fail(key, *found, "seconds of 0 to 1e9");
    }
    value_us = std::llround(found->get<double>() * 1000) * core::kMillisecond;
  }
  void Read(const char* key, std::map<std::string, std::string>& value) {
    const JsonValue* found = Find(key);
    if (found == nullptr) return;
    if (!found->is_object()) return Fail(key, *found, "an object of strings");
    for (const auto& [name, label] : found->items()) {
      if (!label.is_string()) return Fail(key, label, "an object of strings");
      value[name] = label.get<std::string>();
    }
  }
  void Read(const char* key, std::vector<int64_t>& value, int64_t most) {
    const JsonValue* found = Find(key);
    if (found == nullptr) return;
    const std::string wanted =
        most == 0 ? "no job, for none comes before this one"
                  : absl::StrCat("a list of jobs that come before this one, 1 to ", most);
    if (!found->is_array()) return Fail(key, *found, wanted);
    for (const JsonValue& job : *found) {
      if (!job.is_number_integer() || job.get<int64_t>() < 1 || job.get<int64_t>() > most) {
        return Fail(key, job, wanted);
      }
      value.push_back(job.get<int64_t>());
    }
  }
  const JsonValue* Find(const char* key) {
    known_.insert(key);
    if (!status_.ok() || !object_.contains(key)) return nullptr;
    return &object_[key];
  }

  void Fail(absl::string_view key, const JsonValue& value, absl::string_view expected) {
    if (!status_.ok()) return;
    const std::string shown = value.is_null() ? "nothing" : value.dump();
    status_ = absl::InvalidArgumentError(absl::StrCat(
        path_, key.empty() ? "" : absl::StrCat(".", key), ": ", shown, "; expected ", expected));
  }
  absl::Status Finish() {
    if (!status_.ok()) return status_;
    for (const auto& [key, value] : object_.items()) {
      if (known_.count(key) > 0) continue;
      std::string names;
      for (const std::string& name : known_)
        absl::StrAppend(&names, names.empty() ? "" : ", ", name);
      return absl::InvalidArgumentError(
          absl::StrCat(path_, ".", key, ": unknown; known are ", names));
    }
    return absl::OkStatus();
  }

 private:
  const JsonValue& object_;
  std::string path_;
  std::set<std::string> known_;
  absl::Status status_;
};

absl::Status ReadWorkers(const JsonValue& json, Trace& trace) {
  TraceWorkers workers;
  Fields fields(json, "workers");
  fields.Read("name", workers.name);
  fields.Read("count", workers.count, 1, 100'000);
  fields.Read("devices", workers.devices, 1, 1024);
  fields.Read("type", workers.type);
  fields.Read("memory_bytes", workers.memory_bytes, 0, std::numeric_limits<int64_t>::max());
  workers.island = workers.devices;
  fields.Read("island", workers.island, 1, 1024);
  fields.Read("labels", workers.labels);
  TY_RETURN_IF_ERROR(fields.Finish());
  for (const TraceWorkers& other : trace.workers) {
    if (other.name == workers.name) {
      return absl::InvalidArgumentError(
          absl::StrCat("workers.name: '", workers.name, "' is taken; expected another name"));
    }
  }
  trace.workers.push_back(std::move(workers));
  return absl::OkStatus();
}

absl::Status ReadQuota(const JsonValue& json, Trace& trace) {
  core::QuotaRecord quota;
  Fields fields(json, "quota");
  fields.Read("subject", quota.subject);
  fields.Read("devices", quota.devices, 0);
  fields.Read("weight", quota.weight, 0);
  if (quota.subject.empty())
    fields.Fail("subject", JsonValue(), "\"user:NAME\" or \"project:NAME\"");
  TY_RETURN_IF_ERROR(fields.Finish());
  trace.quotas.push_back(std::move(quota));
  return absl::OkStatus();
}

absl::Status ReadDemand(const JsonValue& json, core::Demand& demand) {
  if (json.is_number()) {
    JsonValue object;
    object["count"] = json;
    return ReadDemand(object, demand);
  }
  Fields fields(json, "job.devices");
  fields.Read("count", demand.count, 1);
  fields.Read("max", demand.count, 1);
  fields.Read("min", demand.min_count, 1, demand.count);
  fields.Read("type", demand.type);
  fields.Read("mixed", demand.mixed);
  fields.Read("memory_bytes", demand.memory_bytes, 0, std::numeric_limits<int64_t>::max());
  fields.Read("labels", demand.labels);
  fields.Read("spread", demand.spread);
  return fields.Finish();
}

absl::Status ReadJob(const JsonValue& json, Trace& trace) {
  TraceJob job;
  const auto before = static_cast<int64_t>(trace.jobs.size());
  Fields fields(json, "job");
  fields.ReadSeconds("submit_s", job.submit_us, /*is_needed=*/true);
  fields.Read("user", job.user);
  fields.Read("project", job.project);
  fields.Read("priority", job.priority, -1'000'000, 1'000'000);
  if (const JsonValue* devices = fields.Find("devices")) {
    TY_RETURN_IF_ERROR(ReadDemand(*devices, job.demand));
  }
  fields.ReadSeconds("work_s", job.work_us, /*is_needed=*/true);
  fields.ReadSeconds("time_limit_s", job.time_limit_us);
  fields.ReadSeconds("checkpoint_every_s", job.checkpoint_every_us);
  fields.ReadSeconds("checkpoint_write_s", job.checkpoint_write_us);
  fields.ReadSeconds("start_s", job.start_us);
  fields.ReadSeconds("begin_s", job.begin_us);
  fields.Read("preemptible", job.preemptible);
  fields.Read("saves", job.saves);
  fields.Read("array", job.array_size, 1);
  fields.Read("array_parallel", job.array_parallel, 0);
  fields.Read("after", job.after, before);
  fields.Read("after_ok", job.after_ok, before);
  TY_RETURN_IF_ERROR(fields.Finish());
  if (before > 0 && job.submit_us < trace.jobs.back().submit_us) {
    return absl::InvalidArgumentError(absl::StrCat("job.submit_s: ", json["submit_s"].dump(),
                                                   "; expected no less than in the job before"));
  }
  trace.jobs.push_back(std::move(job));
  return absl::OkStatus();
}

absl::Status ReadLine(absl::string_view line, Trace& trace) {
  const JsonValue json = JsonValue::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.size() != 1) {
    return absl::InvalidArgumentError(
        R"(no JSON object with the one key "trace", "workers", "quota" or "job")");
  }
  const std::string& kind = json.begin().key();
  const JsonValue& value = json.begin().value();
  if (kind == "workers") return ReadWorkers(value, trace);
  if (kind == "quota") return ReadQuota(value, trace);
  if (kind == "job") return ReadJob(value, trace);
  if (kind == "trace" && value.is_string()) {
    trace.name = value.get<std::string>();
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", kind, R"(': expected "trace" with a string, or "workers", "quota" or "job")"));
}

// Writes a number without a fraction if it has none.
JsonValue Seconds(int64_t us) {
  const int64_t ms = us / core::kMillisecond;
  if (ms % 1000 == 0) return ms / 1000;
  return static_cast<double>(ms) / 1000;
}

OrderedJson DemandJson(const core::Demand& demand) {
  core::Demand plain;
  plain.count = demand.count;
  if (demand == plain) return demand.count;
  OrderedJson json;
  if (demand.is_elastic()) {
    json["min"] = demand.min_count;
    json["max"] = demand.count;
  } else {
    json["count"] = demand.count;
  }
  if (!demand.type.empty()) json["type"] = demand.type;
  if (demand.mixed) json["mixed"] = true;
  if (demand.memory_bytes > 0) json["memory_bytes"] = demand.memory_bytes;
  if (!demand.labels.empty()) json["labels"] = demand.labels;
  if (demand.spread) json["spread"] = true;
  return json;
}

OrderedJson JobJson(const TraceJob& job) {
  const TraceJob plain;
  OrderedJson json;
  json["submit_s"] = Seconds(job.submit_us);
  json["user"] = job.user;
  if (!job.project.empty()) json["project"] = job.project;
  if (job.priority != 0) json["priority"] = job.priority;
  json["devices"] = DemandJson(job.demand);
  json["work_s"] = Seconds(job.work_us);
  if (job.time_limit_us > 0) json["time_limit_s"] = Seconds(job.time_limit_us);
  if (job.checkpoint_every_us > 0) json["checkpoint_every_s"] = Seconds(job.checkpoint_every_us);
  if (job.checkpoint_write_us != plain.checkpoint_write_us) {
    json["checkpoint_write_s"] = Seconds(job.checkpoint_write_us);
  }
  if (job.start_us != plain.start_us) json["start_s"] = Seconds(job.start_us);
  if (job.begin_us > 0) json["begin_s"] = Seconds(job.begin_us);
  if (!job.preemptible) json["preemptible"] = false;
  if (!job.saves) json["saves"] = false;
  if (job.array_size > 0) json["array"] = job.array_size;
  if (job.array_parallel > 0) json["array_parallel"] = job.array_parallel;
  if (!job.after.empty()) json["after"] = job.after;
  if (!job.after_ok.empty()) json["after_ok"] = job.after_ok;
  return json;
}

OrderedJson WorkersJson(const TraceWorkers& workers) {
  OrderedJson json;
  json["name"] = workers.name;
  json["count"] = workers.count;
  json["devices"] = workers.devices;
  json["type"] = workers.type;
  if (workers.memory_bytes > 0) json["memory_bytes"] = workers.memory_bytes;
  if (workers.island != workers.devices) json["island"] = workers.island;
  if (!workers.labels.empty()) json["labels"] = workers.labels;
  return json;
}

void AddLine(const char* kind, OrderedJson value, std::string& text) {
  OrderedJson line;
  line[kind] = std::move(value);
  absl::StrAppend(&text, line.dump(), "\n");
}

}  // namespace

int64_t Trace::devices() const {
  int64_t sum = 0;
  for (const TraceWorkers& group : workers) sum += int64_t{group.count} * group.devices;
  return sum;
}

absl::StatusOr<Trace> ParseTrace(absl::string_view text) {
  Trace trace;
  int64_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (line.empty() || line.front() == '#') continue;
    if (const absl::Status status = ReadLine(line, trace); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", status.message()));
    }
  }
  if (trace.workers.empty()) {
    return absl::InvalidArgumentError(R"(the trace has no {"workers": ...} line; expected one)");
  }
  return trace;
}

std::string FormatTrace(const Trace& trace) {
  std::string text;
  if (!trace.name.empty()) AddLine("trace", trace.name, text);
  for (const TraceWorkers& workers : trace.workers) AddLine("workers", WorkersJson(workers), text);
  for (const core::QuotaRecord& quota : trace.quotas) {
    OrderedJson json;
    json["subject"] = quota.subject;
    if (quota.devices > 0) json["devices"] = quota.devices;
    if (quota.weight > 0) json["weight"] = quota.weight;
    AddLine("quota", std::move(json), text);
  }
  for (const TraceJob& job : trace.jobs) AddLine("job", JobJson(job), text);
  return text;
}

}  // namespace trainyard::replay
