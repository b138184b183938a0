// Checks the manifest of a copy, and makes a job that has ended of the one in it.
#include "server/rpc/copied_checkpoint.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/checkpoint_file.h"
#include "common/base/errors.h"
#include "common/base/hash.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/s3/client.h"
#include "common/tls/digest.h"
#include "google/protobuf/util/json_util.h"
#include "server/codec/time.h"
#include "server/rpc/checkpoint_copy.h"
#include "server/runtime/blob_store.h"
#include "server/runtime/copy_errors.h"

namespace trainyard::rpc {
namespace {

constexpr size_t kImportIdDigits = 48;

bool HasEnded(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

bool HasEnded(v1::AttemptState state) {
  return state == v1::ATTEMPT_STATE_SUCCEEDED || state == v1::ATTEMPT_STATE_FAILED ||
         state == v1::ATTEMPT_STATE_PREEMPTED || state == v1::ATTEMPT_STATE_CANCELLED ||
         state == v1::ATTEMPT_STATE_LOST;
}

absl::Status TakeFile(const v1::CheckpointFile& file, const std::string& place,
                      CopiedFiles& copied) {
  const auto damaged = [&](const auto&... what) {
    return error::CorruptFile(place, absl::StrCat("its manifest ", what...));
  };
  const std::string shown = PlainText(file.name(), 100);
  if (!IsCheckpointFileName(file.name())) {
    return damaged("has the file '", shown, "', which is no plain name");
  }
  if (file.size() < 0 || file.size() > runtime::BlobStore::kFileBytesMax) {
    return damaged("gives '", shown, "' ", file.size(), " bytes");
  }
  if (!HashDigits(file.hash()).ok()) return damaged("gives '", shown, "' no hash");
  const auto digest = copied.manifest.digests().find(file.name());
  if (digest == copied.manifest.digests().end()) return damaged("has no digest of '", shown, "'");
  const auto digits = tls::Sha256Digits(digest->second);
  if (!digits.ok()) return damaged("has a malformed digest of '", shown, "'");
  if (!copied.digests.emplace(file.name(), *digits).second) {
    return damaged("has '", shown, "' twice");
  }
  copied.files.push_back({file.name(), file.size(), file.hash()});
  copied.bytes += file.size();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CopyPlace> ParseCopyPlace(absl::string_view place) {
  const absl::Status malformed = absl::InvalidArgumentError(absl::StrCat(
      "'", PlainText(std::string(place), 200),
      "' is no checkpoint in a bucket; expected s3://BUCKET/FOLDER/checkpoints/JOB/STEP, or "
      "without the step for the newest one, as `trainyard checkpoints ls` shows it"));
  const auto location = s3::ParseLocation(place);
  if (!location.ok() || location->prefix.empty()) return malformed;
  // The prefix ends with a slash.
  std::vector<std::string> parts = absl::StrSplit(location->prefix, '/');
  parts.pop_back();
  for (const std::string& part : parts) {
    if (part.empty() || part == "." || part == "..") return malformed;
  }
  CopyPlace result;
  result.bucket = location->bucket;
  const auto is_number = [](const std::string& text, int64_t& value) {
    return absl::SimpleAtoi(text, &value) && value >= 0 && absl::StrCat(value) == text;
  };
  size_t folder = 0;  // the number of parts before "checkpoints"
  int64_t step = 0;
  const size_t count = parts.size();
  if (count >= 3 && parts[count - 3] == "checkpoints" && is_number(parts[count - 1], step) &&
      is_number(parts[count - 2], result.job.value)) {
    result.step = step;
    folder = count - 3;
  } else if (count >= 2 && parts[count - 2] == "checkpoints" &&
             is_number(parts[count - 1], result.job.value)) {
    folder = count - 2;
  } else {
    return malformed;
  }
  parts.resize(folder);
  if (!parts.empty()) result.prefix = absl::StrCat(absl::StrJoin(parts, "/"), "/");
  return result;
}

absl::StatusOr<CopiedFiles> ReadCopy(const std::string& text, const std::string& place) {
  CopiedFiles copied;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;  // those of newer servers
  const auto parsed = google::protobuf::util::JsonStringToMessage(text, &copied.manifest, options);
  if (!parsed.ok()) return error::CorruptFile(place, "its manifest is no JSON of a checkpoint");
  const v1::CopiedCheckpoint& manifest = copied.manifest;
  if (manifest.format() > kCopyFormat) {
    return error::CopyTooNew(place, manifest.format(), kCopyFormat,
                             PlainText(manifest.server_version(), 100));
  }
  const auto id = ParseCheckpointName(manifest.checkpoint().name());
  const bool is_described = manifest.format() > 0 && id.ok() &&
                            id->step == manifest.checkpoint().step() &&
                            !manifest.checkpoint().files().empty();
  if (!is_described) {
    return error::CorruptFile(place, "its manifest describes no checkpoint with files");
  }
  if (manifest.checkpoint().files_size() > kCheckpointFilesMax) {
    return error::CorruptFile(
        place, absl::StrCat("its manifest has over ", kCheckpointFilesMax, " files"));
  }
  if (manifest.job().name().empty()) {
    return error::CorruptFile(place, "its manifest does not describe the job");
  }
  for (const v1::CheckpointFile& file : manifest.checkpoint().files()) {
    TY_RETURN_IF_ERROR(TakeFile(file, place, copied));
  }
  return copied;
}

v1::ImportJobRequest ImportOfCopy(const v1::CopiedCheckpoint& manifest, const std::string& text,
                                  const std::string& project) {
  v1::ImportJobRequest request;
  v1::Job& job = *request.mutable_job();
  job = manifest.job();
  const auto& time = manifest.checkpoint().create_time();
  // It may run there still. What is known of it ends with the checkpoint.
  if (!HasEnded(job.state())) job.set_state(v1::JOB_STATE_CANCELLED);
  if (codec::FromTimestamp(job.end_time()) <= 0) *job.mutable_end_time() = time;
  // The code of a program is not in the bucket.
  for (v1::JobSpec* spec : {job.mutable_spec(), job.mutable_resolved_spec()}) {
    if (spec->has_program()) spec->mutable_program()->clear_code();
    if (!project.empty()) spec->set_project(project == "none" ? "" : project);
  }
  job.mutable_provenance()->clear_code();
  v1::Attempt& attempt = *request.add_attempts();
  attempt = manifest.attempt();
  if (attempt.name().empty()) {
    const auto id = ParseCheckpointName(manifest.checkpoint().name());
    const int32_t number = std::max(manifest.checkpoint().attempt(), 1);
    attempt.set_name(AttemptName({id.ok() ? id->job : JobId{1}, number}));
  }
  if (!HasEnded(attempt.state())) attempt.set_state(v1::ATTEMPT_STATE_CANCELLED);
  if (codec::FromTimestamp(attempt.end_time()) <= 0) *attempt.mutable_end_time() = time;
  const std::string digest = tls::Sha256Text(absl::StrCat(text, "\n", project));
  request.set_request_id(tls::Sha256Digits(digest)->substr(0, kImportIdDigits));
  return request;
}

}  // namespace trainyard::rpc
