// Implements the fake server's part of sharing: the queue, many jobs at once, devices, quotas,
// reservations.
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/rpc/status.h"
#include "tests/unit/client/fake_server.h"

namespace trainyard::testing {

void FakeServer::RefuseItems(const std::string& name, const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  refused_items_[name] = status;
}

void FakeServer::BreakNextStream() {
  const std::lock_guard lock(mutex_);
  break_stream_ = true;
}

void FakeServer::SetExplanation(const v1::Explanation& explanation) {
  const std::lock_guard lock(mutex_);
  explanation_ = explanation;
}

void FakeServer::SetUsage(const v1::ListUsageResponse& usage) {
  const std::lock_guard lock(mutex_);
  usage_ = usage;
}

void FakeServer::AddShare(const v1::Share& share) {
  const std::lock_guard lock(mutex_);
  *shares_.add_shares() = share;
}

v1::CancelJobsRequest FakeServer::last_cancel() {
  const std::lock_guard lock(mutex_);
  return last_cancel_;
}

v1::ListJobsRequest FakeServer::last_list() {
  const std::lock_guard lock(mutex_);
  return last_list_;
}

v1::ExplainJobRequest FakeServer::last_explain() {
  const std::lock_guard lock(mutex_);
  return last_explain_;
}

v1::CreateReservationRequest FakeServer::last_reservation() {
  const std::lock_guard lock(mutex_);
  return last_reservation_;
}

v1::DrainWorkerRequest FakeServer::last_drain() {
  const std::lock_guard lock(mutex_);
  return last_drain_;
}

grpc::Status FakeServer::CreateJobs(
    grpc::ServerContext* context,
    grpc::ServerReaderWriter<v1::CreateJobsResponse, v1::CreateJobsRequest>* stream) {
  v1::CreateJobsRequest request;
  while (stream->Read(&request)) {
    v1::CreateJobsResponse response;
    for (const v1::CreateJobRequest& item : request.requests()) {
      v1::CreateJobResult* result = response.add_results();
      absl::Status refusal;
      {
        const std::lock_guard lock(mutex_);
        const auto refused = refused_items_.find(item.spec().name());
        if (refused != refused_items_.end()) refusal = refused->second;
      }
      v1::Job job;
      if (refusal.ok()) refusal = rpc::FromGrpcStatus(CreateJob(context, &item, &job));
      if (refusal.ok()) {
        result->set_name(job.name());
      } else {
        *result->mutable_error() = rpc::ToStatusProto(refusal);
      }
    }
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(break_stream_, false)) {
        return grpc::Status(grpc::StatusCode::UNAVAILABLE, "restarting");
      }
    }
    stream->Write(response);
  }
  return grpc::Status::OK;
}

grpc::Status FakeServer::ExplainJob(grpc::ServerContext*, const v1::ExplainJobRequest* request,
                                    v1::Explanation* response) {
  const std::lock_guard lock(mutex_);
  last_explain_ = *request;
  *response = explanation_;
  return grpc::Status::OK;
}

grpc::Status FakeServer::ListQueue(grpc::ServerContext*, const v1::ListQueueRequest*,
                                   v1::ListQueueResponse* response) {
  const std::lock_guard lock(mutex_);
  for (const auto& job : jobs_) {
    if (job->state() != v1::JOB_STATE_QUEUED) continue;
    *response->add_jobs() = *job;
    response->set_queued_jobs(response->queued_jobs() + 1);
  }
  return grpc::Status::OK;
}

grpc::Status FakeServer::CancelJobs(grpc::ServerContext* context,
                                    const v1::CancelJobsRequest* request,
                                    v1::CancelJobsResponse* response) {
  {
    const std::lock_guard lock(mutex_);
    last_cancel_ = *request;
  }
  for (const std::string& name : request->names()) {
    v1::CancelJobRequest cancel;
    cancel.set_name(name);
    v1::Job job;
    const grpc::Status status = CancelJob(context, &cancel, &job);
    if (status.ok()) {
      response->set_cancelled(response->cancelled() + 1);
      continue;
    }
    response->set_failed(response->failed() + 1);
    v1::JobError* error = response->add_errors();
    error->set_name(name);
    *error->mutable_error() = rpc::ToStatusProto(rpc::FromGrpcStatus(status));
  }
  return grpc::Status::OK;
}

grpc::Status FakeServer::DrainWorker(grpc::ServerContext*, const v1::DrainWorkerRequest* request,
                                     v1::Worker* response) {
  const std::lock_guard lock(mutex_);
  last_drain_ = *request;
  const auto known = workers_.find(request->name());
  if (known == workers_.end()) return rpc::ToGrpcStatus(error::WorkerNotFound(request->name()));
  known->second.set_scheduling(v1::WORKER_SCHEDULING_DRAINING);
  *response = known->second;
  return grpc::Status::OK;
}

v1::DeclareWorkerLostRequest FakeServer::last_lost() {
  const std::lock_guard lock(mutex_);
  return last_lost_;
}

grpc::Status FakeServer::DeclareWorkerLost(grpc::ServerContext*,
                                           const v1::DeclareWorkerLostRequest* request,
                                           v1::Worker* response) {
  const std::lock_guard lock(mutex_);
  const auto known = workers_.find(request->name());
  if (known == workers_.end()) return rpc::ToGrpcStatus(error::WorkerNotFound(request->name()));
  if (known->second.state() == v1::WORKER_STATE_ACTIVE) {
    return rpc::ToGrpcStatus(error::WorkerNotUnreachable(request->name()));
  }
  known->second.set_state(v1::WORKER_STATE_GONE);
  last_lost_ = *request;
  *response = known->second;
  return grpc::Status::OK;
}

grpc::Status FakeServer::DeleteWorker(grpc::ServerContext*, const v1::DeleteWorkerRequest* request,
                                      v1::DeleteWorkerResponse*) {
  const std::lock_guard lock(mutex_);
  const auto known = workers_.find(request->name());
  if (known == workers_.end()) return rpc::ToGrpcStatus(error::WorkerNotFound(request->name()));
  if (known->second.state() == v1::WORKER_STATE_ACTIVE) {
    return rpc::ToGrpcStatus(error::WorkerNotUnreachable(request->name()));
  }
  workers_.erase(known);
  return grpc::Status::OK;
}

grpc::Status FakeServer::SetAside(const std::string& worker, const std::string& device,
                                  const std::string& reason, v1::Worker* response) {
  const std::lock_guard lock(mutex_);
  const auto known = workers_.find(worker);
  if (known == workers_.end()) return rpc::ToGrpcStatus(error::WorkerNotFound(worker));
  for (v1::Device& one : *known->second.mutable_devices()) {
    if (one.name() != device) continue;
    one.set_quarantine(reason);
    *response = known->second;
    return grpc::Status::OK;
  }
  return rpc::ToGrpcStatus(error::DeviceNotFound(worker, device));
}

grpc::Status FakeServer::QuarantineDevice(grpc::ServerContext*,
                                          const v1::QuarantineDeviceRequest* request,
                                          v1::Worker* response) {
  return SetAside(request->worker(), request->device(), request->reason(), response);
}

grpc::Status FakeServer::ReleaseDevice(grpc::ServerContext*,
                                       const v1::ReleaseDeviceRequest* request,
                                       v1::Worker* response) {
  return SetAside(request->worker(), request->device(), "", response);
}

grpc::Status FakeServer::SetQuota(grpc::ServerContext*, const v1::SetQuotaRequest* request,
                                  v1::Quota* response) {
  const std::lock_guard lock(mutex_);
  *response = quotas_[request->quota().subject()] = request->quota();
  return grpc::Status::OK;
}

grpc::Status FakeServer::ListQuotas(grpc::ServerContext*, const v1::ListQuotasRequest*,
                                    v1::ListQuotasResponse* response) {
  const std::lock_guard lock(mutex_);
  for (const auto& [subject, quota] : quotas_) *response->add_quotas() = quota;
  return grpc::Status::OK;
}

grpc::Status FakeServer::DeleteQuota(grpc::ServerContext*, const v1::DeleteQuotaRequest* request,
                                     v1::DeleteQuotaResponse*) {
  const std::lock_guard lock(mutex_);
  quotas_.erase(request->subject());
  return grpc::Status::OK;
}

grpc::Status FakeServer::CreateReservation(grpc::ServerContext*,
                                           const v1::CreateReservationRequest* request,
                                           v1::Reservation* response) {
  const std::lock_guard lock(mutex_);
  last_reservation_ = *request;
  *response = request->reservation();
  response->set_actor("user:olga");
  reservations_[response->name()] = *response;
  return grpc::Status::OK;
}

grpc::Status FakeServer::ListReservations(grpc::ServerContext*, const v1::ListReservationsRequest*,
                                          v1::ListReservationsResponse* response) {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, reservation] : reservations_) {
    *response->add_reservations() = reservation;
  }
  return grpc::Status::OK;
}

grpc::Status FakeServer::DeleteReservation(grpc::ServerContext*,
                                           const v1::DeleteReservationRequest* request,
                                           v1::DeleteReservationResponse*) {
  const std::lock_guard lock(mutex_);
  if (reservations_.erase(request->name()) > 0) return grpc::Status::OK;
  return rpc::ToGrpcStatus(error::ReservationNotFound(request->name()));
}

grpc::Status FakeServer::ListUsage(grpc::ServerContext*, const v1::ListUsageRequest* request,
                                   v1::ListUsageResponse* response) {
  const std::lock_guard lock(mutex_);
  const bool by_project = request->group() == v1::USAGE_GROUP_PROJECT;
  for (const v1::Usage& usage : usage_.usage()) {
    if (absl::StartsWith(usage.subject(), by_project ? "project:" : "user:")) {
      *response->add_usage() = usage;
    }
  }
  for (int i = 0; i < std::min(request->largest_jobs(), usage_.largest_jobs_size()); ++i) {
    *response->add_largest_jobs() = usage_.largest_jobs(i);
  }
  return grpc::Status::OK;
}

grpc::Status FakeServer::ListShares(grpc::ServerContext*, const v1::ListSharesRequest*,
                                    v1::ListSharesResponse* response) {
  const std::lock_guard lock(mutex_);
  *response = shares_;
  return grpc::Status::OK;
}

}  // namespace trainyard::testing
