// Finds fields of specs by their paths, and by the words that people use for them: columns of lists
// and filters of jobs are named so.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::spec {

// Returns the paths of all fields of a spec that hold a value, such as "optimizer.sgd.lr". Lists of
// messages are left out, and a map stands for all its keys.
const std::vector<std::string>& SpecPaths();

// Returns the paths that a word means: the path itself, which may end in a key of a map
// ("program.params.lr"), or all paths that end in the word ("lr"). There are none if nothing is
// called so.
std::vector<std::string> PathsOf(absl::string_view word);

// Returns the field of a path, or null if there is none. The field of a key is its map.
const google::protobuf::FieldDescriptor* FieldOfPath(absl::string_view path);

// Returns the value at the path as a spec has it, without the quotes of a text, or an empty text if
// it is not given.
std::string ValueAt(const v1::JobSpec& spec, absl::string_view path);

}  // namespace trainyard::spec
