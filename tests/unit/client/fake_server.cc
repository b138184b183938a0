// Implements the fake server: it answers from maps in memory, under one lock.
#include "tests/unit/client/fake_server.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/output/text.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/hash.h"
#include "common/base/ids.h"
#include "common/base/pattern.h"
#include "common/rpc/status.h"
#include "common/spec/change.h"
#include "common/spec/diff.h"
#include "common/spec/resolve.h"
#include "grpc/support/time.h"
#include "grpcpp/server_builder.h"

namespace trainyard::testing {

FakeServer::FakeServer() : address_(absl::StrCat("unix:", dir_.File("s"))) {
  Start();
}

FakeServer::~FakeServer() {
  Stop();
}

void FakeServer::Start() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = false;
  }
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address_, grpc::InsecureServerCredentials());
  builder.RegisterService(static_cast<v1::JobService::Service*>(this));
  builder.RegisterService(static_cast<v1::CheckpointService::Service*>(this));
  builder.RegisterService(static_cast<v1::FleetService::Service*>(this));
  builder.RegisterService(static_cast<v1::SharingService::Service*>(this));
  builder.RegisterService(static_cast<v1::CodeService::Service*>(this));
  builder.RegisterService(static_cast<v1::NotifyService::Service*>(this));
  builder.RegisterService(static_cast<v1::SecretService::Service*>(this));
  builder.RegisterService(static_cast<v1::TunnelService::Service*>(this));
  builder.RegisterService(&sweeps_);
  server_ = builder.BuildAndStart();
  TY_CHECK(server_ != nullptr);
}

void FakeServer::Stop() {
  if (server_ == nullptr) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  server_->Shutdown(gpr_time_from_millis(0, GPR_TIMESPAN));
  server_->Wait();
  server_.reset();
}

std::string FakeServer::AddJob(const std::string& name, v1::JobState state) {
  const std::lock_guard lock(mutex_);
  auto job = std::make_unique<v1::Job>();
  job->set_name(absl::StrCat("jobs/", jobs_.size() + 1));
  job->set_state(state);
  job->set_user("anna");
  v1::JobSpec& spec = *job->mutable_resolved_spec();
  spec.set_name(name);
  spec.mutable_model()->mutable_mlp();
  spec.mutable_data()->set_dataset("glyphs");
  spec.mutable_train()->set_epochs(2);
  spec.mutable_train()->set_replicas(1);
  spec.mutable_optimizer()->mutable_sgd()->set_lr(0.1);
  spec.mutable_devices()->set_count(1);
  revision_of_[job->name()] = ++revision_;
  jobs_.push_back(std::move(job));
  changed_.notify_all();
  return jobs_.back()->name();
}

void FakeServer::ChangeJob(const std::string& name, const std::function<void(v1::Job&)>& change) {
  const std::lock_guard lock(mutex_);
  v1::Job* job = nullptr;
  TY_CHECK(Find(name, job).ok());
  change(*job);
  revision_of_[name] = ++revision_;
  changed_.notify_all();
}

void FakeServer::AddPoint(const std::string& job, int64_t step, const std::string& metric,
                          double value, int64_t time_us) {
  const std::lock_guard lock(mutex_);
  v1::MetricPoint point;
  point.mutable_time()->set_seconds(time_us / 1'000'000);
  point.mutable_time()->set_nanos(static_cast<int32_t>(time_us % 1'000'000 * 1000));
  point.set_step(step);
  point.set_name(metric);
  point.set_value(value);
  point.set_attempt(1);
  points_[job].push_back(std::move(point));
  changed_.notify_all();
}

void FakeServer::AddLog(const std::string& job, int rank, const std::string& text) {
  const std::lock_guard lock(mutex_);
  logs_[job][rank] += text;
  changed_.notify_all();
}

void FakeServer::MakeNewJobs(v1::JobState state) {
  const std::lock_guard lock(mutex_);
  new_job_state_ = state;
}

void FakeServer::AddTrace(const std::string& attempt, int rank, const std::string& text) {
  const std::lock_guard lock(mutex_);
  traces_[attempt][rank] += text;
}

void FakeServer::AddCheckpoint(const std::string& job, int64_t step,
                               const std::map<std::string, std::string>& files, bool is_best) {
  const std::lock_guard lock(mutex_);
  v1::Checkpoint checkpoint;
  checkpoint.set_name(absl::StrCat(job, "/checkpoints/", step));
  checkpoint.set_step(step);
  checkpoint.set_attempt(1);
  checkpoint.set_is_best(is_best);
  for (const auto& [name, content] : files) {
    ContentHasher hasher;
    hasher.Update(content);
    v1::CheckpointFile* file = checkpoint.add_files();
    file->set_name(name);
    file->set_size(static_cast<int64_t>(content.size()));
    file->set_hash(hasher.Text());
    files_[{checkpoint.name(), name}] = content;
  }
  checkpoints_[checkpoint.name()] = checkpoint;
}

void FakeServer::KeepOnDelete(const std::string& checkpoint, bool spec) {
  const std::lock_guard lock(mutex_);
  kept_checkpoints_.insert(checkpoint);
  keeps_spec_ = spec;
}

void FakeServer::DamageFile(const std::string& checkpoint, const std::string& file) {
  const std::lock_guard lock(mutex_);
  files_.at({checkpoint, file})[0] ^= 1;
}

void FakeServer::AddWorker(const v1::Worker& worker) {
  const std::lock_guard lock(mutex_);
  workers_[worker.name()] = worker;
}

void FakeServer::RefuseNextCreate(const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  refuse_create_ = status;
}

void FakeServer::WaitForWatches(int count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return watches_ >= count; });
}

v1::CreateJobRequest FakeServer::last_create() {
  const std::lock_guard lock(mutex_);
  return last_create_;
}

int FakeServer::downloads() {
  const std::lock_guard lock(mutex_);
  return downloads_;
}

int64_t FakeServer::last_download_offset() {
  const std::lock_guard lock(mutex_);
  return last_download_offset_;
}

bool FakeServer::WaitForChange(std::unique_lock<std::mutex>& lock, grpc::ServerContext& context) {
  // Nothing notifies the server of a client that goes away, so the wait is short.
  changed_.wait_for(lock, std::chrono::milliseconds(20));
  return !stopping_ && !context.IsCancelled();
}

grpc::Status FakeServer::Find(const std::string& name, v1::Job*& job) {
  for (const auto& known : jobs_) {
    if (known->name() == name) {
      job = known.get();
      return grpc::Status::OK;
    }
  }
  return rpc::ToGrpcStatus(error::JobNotFound(name));
}

grpc::Status FakeServer::CreateJob(grpc::ServerContext*, const v1::CreateJobRequest* request,
                                   v1::Job* response) {
  std::string known;
  v1::JobState new_state = v1::JOB_STATE_QUEUED;
  {
    const std::lock_guard lock(mutex_);
    last_create_ = *request;
    new_state = new_job_state_;
    const absl::Status refusal = std::exchange(refuse_create_, absl::OkStatus());
    if (!refusal.ok()) return rpc::ToGrpcStatus(refusal);
    const auto resolved = spec::ResolveSpec(request->spec());
    if (!resolved.ok()) return rpc::ToGrpcStatus(resolved.status());
    *response->mutable_spec() = request->spec();
    *response->mutable_resolved_spec() = *resolved;
    response->set_state(v1::JOB_STATE_QUEUED);
    if (request->validate_only()) {
      response->add_queue_reasons("all 2 devices are held by jobs/1");
      response->mutable_explanation()->add_reasons("all 2 devices are held by jobs/1");
      return grpc::Status::OK;
    }
    known = job_of_request_[request->request_id()];
  }
  const std::string name = known.empty() ? AddJob(request->spec().name(), new_state) : known;
  const std::lock_guard lock(mutex_);
  job_of_request_[request->request_id()] = name;
  v1::Job* job = nullptr;
  TY_CHECK(Find(name, job).ok());
  *job->mutable_resolved_spec() = response->resolved_spec();
  *response = *job;
  return grpc::Status::OK;
}

grpc::Status FakeServer::GetJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                                v1::Job* response) {
  const std::lock_guard lock(mutex_);
  v1::Job* job = nullptr;
  grpc::Status status = Find(request->name(), job);
  if (status.ok()) *response = *job;
  return status;
}

grpc::Status FakeServer::ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request,
                                  v1::ListJobsResponse* response) {
  const std::lock_guard lock(mutex_);
  last_list_ = *request;
  const int size = request->page_size() > 0 ? request->page_size() : 50;
  size_t skip = request->page_token().empty() ? 0 : std::stoul(request->page_token());
  for (auto it = jobs_.rbegin() + static_cast<ptrdiff_t>(skip); it != jobs_.rend(); ++it, ++skip) {
    const std::string& name = request->job_name();
    if (!name.empty() && !MatchesPattern((*it)->resolved_spec().name(), name)) continue;
    if (response->jobs_size() == size) {
      if (response->next_page_token().empty()) {
        response->set_next_page_token(std::to_string(skip));
      }
      if (!request->count_more()) break;
      response->set_more_jobs(response->more_jobs() + 1);
      continue;
    }
    const auto& states = request->states();
    if (!states.empty() &&
        std::find(states.begin(), states.end(), (*it)->state()) == states.end()) {
      continue;
    }
    *response->add_jobs() = **it;
  }
  return grpc::Status::OK;
}

grpc::Status FakeServer::CancelJob(grpc::ServerContext*, const v1::CancelJobRequest* request,
                                   v1::Job* response) {
  {
    const std::lock_guard lock(mutex_);
    v1::Job* job = nullptr;
    grpc::Status status = Find(request->name(), job);
    if (!status.ok()) return status;
    if (job->state() == v1::JOB_STATE_SUCCEEDED) {
      return rpc::ToGrpcStatus(error::JobStateConflict(job->name(), "SUCCEEDED", "cancelled"));
    }
  }
  ChangeJob(request->name(), [&](v1::Job& job) {
    job.set_state(v1::JOB_STATE_CANCELLED);
    *response = job;
  });
  return grpc::Status::OK;
}

grpc::Status FakeServer::DeleteParts(const std::string& name, const std::set<v1::JobPart>& parts,
                                     bool is_trial, v1::DeleteJobResponse& response) {
  v1::Job* job = nullptr;
  grpc::Status found = Find(name, job);
  if (!found.ok()) return found;
  if (!output::IsFinal(job->state())) {
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                        absl::StrCat(name, " is RUNNING; `trainyard cancel ", name.substr(5),
                                     "` stops it, and then it can be deleted"));
  }
  std::vector<std::string> gone;
  for (const auto& [checkpoint, record] : checkpoints_) {
    if (!parts.contains(v1::JOB_PART_CHECKPOINTS)) break;
    if (!absl::StartsWith(checkpoint, name + "/")) continue;
    if (kept_checkpoints_.contains(checkpoint)) {
      response.add_kept_checkpoints(checkpoint);
      continue;
    }
    gone.push_back(checkpoint);
    response.set_checkpoints(response.checkpoints() + 1);
    for (const v1::CheckpointFile& file : record.files()) {
      response.set_checkpoint_bytes(response.checkpoint_bytes() + file.size());
    }
  }
  if (parts.contains(v1::JOB_PART_LOGS)) {
    for (const auto& [rank, text] : logs_[name]) {
      response.set_log_bytes(response.log_bytes() + static_cast<int64_t>(text.size()));
    }
  }
  if (parts.contains(v1::JOB_PART_METRICS)) {
    response.set_metric_points(static_cast<int64_t>(points_[name].size()));
    response.set_metric_bytes(32 * response.metric_points());
  }
  if (is_trial) return grpc::Status::OK;
  for (const std::string& checkpoint : gone) checkpoints_.erase(checkpoint);
  if (parts.contains(v1::JOB_PART_LOGS)) {
    logs_.erase(name);
    job->add_deleted_parts(v1::JOB_PART_LOGS);
  }
  if (parts.contains(v1::JOB_PART_METRICS)) {
    points_.erase(name);
    job->add_deleted_parts(v1::JOB_PART_METRICS);
  }
  return grpc::Status::OK;
}

grpc::Status FakeServer::DeleteJobData(grpc::ServerContext*,
                                       const v1::DeleteJobDataRequest* request,
                                       v1::DeleteJobResponse* response) {
  const std::lock_guard lock(mutex_);
  std::set<v1::JobPart> parts;
  for (const int part : request->parts()) parts.insert(static_cast<v1::JobPart>(part));
  return DeleteParts(request->name(), parts, request->validate_only(), *response);
}

grpc::Status FakeServer::DeleteJob(grpc::ServerContext*, const v1::DeleteJobRequest* request,
                                   v1::DeleteJobResponse* response) {
  const std::lock_guard lock(mutex_);
  const std::string& name = request->name();
  if (deleted_jobs_.contains(name)) return grpc::Status::OK;
  grpc::Status status =
      DeleteParts(name, {v1::JOB_PART_CHECKPOINTS, v1::JOB_PART_LOGS, v1::JOB_PART_METRICS},
                  request->validate_only(), *response);
  if (!status.ok()) return status;
  response->set_kept_spec(keeps_spec_);
  if (request->validate_only()) return grpc::Status::OK;
  deleted_jobs_.insert(name);
  std::erase_if(jobs_, [&name](const auto& known) { return known->name() == name; });
  return grpc::Status::OK;
}

grpc::Status FakeServer::CloneJob(grpc::ServerContext*, const v1::CloneJobRequest* request,
                                  v1::CloneJobResponse* response) {
  v1::JobSpec changed;
  v1::JobSpec original;
  v1::JobState new_state = v1::JOB_STATE_QUEUED;
  {
    const std::lock_guard lock(mutex_);
    last_clone_ = *request;
    new_state = new_job_state_;
    v1::Job* job = nullptr;
    grpc::Status status = Find(request->name(), job);
    if (!status.ok()) return status;
    original = job->resolved_spec();
  }
  changed = original;
  for (const v1::SpecChange& change : request->changes()) {
    const absl::Status status = spec::ApplyChange(changed, change.path(), change.value_json());
    if (!status.ok()) return rpc::ToGrpcStatus(status);
  }
  for (const auto& difference : spec::DiffSpecs(original, changed)) {
    v1::SpecDifference* added = response->add_differences();
    added->set_path(difference.path);
    added->set_left_json(difference.left_json);
    added->set_right_json(difference.right_json);
  }
  *response->mutable_job()->mutable_resolved_spec() = changed;
  if (request->validate_only()) return grpc::Status::OK;
  const std::string name = AddJob(changed.name(), new_state);
  ChangeJob(name, [&](v1::Job& job) {
    *job.mutable_resolved_spec() = changed;
    *response->mutable_job() = job;
  });
  return grpc::Status::OK;
}

void FakeServer::AddVerification(const std::string& job, const v1::Verification& verification) {
  const std::lock_guard lock(mutex_);
  *verifications_[job].add_verifications() = verification;
}

void FakeServer::SetLineage(const v1::Lineage& lineage) {
  const std::lock_guard lock(mutex_);
  lineage_ = lineage;
}

v1::CloneJobRequest FakeServer::last_clone() {
  const std::lock_guard lock(mutex_);
  return last_clone_;
}

grpc::Status FakeServer::AnnotateJob(grpc::ServerContext*, const v1::AnnotateJobRequest* request,
                                     v1::Job* response) {
  const std::lock_guard lock(mutex_);
  v1::Job* job = nullptr;
  grpc::Status status = Find(request->name(), job);
  if (!status.ok()) return status;
  if (request->has_note()) job->set_note(request->note());
  std::set<std::string> tags(job->added_tags().begin(), job->added_tags().end());
  for (const std::string& tag : request->remove_tags()) tags.erase(tag);
  tags.insert(request->add_tags().begin(), request->add_tags().end());
  job->clear_added_tags();
  for (const std::string& tag : tags) job->add_added_tags(tag);
  *response = *job;
  return status;
}

grpc::Status FakeServer::ListVerifications(grpc::ServerContext*,
                                           const v1::ListVerificationsRequest* request,
                                           v1::ListVerificationsResponse* response) {
  const std::lock_guard lock(mutex_);
  *response = verifications_[request->name()];
  return grpc::Status::OK;
}

grpc::Status FakeServer::GetLineage(grpc::ServerContext*, const v1::GetLineageRequest*,
                                    v1::Lineage* response) {
  const std::lock_guard lock(mutex_);
  *response = lineage_;
  return grpc::Status::OK;
}

grpc::Status FakeServer::DiffJobs(grpc::ServerContext*, const v1::DiffJobsRequest* request,
                                  v1::DiffJobsResponse* response) {
  const std::lock_guard lock(mutex_);
  v1::Job* left = nullptr;
  v1::Job* right = nullptr;
  for (const auto& [name, job] : {std::pair(request->left(), &left), {request->right(), &right}}) {
    grpc::Status status = Find(name, *job);
    if (!status.ok()) return status;
  }
  for (const auto& difference : spec::DiffSpecs(left->resolved_spec(), right->resolved_spec())) {
    v1::SpecDifference* added = response->add_differences();
    added->set_path(difference.path);
    added->set_left_json(difference.left_json);
    added->set_right_json(difference.right_json);
  }
  return grpc::Status::OK;
}

grpc::Status FakeServer::ListEvents(grpc::ServerContext*, const v1::ListEventsRequest* request,
                                    v1::ListEventsResponse* response) {
  v1::Event* event = response->add_events();
  event->set_sequence(1);
  event->set_resource(request->parent());
  event->set_type("JOB_QUEUED");
  event->set_actor("user:anna");
  event->set_message("submitted");
  return grpc::Status::OK;
}

grpc::Status FakeServer::QueryMetrics(grpc::ServerContext*, const v1::QueryMetricsRequest* request,
                                      v1::QueryMetricsResponse* response) {
  const std::lock_guard lock(mutex_);
  std::map<std::string, v1::MetricSeries> series;
  for (const v1::MetricPoint& point : points_[request->name()]) {
    const auto& wanted = request->metrics();
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), point.name()) == wanted.end()) {
      continue;
    }
    series[point.name()].set_name(point.name());
    *series[point.name()].add_points() = point;
  }
  for (auto& [name, one] : series) *response->add_series() = std::move(one);
  return grpc::Status::OK;
}

grpc::Status FakeServer::ListCheckpoints(grpc::ServerContext*,
                                         const v1::ListCheckpointsRequest* request,
                                         v1::ListCheckpointsResponse* response) {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, checkpoint] : checkpoints_) {
    if (absl::StartsWith(name, request->parent() + "/")) {
      *response->add_checkpoints() = checkpoint;
    }
  }
  std::sort(response->mutable_checkpoints()->begin(), response->mutable_checkpoints()->end(),
            [](const auto& a, const auto& b) { return a.step() < b.step(); });
  return grpc::Status::OK;
}

grpc::Status FakeServer::GetCheckpoint(grpc::ServerContext*,
                                       const v1::GetCheckpointRequest* request,
                                       v1::Checkpoint* response) {
  const std::lock_guard lock(mutex_);
  const auto known = checkpoints_.find(request->name());
  if (known == checkpoints_.end()) {
    return rpc::ToGrpcStatus(error::CheckpointNotFound(request->name()));
  }
  *response = known->second;
  return grpc::Status::OK;
}

grpc::Status FakeServer::VerifyCheckpoint(grpc::ServerContext*,
                                          const v1::VerifyCheckpointRequest* request,
                                          v1::Checkpoint* response) {
  const std::lock_guard lock(mutex_);
  v1::Checkpoint& checkpoint = checkpoints_.at(request->name());
  checkpoint.clear_damage();
  for (const v1::CheckpointFile& file : checkpoint.files()) {
    const std::string hash = ContentHash(files_.at({request->name(), file.name()}));
    if (hash != file.hash()) checkpoint.set_damage(file.name() + " has another hash");
  }
  *response = checkpoint;
  return grpc::Status::OK;
}

grpc::Status FakeServer::DownloadCheckpoint(
    grpc::ServerContext*, const v1::DownloadCheckpointRequest* request,
    grpc::ServerWriter<v1::DownloadCheckpointResponse>* writer) {
  constexpr size_t kPieceBytes = 1000;
  const std::lock_guard lock(mutex_);
  ++downloads_;
  last_download_offset_ = request->offset();
  const std::string& content = files_.at({request->name(), request->file()});
  for (auto at = static_cast<size_t>(request->offset()); at < content.size(); at += kPieceBytes) {
    v1::DownloadCheckpointResponse response;
    response.set_offset(static_cast<int64_t>(at));
    response.set_data(content.substr(at, kPieceBytes));
    writer->Write(response);
  }
  return grpc::Status::OK;
}

grpc::Status FakeServer::ListWorkers(grpc::ServerContext*, const v1::ListWorkersRequest*,
                                     v1::ListWorkersResponse* response) {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, worker] : workers_) *response->add_workers() = worker;
  return grpc::Status::OK;
}

grpc::Status FakeServer::CordonWorker(grpc::ServerContext*, const v1::CordonWorkerRequest* request,
                                      v1::Worker* response) {
  const std::lock_guard lock(mutex_);
  const auto known = workers_.find(request->name());
  if (known == workers_.end()) return rpc::ToGrpcStatus(error::WorkerNotFound(request->name()));
  known->second.set_scheduling(v1::WORKER_SCHEDULING_CORDONED);
  *response = known->second;
  return grpc::Status::OK;
}

}  // namespace trainyard::testing
