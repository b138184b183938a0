// Asks for the size first, so that the client knows how much is to come, and what is missing.
#include "server/http/stored_file.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/errors.h"
#include "common/base/strings.h"
#include "server/http/connect_error.h"
#include "server/http/rpc_call.h"
#include "server/http/stream_call.h"
#include "server/http/unary_call.h"
#include "server/http/url.h"
#include "trainyard/v1/checkpoint.pb.h"

namespace trainyard::http {
namespace {

// The parts of a name before that of the file: jobs/7/checkpoints/626, jobs/7/outputs.
constexpr int kCheckpointNameParts = 4;
constexpr int kOutputsNameParts = 3;

using Files = google::protobuf::RepeatedPtrField<v1::CheckpointFile>;

struct FileName {
  std::string owner;  // the checkpoint, or the job whose output it is
  std::string file;
  bool is_output = false;
};

// Cuts off what stands before the slash after so many parts, and that slash. Returns an empty text
// if there are no more parts.
absl::string_view CutParts(absl::string_view& path, int parts) {
  size_t slash = path.find('/');
  while (--parts > 0 && slash != absl::string_view::npos) slash = path.find('/', slash + 1);
  if (slash == absl::string_view::npos || slash + 1 == path.size()) return "";
  const absl::string_view head = path.substr(0, slash);
  path.remove_prefix(slash + 1);
  return head;
}

// Reads "/files/jobs/7/checkpoints/626/model.safetensors" and "/files/jobs/7/outputs/table.csv".
// The name of a file may have folders.
std::optional<FileName> ParsePath(const std::string& path) {
  const auto decoded = PercentDecode(path, /*is_query=*/false);
  if (!decoded.has_value()) return std::nullopt;
  absl::string_view rest = *decoded;
  absl::ConsumePrefix(&rest, kFilesPath);
  absl::string_view of_output = rest;
  absl::string_view owner = CutParts(of_output, kOutputsNameParts);
  if (absl::ConsumeSuffix(&owner, "/outputs")) {
    return FileName{std::string(owner), std::string(of_output), /*is_output=*/true};
  }
  owner = CutParts(rest, kCheckpointNameParts);
  if (owner.empty()) return std::nullopt;
  return FileName{std::string(owner), std::string(rest)};
}

class Download : public std::enable_shared_from_this<Download> {
 public:
  // `calls` must outlive the download.
  Download(const FileCalls& calls, FileName name, ExchangePtr exchange)
      : calls_(calls), name_(std::move(name)), exchange_(std::move(exchange)) {}

  void Start() {
    if (name_.is_output) {
      v1::GetOutputsRequest request;
      request.set_name(name_.owner);
      Ask(*calls_.get_outputs, request);
    } else {
      v1::GetCheckpointRequest request;
      request.set_name(name_.owner);
      Ask(*calls_.get_checkpoint, request);
    }
  }

 private:
  void Ask(const RpcMethod& method, const google::protobuf::Message& request) {
    CallUnary(method, request, exchange_,
              [self = shared_from_this()](const absl::StatusOr<MessagePtr>& answer) {
                if (!answer.ok()) return self->exchange_->Answer(ErrorResponse(answer.status()));
                self->TakeList(**answer);
              });
  }

  void TakeList(const google::protobuf::Message& list) {
    if (name_.is_output) {
      const auto& outputs = static_cast<const v1::Outputs&>(list);
      attempt_ = outputs.attempt();
      Begin(outputs.files());
    } else {
      Begin(static_cast<const v1::Checkpoint&>(list).files());
    }
  }

  // Answers with the head, and starts the call for the bytes.
  void Begin(const Files& files) {
    const v1::CheckpointFile* file = nullptr;
    for (const v1::CheckpointFile& known : files) {
      if (known.name() == name_.file) file = &known;
    }
    if (file == nullptr) {
      return exchange_->Answer(ErrorResponse(MakeError(
          absl::StatusCode::kNotFound, "NOT_FOUND",
          absl::StrCat(name_.owner, name_.is_output ? " has no output '" : " has no file '",
                       PlainText(name_.file, 100), "'"))));
    }
    const std::string etag = absl::StrCat("\"", file->hash(), "\"");
    auto begin = RangeBegin(exchange_->request().Header("range"));
    // Outputs are replaced by those of the next attempt, of which the client has no beginning.
    const absl::string_view known = exchange_->request().Header("if-range");
    if (!known.empty() && known != etag) begin.reset();
    if (begin.has_value() && *begin >= file->size() && *begin > 0) return AnswerBeyond(*file);
    left_ = file->size() - begin.value_or(0);
    Response head;
    head.status = begin.has_value() ? 206 : 200;
    head.content_type = "application/octet-stream";
    head.headers = {
        {"Content-Length", absl::StrCat(left_)}, {"Accept-Ranges", "bytes"}, {"ETag", etag}};
    if (begin.has_value()) {
      head.headers.emplace_back("Content-Range", absl::StrCat("bytes ", *begin, "-",
                                                              file->size() - 1, "/", file->size()));
    }
    exchange_->Begin(std::move(head));
    if (left_ == 0) return exchange_->End(true);
    const auto fill_in = [&](auto request) {
      request.set_name(name_.owner);
      request.set_file(name_.file);
      request.set_offset(begin.value_or(0));
      return request;
    };
    if (name_.is_output) {
      auto request = fill_in(v1::DownloadOutputRequest());
      request.set_attempt(attempt_);  // the one of which the head is
      Call(*calls_.download_output, request);
    } else {
      Call(*calls_.download_checkpoint, fill_in(v1::DownloadCheckpointRequest()));
    }
  }

  void AnswerBeyond(const v1::CheckpointFile& file) {
    Response response = ErrorResponse(
        416,
        MakeError(absl::StatusCode::kOutOfRange, "OUT_OF_RANGE",
                  absl::StrCat("the file has ", file.size(), " bytes, and nothing after them")));
    response.headers.emplace_back("Content-Range", absl::StrCat("bytes */", file.size()));
    exchange_->Answer(std::move(response));
  }

  void Call(const RpcMethod& method, const google::protobuf::Message& request) {
    StreamEvents events;
    events.on_message = [self = shared_from_this()](grpc::ByteBuffer& message) {
      self->Take(message);
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

  void Take(grpc::ByteBuffer& message) {
    v1::DownloadCheckpointResponse chunk;  // outputs come in the same one
    if (!FromBuffer(message, chunk).ok()) {
      call_->Cancel();
      return call_->Next();
    }
    left_ -= static_cast<int64_t>(chunk.data().size());
    exchange_->Send(std::move(*chunk.mutable_data()), [call = call_](bool is_there) {
      if (!is_there) call->Cancel();
      call->Next();
    });
  }

  const FileCalls& calls_;
  const FileName name_;
  const ExchangePtr exchange_;
  int32_t attempt_ = 0;  // that has left the outputs
  std::shared_ptr<StreamCall> call_;
  int64_t left_ = 0;
};

}  // namespace

void ServeFile(const FileCalls& calls, const ExchangePtr& exchange) {
  auto name = ParsePath(exchange->request().path);
  if (!name.has_value()) {
    return exchange->Answer(ErrorResponse(
        MakeError(absl::StatusCode::kNotFound, "UNKNOWN_PATH",
                  "files are at paths such as /files/jobs/7/checkpoints/626/model.safetensors and "
                  "/files/jobs/7/outputs/table.csv")));
  }
  std::make_shared<Download>(calls, *std::move(name), exchange)->Start();
}

}  // namespace trainyard::http
