// A spec file as JobSpec, read by protobuf reflection and strictly: every mistake is found in one
// go, and each is shown with line, column, the source line and a caret. The places of all fields
// are kept, so that what the server finds later is shown at its place too.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/spec_loader/yaml_tree.h"
#include "common/base/errors.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::spec_loader {

struct SpecFile {
  // As the user named it; "-" for standard input.
  std::string name;
  std::string text;
  // Lines of the file before `text`: it is one of several documents.
  int first_line = 0;
  // False where the text is no YAML or over a limit: `spec` is then empty.
  bool is_readable = true;
  v1::JobSpec spec;
  // Field path without "spec." -> where its value stands (its key, for fields with fields in them).
  std::map<std::string, Place> places;
  // In the order of the file.
  std::vector<Mistake> mistakes;
  // Fields that are absent or wrong only because of a mistake that is reported already.
  std::vector<std::string> suspects;
};

// NOT_FOUND and the like where the file cannot be read. Mistakes in it are in the result.
absl::StatusOr<SpecFile> ReadSpecFile(const std::string& path);
SpecFile ParseSpecFile(absl::string_view name, absl::string_view text);

// One document of a file, not parsed yet.
struct SpecText {
  std::string name;  // of the file
  std::string text;
  int first_line = 0;  // lines before it
};

// The documents of a file, between lines of ---; those without anything but comments are left out.
// At least one, perhaps empty. Files of up to 256 MiB.
absl::StatusOr<std::vector<SpecText>> ReadSpecTexts(const std::string& path);
std::vector<SpecText> SplitDocuments(absl::string_view name, absl::string_view text);
SpecFile ParseSpecText(const SpecText& text);

// Adds what breaks the rules of the fields and those between fields. `spec` is the file's spec,
// perhaps changed by --set since; the paths in `changed` are then not the file's any more.
void AddRuleMistakes(SpecFile& file, const v1::JobSpec& spec,
                     const std::vector<std::string>& changed);

// The violations of a server ("spec.train.seed") as mistakes of the file.
void AddViolations(SpecFile& file, const std::vector<FieldViolation>& violations,
                   const std::vector<std::string>& changed);

// One block a mistake:
//   jobs/a.yaml:2:1: modle: unknown key; did you mean 'model'?
//     2 | modle: {convnet: {}}
//       | ^~~~~
std::string RenderMistakes(const SpecFile& file, bool color);

}  // namespace trainyard::spec_loader
