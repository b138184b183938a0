// Reads and writes the keys of copies.
#include "server/runtime/copy_folder.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/in_parallel.h"
#include "common/base/status_macros.h"
#include "server/runtime/copy_errors.h"

namespace trainyard::runtime {
namespace {

constexpr char kFolder[] = "checkpoints/";
constexpr int64_t kOwnerBytesMax = 4096;
// Small files of a checkpoint hide each other's way to the store. Large ones go in parts by
// themselves.
constexpr size_t kParallel = 4;

absl::Status ForEachObject(s3::Client& client, const std::string& prefix, int64_t objects_max,
                           const std::function<void(const std::string& key)>& function) {
  s3::ListRequest request{.prefix = prefix};
  for (int64_t listed = 0;;) {
    TY_ASSIGN_OR_RETURN(const s3::ListPage page, client.List(request));
    for (const s3::ListedObject& object : page.objects) {
      // Stores do not always list only what was asked for.
      if (absl::StartsWith(object.key, prefix)) function(object.key);
    }
    listed += s3::CountOf(page);
    if (listed > objects_max) {
      return absl::ResourceExhaustedError(
          absl::StrCat("'", prefix, "' has over ", objects_max, " objects"));
    }
    if (page.next.empty()) return absl::OkStatus();
    if (page.next == request.token) {
      return absl::DataLossError(absl::StrCat("the list of '", prefix, "' does not end"));
    }
    request.token = page.next;
  }
}

}  // namespace

std::string CopyFolderName(JobId job) {
  return absl::StrCat(kFolder, job.value);
}

std::string CopyName(const core::CheckpointRef& id) {
  return absl::StrCat(CopyFolderName(id.job), "/", id.step);
}

absl::Status CopyFolder::Claim(const std::string& server_id) {
  const std::string key = absl::StrCat(prefix_, kFolder, "owner");
  auto owner = client_.Get(key, kOwnerBytesMax);
  if (absl::IsNotFound(owner.status())) {
    const s3::PutCondition condition{.is_new = s3::AreHonoured(conditions_)};
    const auto put = client_.Put(key, server_id, condition);
    if (!absl::IsAborted(put.status())) return put.status();
    // Somebody has been faster, or the answer to an earlier try of ours was lost.
    owner = client_.Get(key, kOwnerBytesMax);
  }
  TY_RETURN_IF_ERROR(owner.status());
  if (owner->content == server_id) return absl::OkStatus();
  const std::string bucket = absl::StrCat("s3://", client_.options().bucket, "/");
  return error::BucketFolderTaken(absl::StrCat(bucket, prefix_), absl::StrCat(bucket, key));
}

absl::Status CopyFolder::Send(const core::CheckpointRef& id, const std::vector<File>& files,
                              const std::string& manifest, std::atomic<int64_t>& sent_bytes) {
  s3::ManifestStore store(client_, absl::StrCat(prefix_, CopyName(id), "/"), conditions_);
  TY_ASSIGN_OR_RETURN(const s3::Version before, store.Latest());
  std::map<std::string, const File*> distinct;
  for (const File& file : files) distinct[file.blob.sha256] = &file;
  std::vector<const File*> sent;
  sent.reserve(distinct.size());
  for (const auto& [digits, file] : distinct) sent.push_back(file);
  TY_RETURN_IF_ERROR(InParallel(sent.size(), kParallel, [&](size_t i) -> absl::Status {
    TY_ASSIGN_OR_RETURN(const bool is_new, store.PutHashedBlob(sent[i]->path, sent[i]->blob));
    if (is_new) sent_bytes += sent[i]->blob.size;
    return absl::OkStatus();
  }));
  // The server may have died after an earlier commit and before it noted that.
  if (before.number > 0 && before.content == manifest) return absl::OkStatus();
  return store.Commit(manifest, before).status();
}

absl::StatusOr<std::map<core::CheckpointRef, bool>> CopyFolder::List(std::optional<JobId> job,
                                                                     int64_t objects_max) {
  const std::string folder = absl::StrCat(prefix_, kFolder);
  const std::string prefix = job.has_value() ? absl::StrCat(folder, job->value, "/") : folder;
  std::map<core::CheckpointRef, bool> copies;
  TY_RETURN_IF_ERROR(ForEachObject(client_, prefix, objects_max, [&](const std::string& key) {
    const std::vector<absl::string_view> parts =
        absl::StrSplit(absl::StripPrefix(key, folder), '/');
    core::CheckpointRef id;
    const bool is_ours = parts.size() >= 3 && absl::SimpleAtoi(parts[0], &id.job.value) &&
                         absl::SimpleAtoi(parts[1], &id.step);
    // Other programs may write there too, and "012" is not our name for a job.
    if (!is_ours || !absl::StartsWith(key, absl::StrCat(prefix_, CopyName(id), "/"))) return;
    copies[id] |= parts[2] == "manifests";
  }));
  return copies;
}

absl::StatusOr<bool> CopyFolder::IsWhole(const core::CheckpointRef& id) {
  s3::ManifestStore store(client_, absl::StrCat(prefix_, CopyName(id), "/"), conditions_);
  TY_ASSIGN_OR_RETURN(const s3::Version version, store.Latest());
  return version.number > 0;
}

absl::Status CopyFolder::Remove(const core::CheckpointRef& id) {
  const std::string prefix = absl::StrCat(prefix_, CopyName(id), "/");
  std::vector<std::string> keys;
  TY_RETURN_IF_ERROR(ForEachObject(client_, prefix, kObjectsMax,
                                   [&](const std::string& key) { keys.push_back(key); }));
  // Whoever finds no manifest looks for no blob.
  std::stable_partition(keys.begin(), keys.end(), [&](const std::string& key) {
    return !absl::StartsWith(key, absl::StrCat(prefix, "blobs/"));
  });
  for (const std::string& key : keys) TY_RETURN_IF_ERROR(client_.Delete(key));
  return absl::OkStatus();
}

}  // namespace trainyard::runtime
