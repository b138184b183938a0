// Moves files to a bucket and back.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/s3/client.h"

namespace trainyard::s3 {

inline constexpr int64_t kFileBytesMax = int64_t{1} << 40;
inline constexpr int kPartsMax = 10'000;  // S3's own limit

struct TransferOptions {
  // A file of at least so many bytes is sent in parts, several at once, and a smaller one is read
  // into memory. The memory that an upload takes is `part_bytes` times `parallel`; parts grow for
  // files of over 10,000 of them.
  int64_t multipart_from = int64_t{32} << 20;
  int64_t part_bytes = int64_t{8} << 20;
  int parallel = 4;
};

// Writes the first `size` bytes of a file as the object `key`. A file that is shorter is an error.
// An upload that fails or is cancelled leaves no object, and no parts if the store can be reached.
// Only a file that is sent in one piece is written under `condition`.
absl::Status UploadFile(Client& client, const std::string& key, const std::string& path,
                        int64_t size, const PutCondition& condition = {},
                        const TransferOptions& options = {});

// Reads an object into a file, which gets its name once size and SHA-256 (in 64 hex digits) are
// right. Returns DATA_LOSS (CORRUPT_FILE) if they are not.
absl::Status DownloadFile(Client& client, const std::string& key, const std::string& path,
                          int64_t size, const std::string& sha256, int mode = 0600);

}  // namespace trainyard::s3
