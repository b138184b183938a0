// Streams the bytes of a checkpoint's file.
#include "server/rpc/download.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "server/rpc/limits.h"
#include "server/rpc/request.h"
#include "server/rpc/streams.h"

namespace trainyard::rpc {
namespace {

class DownloadStream : public PullStream<v1::DownloadCheckpointResponse> {
 public:
  DownloadStream(Services& services, core::CheckpointFile file, int64_t offset)
      : PullStream(services.streams, services.executor),
        services_(services),
        file_(std::move(file)),
        offset_(offset) {}

 private:
  absl::StatusOr<Pulled> Next(v1::DownloadCheckpointResponse& response) override {
    if (offset_ == file_.size) return Pulled::kEnd;
    const int64_t wanted = std::min(kSendChunkBytes, file_.size - offset_);
    absl::StatusOr<std::string> read = services_.blobs.Read(file_.hash, offset_, wanted);
    // Every file of a checkpoint has a blob. One that is gone, or that its disk does not give back,
    // is damaged; the caller must not wait for it.
    if (absl::IsNotFound(read.status()) || absl::IsUnavailable(read.status())) {
      return error::CorruptFile(file_.name, read.status().message());
    }
    TY_ASSIGN_OR_RETURN(std::string data, std::move(read));
    if (static_cast<int64_t>(data.size()) != wanted) {
      return error::CorruptFile(file_.name, absl::StrCat("it ends at ", offset_ + data.size(),
                                                         "; expected ", file_.size, " bytes"));
    }
    response.set_offset(offset_);
    response.set_data(std::move(data));
    offset_ += wanted;
    return Pulled::kMessage;
  }

  Services& services_;
  const core::CheckpointFile file_;
  int64_t offset_;  // only the executor uses it
};

// Finds the file of this name, and checks that the offset lies in it. `whose` describes where it
// was looked for.
absl::StatusOr<core::CheckpointFile> FileAt(const core::CheckpointRecord& record,
                                            const std::string& name, int64_t offset,
                                            const std::string& whose) {
  for (const core::CheckpointFile& file : record.files) {
    if (file.name != name) continue;
    if (offset <= file.size) return file;
    return error::OffsetMismatch(file.name, offset, file.size);
  }
  return error::CheckpointNotFound(absl::StrCat(whose, " file ", name.substr(0, kNameBytesMax)));
}

absl::StatusOr<core::CheckpointFile> FindOutput(const Services& services,
                                                const v1::DownloadOutputRequest& request) {
  RequestCheck check;
  const JobId job = check.Job("name", request.name());
  check.NotEmpty("file", request.file());
  check.NotNegative("offset", request.offset());
  TY_RETURN_IF_ERROR(check.Take());
  const auto outputs = services.board.FindCheckpoint({job, core::kOutputsStep});
  const std::string whose = absl::StrCat(request.name(), " outputs");
  if (outputs == nullptr) return error::CheckpointNotFound(whose);
  if (request.attempt() != 0 && request.attempt() != outputs->attempt) {
    return error::OutputsReplaced(request.name(), request.attempt(), outputs->attempt);
  }
  return FileAt(*outputs, request.file(), request.offset(), whose);
}

absl::StatusOr<core::CheckpointFile> FindFile(const Services& services,
                                              const v1::DownloadCheckpointRequest& request) {
  RequestCheck check;
  const CheckpointId id = check.Checkpoint("name", request.name());
  check.NotEmpty("file", request.file());
  check.NotNegative("offset", request.offset());
  TY_RETURN_IF_ERROR(check.Take());
  const auto checkpoint = services.board.FindCheckpoint({id.job, id.step});
  if (checkpoint == nullptr) return error::CheckpointNotFound(request.name());
  return FileAt(*checkpoint, request.file(), request.offset(), request.name());
}

}  // namespace

grpc::ServerWriteReactor<v1::DownloadCheckpointResponse>* StartDownload(
    Services& services, const StreamOwner& owner, const v1::DownloadCheckpointRequest& request) {
  auto file = FindFile(services, request);
  if (!file.ok()) return FailedStream<v1::DownloadCheckpointResponse>(file.status());
  return StartStream<v1::DownloadCheckpointResponse>(
      services.streams, owner,
      std::make_shared<DownloadStream>(services, *std::move(file), request.offset()));
}

grpc::ServerWriteReactor<v1::DownloadCheckpointResponse>* StartOutputDownload(
    Services& services, const StreamOwner& owner, const v1::DownloadOutputRequest& request) {
  auto file = FindOutput(services, request);
  if (!file.ok()) return FailedStream<v1::DownloadCheckpointResponse>(file.status());
  return StartStream<v1::DownloadCheckpointResponse>(
      services.streams, owner,
      std::make_shared<DownloadStream>(services, *std::move(file), request.offset()));
}

}  // namespace trainyard::rpc
