// Reads and writes the XML of S3. Texts of a store are not trusted: they are bounded by their
// caller, and entities of their own are not expanded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/s3/keys.h"

namespace trainyard::s3 {

inline constexpr size_t kKeyBytesMax = 1024;  // S3's own limit

struct ErrorDocument {
  std::string code;     // "NoSuchKey", or "" if the text is no such document
  std::string message;  // printable and at most 500 bytes
  std::string region;
};
ErrorDocument ParseError(absl::string_view xml);

struct ListedObject {
  std::string key;
  std::string etag;  // with its quotes
  int64_t size = 0;
  absl::Time modified;
};
struct ListPage {
  std::vector<ListedObject> objects;
  std::string next;  // the token of the next page, or "" after the last one
};
absl::StatusOr<ListPage> ParseList(absl::string_view xml);

// Returns the id of a new multipart upload.
absl::StatusOr<std::string> ParseUploadId(absl::string_view xml);
// Returns the ETag of a completed upload. The text is an error document if it failed, although the
// status of such an answer is 200.
absl::StatusOr<std::string> ParseCompleted(absl::string_view xml);
struct AssumedRole {
  Credentials credentials;
  absl::Time expire_time = absl::InfiniteFuture();  // if the answer does not say
};
// Reads the keys in an answer of the Security Token Service.
absl::StatusOr<AssumedRole> ParseAssumedRole(absl::string_view xml);
// Writes the request that completes an upload of these parts, the first of which has number 1.
std::string CompleteText(const std::vector<std::string>& etags);

}  // namespace trainyard::s3
