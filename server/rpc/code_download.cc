// Streams the bytes of a code archive or of its diff. The server does not look into them.
#include "server/rpc/code_download.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/code_errors.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "server/rpc/limits.h"
#include "server/rpc/request.h"

namespace trainyard::rpc {
namespace {

struct CodeFile {
  std::string digest;
  int64_t size = 0;
};

class CodeStream : public PullStream<v1::DownloadCodeResponse> {
 public:
  CodeStream(Services& services, CodeFile file, int64_t offset)
      : PullStream(services.streams, services.executor),
        services_(services),
        file_(std::move(file)),
        offset_(offset) {}

 private:
  absl::StatusOr<Pulled> Next(v1::DownloadCodeResponse& response) override {
    if (has_begun_ && offset_ == file_.size) return Pulled::kEnd;
    const int64_t wanted = std::min(kSendChunkBytes, file_.size - offset_);
    TY_ASSIGN_OR_RETURN(std::string data, services_.code.Read(file_.digest, offset_, wanted));
    if (static_cast<int64_t>(data.size()) != wanted) {
      return error::CorruptFile(file_.digest, absl::StrCat("it ends at ", offset_ + data.size(),
                                                           "; expected ", file_.size, " bytes"));
    }
    if (!std::exchange(has_begun_, true)) {
      response.set_digest(file_.digest);
      response.set_size(file_.size);
    }
    response.set_offset(offset_);
    response.set_data(std::move(data));
    offset_ += wanted;
    return Pulled::kMessage;
  }

  Services& services_;
  const CodeFile file_;
  // Only the executor uses these.
  bool has_begun_ = false;
  int64_t offset_;
};

// The digests of what a job or a saved spec has; each may be empty.
struct CodeDigests {
  std::string archive;
  std::string diff;
};

absl::StatusOr<CodeFile> FindCodeFile(const Services& services,
                                      const v1::DownloadCodeRequest& request,
                                      const v1::SavedSpec* saved) {
  RequestCheck check;
  const JobId job = saved == nullptr ? check.Job("name", request.name()) : JobId{};
  check.NotNegative("offset", request.offset());
  if (request.part() < v1::CODE_PART_UNSPECIFIED || request.part() > v1::CODE_PART_DIFF) {
    check.Add("part", absl::StrCat(static_cast<int>(request.part()), " is not known here"));
  }
  TY_RETURN_IF_ERROR(check.Take());
  CodeDigests digests;
  if (saved != nullptr) {
    digests = {saved->code(), saved->code_origin().diff_digest()};
  } else {
    const auto view = services.board.FindJob(job);
    if (view == nullptr) return error::JobNotFound(request.name());
    const core::Submission& submission = *view->record.submission;
    digests = {submission.code_digest, submission.code_diff_digest};
  }
  const bool is_diff = request.part() == v1::CODE_PART_DIFF;
  CodeFile file;
  file.digest = is_diff ? digests.diff : digests.archive;
  if (file.digest.empty()) {
    return error::CodeNotFound(
        is_diff ? "the code has no differences to its commit"
                : "there is no code archive: the spec names no folder with program.code");
  }
  file.size = services.code.SizeOf(file.digest);
  if (file.size < 0) {
    return error::CodeNotFound(absl::StrCat("the server has lost the code ", file.digest));
  }
  if (request.offset() <= file.size) return file;
  return error::OffsetMismatch(file.digest, request.offset(), file.size);
}

}  // namespace

grpc::ServerWriteReactor<v1::DownloadCodeResponse>* StartCodeDownload(
    Services& services, const StreamOwner& owner, const v1::DownloadCodeRequest& request,
    const v1::SavedSpec* saved) {
  auto file = FindCodeFile(services, request, saved);
  if (!file.ok()) return FailedStream<v1::DownloadCodeResponse>(file.status());
  return StartStream<v1::DownloadCodeResponse>(
      services.streams, owner,
      std::make_shared<CodeStream>(services, *std::move(file), request.offset()));
}

}  // namespace trainyard::rpc
