// Reads the text of specs from files, pipes and standard input, and never much more than a spec may
// have.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::spec_loader {

// The code that came with a spec in one file, in place of a folder.
struct SpecCode {
  std::string digest;   // of the archive, which the spec names
  std::string archive;  // the path of the archive
  v1::CodeOrigin origin;
  std::string diff;  // of which the origin has the digest; it may be empty
};

// One document of a file, not parsed yet.
struct SpecText {
  std::string name;  // of the file
  std::string text;
  int first_line = 0;  // lines before it
  // The full name of the saved spec that it is, or empty.
  std::string saved_spec = {};
  std::shared_ptr<const SpecCode> code = nullptr;  // null unless it came with the spec
};

// Reads a file that holds one document. "-" is standard input. Returns NOT_FOUND and the like if it
// cannot be read, and INVALID_ARGUMENT if it is a folder or a device. Little more than
// kFileBytesMax is read, which ParseYaml then refuses.
absl::StatusOr<SpecText> ReadSpecText(const std::string& path);

// Returns the documents of a file, which are separated by lines of ---. Documents that contain only
// comments are left out. There is at least one, which may be empty. The file may have up to 256
// MiB. Nothing more is read once a document is too long, and the error is INVALID_ARGUMENT then.
absl::StatusOr<std::vector<SpecText>> ReadSpecTexts(const std::string& path);
std::vector<SpecText> SplitDocuments(absl::string_view name, absl::string_view text);

}  // namespace trainyard::spec_loader
