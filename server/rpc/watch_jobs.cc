// Streams jobs as they change. A slow watcher skips states: only the newest one of a job is kept
// for it. A watcher that gathers gets a message for each interval in place of one for each change.
// Its intervals begin for everybody at the same moments, so that those who may see the same jobs
// get the same messages, which are made into JSON only once.
//
// Messages are written as bytes, since the job, which is nearly all of them, is written only once
// for all streams. Messages of protobuf whose bytes follow each other are one with the fields of
// both.
#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/spec/interval.h"
#include "grpc/support/time.h"
#include "grpcpp/alarm.h"
#include "server/rpc/convert.h"
#include "server/rpc/gate.h"
#include "server/rpc/job_streams.h"
#include "server/rpc/limits.h"
#include "server/rpc/request.h"
#include "server/rpc/streams.h"

namespace trainyard::rpc {
namespace {

class WatchJobsStream : public PullStream<grpc::ByteBuffer> {
 public:
  WatchJobsStream(Services& services, JobMessages& messages, access::Caller caller,
                  std::set<JobId> jobs, int64_t start_revision, int64_t gather_us)
      : PullStream(services.streams, services.executor),
        services_(services),
        messages_(messages),
        caller_(std::move(caller)),
        jobs_(std::move(jobs)),
        gather_us_(gather_us),
        revision_(start_revision) {}

 private:
  void OnStart() override {
    const std::weak_ptr<WatchJobsStream> weak =
        std::static_pointer_cast<WatchJobsStream>(shared_from_this());
    const auto on_change = [weak](JobId job) {
      if (const auto self = weak.lock()) self->MarkChanged(job);
    };
    // The stream subscribes before it first looks, so that it misses nothing in between.
    if (jobs_.empty()) {
      subscriptions_.push_back(
          services_.notifier.Subscribe(std::nullopt, runtime::kJobChanged, on_change));
    }
    for (const JobId job : jobs_) {
      subscriptions_.push_back(services_.notifier.Subscribe(job, runtime::kJobChanged, on_change));
    }
    for (const auto& [job, revision] : services_.board.ChangedSince(revision_)) {
      if (jobs_.empty() || jobs_.contains(job)) Enqueue(job, revision);
    }
  }

  void MarkChanged(JobId job) {
    {
      const absl::MutexLock lock(&changed_mutex_);
      changed_.insert(job);
      if (is_gathering_) return;
    }
    Wake();
  }

  // Lets changes wait until the interval ends that has begun before now.
  void Gather() {
    {
      const absl::MutexLock lock(&changed_mutex_);
      is_gathering_ = true;
    }
    const gpr_timespec now = gpr_now(GPR_CLOCK_MONOTONIC);
    const int64_t now_us = now.tv_sec * GPR_US_PER_SEC + now.tv_nsec / GPR_NS_PER_US;
    const gpr_timespec left = gpr_time_from_micros(gather_us_ - now_us % gather_us_, GPR_TIMESPAN);
    const std::weak_ptr<WatchJobsStream> weak =
        std::static_pointer_cast<WatchJobsStream>(shared_from_this());
    alarm_.emplace();  // the old one may still be within its callback
    alarm_->Set(gpr_time_add(now, left), [weak](bool) {
      if (const auto self = weak.lock()) self->EndGathering();
    });
  }

  void EndGathering() {
    {
      const absl::MutexLock lock(&changed_mutex_);
      is_gathering_ = false;
    }
    Wake();
  }

  void Enqueue(JobId job, int64_t revision) {
    const auto [it, is_new] = revision_of_.emplace(job, revision);
    if (!is_new) {
      waiting_.erase({it->second, job});
      it->second = revision;
    }
    waiting_.insert({revision, job});
  }

  void TakeChanged() {
    std::set<JobId> changed;
    {
      const absl::MutexLock lock(&changed_mutex_);
      changed.swap(changed_);
    }
    for (const JobId job : changed) {
      if (const auto view = services_.board.FindJob(job)) {
        Enqueue(job, view->record.revision);
      } else {
        deleted_.insert(job);
      }
    }
  }

  // All jobs that changed up to `announced` are waiting or were sent, so the client may resume
  // after this one unless others that changed in the same commit still wait. Reasons for waiting
  // change without a commit, and the revision must not go back because of them.
  int64_t ResumePoint(int64_t revision) const {
    const int64_t sent =
        waiting_.empty() ? revision : std::min(revision, waiting_.begin()->first - 1);
    return std::max(revision_, sent);
  }

  absl::StatusOr<Pulled> Next(grpc::ByteBuffer& response) override {
    if (gather_us_ > 0) {
      const absl::MutexLock lock(&changed_mutex_);
      if (is_gathering_) return Pulled::kNothingYet;
    }
    std::string message;
    const Pulled first = NextChange(message);
    if (first != Pulled::kMessage) return first;
    if (gather_us_ > 0) AddMore(message);
    const grpc::Slice slice(message);
    response = grpc::ByteBuffer(&slice, 1);
    return Pulled::kMessage;
  }

  // Appends what else there is to a message, and gathers then.
  void AddMore(std::string& message) {
    // Each change is a field `more`, whose bytes are appended without being parsed.
    google::protobuf::UnknownFieldSet more;
    std::string change;
    size_t bytes = message.size();
    while (bytes < kGatheredBytes) {
      if (NextChange(change) != Pulled::kMessage) {
        Gather();
        break;
      }
      bytes += change.size();
      more.AddLengthDelimited(v1::WatchJobsResponse::kMoreFieldNumber)->swap(change);
    }
    std::string text;
    more.SerializeToString(&text);
    message += text;
  }

  // Takes the change that comes next, and writes its message.
  Pulled NextChange(std::string& message) {
    // This is read before the changes are taken, which then include all up to it.
    const int64_t announced = services_.board.announced_revision();
    TakeChanged();
    if (!deleted_.empty()) {
      const JobId job = *deleted_.begin();
      deleted_.erase(job);
      if (!jobs_.empty()) gone_.insert(job);
      v1::WatchJobsResponse response;
      response.mutable_job()->set_name(JobName(job));
      response.set_revision(revision_);
      response.set_deleted(true);
      message = response.SerializeAsString();
      return Pulled::kMessage;
    }
    while (!waiting_.empty()) {
      const auto [revision, job] = *waiting_.begin();
      if (revision > announced) {
        // Other jobs may have changed before it, of which this stream is just being told.
        Wake();
        return Pulled::kNothingYet;
      }
      const auto view = services_.board.FindJob(job);
      waiting_.erase(waiting_.begin());
      revision_of_.erase(job);
      if (view == nullptr || !MaySee(caller_, services_, view->record)) continue;
      // It has changed in the meantime, so it comes later in the order.
      if (view->record.revision > revision) {
        Enqueue(job, view->record.revision);
        continue;
      }
      revision_ = ResumePoint(revision);
      v1::WatchJobsResponse rest;
      rest.set_revision(revision_);
      message = *messages_.Of(services_, view);
      rest.AppendToString(&message);
      return Pulled::kMessage;
    }
    const bool is_over = !jobs_.empty() && gone_.size() == jobs_.size();
    return is_over ? Pulled::kEnd : Pulled::kNothingYet;
  }

  Services& services_;
  JobMessages& messages_;
  const access::Caller caller_;
  const std::set<JobId> jobs_;  // empty means all
  const int64_t gather_us_;     // 0 for a message for each change
  std::vector<std::unique_ptr<runtime::Notifier::Subscription>> subscriptions_;
  absl::Mutex changed_mutex_;
  std::set<JobId> changed_ ABSL_GUARDED_BY(changed_mutex_);
  // True from a message until its interval ends.
  bool is_gathering_ ABSL_GUARDED_BY(changed_mutex_) = false;
  // Only the executor uses these.
  std::optional<grpc::Alarm> alarm_;
  int64_t revision_;
  std::set<JobId> deleted_;  // still to be sent
  std::set<JobId> gone_;     // jobs of jobs_ whose deletion was sent
  std::set<std::pair<int64_t, JobId>> waiting_;
  std::map<JobId, int64_t> revision_of_;  // the revisions of jobs that are still to be sent
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* StartWatchJobs(Services& services,
                                                           JobMessages& messages,
                                                           const access::Caller& caller,
                                                           const v1::WatchJobsRequest& request) {
  RequestCheck check;
  std::set<JobId> jobs;
  check.MaxCount("names", request.names_size(), kWatchedJobsMax);
  check.NotNegative("start_revision", request.start_revision());
  const absl::Duration gather = spec::FromProto(request.gather_interval());
  if (gather < absl::ZeroDuration() || gather > kGatherMax) {
    check.Add("gather_interval",
              absl::StrCat("is ", spec::PlainDurationText(gather), "; expected at most ",
                           spec::PlainDurationText(kGatherMax)));
  }
  for (int i = 0; i < request.names_size() && i < kWatchedJobsMax; ++i) {
    jobs.insert(check.Job(absl::StrCat("names[", i, "]"), request.names(i)));
  }
  if (!check.ok()) return FailedStream<grpc::ByteBuffer>(check.Take());
  for (const JobId job : jobs) {
    if (services.board.FindJob(job) == nullptr) {
      return FailedStream<grpc::ByteBuffer>(error::JobNotFound(JobName(job)));
    }
  }
  return StartStream<grpc::ByteBuffer>(
      services.streams, OwnerOf(caller),
      std::make_shared<WatchJobsStream>(services, messages, caller, std::move(jobs),
                                        request.start_revision(),
                                        absl::ToInt64Microseconds(gather)));
}

}  // namespace trainyard::rpc
