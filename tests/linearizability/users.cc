// Every call waits for a server, so only calls that a server has begun have an unknown outcome.
#include "tests/linearizability/users.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/ids.h"
#include "common/rpc/channel.h"

namespace trainyard::linearizability {
namespace {

// A call that takes longer counts as broken.
constexpr absl::Duration kCallMax = absl::Seconds(60);
// A submission is sent again until it is answered, as the command line does it.
constexpr int kSubmissionsMax = 20;
// Users choose among so many of the newest jobs, so that they meet.
constexpr int64_t kRecentJobs = 6;
// A list of all jobs must fit into one page.
constexpr int kPageSize = 1000;
// A label that no worker carries, so that jobs which ask for it wait.
constexpr char kZone[] = "zone";

Answer AnswerOf(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
      return Answer::kDone;
    case grpc::StatusCode::NOT_FOUND:
      return Answer::kMissing;
    case grpc::StatusCode::FAILED_PRECONDITION:
      return Answer::kRefused;
    default:
      // A request that is wrong would be a mistake of this program.
      TY_CHECK(status.error_code() != grpc::StatusCode::INVALID_ARGUMENT);
      return Answer::kUnknown;
  }
}

Phase PhaseOf(const v1::Job& job) {
  switch (job.state()) {
    case v1::JOB_STATE_QUEUED:
      return Phase::kQueued;
    case v1::JOB_STATE_STARTING:
      return Phase::kStarting;
    case v1::JOB_STATE_RUNNING:
      return Phase::kRunning;
    case v1::JOB_STATE_SUSPENDED:
      return Phase::kSuspended;
    case v1::JOB_STATE_SUCCEEDED:
      return Phase::kSucceeded;
    case v1::JOB_STATE_FAILED:
      return Phase::kFailed;
    case v1::JOB_STATE_CANCELLED:
      return Phase::kCancelled;
    case v1::JOB_STATE_STOPPING:
      break;
    default:
      TY_CHECK(false);
  }
  if (job.stop_reason() == v1::STOP_REASON_CANCEL) return Phase::kStoppingToCancel;
  if (job.stop_reason() == v1::STOP_REASON_SUSPEND) return Phase::kStoppingToSuspend;
  return Phase::kStoppingToQueue;
}

int64_t NumberOf(const std::string& name) {
  const auto id = ParseJobName(name);
  TY_CHECK_OK(id.status());
  return id->value;
}

// The smallest job there is. Nothing fits it unless it `runs`.
v1::JobSpec SpecOf(const std::string& label, bool runs) {
  v1::JobSpec spec;
  spec.set_name(label);
  spec.mutable_model()->mutable_mlp()->add_hidden(8);
  spec.mutable_data()->set_dataset("glyphs");
  spec.mutable_data()->set_train_size(64);
  spec.mutable_data()->set_test_size(64);
  spec.mutable_train()->set_steps(1);
  spec.mutable_train()->set_global_batch(64);
  spec.mutable_optimizer()->mutable_sgd()->set_lr(0.1);
  if (!runs) (*spec.mutable_devices()->mutable_labels())[kZone] = "nowhere";
  return spec;
}

}  // namespace

std::unique_ptr<v1::JobService::Stub> MakeStub(const std::string& address) {
  const auto channel = rpc::MakeChannel(address);
  TY_CHECK_OK(channel.status());
  return v1::JobService::NewStub(*channel);
}

int64_t Now() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

Sighting SightingOf(const v1::Job& job) {
  int64_t revision = 0;
  TY_CHECK(absl::SimpleAtoi(job.etag(), &revision));
  return {NumberOf(job.name()), PhaseOf(job), revision, job.spec().name(),
          !job.spec().devices().labels().contains(kZone)};
}

void Recorder::Add(Operation operation) {
  const absl::MutexLock lock(&mutex_);
  for (const Sighting& seen : operation.seen) newest_job_ = std::max(newest_job_, seen.job);
  history_.push_back(std::move(operation));
}

History Recorder::Take() {
  const absl::MutexLock lock(&mutex_);
  return std::exchange(history_, {});
}

int64_t Recorder::RecentJob(std::mt19937_64& random) {
  const absl::MutexLock lock(&mutex_);
  if (newest_job_ == 0) return 0;
  const auto back = static_cast<int64_t>(random() % (kRecentJobs + 1));
  return std::max<int64_t>(1, newest_job_ + 1 - back);
}

User::User(Recorder& recorder, const std::string& address, int number, uint64_t seed,
           int run_percent)
    : recorder_(recorder),
      number_(number),
      run_percent_(run_percent),
      random_(seed),
      stub_(MakeStub(address)) {}

void User::Act(int things) {
  for (int i = 0; i < things; ++i) {
    const uint64_t draw = random_() % 100;
    if (draw < 15) {
      Submit(Verb::kCreate);
    } else if (draw < 20) {
      Submit(Verb::kClone);
    } else if (draw < 32) {
      Change(Verb::kCancel);
    } else if (draw < 46) {
      Change(Verb::kSuspend);
    } else if (draw < 60) {
      Change(Verb::kResume);
    } else if (draw < 70) {
      Change(Verb::kDelete);
    } else if (draw < 94) {
      Get();
    } else {
      List();
    }
  }
}

template <typename Call>
void User::Do(Operation& operation, const Call& call) {
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  rpc::SetTimeout(context, kCallMax);
  operation.client = number_;
  recorder_.CountCall();
  operation.call = Now();
  const grpc::Status status = call(context);
  const int64_t end = Now();
  operation.answer = AnswerOf(status);
  if (operation.answer != Answer::kUnknown) operation.end = end;
}

void User::Submit(Verb verb) {
  Operation operation;
  operation.verb = verb;
  const bool runs = random_() % 100 < static_cast<uint64_t>(run_percent_);
  if (verb == Verb::kClone) {
    operation.job = recorder_.RecentJob(random_);
    if (operation.job == 0) return;
  }
  operation.request = absl::StrCat("user-", number_, "-", ++submissions_);
  for (int i = 0; i < kSubmissionsMax; ++i) {
    Operation sent = operation;
    if (verb == Verb::kClone) {
      Clone(sent);
    } else {
      Create(sent, runs);
    }
    const bool is_over = sent.answer != Answer::kUnknown;
    recorder_.Add(std::move(sent));
    if (is_over) return;
  }
}

void User::Create(Operation& operation, bool runs) {
  v1::CreateJobRequest request;
  *request.mutable_spec() = SpecOf(operation.request, runs);
  request.set_request_id(operation.request);
  // Jobs that no worker may run are meant to wait.
  request.mutable_options()->set_wait_for_devices(true);
  v1::Job job;
  Do(operation, [&](auto& context) { return stub_->CreateJob(&context, request, &job); });
  if (operation.answer == Answer::kDone) operation.seen.push_back(SightingOf(job));
}

void User::Clone(Operation& operation) {
  v1::CloneJobRequest request;
  request.set_name(JobName(JobId{operation.job}));
  request.set_request_id(operation.request);
  // Jobs that no worker may run are meant to wait.
  request.mutable_options()->set_wait_for_devices(true);
  v1::SpecChange* change = request.add_changes();
  change->set_path("name");
  change->set_value_json(absl::StrCat("\"", operation.request, "\""));
  v1::CloneJobResponse response;
  Do(operation, [&](auto& context) { return stub_->CloneJob(&context, request, &response); });
  if (operation.answer == Answer::kDone) operation.seen.push_back(SightingOf(response.job()));
}

void User::Change(Verb verb) {
  Operation operation;
  operation.verb = verb;
  operation.job = recorder_.RecentJob(random_);
  if (operation.job == 0) return;
  const auto call = [&](auto method, auto request, auto response, bool shows_job) {
    request.set_name(JobName(JobId{operation.job}));
    Do(operation, [&](auto& context) { return ((*stub_).*method)(&context, request, &response); });
    if constexpr (std::is_same_v<decltype(response), v1::Job>) {
      if (shows_job && operation.answer == Answer::kDone) {
        operation.seen.push_back(SightingOf(response));
      }
    }
  };
  using Stub = v1::JobService::Stub;
  if (verb == Verb::kCancel) {
    call(&Stub::CancelJob, v1::CancelJobRequest(), v1::Job(), true);
  } else if (verb == Verb::kSuspend) {
    call(&Stub::SuspendJob, v1::SuspendJobRequest(), v1::Job(), true);
  } else if (verb == Verb::kResume) {
    call(&Stub::ResumeJob, v1::ResumeJobRequest(), v1::Job(), true);
  } else {
    call(&Stub::DeleteJob, v1::DeleteJobRequest(), v1::DeleteJobResponse(), false);
  }
  recorder_.Add(std::move(operation));
}

void User::Get() {
  Operation operation;
  operation.verb = Verb::kGet;
  operation.job = recorder_.RecentJob(random_);
  if (operation.job == 0) return;
  v1::GetJobRequest request;
  request.set_name(JobName(JobId{operation.job}));
  v1::Job job;
  Do(operation, [&](auto& context) { return stub_->GetJob(&context, request, &job); });
  if (operation.answer == Answer::kDone) operation.seen.push_back(SightingOf(job));
  recorder_.Add(std::move(operation));
}

std::vector<Sighting> User::List() {
  Operation operation;
  operation.verb = Verb::kList;
  v1::ListJobsRequest request;
  request.set_page_size(kPageSize);
  v1::ListJobsResponse response;
  Do(operation, [&](auto& context) { return stub_->ListJobs(&context, request, &response); });
  TY_CHECK(response.next_page_token().empty());
  for (const v1::Job& job : response.jobs()) operation.seen.push_back(SightingOf(job));
  recorder_.Add(operation);
  return operation.seen;
}

Watcher::Watcher(Recorder& recorder, const std::string& address, int number)
    : recorder_(recorder), number_(number), stub_(MakeStub(address)) {}

void Watcher::Run() {
  int64_t revision = 0;
  int streams = 0;
  while (true) {
    const auto context = std::make_shared<grpc::ClientContext>();
    context->set_wait_for_ready(true);
    {
      const absl::MutexLock lock(&mutex_);
      if (is_over_) return;
      context_ = context;
    }
    v1::WatchJobsRequest request;
    request.set_start_revision(revision);
    Operation operation;
    operation.verb = Verb::kWatched;
    operation.client = number_;
    operation.answer = Answer::kDone;
    operation.call = Now();
    // The numbers of streams are different for all watchers.
    operation.stream = number_ * int64_t{1'000'000} + ++streams;
    const auto stream = stub_->WatchJobs(context.get(), request);
    v1::WatchJobsResponse response;
    while (stream->Read(&response)) {
      operation.end = Now();
      // The revisions of a watch never go back, even if it was resumed.
      TY_CHECK(response.revision() >= revision);
      revision = response.revision();
      operation.seen = {response.deleted()
                            ? Sighting{NumberOf(response.job().name()), Phase::kDeleted}
                            : SightingOf(response.job())};
      recorder_.Add(operation);
      const absl::MutexLock lock(&mutex_);
      revisions_[operation.seen.front().job] = operation.seen.front().revision;
    }
    stream->Finish();
  }
}

void Watcher::Stop() {
  const absl::MutexLock lock(&mutex_);
  is_over_ = true;
  if (context_ != nullptr) context_->TryCancel();
}

bool Watcher::HasSeen(const std::vector<Sighting>& list) {
  const absl::MutexLock lock(&mutex_);
  return std::all_of(list.begin(), list.end(), [this](const Sighting& job) {
    const auto seen = revisions_.find(job.job);
    return seen != revisions_.end() && seen->second >= job.revision;
  });
}

}  // namespace trainyard::linearizability
