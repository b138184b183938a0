// Keeps versions of a set of files in a folder of a bucket. The files are stored once by their
// content, and each version is a manifest that names them:
//
//   blobs/sha256/<64 hex digits>                    the content of a file
//   manifests/<20 digits>-<64 hex digits>           a version: its number, and the hash of its text
//   latest                                          the name of the newest manifest
//
// A manifest is written after all its blobs, and `latest` after its manifest, so whoever reads sees
// a whole version at every moment. Where a store honours conditions, `latest` is replaced only by
// whoever has seen its last value, so that of two writers one is told to begin again. Other stores
// have no `latest`: there, the valid manifest with the greatest name is the newest, and of two
// writers that run at the same time one is overtaken without a word.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/s3/client.h"

namespace trainyard::s3 {

struct Blob {
  std::string sha256;  // 64 lower-case hex digits
  int64_t size = 0;
};

struct Version {
  int64_t number = 0;            // grows by one; 0 if there is no version yet
  std::string content = {};      // of the manifest
  std::string latest_etag = {};  // of the object `latest`, or "" if there is none
};

// The most that is read of a store. More is an error, so that a store whose lists never end does
// not keep us for ever.
struct ReadLimits {
  int64_t manifest_bytes = kPutBytesMax;  // a manifest is written at once
  // A version each minute for ten years.
  size_t manifests = 5'000'000;
  int64_t objects = 500'000'000;  // of a folder, as CountOf counts them
};
// Returns the objects of a page of a list. Short ones cost as much as longer ones, so that a page
// that others follow counts as 100 objects at least.
int64_t CountOf(const ListPage& page);

// The store. It is thread-safe, and borrows the client.
class ManifestStore {
 public:
  static constexpr int64_t kManifestBytesMax = kPutBytesMax;

  // `prefix` is that of a Location. `conditions` is what Probe says, and matters to writers alone.
  ManifestStore(Client& client, std::string prefix, Conditions conditions, ReadLimits limits = {})
      : client_(client), prefix_(std::move(prefix)), conditions_(conditions), limits_(limits) {}

  // Sees to it that the content of the file is in the bucket. Returns true if it was sent, and
  // false if it was there. The file is hashed first: returns DATA_LOSS (CORRUPT_FILE) if it is
  // another one.
  absl::StatusOr<bool> PutBlob(const std::string& path, const Blob& blob);
  // Does the same for a caller that has hashed the file itself.
  absl::StatusOr<bool> PutHashedBlob(const std::string& path, const Blob& blob);
  // Sends the content of the file, whether it is in the bucket or not. The blob is young then.
  absl::Status ReplaceBlob(const std::string& path, const Blob& blob);
  // Writes a blob of which the caller has the content and the hash.
  absl::Status PutContent(absl::string_view content, const Blob& blob);
  // Calls `function` for each blob that is in the bucket, in any order, with its hex digits, its
  // size and its age. Objects that are none of ours are passed over.
  using BlobVisitor =
      std::function<absl::Status(const std::string& digits, const ListedObject& object)>;
  absl::Status ForEachBlob(const BlobVisitor& function);
  // Returns the content of a blob, DATA_LOSS (CORRUPT_FILE) if the bucket has other bytes, or
  // NOT_FOUND.
  absl::StatusOr<std::string> GetContent(const Blob& blob);
  // Returns DATA_LOSS (CORRUPT_FILE) if the bucket has other bytes, and leaves no file then.
  absl::Status GetBlob(const Blob& blob, const std::string& path, int mode);

  // Returns the newest valid version, or number 0 if there is none.
  absl::StatusOr<Version> Latest();
  // Makes a version that follows `before`, which Latest has returned. All blobs must be there.
  // Returns its number, ABORTED (S3_CONDITION_FAILED) if somebody else has made one meanwhile, or
  // RESOURCE_EXHAUSTED for a content of over kManifestBytesMax.
  absl::StatusOr<int64_t> Commit(absl::string_view content, const Version& before);

  // Returns the hex digits of all blobs that a manifest names.
  using BlobsOf = std::function<absl::StatusOr<std::set<std::string>>(const std::string& content)>;
  // Removes all manifests but the newest `keep` ones, which is at least 1, and then those blobs
  // that no manifest names any more and that are older than `spare`: younger ones may belong to a
  // version that is being made. All manifests that stay have to be read for that, so nothing is
  // done before there are a quarter more than `keep`. Returns the number of blobs that were
  // removed.
  absl::StatusOr<int64_t> Prune(int keep, const BlobsOf& blobs_of, absl::Time now,
                                absl::Duration spare);

 private:
  std::string KeyOf(const Blob& blob) const;
  using Sender = std::function<absl::Status(const PutCondition& condition)>;
  absl::StatusOr<bool> SendUnlessThere(const Blob& blob, const Sender& send);
  absl::Status Send(const std::string& path, const Blob& blob, const PutCondition& condition);
  absl::StatusOr<Version> ReadVersion(const std::string& name);
  // Returns the names of the manifests, the newest first.
  absl::StatusOr<std::vector<std::string>> Names();
  absl::Status ForEach(const std::string& folder,
                       const std::function<absl::Status(const ListedObject&)>& function);

  Client& client_;
  const std::string prefix_;
  const Conditions conditions_;
  const ReadLimits limits_;
};

}  // namespace trainyard::s3
