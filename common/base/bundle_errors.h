// Declares the named errors about bundles, which are jobs as files: errors.h says what they are.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainyard::error {

// BUNDLE_REFUSED: the file is no bundle, or holds what none may hold; export the job again.
inline constexpr char kBundleRefused[] = "BUNDLE_REFUSED";
absl::Status BundleRefused(absl::string_view bundle, absl::string_view why);
// BUNDLE_TOO_NEW: a newer Trainyard has written the file; update this one.
inline constexpr char kBundleTooNew[] = "BUNDLE_TOO_NEW";
absl::Status BundleTooNew(absl::string_view bundle, absl::string_view format,
                          absl::string_view known);
// BUNDLE_TOO_LARGE: the file holds more than its list says, or more than is accepted of a part.
inline constexpr char kBundleTooLarge[] = "BUNDLE_TOO_LARGE";
absl::Status BundleTooLarge(absl::string_view bundle, absl::string_view what);
// NOT_IMPORTED: only a job that was imported takes what ran elsewhere; import the bundle first.
inline constexpr char kNotImported[] = "NOT_IMPORTED";
absl::Status NotImported(absl::string_view job);

}  // namespace trainyard::error
