// Checks what a spec says about secrets and notifications.
#pragma once

#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/errors.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::spec {

// Returns true if the text may name a secret: see ProgramSpec.secrets.
bool IsSecretName(absl::string_view name);

// The secrets that one program may name.
inline constexpr int kSecretsMax = 100;

// Adds what is wrong with `spec.program.secrets` and `spec.notify`, beyond the limits of each
// field.
void CheckSecrets(const v1::ProgramSpec& program, std::vector<FieldViolation>& violations);
void CheckNotify(const v1::JobSpec& spec, std::vector<FieldViolation>& violations);

}  // namespace trainyard::spec
