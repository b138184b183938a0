// Reads a spec file as a JobSpec, by protobuf reflection and strictly. Every mistake is found in
// one go, and each is shown with line, column, the source line and a caret. The places of all
// fields are kept, so that mistakes that the server finds later are shown at their places too.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/spec_loader/spec_text.h"
#include "client/spec_loader/yaml_tree.h"
#include "common/base/errors.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::spec_loader {

struct SpecFile {
  // The name that the user gave; "-" is standard input.
  std::string name;
  std::string text;
  // The number of lines of the file before `text`, which is one of several documents.
  int first_line = 0;
  std::shared_ptr<const SpecCode> code;  // null unless it came with the spec
  // The full name of the saved spec that it is, or empty.
  std::string saved_spec = {};
  // False if the text is no YAML, no mapping, or exceeds a limit; `spec` is then empty.
  bool is_readable = true;
  v1::JobSpec spec;
  // Maps the path of a field without "spec." to the place of its value, or of its key if the field
  // has fields.
  std::map<std::string, Place> places;
  // The mistakes in the order of the file.
  std::vector<Mistake> mistakes;
  // Fields that are absent or wrong only because of a mistake that is already reported.
  std::vector<std::string> suspects;
};

// Returns the errors of ReadSpecText if the file cannot be read. Mistakes in it are in the result.
absl::StatusOr<SpecFile> ReadSpecFile(const std::string& path);
SpecFile ParseSpecFile(absl::string_view name, absl::string_view text);

SpecFile ParseSpecText(const SpecText& text);

// Adds violations of the rules of fields and of the rules between fields. `spec` is the file's
// spec, perhaps changed by --set; the paths in `changed` then no longer come from the file.
void AddRuleMistakes(SpecFile& file, const v1::JobSpec& spec,
                     const std::vector<std::string>& changed);

// Adds the violations that a server reported ("spec.train.seed") as mistakes of the file.
void AddViolations(SpecFile& file, const std::vector<FieldViolation>& violations,
                   const std::vector<std::string>& changed);

// Returns one block of text for each mistake:
//   jobs/a.yaml:2:1: modle: unknown key; did you mean 'model'?
//     2 | modle: {convnet: {}}
//       | ^~~~~
std::string RenderMistakes(const SpecFile& file, bool color);

}  // namespace trainyard::spec_loader
