// Checks language models against the data that they read.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/errors.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::spec {

// Returns true for a data set of tokens. The others have images.
bool HasTokens(absl::string_view dataset);

// Returns the number of samples in the training split, or 0 if only the worker knows, because it
// has the files.
int64_t TokenSamples(const v1::JobSpec& spec);

// Adds a violation for each thing that does not fit if the network or the data set is of tokens.
// `spec` has its defaults.
void CheckTokens(const v1::JobSpec& spec, std::vector<FieldViolation>& violations);

}  // namespace trainyard::spec
