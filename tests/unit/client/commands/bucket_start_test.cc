// Tests how long a checkpoint in a bucket is waited for, against a service that imports nothing.
#include "client/commands/bucket_start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/rpc/status.h"
#include "grpcpp/server_builder.h"
#include "tests/unit/client/command_runner.h"
#include "trainyard/v1/bundle.grpc.pb.h"

namespace trainyard::commands {
namespace {

constexpr char kPlace[] = "s3://lab/yard/checkpoints/1/600";

// Gives its answers in turn, and then the checkpoint.
class Bundles : public v1::BundleService::Service {
 public:
  using Answer = absl::StatusOr<v1::ImportCheckpointResponse>;

  explicit Bundles(std::vector<Answer> answers) : answers_(std::move(answers)) {}

  grpc::Status ImportCheckpoint(grpc::ServerContext*, const v1::ImportCheckpointRequest* request,
                                v1::ImportCheckpointResponse* response) override {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(request->place(), kPlace);
    if (calls_ == answers_.size()) {
      response->mutable_checkpoint()->set_name("jobs/2/checkpoints/600");
      return grpc::Status::OK;
    }
    const Answer& answer = answers_[calls_++];
    if (answer.ok()) *response = *answer;
    return rpc::ToGrpcStatus(answer.status());
  }

  size_t calls() {
    const std::lock_guard lock(mutex_);
    return calls_;
  }

 private:
  std::mutex mutex_;
  const std::vector<Answer> answers_;
  size_t calls_ = 0;
};

class BucketStartTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::string> Resolve(Bundles& bundles) {
    const std::string address = absl::StrCat("unix:", runner_.home.File("s"));
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(&bundles);
    const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    const auto link = link::ServerLink::Connect(address, runner_.interrupt);
    if (!link.ok()) return link.status();
    const Parsed parsed = ParseCommandLine({"ls"});
    std::ostringstream out;
    std::istringstream in;
    const Context context = {parsed.invocation->options,
                             runner_.surroundings,
                             runner_.terminal,
                             out,
                             out,
                             in,
                             false,
                             *Clock::Real(),
                             *Rng::Real(),
                             runner_.interrupt,
                             out};
    return ResolveStart(context, **link, kPlace, "");
  }

  testing::CommandRunner runner_{""};
};

TEST_F(BucketStartTest, AServerThatCannotReachTheBucketIsNotAskedAgain) {
  // Each question after a failure would begin another import, which is under way at first.
  const Bundles::Answer under_way = v1::ImportCheckpointResponse();
  const Bundles::Answer failed = MakeError(absl::StatusCode::kUnavailable, "S3_UNAVAILABLE",
                                           "the store has failed; try again later");
  Bundles bundles({under_way, failed, under_way, failed});
  const absl::Status status = Resolve(bundles).status();
  EXPECT_EQ(ErrorReason(status), "S3_UNAVAILABLE") << status;
  EXPECT_THAT(status.message(), ::testing::HasSubstr("try again later"));
  EXPECT_EQ(bundles.calls(), 2);
}

TEST_F(BucketStartTest, AServerThatRestartsIsAskedAgain) {
  Bundles bundles({absl::UnavailableError("the server is shutting down; try again"),
                   v1::ImportCheckpointResponse()});
  const auto name = Resolve(bundles);
  ASSERT_TRUE(name.ok()) << name.status();
  EXPECT_EQ(*name, "jobs/2/checkpoints/600");
}

}  // namespace
}  // namespace trainyard::commands
