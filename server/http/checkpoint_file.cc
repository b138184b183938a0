// Asks for the size first, so that the client knows how much is to come, and what is missing.
#include "server/http/checkpoint_file.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/errors.h"
#include "common/base/strings.h"
#include "server/http/connect_error.h"
#include "server/http/stream_call.h"
#include "server/http/unary_call.h"
#include "server/http/url.h"
#include "trainyard/v1/checkpoint.pb.h"

namespace trainyard::http {
namespace {

constexpr int kCheckpointNameParts = 4;  // jobs/7/checkpoints/626

struct FileName {
  std::string checkpoint;
  std::string file;
};

// Reads "/files/jobs/7/checkpoints/626/model.safetensors". The name of a file may have folders.
std::optional<FileName> ParsePath(const std::string& path) {
  const auto decoded = PercentDecode(path, /*is_query=*/false);
  if (!decoded.has_value()) return std::nullopt;
  absl::string_view rest = *decoded;
  absl::ConsumePrefix(&rest, kFilesPath);
  size_t slash = rest.find('/');
  for (int parts = 1; parts < kCheckpointNameParts && slash != absl::string_view::npos; ++parts) {
    slash = rest.find('/', slash + 1);
  }
  if (slash == absl::string_view::npos || slash + 1 == rest.size()) return std::nullopt;
  return FileName{std::string(rest.substr(0, slash)), std::string(rest.substr(slash + 1))};
}

class Download : public std::enable_shared_from_this<Download> {
 public:
  Download(FileName name, ExchangePtr exchange)
      : name_(std::move(name)), exchange_(std::move(exchange)) {}

  // Answers with the head, and starts the call for the bytes.
  void Start(const RpcMethod& method, const v1::Checkpoint& checkpoint) {
    const v1::CheckpointFile* file = nullptr;
    for (const v1::CheckpointFile& known : checkpoint.files()) {
      if (known.name() == name_.file) file = &known;
    }
    if (file == nullptr) {
      return exchange_->Answer(ErrorResponse(MakeError(
          absl::StatusCode::kNotFound, "NOT_FOUND",
          absl::StrCat(checkpoint.name(), " has no file '", PlainText(name_.file, 100), "'"))));
    }
    const auto begin = RangeBegin(exchange_->request().Header("range"));
    if (begin.has_value() && *begin >= file->size() && *begin > 0) return AnswerBeyond(*file);
    left_ = file->size() - begin.value_or(0);
    Response head;
    head.status = begin.has_value() ? 206 : 200;
    head.content_type = "application/octet-stream";
    head.headers = {{"Content-Length", absl::StrCat(left_)},
                    {"Accept-Ranges", "bytes"},
                    {"ETag", absl::StrCat("\"", file->hash(), "\"")}};
    if (begin.has_value()) {
      head.headers.emplace_back("Content-Range", absl::StrCat("bytes ", *begin, "-",
                                                              file->size() - 1, "/", file->size()));
    }
    v1::DownloadCheckpointRequest request;
    request.set_name(name_.checkpoint);
    request.set_file(name_.file);
    request.set_offset(begin.value_or(0));
    exchange_->Begin(std::move(head));
    if (left_ == 0) return exchange_->End(true);
    Call(method, request);
  }

 private:
  void AnswerBeyond(const v1::CheckpointFile& file) {
    Response response = ErrorResponse(
        416,
        MakeError(absl::StatusCode::kOutOfRange, "OUT_OF_RANGE",
                  absl::StrCat("the file has ", file.size(), " bytes, and nothing after them")));
    response.headers.emplace_back("Content-Range", absl::StrCat("bytes */", file.size()));
    exchange_->Answer(std::move(response));
  }

  void Call(const RpcMethod& method, const v1::DownloadCheckpointRequest& request) {
    StreamEvents events;
    events.on_message = [self = shared_from_this()](auto message) {
      self->Take(static_cast<v1::DownloadCheckpointResponse&>(*message));
    };
    events.on_end = [self = shared_from_this()](const absl::Status& status) {
      self->call_ = nullptr;
      self->exchange_->End(status.ok() && self->left_ == 0);
    };
    call_ = StartStreamCall(method, request, exchange_, std::move(events));
    if (call_ == nullptr) return;
    exchange_->OnGone([weak = std::weak_ptr<StreamCall>(call_)] {
      if (const auto call = weak.lock()) call->Cancel();
    });
    call_->Next();
  }

  void Take(v1::DownloadCheckpointResponse& chunk) {
    left_ -= static_cast<int64_t>(chunk.data().size());
    exchange_->Send(std::move(*chunk.mutable_data()), [call = call_](bool is_there) {
      if (!is_there) call->Cancel();
      call->Next();
    });
  }

  const FileName name_;
  const ExchangePtr exchange_;
  std::shared_ptr<StreamCall> call_;
  int64_t left_ = 0;
};

}  // namespace

void ServeCheckpointFile(const RpcMethod& get, const RpcMethod& download,
                         const ExchangePtr& exchange) {
  const auto name = ParsePath(exchange->request().path);
  if (!name.has_value()) {
    return exchange->Answer(ErrorResponse(
        MakeError(absl::StatusCode::kNotFound, "UNKNOWN_PATH",
                  "files are at paths such as /files/jobs/7/checkpoints/626/model.safetensors")));
  }
  v1::GetCheckpointRequest request;
  request.set_name(name->checkpoint);
  auto started = std::make_shared<Download>(*name, exchange);
  CallUnary(get, request, exchange,
            [started, &download, exchange](const absl::StatusOr<MessagePtr>& answer) {
              if (!answer.ok()) return exchange->Answer(ErrorResponse(answer.status()));
              started->Start(download, static_cast<const v1::Checkpoint&>(**answer));
            });
}

}  // namespace trainyard::http
