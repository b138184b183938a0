// Finds out by its name what a field is.
#include "server/rpc/job_fields.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/duration.h"
#include "common/base/strings.h"
#include "common/spec/byte_size.h"
#include "common/spec/fields.h"
#include "common/spec/paths.h"
#include "server/filter/literal.h"
#include "server/rpc/convert.h"

namespace trainyard::rpc {
namespace {

using filter::FieldType;
using filter::Kind;
using filter::Value;
using google::protobuf::FieldDescriptor;

// A field that every job may have.
struct KnownField {
  FieldType type;
  std::function<Value(const FieldsOfJob&)> read;
};

Value TextOrNothing(const std::string& text) {
  return text.empty() ? Value() : Value(text);
}

double SecondsOf(int64_t microseconds) {
  return static_cast<double>(microseconds) / 1e6;
}

std::string NameOfJob(const core::JobRecord& job) {
  const std::string& name = job.submission->name;
  return job.array == JobId{} ? name : absl::StrCat(name, "-", job.array_index());
}

std::vector<std::string> StateWords() {
  std::vector<std::string> words;
  for (int i = v1::JobState_MIN + 1; i <= v1::JobState_MAX; ++i) {
    words.push_back(absl::AsciiStrToLower(
        absl::StripPrefix(v1::JobState_Name(static_cast<v1::JobState>(i)), "JOB_STATE_")));
  }
  return words;
}

// Returns the number of the sweep of which the job is a trial.
Value SweepNumber(const core::JobRecord& job) {
  const std::vector<std::string> parts = absl::StrSplit(job.submission->trial, '/');
  if (parts.size() < 2) return {};
  const auto sweep = ParseSweepName(absl::StrCat(parts[0], "/", parts[1]));
  return sweep.ok() ? Value(static_cast<double>(*sweep)) : Value();
}

Value DurationOf(const FieldsOfJob& job) {
  const core::JobRecord& record = job.record();
  if (record.start_us == 0) return {};
  const int64_t end = record.end_us == 0 ? absl::ToUnixMicros(job.now()) : record.end_us;
  return SecondsOf(end - record.start_us);
}

std::vector<std::string> TagsOf(const FieldsOfJob& job) {
  std::vector<std::string> tags = job.record().submission->tags;
  if (job.remarks() != nullptr) {
    tags.insert(tags.end(), job.remarks()->tags.begin(), job.remarks()->tags.end());
  }
  return tags;
}

const std::map<std::string, KnownField>& KnownFields() {
  static const auto* fields = new std::map<std::string, KnownField>{
      {"id",
       {{Kind::kNumber},
        [](const auto& job) { return static_cast<double>(job.record().id.value); }}},
      {"state",
       {{Kind::kWord, StateWords()},
        [](const auto& job) { return std::string(core::job_fsm::Name(job.record().state)); }}},
      {"user",
       {{Kind::kText},
        [](const auto& job) { return TextOrNothing(job.record().submission->user); }}},
      {"project",
       {{Kind::kText},
        [](const auto& job) { return TextOrNothing(job.record().submission->project); }}},
      {"name", {{Kind::kText}, [](const auto& job) { return NameOfJob(job.record()); }}},
      {"model",
       {{Kind::kWord}, [](const auto& job) { return TextOrNothing(ModelKind(job.spec())); }}},
      {"dataset",
       {{Kind::kText}, [](const auto& job) { return TextOrNothing(job.spec().data().dataset()); }}},
      {"tag", {{Kind::kTexts}, [](const auto& job) { return TagsOf(job); }}},
      {"note",
       {{Kind::kText},
        [](const auto& job) {
          return job.remarks() == nullptr ? Value() : TextOrNothing(job.remarks()->note);
        }}},
      {"devices",
       {{Kind::kNumber},
        [](const auto& job) {
          return static_cast<double>(core::DemandOf(job.record()).devices());
        }}},
      {"sweep", {{Kind::kNumber}, [](const auto& job) { return SweepNumber(job.record()); }}},
      {"created",
       {{Kind::kTime}, [](const auto& job) { return SecondsOf(job.record().create_us); }}},
      {"age",
       {{Kind::kDuration},
        [](const auto& job) {
          return SecondsOf(absl::ToUnixMicros(job.now()) - job.record().create_us);
        }}},
      {"duration", {{Kind::kDuration}, DurationOf}},
      {"attempts",
       {{Kind::kNumber},
        [](const auto& job) { return static_cast<double>(job.record().attempt); }}},
  };
  return *fields;
}

FieldType TypeOfPath(const std::string& path) {
  const FieldDescriptor& field = *spec::FieldOfPath(path);
  if (field.is_map()) return {Kind::kAny};
  if (field.is_repeated()) return {Kind::kText};
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_ENUM:
      return {Kind::kWord, spec::EnumTexts(*field.enum_type())};
    case FieldDescriptor::CPPTYPE_BOOL:
      return {Kind::kWord, {"true", "false"}};
    case FieldDescriptor::CPPTYPE_STRING:
      return {Kind::kText};
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (field.message_type() == google::protobuf::Duration::descriptor()) {
        return {Kind::kDuration};
      }
      if (field.message_type() == v1::ByteSize::descriptor()) return {Kind::kBytes};
      return {Kind::kText};
    default:
      return {Kind::kNumber};
  }
}

// Returns the value that a text of a spec is.
Value ValueOfText(const std::string& text, Kind kind) {
  if (text.empty()) return {};
  std::optional<double> number;
  if (kind == Kind::kDuration) {
    const auto duration = ParseDuration(text);
    if (duration.ok()) number = absl::ToDoubleSeconds(*duration);
  } else if (kind == Kind::kBytes) {
    const auto size = spec::ParseByteSize(text);
    if (size.ok()) number = static_cast<double>(size->bytes());
  } else if (kind == Kind::kNumber || kind == Kind::kAny) {
    number = filter::NumberOf(text);
  } else {
    return text;
  }
  if (number.has_value()) return *number;
  return kind == Kind::kAny ? Value(text) : Value();
}

absl::Status NoSuchField(const std::string& field, const std::vector<std::string>& candidates) {
  const std::string nearest = NearestWord(field, candidates);
  return absl::InvalidArgumentError(
      nearest.empty()
          ? "a field: state, user, project, name, model, dataset, tag, note, devices, "
            "created, age, duration, attempts, id, a metric such as test.accuracy, or a "
            "path of the spec such as optimizer.sgd.lr"
          : absl::StrCat("a field; did you mean '", nearest, "'?"));
}

// Returns an error for a name that no metric of a job has. Workers report the last values of those
// whose names begin with `train.` and `test.`.
absl::Status CheckMetricName(const std::string& name) {
  if (absl::StartsWith(name, "test.")) return absl::OkStatus();
  std::vector<std::string> candidates = spec::SpecPaths();
  // Paths of specs begin with `train.` too, and may have a mistake.
  if (absl::StartsWith(name, "train.")) {
    return NearestWord(name, candidates).empty() ? absl::OkStatus() : NoSuchField(name, candidates);
  }
  for (const auto& [field, unused] : KnownFields()) candidates.push_back(field);
  return NoSuchField(name, candidates);
}

}  // namespace

const v1::JobSpec& FieldsOfJob::spec() const {
  if (!spec_.has_value()) spec_ = ResolvedSpecOf(view_.record);
  return *spec_;
}

absl::StatusOr<FieldType> JobFields::TypeOf(const std::string& field) {
  const auto known = KnownFields().find(field);
  if (known != KnownFields().end()) {
    reads_[field] = known->second.read;
    return known->second.type;
  }
  const std::vector<std::string> paths = spec::PathsOf(field);
  if (!paths.empty()) {
    FieldType type = TypeOfPath(paths.front());
    for (const std::string& path : paths) {
      if (TypeOfPath(path).kind != type.kind) type = {Kind::kAny};
    }
    // A job has one of several paths, such as those of the rates of all optimizers.
    if (paths.size() > 1) type.words.clear();
    reads_[field] = [paths, kind = type.kind](const FieldsOfJob& job) {
      for (const std::string& path : paths) {
        Value value = ValueOfText(spec::ValueAt(job.spec(), path), kind);
        if (!std::holds_alternative<std::monostate>(value)) return value;
      }
      return Value();
    };
    return type;
  }
  const absl::Status is_metric = CheckMetricName(field);
  if (!is_metric.ok()) return is_metric;
  reads_[field] = [field](const FieldsOfJob& job) {
    const auto& values = job.record().metrics.values;
    const auto found = values.find(field);
    return found == values.end() ? Value() : Value(found->second);
  };
  return FieldType{Kind::kNumber};
}

Value JobFields::ValueOf(const std::string& field, const FieldsOfJob& job) const {
  return reads_.at(field)(job);
}

}  // namespace trainyard::rpc
