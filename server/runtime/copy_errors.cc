// Writes the messages of these errors.
#include "server/runtime/copy_errors.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/errors.h"

namespace trainyard::error {

absl::Status BucketFolderTaken(absl::string_view folder, absl::string_view owner) {
  return MakeError(
      absl::StatusCode::kFailedPrecondition, "BUCKET_FOLDER_TAKEN",
      absl::StrCat("'", folder,
                   "' has the checkpoints of another server; name another folder with "
                   "--checkpoint_bucket, or remove '",
                   owner, "' if that server is gone and its checkpoints there may be replaced"));
}

absl::Status CopiesOfAnotherJob(absl::string_view folder) {
  return MakeError(absl::StatusCode::kFailedPrecondition, "COPIES_OF_ANOTHER_JOB",
                   absl::StrCat("'", folder,
                                "' has copies of another job with the same number, which this "
                                "server does not know, as after the restore of an older backup; "
                                "move or delete them"));
}

absl::Status PlaceNotAllowed(absl::string_view place, const std::vector<std::string>& allowed) {
  return MakeError(
      absl::StatusCode::kPermissionDenied, "PLACE_NOT_ALLOWED",
      absl::StrCat("this server takes no checkpoints from '", place, "'",
                   allowed.empty() ? "" : absl::StrCat(", but from ", absl::StrJoin(allowed, ", ")),
                   "; its administrator can allow a folder with --checkpoint_sources"));
}

absl::Status NoCopy(absl::string_view place) {
  return MakeError(
      absl::StatusCode::kNotFound, "NOT_FOUND",
      absl::StrCat("there is no whole checkpoint at '", place,
                   "'; `trainyard checkpoints ls` on its server shows the place of each copy"));
}

absl::Status CopyTooNew(absl::string_view place, int format, int known, absl::string_view version) {
  return MakeError(absl::StatusCode::kFailedPrecondition, "COPY_TOO_NEW",
                   absl::StrCat("'", place, "' has the format ", format, " of Trainyard ", version,
                                "; this server knows formats up to ", known, "; update it"));
}

}  // namespace trainyard::error
