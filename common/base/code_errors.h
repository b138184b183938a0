// Declares the named errors about the code that travels with programs: errors.h says what they are.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainyard::error {

// CODE_TOO_LARGE: leave files out with a `.trainyardignore`, or put data into the folder of data
// sets of the workers. `what` says what is too large.
inline constexpr char kCodeTooLarge[] = "CODE_TOO_LARGE";
absl::Status CodeTooLarge(absl::string_view what);
// CODE_NOT_FOUND: the server has no archive with this digest, or none that the caller may use;
// submit the folder itself (`program.code: .`), or clone a job that has the archive.
inline constexpr char kCodeNotFound[] = "CODE_NOT_FOUND";
absl::Status CodeNotFound(absl::string_view what);
// CODE_REFUSED: the archive was not made by our client, and holds what none may hold, such as a
// path out of its folder; submit the folder itself.
inline constexpr char kCodeRefused[] = "CODE_REFUSED";
absl::Status CodeRefused(absl::string_view why);

}  // namespace trainyard::error
