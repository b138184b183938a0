// Compares specs, digests, versions, devices and environments field by field.
#include "server/verification/causes.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/spec/diff.h"

namespace trainyard::verification {
namespace {

// Longer lists of differences end with the number of those that are left out.
constexpr size_t kListedMax = 8;

// These fields say how a job is treated, and not what it computes. Some others have sentences of
// their own.
constexpr absl::string_view kOfNoEffect[] = {
    "name",
    "description",
    "tags",
    "notify",
    "retain",
    "project",
    "devices",
    "priority",
    "time_limit",
    "on_disconnect",
    "idle_limit",
    "preemptible",
    "outputs",
    "max_retries",
    "resources",
    "checkpoint",
    "time_limit_warning",
};
constexpr absl::string_view kToldApart[] = {"data.digest", "program.code", "train.precision"};

bool IsBelow(absl::string_view path, absl::string_view field) {
  return path == field || (absl::StartsWith(path, field) && path[field.size()] == '.');
}

bool MayMatter(absl::string_view path) {
  const auto holds = [path](absl::string_view field) { return IsBelow(path, field); };
  return std::none_of(std::begin(kOfNoEffect), std::end(kOfNoEffect), holds) &&
         std::none_of(std::begin(kToldApart), std::end(kToldApart), holds);
}

std::string Shown(const std::string& json) {
  return json.empty() ? "unset" : json.size() > 60 ? json.substr(0, 57) + "..." : json;
}

std::string Listed(const std::vector<std::string>& items) {
  if (items.size() <= kListedMax) return absl::StrJoin(items, ", ");
  return absl::StrCat(absl::StrJoin(items.begin(), items.begin() + kListedMax, ", "), " and ",
                      items.size() - kListedMax, " more");
}

// The packages of an environment by name, with their versions.
std::map<std::string, std::string> Packages(const v1::ProgramEnvironment& environment) {
  std::map<std::string, std::string> packages;
  for (const absl::string_view line :
       absl::StrSplit(environment.packages(), '\n', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(line, absl::MaxSplits("==", 1));
    packages[parts.first] = parts.second;
  }
  return packages;
}

// Collects sentences about two runs.
class Findings {
 public:
  Findings(const RunRecord& first, const RunRecord& second) : first_(first), second_(second) {}

  // Adds a sentence if both values are known and differ.
  void Known(absl::string_view what, const std::string& left, const std::string& right) {
    if (!left.empty() && !right.empty()) Any(what, left, right);
  }
  void Any(absl::string_view what, const std::string& left, const std::string& right) {
    if (left == right) return;
    Add(absl::StrCat(what, ": ", Named(left), " for ", first_.job, ", ", Named(right), " for ",
                     second_.job));
  }
  void Add(std::string sentence) { sentences_.push_back(std::move(sentence)); }

  std::vector<std::string> Take() { return std::move(sentences_); }

 private:
  static std::string Named(const std::string& value) { return value.empty() ? "none" : value; }

  const RunRecord& first_;
  const RunRecord& second_;
  std::vector<std::string> sentences_;
};

void AddSpecs(const RunRecord& first, const RunRecord& second, Findings& findings) {
  if (first.spec.program().code() != second.spec.program().code()) {
    findings.Add(absl::StrCat("the code differs; `trainyard diff ", first.job, " ", second.job,
                              "` shows how"));
  }
  std::vector<std::string> fields;
  for (const spec::FieldDifference& one : spec::DiffSpecs(first.spec, second.spec)) {
    if (one.path == "train.precision") {
      findings.Any("the precision differs", Shown(one.left_json), Shown(one.right_json));
    } else if (MayMatter(one.path)) {
      fields.push_back(
          absl::StrCat(one.path, " (", Shown(one.left_json), ", ", Shown(one.right_json), ")"));
    }
  }
  if (!fields.empty()) findings.Add("the specs differ in " + Listed(fields));
}

void AddDevices(const RunRecord& first, const RunRecord& second, Findings& findings) {
  if (first.devices.empty() || second.devices.empty()) return;
  const std::set<std::string> left(first.devices.begin(), first.devices.end());
  const std::set<std::string> right(second.devices.begin(), second.devices.end());
  const std::string where = absl::StrCat(": ", DevicesText(first.devices), " for ", first.job, ", ",
                                         DevicesText(second.devices), " for ", second.job);
  if (left != right) {
    findings.Add(
        absl::StrCat("the devices are of other types, which may round in other ways", where));
  } else if (first.devices.size() != second.devices.size()) {
    findings.Add(absl::StrCat("the numbers of devices differ", where));
  }
}

void AddEnvironments(const v1::ProgramEnvironment& first, const v1::ProgramEnvironment& second,
                     Findings& findings) {
  findings.Known("the interpreters differ", first.interpreter(), second.interpreter());
  findings.Known("the images of the containers differ", first.image_digest(),
                 second.image_digest());
  if (!first.interpreter().empty() && !second.interpreter().empty()) {
    auto left = Packages(first);
    auto right = Packages(second);
    std::vector<std::string> changed;
    for (const auto& [name, version] : left) {
      const auto other = right.find(name);
      const std::string now = other == right.end() ? "none" : other->second;
      if (now != version) changed.push_back(absl::StrCat(name, " (", version, ", ", now, ")"));
    }
    for (const auto& [name, version] : right) {
      if (!left.contains(name)) changed.push_back(absl::StrCat(name, " (none, ", version, ")"));
    }
    if (!changed.empty()) findings.Add("the packages differ: " + Listed(changed));
  }
  findings.Known("the drivers differ", first.driver(), second.driver());
  findings.Known("the systems differ", first.system(), second.system());
}

}  // namespace

std::vector<std::string> Causes(const RunRecord& first, const RunRecord& second) {
  Findings findings(first, second);
  findings.Known("the training data differ", first.data_digest, second.data_digest);
  findings.Known("the models differ", first.model_digest, second.model_digest);
  AddSpecs(first, second, findings);
  AddDevices(first, second, findings);
  findings.Known("the versions of the workers differ", first.worker_version, second.worker_version);
  AddEnvironments(first.environment, second.environment, findings);
  if (first.attempts != second.attempts) {
    findings.Add(absl::StrCat(first.job, " took ", first.attempts,
                              first.attempts == 1 ? " attempt" : " attempts", ", and ", second.job,
                              " took ", second.attempts,
                              "; a run that goes on from a checkpoint may differ a little"));
  }
  return findings.Take();
}

std::string NoCause(const RunRecord& second) {
  if (second.spec.has_program()) {
    return "nothing that is recorded differs: code, parameters, packages, devices and versions are "
           "the same; the program may draw random numbers without a fixed seed, or depend on the "
           "order of its threads, on the time, or on files that are not part of its code";
  }
  const bool is_on_cpus = std::all_of(second.devices.begin(), second.devices.end(),
                                      [](const std::string& type) { return type == "cpu"; });
  if (is_on_cpus) {
    return "nothing that is recorded differs: spec, data, devices and versions are the same; "
           "another kind of processor may round in other ways";
  }
  return "nothing that is recorded differs: spec, data, devices and versions are the same; kernels "
         "of a GPU may add in another order from run to run, unless the spec asks for "
         "train.reproducibility: bitwise";
}

}  // namespace trainyard::verification
