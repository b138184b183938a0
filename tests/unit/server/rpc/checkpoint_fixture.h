// Gives tests a job that runs, whose worker uploads, commits and verifies a checkpoint at step 600.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "common/base/hash.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace trainyard::rpc {

class CheckpointTest : public RpcTest {
 protected:
  void SetUp() override {
    Register();
    CreateJob("a");
    attempt_ = StartRunning();
  }
  static v1::CheckpointFile File(const std::string& name, const std::string& content) {
    v1::CheckpointFile file;
    file.set_name(name);
    file.set_size(static_cast<int64_t>(content.size()));
    file.set_hash(ContentHash(content));
    return file;
  }
  absl::StatusOr<int64_t> Append(const v1::CheckpointFile& file, int64_t offset,
                                 const std::string& data) {
    v1::AppendCheckpointFileRequest request;
    request.set_session(session_);
    request.set_attempt(attempt_.attempt());
    request.set_fencing_token(attempt_.fencing_token());
    request.set_step(600);
    *request.mutable_file() = file;
    request.set_offset(offset);
    request.set_data(data);
    v1::AppendResponse response;
    const auto status = agents_->AppendCheckpointFile(Context().get(), request, &response);
    if (!status.ok()) return FromGrpcStatus(status);
    return response.next_offset();
  }
  absl::StatusOr<v1::Checkpoint> Commit(const std::vector<v1::CheckpointFile>& files) {
    v1::CommitCheckpointRequest request;
    request.set_session(session_);
    request.set_attempt(attempt_.attempt());
    request.set_fencing_token(attempt_.fencing_token());
    request.set_step(600);
    for (const auto& file : files) *request.add_files() = file;
    v1::CommitCheckpointResponse response;
    const auto status = agents_->CommitCheckpoint(Context().get(), request, &response);
    if (!status.ok()) return FromGrpcStatus(status);
    return response.checkpoint();
  }
  absl::StatusOr<std::string> Download(const std::string& file, int64_t offset) {
    v1::DownloadCheckpointRequest request;
    request.set_name("jobs/1/checkpoints/600");
    request.set_file(file);
    request.set_offset(offset);
    const auto context = Context();
    const auto stream = checkpoints_->DownloadCheckpoint(context.get(), request);
    std::string bytes;
    v1::DownloadCheckpointResponse response;
    while (stream->Read(&response)) {
      EXPECT_EQ(response.offset(), offset + static_cast<int64_t>(bytes.size()));
      bytes += response.data();
    }
    const grpc::Status status = stream->Finish();
    if (!status.ok()) return FromGrpcStatus(status);
    return bytes;
  }
  // Appends one more point of rank 0.
  void AppendPoint(int64_t step, const std::string& name, double value) {
    const AttemptId attempt{JobId{1}, 1};
    const int64_t offset = *metrics_.ReadOffset(attempt, 0);
    ASSERT_TRUE(metrics_.AppendPoints(attempt, 0, offset, {{step, name, value}}, offset + 10).ok());
  }
  static std::map<std::string, double> MetricsOf(const v1::Checkpoint& checkpoint) {
    return {checkpoint.metrics().begin(), checkpoint.metrics().end()};
  }
  // Returns the metrics of each listed checkpoint.
  std::vector<std::map<std::string, double>> ListedMetrics() {
    v1::ListCheckpointsRequest request;
    request.set_parent("jobs/1");
    v1::ListCheckpointsResponse response;
    EXPECT_TRUE(checkpoints_->ListCheckpoints(Context().get(), request, &response).ok());
    std::vector<std::map<std::string, double>> metrics;
    for (const auto& checkpoint : response.checkpoints()) metrics.push_back(MetricsOf(checkpoint));
    return metrics;
  }

  // Writes other bytes over those of the blob, or deletes it.
  void Damage(const v1::CheckpointFile& file, const std::string& content) {
    const std::string digits = *HashDigits(file.hash());
    const std::string path = dir_.File("blobs/" + digits.substr(0, 2) + "/" + digits);
    if (content.empty()) {
      ASSERT_EQ(unlink(path.c_str()), 0);
    } else {
      ASSERT_TRUE(ReplaceFile(path, content).ok());
    }
  }
  // Has the server look at the checkpoint, as a worker or as a user.
  absl::StatusOr<v1::Checkpoint> Verify(bool as_worker = false) {
    v1::VerifyCheckpointRequest request;
    request.set_name("jobs/1/checkpoints/600");
    v1::Checkpoint checkpoint;
    const auto context = Context();
    const grpc::Status status =
        as_worker ? agents_->VerifyCheckpoint(context.get(), request, &checkpoint)
                  : checkpoints_->VerifyCheckpoint(context.get(), request, &checkpoint);
    if (!status.ok()) return FromGrpcStatus(status);
    return checkpoint;
  }

  v1::DesiredAttempt attempt_;
};

}  // namespace trainyard::rpc
