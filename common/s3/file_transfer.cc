// Sends the parts of a file from several threads.
#include "common/s3/file_transfer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/in_parallel.h"
#include "common/base/status_macros.h"
#include "common/tls/digest.h"

namespace trainyard::s3 {
namespace {

// One upload in parts, several of which are sent at the same time.
class PartsUpload {
 public:
  PartsUpload(Client& client, std::string key, std::string path, int64_t size, int64_t part_bytes)
      : client_(client),
        key_(std::move(key)),
        path_(std::move(path)),
        size_(size),
        part_bytes_(part_bytes),
        etags_(static_cast<size_t>((size + part_bytes - 1) / part_bytes)) {}

  absl::Status Run(int parallel) {
    TY_ASSIGN_OR_RETURN(upload_, client_.CreateUpload(key_));
    absl::Status status = InParallel(etags_.size(), static_cast<size_t>(std::max(parallel, 1)),
                                     [this](size_t part) { return SendPart(part); });
    if (status.ok()) status = Complete();
    if (!status.ok()) {
      // A lifecycle rule of the bucket removes what a store that is away keeps.
      client_.AbortUpload(key_, upload_).IgnoreError();
    }
    return status;
  }

 private:
  absl::Status SendPart(size_t part) {
    const int64_t offset = static_cast<int64_t>(part) * part_bytes_;
    const int64_t wanted = std::min(part_bytes_, size_ - offset);
    TY_ASSIGN_OR_RETURN(const std::string bytes, ReadFileRange(path_, offset, wanted));
    if (static_cast<int64_t>(bytes.size()) != wanted) {
      return error::CorruptFile(path_, absl::StrCat("it has less than ", size_, " bytes"));
    }
    TY_ASSIGN_OR_RETURN(etags_[part],
                        client_.UploadPart(key_, upload_, static_cast<int>(part) + 1, bytes));
    return absl::OkStatus();
  }

  absl::Status Complete() {
    const absl::Status status = client_.CompleteUpload(key_, upload_, etags_).status();
    if (!absl::IsNotFound(status) && !absl::IsUnavailable(status)) return status;
    // An upload that is gone was completed by an earlier try whose answer was lost, if the object
    // is there. AWS says 404 then, and radosgw 500.
    const auto info = client_.Head(key_);
    return info.ok() && info->size == size_ ? absl::OkStatus() : status;
  }

  Client& client_;
  const std::string key_;
  const std::string path_;
  const int64_t size_;
  const int64_t part_bytes_;
  std::string upload_;
  std::vector<std::string> etags_;  // each is written by the thread that sends the part
};

}  // namespace

absl::Status UploadFile(Client& client, const std::string& key, const std::string& path,
                        int64_t size, const PutCondition& condition,
                        const TransferOptions& options) {
  if (size > kFileBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", path, "' has ", size, " bytes; at most ", kFileBytesMax, " are sent"));
  }
  if (size < options.multipart_from) {
    TY_ASSIGN_OR_RETURN(const std::string bytes, ReadFileRange(path, 0, size));
    if (static_cast<int64_t>(bytes.size()) != size) {
      return error::CorruptFile(path, absl::StrCat("it has less than ", size, " bytes"));
    }
    return client.Put(key, bytes, condition).status();
  }
  const int64_t part_bytes =
      std::max({options.part_bytes, kPartBytesMin, (size + kPartsMax - 1) / kPartsMax});
  return PartsUpload(client, key, path, size, part_bytes).Run(options.parallel);
}

absl::Status DownloadFile(Client& client, const std::string& key, const std::string& path,
                          int64_t size, const std::string& sha256, int mode) {
  const std::string part = absl::StrCat(path, ".part");
  TY_RETURN_IF_ERROR(RemoveTree(part));
  absl::Status status = [&]() -> absl::Status {
    TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(part, O_WRONLY | O_CREAT | O_EXCL, mode));
    tls::Sha256Hasher hasher;
    int64_t got = 0;
    const auto take = [&](absl::string_view piece) -> absl::Status {
      got += static_cast<int64_t>(piece.size());
      if (got > size) {
        return error::CorruptFile(key, absl::StrCat("it has more than ", size, " bytes"));
      }
      hasher.Update(piece);
      return WriteFully(fd.get(), piece, part);
    };
    TY_RETURN_IF_ERROR(client.Read(key, {}, take).status());
    const std::string hash = hasher.Text();
    if (got != size || hash != absl::StrCat("sha256:", sha256)) {
      return error::CorruptFile(
          key, absl::StrCat("it has ", got, " bytes and the hash ", hash, "; expected ", size,
                            " bytes and sha256:", sha256));
    }
    if (fsync(fd.get()) != 0) return ErrnoStatus(errno, "cannot sync", part);
    return absl::OkStatus();
  }();
  if (status.ok() && std::rename(part.c_str(), path.c_str()) != 0) {
    status = ErrnoStatus(errno, "cannot rename to", path);
  }
  if (!status.ok()) RemoveTree(part).IgnoreError();
  return status;
}

}  // namespace trainyard::s3
