// Asks for no message while a part is being sent, so a slow reader slows the source down and
// nothing piles up. After a part there is a short pause. What comes in it is sent together, since a
// part costs more than an event; what comes later is sent at once.
#include "server/http/event_stream.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "server/http/connect_error.h"
#include "server/http/event_resume.h"
#include "server/http/json.h"
#include "server/http/limits.h"
#include "server/http/rpc_call.h"
#include "server/http/stream_call.h"
#include "server/http/unary_call.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::http {
namespace {

// A call that fails does so at once. After this time the client is told that the stream is open.
constexpr absl::Duration kOpenAfter = absl::Milliseconds(500);
// So many bytes do not wait for the end of the pause.
constexpr size_t kPartBytes = 64 * 1024;

class EventStream : public std::enable_shared_from_this<EventStream> {
 public:
  EventStream(const RpcMethod& method, EventCache& cache, ExchangePtr exchange,
              std::unique_ptr<Cursor> cursor)
      : method_(method),
        cache_(cache),
        exchange_(std::move(exchange)),
        cursor_(std::move(cursor)) {}

  // It may be called before the start.
  void SetRanks(int ranks) { cursor_->SetRanks(ranks); }

  void Start(const google::protobuf::Message& request) {
    const std::weak_ptr<EventStream> weak = weak_from_this();
    exchange_->OnGone([weak] {
      if (const auto self = weak.lock()) self->Cancel();
    });
    exchange_->After(kOpenAfter, [weak] {
      if (const auto self = weak.lock()) self->Open();
    });
    const auto first = cursor_ != nullptr ? cursor_->Request() : nullptr;
    Call(first != nullptr ? *first : request);
  }

 private:
  void Call(const google::protobuf::Message& request) {
    StreamEvents events;
    events.on_message = [self = shared_from_this()](const grpc::ByteBuffer& message) {
      self->Take(message);
    };
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

  // Returns the text of the events of the message; empty if the client has them.
  absl::StatusOr<std::string> TextOf(const grpc::ByteBuffer& message) {
    TY_ASSIGN_OR_RETURN(const EventCache::Events events,
                        cache_.EventsOf(*method_.descriptor->output_type(), message));
    std::string text;
    for (const auto& event : events) {
      const Taken taken = cursor_ == nullptr ? Taken() : cursor_->Take(*event->message);
      if (!taken.is_new) continue;
      std::string rest;
      if (taken.rest != nullptr) {
        TY_ASSIGN_OR_RETURN(rest, ToJson(*taken.rest));
      }
      const std::string id = cursor_ == nullptr ? "" : cursor_->Id();
      text += EventText(id, "", taken.rest == nullptr ? event->json : rest);
    }
    return text;
  }

  void Take(const grpc::ByteBuffer& message) {
    const absl::StatusOr<std::string> text = TextOf(message);
    if (!text.ok()) {
      failure_ = text.status();
      call()->Cancel();
      return call()->Next();
    }
    if (text->empty()) return call()->Next();
    Open();
    std::shared_ptr<StreamCall> gathering;
    {
      const MutexLock lock(&mutex_);
      gathered_ += *text;
      const bool is_full = phase_ == Phase::kPausing && gathered_.size() >= kPartBytes;
      if (phase_ == Phase::kIdle || is_full) SendGathered();
      if (phase_ == Phase::kPausing) gathering = call_;
      owes_next_ = phase_ == Phase::kSending;
    }
    if (gathering != nullptr) gathering->Next();
  }

  // The exchange queues the part and tells of it later. It gets it under the lock, so that nothing
  // overtakes it.
  void SendGathered() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    phase_ = Phase::kSending;
    exchange_->Send(std::exchange(gathered_, {}),
                    [self = shared_from_this()](bool is_there) { self->TakeSent(is_there); });
  }

  void TakeSent(bool is_there) {
    std::shared_ptr<StreamCall> call;
    bool is_owed = false;
    {
      const MutexLock lock(&mutex_);
      phase_ = is_there ? Phase::kPausing : Phase::kIdle;
      call = call_;
      is_owed = std::exchange(owes_next_, false);
    }
    if (is_there) {
      exchange_->After(kGatherInterval, [weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->EndPause();
      });
    }
    if (call == nullptr) return;
    if (!is_there) call->Cancel();
    if (is_owed) call->Next();
  }

  void EndPause() {
    const MutexLock lock(&mutex_);
    if (phase_ != Phase::kPausing) return;
    if (gathered_.empty()) {
      phase_ = Phase::kIdle;
    } else {
      SendGathered();
    }
  }

  void TakeEnd(absl::Status status) {
    if (!failure_.ok()) status = failure_;
    if (cursor_ != nullptr) {
      if (const auto request = cursor_->Following(status)) return Call(*request);
    }
    {
      const MutexLock lock(&mutex_);
      is_over_ = true;
      call_ = nullptr;
      if (is_open_) {
        exchange_->Send(std::exchange(gathered_, {}) + EndText(status),
                        [exchange = exchange_](bool) { exchange->End(true); });
        return;
      }
    }
    if (!status.ok()) return exchange_->Answer(ErrorResponse(status));
    Response response;
    response.content_type = "text/event-stream";
    response.body = EndText(status);
    exchange_->Answer(std::move(response));
  }

  static std::string EndText(const absl::Status& status) {
    return status.ok() ? EventText("", "end", "{}") : EventText("", "error", ErrorJson(status));
  }

  enum class Phase {
    kIdle,     // an event is sent at once
    kSending,  // a part is on its way, and no message is asked for
    kPausing,  // events are gathered
  };

  const RpcMethod& method_;
  EventCache& cache_;
  const ExchangePtr exchange_;
  // Only the events of the call use these.
  const std::unique_ptr<Cursor> cursor_;
  absl::Status failure_;  // of a message that cannot be read, which no message follows
  Mutex mutex_;
  std::shared_ptr<StreamCall> call_ ABSL_GUARDED_BY(mutex_);
  bool is_open_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_gone_ ABSL_GUARDED_BY(mutex_) = false;
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kIdle;
  std::string gathered_ ABSL_GUARDED_BY(mutex_);  // events that are to be sent
  // A message was taken while a part was being sent, and the next one is asked for after that.
  bool owes_next_ ABSL_GUARDED_BY(mutex_) = false;
};

// Returns the number of ranks of an attempt, or 0 if it is not listed.
int RanksOf(const google::protobuf::Message& list, const std::string& name) {
  for (const v1::Attempt& attempt : static_cast<const v1::ListAttemptsResponse&>(list).attempts()) {
    if (attempt.name() == name) return attempt.placement_size();
  }
  return 0;
}

}  // namespace

std::string EventText(absl::string_view id, absl::string_view kind, absl::string_view data) {
  std::string text;
  if (!kind.empty()) absl::StrAppend(&text, "event: ", kind, "\n");
  if (!id.empty()) absl::StrAppend(&text, "id: ", id, "\n");
  absl::StrAppend(&text, "data: ", data, "\n\n");
  return text;
}

void ServeEvents(const RpcMethod& method, const RpcMethod* list_attempts, EventCache& cache,
                 const ExchangePtr& exchange) {
  std::shared_ptr<const google::protobuf::Message> request = ReadMessage(method, exchange);
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
  const std::optional<AttemptId> attempt =
      cursor != nullptr ? cursor->AttemptToKnow() : std::nullopt;
  auto stream = std::make_shared<EventStream>(method, cache, exchange, std::move(cursor));
  if (list_attempts == nullptr || !attempt.has_value()) return stream->Start(*request);
  v1::ListAttemptsRequest asking;
  asking.set_parent(JobName(attempt->job));
  CallUnary(*list_attempts, asking, exchange,
            [stream, request, name = AttemptName(*attempt)](
                const absl::StatusOr<std::unique_ptr<google::protobuf::Message>>& answer) {
              // Without it the stream begins further ahead, or the call itself is refused.
              if (answer.ok()) stream->SetRanks(RanksOf(**answer, name));
              stream->Start(*request);
            });
}

}  // namespace trainyard::http
