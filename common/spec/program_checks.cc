// Makes the checks between the fields of a program, and between a program and what stands beside
// it.
#include "common/spec/program_checks.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/datasets.h"
#include "common/spec/array.h"
#include "common/spec/fields.h"
#include "common/spec/notify_checks.h"

namespace trainyard::spec {
namespace {

using google::protobuf::FieldDescriptor;
using Violations = std::vector<FieldViolation>;

// These belong to a model and its training.
constexpr const char* kOfModels[] = {"model",    "train",  "optimizer", "schedule",
                                     "evaluate", "memory", "init",      "stages"};

// The system ends a text there, and the rest would be lost in silence.
void CheckText(absl::string_view text, const std::string& field, Violations& violations) {
  const size_t at = text.find('\0');
  if (at == absl::string_view::npos) return;
  violations.push_back({field, absl::StrCat("has a NUL character at byte ", at,
                                            ", which no program can be given; leave it out")});
}

void CheckCommand(const v1::ProgramSpec& program, Violations& violations) {
  if (program.command().empty() && program.script().empty()) {
    violations.push_back(
        {"spec.program", "must have a command, such as [python3, train.py], or a script"});
  } else if (!program.command().empty() && !program.script().empty()) {
    violations.push_back(
        {"spec.program.script", "cannot stand beside program.command; leave one of them out"});
  } else if (!program.command().empty() && program.command(0).empty()) {
    violations.push_back({"spec.program.command[0]", "is empty; expected the name of a program"});
  }
  for (int i = 0; i < program.command_size(); ++i) {
    CheckText(program.command(i), absl::StrCat("spec.program.command[", i, "]"), violations);
  }
  CheckText(program.script(), "spec.program.script", violations);
}

// A container brings its own environment, which those of the host would not fit.
void CheckIsolation(const v1::ProgramSpec& program, Violations& violations) {
  const v1::EnvironmentSpec& environment = program.environment();
  if (environment.container().empty()) {
    if (program.isolation() == v1::ISOLATION_CONTAINER) {
      violations.push_back({"spec.program.isolation",
                            "container needs an image; name one in environment.container"});
    }
    return;
  }
  CheckText(environment.container(), "spec.program.environment.container", violations);
  const char* other = !environment.venv().empty()      ? "venv"
                      : !environment.conda().empty()   ? "conda"
                      : !environment.modules().empty() ? "modules"
                                                       : nullptr;
  if (other == nullptr) return;
  violations.push_back({absl::StrCat("spec.program.environment.", other),
                        "is of the host, and cannot stand beside environment.container; leave one "
                        "of them out"});
}

void CheckEnvironment(const v1::ProgramSpec& program, Violations& violations) {
  for (const auto& [name, value] : program.env()) {
    const std::string field = absl::StrCat("spec.program.env.", name);
    // A clone of an element of an array keeps its index.
    if (absl::StartsWith(name, "TRAINYARD_") && name != kArrayIndexVariable) {
      violations.push_back({field, "is a name that belongs to Trainyard; use another one"});
    }
    CheckText(value, field, violations);
  }
  for (const auto& [name, value] : program.params()) {
    CheckText(value, absl::StrCat("spec.program.params.", name), violations);
  }
  CheckText(program.environment().setup(), "spec.program.environment.setup", violations);
  if (!program.environment().venv().empty() && !program.environment().conda().empty()) {
    violations.push_back({"spec.program.environment.conda",
                          "cannot stand beside environment.venv; leave one of them out"});
  }
  CheckIsolation(program, violations);
}

// Only the folder of the code is the same wherever the program runs.
void CheckDirectory(const v1::ProgramSpec& program, Violations& violations) {
  const std::string& directory = program.directory();
  CheckText(directory, "spec.program.directory", violations);
  CheckText(program.code(), "spec.program.code", violations);
  const bool is_named = directory.empty() || directory == "~" || directory[0] == '/' ||
                        absl::StartsWith(directory, "~/");
  if (is_named || (!program.code().empty() && datasets::StaysBelow(directory))) return;
  violations.push_back(
      {"spec.program.directory",
       absl::StrCat("'", directory,
                    "' is not accepted; expected an absolute path, one that begins ",
                    "with ~/, or with program.code one below the folder of the code")});
}

// The program reads the files of the data set by itself.
void CheckFiles(const v1::DataSpec& data, Violations& violations) {
  const datasets::Facts* facts = datasets::Find(data.dataset());
  if (facts != nullptr && facts->is_generated()) {
    violations.push_back(
        {"spec.data.dataset", absl::StrCat("'", facts->name,
                                           "' has no files: trainers of models compute it, and no "
                                           "program can read it")});
  }
  if (!data.path().empty() && !datasets::StaysBelow(data.path())) {
    violations.push_back(
        {"spec.data.path", absl::StrCat("'", data.path(),
                                        "' leads out of the folder of data sets; write a path "
                                        "below it, without '..'")});
  }
}

// Patterns name files below the folder in which the program starts.
void CheckOutputs(const v1::JobSpec& spec, Violations& violations) {
  constexpr int kPatternsMax = 64;
  constexpr size_t kPatternBytesMax = 256;
  if (spec.outputs_size() > kPatternsMax) {
    violations.push_back(
        {"spec.outputs", absl::StrCat("has ", spec.outputs_size(), " patterns; at most ",
                                      kPatternsMax, " are accepted")});
  }
  for (int i = 0; i < spec.outputs_size() && i < kPatternsMax; ++i) {
    if (spec.outputs(i).size() > kPatternBytesMax) {
      violations.push_back({absl::StrCat("spec.outputs[", i, "]"),
                            absl::StrCat("has ", spec.outputs(i).size(), " bytes; at most ",
                                         kPatternBytesMax, " are accepted")});
    }
    const std::vector<absl::string_view> parts = absl::StrSplit(spec.outputs(i), '/');
    if (std::find(parts.begin(), parts.end(), "..") == parts.end()) continue;
    violations.push_back({absl::StrCat("spec.outputs[", i, "]"),
                          absl::StrCat("'", spec.outputs(i),
                                       "' leads out of the folder in which the program starts; "
                                       "write a path below it, without '..'")});
  }
}

}  // namespace

void CheckProgram(const v1::JobSpec& spec, Violations& violations) {
  if (!spec.has_program()) {
    if (!spec.outputs().empty()) {
      violations.push_back({"spec.outputs",
                            "are files of a program, and a trainer leaves none but its "
                            "checkpoints; leave them out"});
    }
    return;
  }
  const auto& type = *v1::JobSpec::descriptor();
  for (const char* name : kOfModels) {
    if (!IsGiven(spec, *type.FindFieldByName(name))) continue;
    violations.push_back({absl::StrCat("spec.", name),
                          "cannot stand beside program, which trains by itself; leave one of them "
                          "out"});
  }
  if (spec.checkpoint().has_every()) {
    violations.push_back({"spec.checkpoint.every",
                          "cannot stand beside program, which writes its checkpoints when it "
                          "wants; leave it out"});
  }
  CheckCommand(spec.program(), violations);
  CheckEnvironment(spec.program(), violations);
  CheckOutputs(spec, violations);
  if (spec.program().ranks() == v1::PROGRAM_RANKS_ONE && spec.devices().spread()) {
    violations.push_back({"spec.devices.spread",
                          "cannot stand beside program.ranks: one, whose devices are on one host; "
                          "leave one of them out"});
  }
  CheckSecrets(spec.program(), violations);
  CheckDirectory(spec.program(), violations);
  if (spec.has_data()) CheckFiles(spec.data(), violations);
}

void ClearModelDefaults(v1::JobSpec& resolved) {
  if (!resolved.has_program()) return;
  const auto& type = *v1::JobSpec::descriptor();
  for (const char* name : kOfModels) {
    resolved.GetReflection()->ClearField(&resolved, type.FindFieldByName(name));
  }
  resolved.mutable_checkpoint()->clear_every();
}

}  // namespace trainyard::spec
