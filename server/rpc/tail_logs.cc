// Streams the logs of the ranks of one attempt after the other.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "common/base/status_macros.h"
#include "server/rpc/convert.h"
#include "server/rpc/job_streams.h"
#include "server/rpc/limits.h"
#include "server/rpc/request.h"
#include "server/rpc/streams.h"

namespace trainyard::rpc {
namespace {

class TailLogsStream : public PullStream<v1::TailLogsResponse> {
 public:
  // `attempt` is 0 for the newest one.
  TailLogsStream(Services& services, AttemptId attempt, runtime::RankStream stream,
                 const v1::TailLogsRequest& request)
      : PullStream(services.streams, services.executor),
        services_(services),
        job_(attempt.job),
        only_this_attempt_(attempt.number != 0),
        rank_(request.has_rank() ? std::optional<int32_t>(request.rank()) : std::nullopt),
        stream_(stream),
        offset_(request.offset()),
        follow_(request.follow()),
        attempt_(attempt.number) {}

 private:
  void OnStart() override {
    const std::weak_ptr<TailLogsStream> weak =
        std::static_pointer_cast<TailLogsStream>(shared_from_this());
    subscription_ =
        services_.notifier.Subscribe(job_, runtime::kJobChanged | runtime::kLogGrew, [weak](JobId) {
          if (const auto self = weak.lock()) self->Wake();
        });
  }

  absl::StatusOr<Pulled> Next(v1::TailLogsResponse& response) override {
    while (true) {
      // The state is read before the files: if it had ended by then, all its bytes are there.
      const auto view = services_.board.FindJob(job_);
      if (view == nullptr) return error::JobNotFound(JobName(job_));
      const bool job_is_final = core::job_fsm::IsFinal(view->record.state);
      if (attempt_ == 0) attempt_ = view->record.attempt;
      const auto attempt = services_.board.FindAttempt({job_, attempt_});
      if (attempt == nullptr) {
        return follow_ && !job_is_final ? Pulled::kNothingYet : Pulled::kEnd;
      }
      TY_ASSIGN_OR_RETURN(const bool has_bytes, ReadRanks(*attempt, response));
      if (has_bytes) return Pulled::kMessage;
      if (!follow_) return Pulled::kEnd;
      if (!core::attempt_fsm::IsFinal(attempt->state)) return Pulled::kNothingYet;
      if (only_this_attempt_) return Pulled::kEnd;
      if (view->record.attempt == attempt_) {
        return job_is_final ? Pulled::kEnd : Pulled::kNothingYet;
      }
      ++attempt_;
      offset_ = 0;
      positions_.clear();
    }
  }

  // Returns the next bytes of whichever rank has some, in turn, so that no rank waits while another
  // writes a lot.
  absl::StatusOr<bool> ReadRanks(const core::AttemptRecord& attempt,
                                 v1::TailLogsResponse& response) {
    const auto ranks = static_cast<int32_t>(attempt.ranks.size());
    for (int32_t i = 0; i < ranks; ++i) {
      const int32_t rank = (next_rank_ + i) % ranks;
      if (rank_.has_value() && *rank_ != rank) continue;
      const runtime::LogId log = {attempt.id, rank, stream_};
      TY_ASSIGN_OR_RETURN(int64_t * position, PositionOf(log));
      TY_ASSIGN_OR_RETURN(std::string data, services_.logs.Read(log, *position, kFollowedLogBytes));
      if (data.empty()) continue;
      response.set_attempt(attempt.id.number);
      response.set_rank(rank);
      response.set_offset(*position);
      *position += static_cast<int64_t>(data.size());
      response.set_data(std::move(data));
      next_rank_ = (rank + 1) % ranks;
      return true;
    }
    return false;
  }

  absl::StatusOr<int64_t*> PositionOf(const runtime::LogId& log) {
    const auto known = positions_.find(log.rank);
    if (known != positions_.end()) return &known->second;
    int64_t start = offset_;
    if (offset_ < 0) {
      TY_ASSIGN_OR_RETURN(const int64_t size, services_.logs.Size(log));
      start = std::max<int64_t>(0, size + offset_);
    }
    return &positions_.emplace(log.rank, start).first->second;
  }

  Services& services_;
  const JobId job_;
  const bool only_this_attempt_;
  const std::optional<int32_t> rank_;
  const runtime::RankStream stream_;
  int64_t offset_;
  const bool follow_;
  std::unique_ptr<runtime::Notifier::Subscription> subscription_;
  // Only the executor uses these.
  int32_t attempt_;
  int32_t next_rank_ = 0;
  std::map<int32_t, int64_t> positions_;  // by rank, in the log of attempt_
};

}  // namespace

grpc::ServerWriteReactor<v1::TailLogsResponse>* StartTailLogs(Services& services,
                                                              const access::Caller& caller,
                                                              const v1::TailLogsRequest& request) {
  RequestCheck check;
  AttemptId attempt;
  if (const auto named = ParseAttemptName(request.name()); named.ok()) {
    attempt = *named;
  } else {
    attempt.job = check.Job("name", request.name());
  }
  const runtime::RankStream stream = check.Stream("stream", request.stream());
  if (request.has_rank()) check.NotNegative("rank", request.rank());
  if (request.offset() < -(int64_t{1} << 60)) check.Add("offset", "is out of range");
  if (!check.ok()) return FailedStream<v1::TailLogsResponse>(check.Take());
  if (services.board.FindJob(attempt.job) == nullptr) {
    return FailedStream<v1::TailLogsResponse>(error::JobNotFound(JobName(attempt.job)));
  }
  if (attempt.number != 0 && services.board.FindAttempt(attempt) == nullptr) {
    return FailedStream<v1::TailLogsResponse>(error::AttemptNotFound(request.name()));
  }
  return StartStream<v1::TailLogsResponse>(
      services.streams, OwnerOf(caller),
      std::make_shared<TailLogsStream>(services, attempt, stream, request));
}

}  // namespace trainyard::rpc
