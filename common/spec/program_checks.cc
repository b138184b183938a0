// Makes the checks between the fields of a program, and between a program and what stands beside
// it.
#include "common/spec/program_checks.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/datasets.h"
#include "common/spec/array.h"
#include "common/spec/fields.h"

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

}  // namespace

void CheckProgram(const v1::JobSpec& spec, Violations& violations) {
  if (!spec.has_program()) return;
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
