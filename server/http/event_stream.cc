// Asks for the next message only when the one before it is on its way, so a slow reader slows the
// source down and nothing piles up.
#include "server/http/event_stream.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/mutex.h"
#include "common/base/strings.h"
#include "server/http/connect_error.h"
#include "server/http/event_resume.h"
#include "server/http/json.h"
#include "server/http/rpc_call.h"
#include "server/http/stream_call.h"

namespace trainyard::http {
namespace {

// A call that fails does so at once. After this time the client is told that the stream is open.
constexpr absl::Duration kOpenAfter = absl::Milliseconds(500);

class EventStream : public std::enable_shared_from_this<EventStream> {
 public:
  EventStream(const RpcMethod& method, ExchangePtr exchange, std::unique_ptr<Cursor> cursor)
      : method_(method), exchange_(std::move(exchange)), cursor_(std::move(cursor)) {}

  void Start(const google::protobuf::Message& request) {
    const std::weak_ptr<EventStream> weak = weak_from_this();
    exchange_->OnGone([weak] {
      if (const auto self = weak.lock()) self->Cancel();
    });
    exchange_->After(kOpenAfter, [weak] {
      if (const auto self = weak.lock()) self->Open();
    });
    Call(request);
  }

 private:
  void Call(const google::protobuf::Message& request) {
    StreamEvents events;
    events.on_message = [self = shared_from_this()](auto message) { self->Take(*message); };
    events.on_end = [self = shared_from_this()](const absl::Status& status) {
      self->TakeEnd(status);
    };
    std::shared_ptr<StreamCall> call =
        StartStreamCall(method_, request, exchange_, std::move(events));
    if (call == nullptr) return;
    bool is_gone = false;
    {
      const MutexLock lock(&mutex_);
      call_ = call;
      is_gone = is_gone_;
    }
    if (is_gone) call->Cancel();
    call->Next();
  }

  void Cancel() {
    std::shared_ptr<StreamCall> call;
    {
      const MutexLock lock(&mutex_);
      is_gone_ = true;
      call = call_;
    }
    if (call != nullptr) call->Cancel();
  }

  std::shared_ptr<StreamCall> call() {
    const MutexLock lock(&mutex_);
    return call_;
  }

  void Open() {
    const MutexLock lock(&mutex_);
    if (is_open_ || is_over_) return;
    is_open_ = true;
    Response head;
    head.content_type = "text/event-stream";
    head.idle_part = ": nothing new\n\n";
    exchange_->Begin(std::move(head));
  }

  void Take(google::protobuf::Message& message) {
    if (cursor_ != nullptr && !cursor_->Take(message)) return call()->Next();
    const absl::StatusOr<std::string> json = ToJson(message);
    if (!json.ok()) {  // this cannot be: messages hold texts that are UTF-8
      call()->Cancel();
      return call()->Next();
    }
    Open();
    exchange_->Send(EventText(cursor_ != nullptr ? cursor_->Id() : "", "", *json),
                    [self = shared_from_this()](bool is_there) {
                      if (!is_there) self->call()->Cancel();
                      self->call()->Next();
                    });
  }

  void TakeEnd(const absl::Status& status) {
    if (cursor_ != nullptr) {
      if (const auto request = cursor_->Following(status)) return Call(*request);
    }
    bool is_open = false;
    {
      const MutexLock lock(&mutex_);
      is_over_ = true;
      is_open = is_open_;
      call_ = nullptr;
    }
    if (!is_open && !status.ok()) return exchange_->Answer(ErrorResponse(status));
    if (!is_open) {
      Response response;
      response.content_type = "text/event-stream";
      response.body = EventText("", "end", "{}");
      return exchange_->Answer(std::move(response));
    }
    exchange_->Send(
        status.ok() ? EventText("", "end", "{}") : EventText("", "error", ErrorJson(status)),
        [exchange = exchange_](bool) { exchange->End(true); });
  }

  const RpcMethod& method_;
  const ExchangePtr exchange_;
  // Only the events of the call use it.
  const std::unique_ptr<Cursor> cursor_;
  Mutex mutex_;
  std::shared_ptr<StreamCall> call_ ABSL_GUARDED_BY(mutex_);
  bool is_open_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_gone_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

std::string EventText(absl::string_view id, absl::string_view kind, absl::string_view data) {
  std::string text;
  if (!kind.empty()) absl::StrAppend(&text, "event: ", kind, "\n");
  if (!id.empty()) absl::StrAppend(&text, "id: ", id, "\n");
  absl::StrAppend(&text, "data: ", data, "\n\n");
  return text;
}

void ServeEvents(const RpcMethod& method, const ExchangePtr& exchange) {
  const auto request = ReadMessage(method, exchange);
  if (request == nullptr) return;
  auto cursor = MakeCursor(method, *request);
  const absl::string_view last = exchange->request().Header("last-event-id");
  if (!last.empty() && (cursor == nullptr || !cursor->Resume(last))) {
    return exchange->Answer(ErrorResponse(
        MakeError(absl::StatusCode::kInvalidArgument, "INVALID_EVENT_ID",
                  absl::StrCat("Last-Event-ID '", PlainText(std::string(last), 100),
                               "' is no id of an event of this stream; leave it out to begin from "
                               "the start"))));
  }
  const auto first = cursor != nullptr ? cursor->Request() : nullptr;
  std::make_shared<EventStream>(method, exchange, std::move(cursor))
      ->Start(first != nullptr ? *first : *request);
}

}  // namespace trainyard::http
