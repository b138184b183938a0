// Names the errors of copies of checkpoints in buckets, in addition to those of common/s3/errors.h.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainyard::error {

// BUCKET_FOLDER_TAKEN: another server copies its checkpoints there, and its jobs have the same
// numbers; choose another folder.
absl::Status BucketFolderTaken(absl::string_view folder, absl::string_view owner);

// COPIES_OF_ANOTHER_JOB: the folder has copies of a job with the same number, which the server does
// not know since a restore; move or delete them.
absl::Status CopiesOfAnotherJob(absl::string_view folder);

// PLACE_NOT_ALLOWED: the server takes no checkpoints from there; an administrator allows places
// with
// --checkpoint_sources.
absl::Status PlaceNotAllowed(absl::string_view place, const std::vector<std::string>& allowed);
// NOT_FOUND: no server has copied a checkpoint to that place, or it was removed with the original.
absl::Status NoCopy(absl::string_view place);
// COPY_TOO_NEW: a newer Trainyard has written the copy; update this one.
absl::Status CopyTooNew(absl::string_view place, int format, int known, absl::string_view version);

}  // namespace trainyard::error
