// Reads both streams and opens them again when they are lost, since a server may restart at any
// time.
#include "client/link/follower.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/base/backoff.h"
#include "common/base/errors.h"

namespace trainyard::link {
namespace {

constexpr absl::Duration kPauseInitial = absl::Milliseconds(200);
constexpr absl::Duration kPauseMax = absl::Seconds(2);
// Chunks of logs wait in the queue up to this number.
constexpr size_t kUpdatesMax = 64;

// Returns true if a stream ended because its server went away, in a crash or an orderly stop.
bool IsLoss(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable ||
         status.code() == absl::StatusCode::kInternal ||
         status.code() == absl::StatusCode::kUnknown ||
         status.code() == absl::StatusCode::kCancelled;
}

}  // namespace

Follower::Follower(ServerLink& link, Clock& clock, Rng& rng, Options options)
    : link_(link), clock_(clock), rng_(rng), options_(std::move(options)) {
  threads_.emplace_back([this] { WatchJobs(); });
  if (!options_.metrics_of.empty()) threads_.emplace_back([this] { WatchMetrics(); });
  if (!options_.logs_of.empty()) threads_.emplace_back([this] { WatchLogs(); });
}

Follower::~Follower() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (grpc::ClientContext* context : contexts_) context->TryCancel();
    changed_.notify_all();
    taken_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

std::optional<Update> Follower::Next(absl::Duration timeout) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, absl::ToChronoMilliseconds(timeout),
                         [this] { return !updates_.empty(); })) {
    return std::nullopt;
  }
  Update update = std::move(updates_.front());
  updates_.pop_front();
  taken_.notify_all();
  return update;
}

bool Follower::WaitForRoom() {
  std::unique_lock lock(mutex_);
  taken_.wait(lock, [this] { return stopping_ || updates_.size() < kUpdatesMax; });
  return !stopping_;
}

void Follower::Post(Update update) {
  const std::lock_guard lock(mutex_);
  updates_.push_back(std::move(update));
  changed_.notify_all();
}

bool Follower::stopping() {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

bool Follower::Pause(absl::Duration duration) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, absl::ToChronoMilliseconds(duration),
                            [this] { return stopping_; });
}

void Follower::TellConnection(bool is_back) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(is_told_lost_, !is_back) == !is_back) return;
  updates_.push_back(Connection{.is_back = is_back});
  changed_.notify_all();
}

absl::Status Follower::Keep(const Contact& contact, bool ends_by_itself,
                            const std::function<void()>& on_loss) {
  Backoff backoff(kPauseInitial, kPauseMax, rng_);
  bool is_lost = false;
  absl::Duration lost_since;
  while (true) {
    grpc::ClientContext context;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return absl::CancelledError("stopped");
      contexts_.push_back(&context);
    }
    bool got_any = false;
    grpc::Status wire_status;
    {
      const Interrupt::Scope scope(link_.interrupt(), context);
      wire_status = contact(context, got_any);
    }
    {
      const std::lock_guard lock(mutex_);
      contexts_.erase(std::find(contexts_.begin(), contexts_.end(), &context));
      if (stopping_) return absl::CancelledError("stopped");
    }
    if (link_.interrupt().triggered()) return absl::CancelledError("interrupted");
    if (wire_status.ok() && ends_by_itself) return absl::OkStatus();
    absl::Status status = wire_status.ok()
                              ? error::ServerUnreachable(link_.address(), "it has gone")
                              : link_.Error(wire_status);
    if (!IsLoss(status)) return status;
    const absl::Duration now = clock_.Uptime();
    if (!is_lost || got_any) {
      is_lost = true;
      lost_since = now;
      backoff.Reset();
      on_loss();
    }
    if (now - lost_since > options_.reconnect_for) return status;
    if (!Pause(backoff.Next())) return absl::CancelledError("stopped");
  }
}

void Follower::WatchJobs() {
  const absl::Status status = Keep(
      [&](grpc::ClientContext& context, bool& got_any) {
        v1::WatchJobsRequest request;
        for (const std::string& name : options_.names) request.add_names(name);
        // Every contact begins with a snapshot of the job. It shows at once that the server is
        // back, and a follower needs nothing else of the time in between.
        const auto reader = link_.jobs().WatchJobs(&context, request);
        v1::WatchJobsResponse response;
        while (reader->Read(&response)) {
          if (!got_any) TellConnection(/*is_back=*/true);
          got_any = true;
          Post(std::move(*response.mutable_job()));
        }
        return reader->Finish();
      },
      /*ends_by_itself=*/false, [this] { TellConnection(/*is_back=*/false); });
  if (!stopping()) Post(End{status});
}

void Follower::WatchMetrics() {
  int64_t cursor = 0;
  bool was_lost = false;
  const absl::Status status = Keep(
      [&](grpc::ClientContext& context, bool& got_any) {
        v1::WatchMetricsRequest request;
        request.set_name(options_.metrics_of);
        request.set_cursor(cursor);
        request.set_follow(true);
        const auto reader = link_.jobs().WatchMetrics(&context, request);
        v1::WatchMetricsResponse response;
        while (reader->Read(&response)) {
          if (was_lost && !got_any) TellConnection(/*is_back=*/true);
          got_any = true;
          cursor = response.cursor();
          Post(Points{{response.points().begin(), response.points().end()}});
        }
        return reader->Finish();
      },
      /*ends_by_itself=*/true, [&was_lost] { was_lost = true; });
  if (status.ok()) Post(MetricsEnd{});
  // Without metrics the job can still be followed.
}

void Follower::WatchLogs() {
  int attempt = options_.logs_attempt;
  int64_t first_offset = options_.logs_offset;
  std::map<int, int64_t> ends;  // of each rank of the attempt
  bool was_lost = false;
  const absl::Status status = Keep(
      [&](grpc::ClientContext& context, bool& got_any) {
        v1::TailLogsRequest request;
        request.set_name(options_.logs_of);
        request.set_follow(true);
        if (attempt > 0) {
          v1::GetJobRequest get;
          get.set_name(options_.logs_of);
          const auto job = link_.Call(&v1::JobService::Stub::GetJob, get);
          if (job.ok() && job->attempt() == attempt) {
            const auto least =
                std::min_element(ends.begin(), ends.end(),
                                 [](const auto& a, const auto& b) { return a.second < b.second; });
            request.set_offset(least == ends.end() ? first_offset : least->second);
          }
        }
        const auto reader = link_.jobs().TailLogs(&context, request);
        v1::TailLogsResponse chunk;
        while (reader->Read(&chunk)) {
          if (was_lost && !got_any) TellConnection(/*is_back=*/true);
          got_any = true;
          if (chunk.attempt() != attempt) {
            attempt = chunk.attempt();
            first_offset = 0;
            ends.clear();
          }
          ends[chunk.rank()] = chunk.offset() + static_cast<int64_t>(chunk.data().size());
          if (!WaitForRoom()) break;
          Post(std::move(chunk));
        }
        return reader->Finish();
      },
      /*ends_by_itself=*/true, [&was_lost] { was_lost = true; });
  // If the logs cannot be read, the job can still be followed.
  if (!stopping()) Post(LogsEnd{});
}

}  // namespace trainyard::link
