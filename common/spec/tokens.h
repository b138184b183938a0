// Language models and what they read: the checks between the two.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/errors.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::spec {

// True for a data set of tokens; the others have images.
bool HasTokens(absl::string_view dataset);

// Samples of the training split; 0 where only the worker knows, which has the files.
int64_t TokenSamples(const v1::JobSpec& spec);

// Adds what does not fit where network or data set is of tokens. `spec` has its defaults.
void CheckTokens(const v1::JobSpec& spec, std::vector<FieldViolation>& violations);

}  // namespace trainyard::spec
