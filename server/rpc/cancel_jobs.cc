// Cancels jobs batch by batch, so that a call for a hundred thousand does not fill the queue.
#include "server/rpc/cancel_jobs.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/errors.h"
#include "common/rpc/status.h"
#include "server/rpc/convert.h"
#include "server/rpc/decisions.h"
#include "server/rpc/gate.h"
#include "server/rpc/limits.h"
#include "server/rpc/request.h"

namespace trainyard::rpc {
namespace {

// Handles one call. A batch is posted when the one before has been answered, so that a call for a
// hundred thousand jobs leaves room in the queue for others. The answers come on the writer, one at
// a time.
class Cancellation : public std::enable_shared_from_this<Cancellation> {
 public:
  Cancellation(Services& services, access::Caller caller, std::string reason,
               grpc::ServerUnaryReactor* reactor, v1::CancelJobsResponse* response)
      : services_(services),
        caller_(std::move(caller)),
        reason_(std::move(reason)),
        reactor_(reactor),
        response_(response) {}

  // Each job is added or refused before the first batch is posted.
  void Add(JobId job) { jobs_.push_back(job); }
  void Refuse(JobId job, const absl::Status& why) { Count(job, why); }

  void PostBatch() {
    const size_t first = posted_;
    const size_t end = std::min(jobs_.size(), first + kCancelBatch);
    if (first == end) return reactor_->Finish(grpc::Status::OK);
    posted_ = end;
    {
      const absl::MutexLock lock(&mutex_);
      left_ = end - first;
    }
    for (size_t i = first; i < end; ++i) {
      const JobId job = jobs_[i];
      services_.runtime.Post(
          core::CancelJob{job, UserActor(caller_.user), reason_},
          [self = shared_from_this(), job](const absl::StatusOr<core::Reply>& reply) {
            self->Take(job, reply.status());
          });
    }
  }

 private:
  void Take(JobId job, const absl::Status& status) {
    {
      // A refused input is answered on the thread that posts it.
      const absl::MutexLock lock(&mutex_);
      Count(job, status);
      if (--left_ > 0) return;
    }
    PostBatch();
  }

  void Count(JobId job, const absl::Status& status) {
    if (!status.ok()) {
      response_->set_failed(response_->failed() + 1);
      if (response_->errors_size() >= kCancelErrorsMax) return;
      v1::JobError* error = response_->add_errors();
      error->set_name(JobName(job));
      *error->mutable_error() = ToStatusProto(status);
      return;
    }
    const auto view = services_.board.FindJob(job);
    const bool stops = view != nullptr && !core::job_fsm::IsFinal(view->record.state);
    if (stops) {
      response_->set_stopping(response_->stopping() + 1);
    } else {
      response_->set_cancelled(response_->cancelled() + 1);
    }
  }

  Services& services_;
  std::vector<JobId> jobs_;
  const access::Caller caller_;
  const std::string reason_;
  grpc::ServerUnaryReactor* const reactor_;
  v1::CancelJobsResponse* const response_;
  size_t posted_ = 0;
  absl::Mutex mutex_;
  size_t left_ ABSL_GUARDED_BY(mutex_) = 0;  // of the batch under way
};

// Returns the jobs of the request that have not ended, oldest first.
std::vector<JobId> JobsOf(const v1::CancelJobsRequest& request, const access::Caller& caller,
                          const Services& services) {
  const runtime::Board& board = services.board;
  const std::set<int> states(request.states().begin(), request.states().end());
  const std::string user = request.user().empty() ? caller.user : request.user();
  JobId array;
  int64_t before = 0;
  if (!request.array().empty()) {
    const auto view = board.FindJob(*ParseJobName(request.array()));
    if (view != nullptr) array = view->record.array;
    if (array == JobId{}) return {};
    before = array.value + view->record.submission->array_size;
  }
  std::vector<JobId> jobs;
  const auto views = board.ListJobs(
      before, std::numeric_limits<size_t>::max(),
      [&](const runtime::JobView& view) {
        const core::JobRecord& record = view.record;
        if (core::job_fsm::IsFinal(record.state)) return false;
        if (!states.empty() && !states.contains(ToProto(record.state))) return false;
        const bool is_meant =
            array != JobId{} ? record.array == array : record.submission->user == user;
        return is_meant && MaySee(caller, services, record);
      },
      /*after=*/array.value == 0 ? 0 : array.value - 1);
  for (auto view = views.rbegin(); view != views.rend(); ++view) {
    jobs.push_back((*view)->record.id);
  }
  return jobs;
}

// Returns what the request is about, for the audit log.
std::string SelectionOf(const v1::CancelJobsRequest& request, const access::Caller& caller) {
  if (!request.array().empty()) return request.array();
  if (!request.names().empty()) return absl::StrJoin(request.names(), " ");
  return UserActor(request.user().empty() ? caller.user : request.user());
}

}  // namespace

void StartCancelJobs(Services& services, const v1::CancelJobsRequest& request,
                     const access::Caller& caller, RequestCheck& check,
                     grpc::ServerUnaryReactor* reactor, v1::CancelJobsResponse* response) {
  const int ways = (request.names().empty() ? 0 : 1) + (request.array().empty() ? 0 : 1) +
                   (request.has_user() ? 1 : 0);
  if (ways != 1) check.Add("names", "exactly one of names, array and user must be given");
  check.MaxCount("names", request.names_size(), kCancelNamesMax);
  check.MaxBytes("user", request.user(), kUserBytesMax);
  check.MaxBytes("reason", request.reason(), kReasonBytesMax);
  std::vector<JobId> jobs;
  for (int i = 0; i < request.names_size() && i < kCancelNamesMax; ++i) {
    jobs.push_back(check.Job(absl::StrCat("names[", i, "]"), request.names(i)));
  }
  if (!request.array().empty()) {
    const JobId job = check.Job("array", request.array());
    const auto view = services.board.FindJob(job);
    if (check.ok() && (view == nullptr || !MaySee(caller, services, view->record))) {
      return reactor->Finish(ToGrpcStatus(error::JobNotFound(request.array())));
    }
    if (check.ok() && view->record.array == JobId{}) {
      check.Add("array",
                absl::StrCat("job '", request.array(), "' belongs to no array; name it in names"));
    }
  }
  if (!check.ok()) return reactor->Finish(ToGrpcStatus(check.Take()));
  if (request.names().empty()) {
    jobs = JobsOf(request, caller, services);
  } else if (!request.states().empty()) {
    const std::set<int> states(request.states().begin(), request.states().end());
    jobs.erase(std::remove_if(jobs.begin(), jobs.end(),
                              [&](JobId job) {
                                const auto view = services.board.FindJob(job);
                                return view != nullptr &&
                                       !states.contains(ToProto(view->record.state));
                              }),
               jobs.end());
  }
  const std::string selection = SelectionOf(request, caller);
  Decisions decisions(access::RuleOf("JobService/CancelJobs"), caller, services, {selection});
  const auto cancellation =
      std::make_shared<Cancellation>(services, caller, request.reason(), reactor, response);
  for (const JobId job : jobs) {
    const std::string about = request.names().empty() ? selection : JobName(job);
    const absl::Status decision = decisions.Take(about, CheckMayChange(caller, services, job));
    if (decision.ok()) {
      cancellation->Add(job);
    } else {
      cancellation->Refuse(job, decision);
    }
  }
  decisions.Write();
  cancellation->PostBatch();
}

}  // namespace trainyard::rpc
