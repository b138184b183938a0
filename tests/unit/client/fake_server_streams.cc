// Implements the streams of the fake server. Each looks at what there is whenever something has
// changed.
#include <algorithm>
#include <utility>

#include "client/output/text.h"
#include "tests/unit/client/fake_server.h"

namespace trainyard::testing {

grpc::Status FakeServer::WatchJobs(grpc::ServerContext* context,
                                   const v1::WatchJobsRequest* request,
                                   grpc::ServerWriter<v1::WatchJobsResponse>* writer) {
  std::unique_lock lock(mutex_);
  int64_t seen = request->start_revision();
  bool is_first = true;
  do {
    for (const auto& job : jobs_) {
      const auto& names = request->names();
      if (!names.empty() && std::find(names.begin(), names.end(), job->name()) == names.end()) {
        continue;
      }
      if (revision_of_[job->name()] <= seen) continue;
      v1::WatchJobsResponse response;
      *response.mutable_job() = *job;
      response.set_revision(revision_of_[job->name()]);
      writer->Write(response);
    }
    seen = revision_;
    if (is_first) {
      is_first = false;
      ++watches_;
      changed_.notify_all();
    }
  } while (WaitForChange(lock, *context));
  return grpc::Status(grpc::StatusCode::UNAVAILABLE, "shutting down");
}

grpc::Status FakeServer::TailLogs(grpc::ServerContext* context, const v1::TailLogsRequest* request,
                                  grpc::ServerWriter<v1::TailLogsResponse>* writer) {
  std::unique_lock lock(mutex_);
  std::map<int, int64_t> sent;
  bool is_counted = !request->follow();
  while (true) {
    auto& streams = request->stream() == v1::RANK_STREAM_TRACE ? traces_ : logs_;
    for (const auto& [rank, text] : streams[request->name()]) {
      if (request->has_rank() && request->rank() != rank) continue;
      const auto size = static_cast<int64_t>(text.size());
      const int64_t start = request->offset() < 0 ? std::max<int64_t>(size + request->offset(), 0)
                                                  : request->offset();
      const int64_t from = sent.emplace(rank, start).first->second;
      if (from >= size) continue;
      v1::TailLogsResponse response;
      response.set_attempt(1);
      response.set_rank(rank);
      response.set_offset(from);
      response.set_data(text.substr(static_cast<size_t>(from)));
      writer->Write(response);
      sent[rank] = size;
    }
    if (!std::exchange(is_counted, true)) ++tails_;
    v1::Job* job = nullptr;
    if (!Find(request->name(), job).ok() || !request->follow() || output::IsFinal(job->state())) {
      return grpc::Status::OK;
    }
    if (!WaitForChange(lock, *context)) {
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "shutting down");
    }
  }
}

grpc::Status FakeServer::WatchMetrics(grpc::ServerContext* context,
                                      const v1::WatchMetricsRequest* request,
                                      grpc::ServerWriter<v1::WatchMetricsResponse>* writer) {
  std::unique_lock lock(mutex_);
  auto cursor = static_cast<size_t>(request->cursor());
  while (true) {
    const auto& points = points_[request->name()];
    if (cursor < points.size()) {
      v1::WatchMetricsResponse response;
      for (; cursor < points.size(); ++cursor) *response.add_points() = points[cursor];
      response.set_cursor(static_cast<int64_t>(cursor));
      writer->Write(response);
    }
    v1::Job* job = nullptr;
    if (!Find(request->name(), job).ok() || !request->follow() || output::IsFinal(job->state())) {
      return grpc::Status::OK;
    }
    if (!WaitForChange(lock, *context)) {
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "shutting down");
    }
  }
}

}  // namespace trainyard::testing
