// Handles a stream of submissions. It reads on while earlier submissions are being committed, and
// answers in their order.
#include "server/rpc/create_jobs.h"

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/status.h"
#include "server/rpc/decisions.h"
#include "server/rpc/limits.h"
#include "server/rpc/request.h"
#include "server/rpc/streams.h"
#include "server/rpc/submission.h"

namespace trainyard::rpc {
namespace {

using Reactor = grpc::ServerBidiReactor<v1::CreateJobsRequest, v1::CreateJobsResponse>;

// The answers to one message. The thread that answers an item writes it here, and the last one
// wakes the stream.
struct Batch {
  v1::CreateJobsResponse response;
  std::atomic<int> left{0};
};

class CreateJobsStream : public Reactor,
                         public StreamBase,
                         public std::enable_shared_from_this<CreateJobsStream> {
 public:
  CreateJobsStream(Services& services, access::Caller caller)
      : services_(services), caller_(std::move(caller)) {}

  void Begin() { StartRead(&request_); }

  // The items that were accepted are answered first.
  void End(const absl::Status& status) override {
    {
      const absl::MutexLock lock(&mutex_);
      if (!end_.has_value()) end_ = status;
    }
    Advance();
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return End(absl::OkStatus());
    {
      // A stream whose rights were taken away may still have sent a message.
      const absl::MutexLock lock(&mutex_);
      if (end_.has_value()) return;
    }
    if (request_.requests_size() < 1 || request_.requests_size() > kCreateItemsMax) {
      RequestCheck check;
      check.Add("requests", absl::StrCat("has ", request_.requests_size(),
                                         " elements; expected 1 to ", kCreateItemsMax));
      return End(check.Take());
    }
    auto batch = std::make_shared<Batch>();
    const int count = request_.requests_size();
    batch->left = count;
    for (int i = 0; i < count; ++i) batch->response.add_results();
    {
      const absl::MutexLock lock(&mutex_);
      batches_.push_back(batch);
    }
    std::vector<absl::StatusOr<core::SubmitJob>> inputs = ReadItems();
    for (int i = 0; i < count; ++i) Submit(std::move(inputs[static_cast<size_t>(i)]), batch, i);
    {
      const absl::MutexLock lock(&mutex_);
      if (end_.has_value()) return;
      if (batches_.size() >= kCreateMessagesMax) {
        is_paused_ = true;
        return;
      }
    }
    StartRead(&request_);
  }

  // All items are read before the first one is answered, so that the audit log has them by then.
  std::vector<absl::StatusOr<core::SubmitJob>> ReadItems() {
    std::vector<absl::StatusOr<core::SubmitJob>> inputs;
    Decisions decisions(access::RuleOf("JobService/CreateJobs"), caller_, services_, {});
    for (const v1::CreateJobRequest& request : request_.requests()) {
      RequestCheck check;
      if (request.validate_only()) {
        check.Add("validate_only", "is not accepted in a stream; call CreateJob");
      }
      inputs.push_back(SubmissionOf(request, caller_, services_, check, decisions));
    }
    return inputs;
  }

  void Submit(absl::StatusOr<core::SubmitJob> input, const std::shared_ptr<Batch>& batch,
              int item) {
    if (!input.ok()) return Answer(*batch, item, input.status());
    services_.runtime.Post(*std::move(input), [self = shared_from_this(), batch,
                                               item](const absl::StatusOr<core::Reply>& reply) {
      self->Answer(*batch, item, reply);
    });
  }

  void Answer(Batch& batch, int item, const absl::StatusOr<core::Reply>& reply) {
    v1::CreateJobResult& result = *batch.response.mutable_results(item);
    if (reply.ok()) {
      result.set_name(JobName(reply->job));
      for (const std::string& warning : reply->warnings) result.add_warnings(warning);
    } else {
      *result.mutable_error() = ToStatusProto(reply.status());
    }
    if (batch.left.fetch_sub(1) == 1) Advance();
  }

  // Writes the next answer or finishes, if it is time for that.
  void Advance() {
    std::shared_ptr<Batch> ready;
    std::optional<absl::Status> end;
    {
      const absl::MutexLock lock(&mutex_);
      if (is_writing_ || is_finished_) return;
      if (batches_.empty()) {
        if (!end_.has_value()) return;
        is_finished_ = true;
        end = end_;
      } else {
        if (batches_.front()->left != 0) return;
        is_writing_ = true;
        ready = batches_.front();
      }
    }
    if (end.has_value()) {
      Finish(ToGrpcStatus(*end));
    } else {
      StartWrite(&ready->response);
    }
  }

  void OnWriteDone(bool) override {  // if the client has gone, the read fails too
    bool read_on = false;
    std::shared_ptr<Batch> written;  // is destroyed after the lock is released
    {
      const absl::MutexLock lock(&mutex_);
      is_writing_ = false;
      written = std::move(batches_.front());
      batches_.pop_front();
      read_on = is_paused_ && !end_.has_value();
      if (read_on) is_paused_ = false;
    }
    if (read_on) StartRead(&request_);
    Advance();
  }

  void OnCancel() override { End(absl::CancelledError("the client has gone")); }
  void OnDone() override { services_.streams.Remove(this); }

  Services& services_;
  const access::Caller caller_;
  v1::CreateJobsRequest request_;  // is being read, or being taken apart
  absl::Mutex mutex_;
  std::deque<std::shared_ptr<Batch>> batches_ ABSL_GUARDED_BY(mutex_);  // in order of arrival
  // The first of the batches is being written.
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  // True while nothing is being read.
  bool is_paused_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

Reactor* FailedCreateJobs(const absl::Status& status) {
  class Failed : public Reactor {
   public:
    explicit Failed(const absl::Status& failure) { Finish(ToGrpcStatus(failure)); }
    void OnDone() override { delete this; }
  };
  return new Failed(status);
}

Reactor* StartCreateJobs(Services& services, const access::Caller& caller) {
  auto stream = std::make_shared<CreateJobsStream>(services, caller);
  const absl::Status added = services.streams.Add(stream, OwnerOf(caller));
  if (!added.ok()) return FailedCreateJobs(added);
  stream->Begin();
  return stream.get();
}

}  // namespace trainyard::rpc
