// Holds the published experiments of the field, which come with every catalogue as saved specs.
#pragma once

#include "absl/status/statusor.h"
#include "trainyard/v1/catalogue.pb.h"

namespace trainyard::published {

// The user under whose name they are saved. Nobody can sign in by it: it is no name of a user.
inline constexpr char kPublisher[] = "(trainyard)";

// Returns them as they were written, without versions: each name is specs/NAME. It fails only if
// the text that was built in is no JSON.
absl::StatusOr<v1::ListSavedSpecsResponse> PublishedSpecs();

}  // namespace trainyard::published
