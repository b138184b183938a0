// The messages name the file and the part that is wrong.
#include "common/base/bundle_errors.h"

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"

namespace trainyard::error {

absl::Status BundleRefused(absl::string_view bundle, absl::string_view why) {
  return MakeError(absl::StatusCode::kInvalidArgument, kBundleRefused,
                   absl::StrCat("bundle '", bundle, "': ", why));
}

absl::Status BundleTooNew(absl::string_view bundle, absl::string_view format,
                          absl::string_view known) {
  return MakeError(absl::StatusCode::kFailedPrecondition, kBundleTooNew,
                   absl::StrCat("bundle '", bundle, "' has the format ", format,
                                ", and this version reads those up to ", known,
                                "; update Trainyard to read it"));
}

absl::Status BundleTooLarge(absl::string_view bundle, absl::string_view what) {
  return MakeError(absl::StatusCode::kResourceExhausted, kBundleTooLarge,
                   absl::StrCat("bundle '", bundle, "': ", what));
}

absl::Status NotImported(absl::string_view job) {
  return MakeError(absl::StatusCode::kFailedPrecondition, kNotImported,
                   absl::StrCat("job '", job,
                                "' ran on this server and takes nothing from elsewhere; only "
                                "imported jobs do"));
}

}  // namespace trainyard::error
