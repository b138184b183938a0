// Tests CreateJobs, which takes many submissions over one stream.
#include <gmock/gmock.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "server/rpc/limits.h"
#include "tests/testing/wait.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace trainyard::rpc {
namespace {

using ::testing::ElementsAre;

class CreateJobsTest : public RpcTest {
 protected:
  using Stream = grpc::ClientReaderWriter<v1::CreateJobsRequest, v1::CreateJobsResponse>;

  static v1::CreateJobRequest Item(const std::string& name, const std::string& request_id = "") {
    v1::CreateJobRequest item;
    *item.mutable_spec() = Spec(name);
    item.set_request_id(request_id);
    return item;
  }
  // Returns the names of created jobs, and the reasons for those that were refused.
  static std::vector<std::string> Texts(const v1::CreateJobsResponse& response) {
    std::vector<std::string> texts;
    for (const v1::CreateJobResult& result : response.results()) {
      texts.push_back(result.has_error() ? ErrorReason(FromStatusProto(result.error()))
                                         : result.name());
    }
    return texts;
  }

  std::unique_ptr<grpc::ClientContext> context_ = Context();
};

TEST_F(CreateJobsTest, AnswersEachMessageInItsOrderWithAllItsItems) {
  const auto stream = jobs_->CreateJobs(context_.get());
  for (int message = 0; message < 3; ++message) {
    v1::CreateJobsRequest request;
    *request.add_requests() = Item("a");
    *request.add_requests() = Item("b");
    ASSERT_TRUE(stream->Write(request));
  }
  stream->WritesDone();
  v1::CreateJobsResponse response;
  std::vector<std::string> names;
  while (stream->Read(&response)) {
    for (const std::string& text : Texts(response)) names.push_back(text);
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_THAT(names, ElementsAre("jobs/1", "jobs/2", "jobs/3", "jobs/4", "jobs/5", "jobs/6"));
  EXPECT_EQ(GetJob("jobs/6").resolved_spec().name(), "b");
  EXPECT_EQ(GetJob("jobs/6").user(), "anna");
}

TEST_F(CreateJobsTest, AnItemThatIsRefusedLeavesTheOthersAlone) {
  const auto stream = jobs_->CreateJobs(context_.get());
  v1::CreateJobsRequest request;
  *request.add_requests() = Item("good");
  *request.add_requests() = Item("a b");
  *request.add_requests() = Item("dry");
  request.mutable_requests(2)->set_validate_only(true);
  *request.add_requests() = Item("good too");
  request.mutable_requests(3)->mutable_spec()->set_name("good-too");
  ASSERT_TRUE(stream->Write(request));
  v1::CreateJobsResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_THAT(Texts(response), ElementsAre("jobs/1", "INVALID_SPEC", "INVALID_SPEC", "jobs/2"));
  const absl::Status refusal = FromStatusProto(response.results(1).error());
  EXPECT_EQ(refusal.code(), absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(GetFieldViolations(refusal).size(), 1u);
  EXPECT_EQ(GetFieldViolations(refusal)[0].field, "spec.name");
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(CreateJobsTest, AnItemSentAgainIsTheSameJob) {
  std::vector<std::string> names;
  for (int time = 0; time < 2; ++time) {
    context_ = Context();
    const auto stream = jobs_->CreateJobs(context_.get());
    v1::CreateJobsRequest request;
    *request.add_requests() = Item("one", "r-1");
    *request.add_requests() = Item(time == 0 ? "two" : "other", "r-2");
    ASSERT_TRUE(stream->Write(request));
    v1::CreateJobsResponse response;
    ASSERT_TRUE(stream->Read(&response));
    for (const std::string& text : Texts(response)) names.push_back(text);
    stream->WritesDone();
    EXPECT_TRUE(stream->Finish().ok());
  }
  EXPECT_THAT(names, ElementsAre("jobs/1", "jobs/2", "jobs/1", "REQUEST_ID_REUSED"));
}

TEST_F(CreateJobsTest, AMessageOfTheWrongSizeEndsTheStreamAfterWhatWasTaken) {
  for (const int size : {0, kCreateItemsMax + 1}) {
    context_ = Context();
    const auto stream = jobs_->CreateJobs(context_.get());
    v1::CreateJobsRequest request;
    *request.add_requests() = Item("taken");
    ASSERT_TRUE(stream->Write(request));
    request.Clear();
    for (int i = 0; i < size; ++i) *request.add_requests() = Item("many");
    ASSERT_TRUE(stream->Write(request));
    v1::CreateJobsResponse response;
    ASSERT_TRUE(stream->Read(&response));
    EXPECT_EQ(response.results_size(), 1);
    EXPECT_FALSE(stream->Read(&response));
    const absl::Status status = FromGrpcStatus(stream->Finish());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(GetFieldViolations(status).at(0).field, "requests");
  }
}

TEST_F(CreateJobsTest, TheLargestMessageIsTaken) {
  const auto stream = jobs_->CreateJobs(context_.get());
  v1::CreateJobsRequest request;
  for (int i = 0; i < kCreateItemsMax; ++i) *request.add_requests() = Item("many");
  ASSERT_TRUE(stream->Write(request));
  v1::CreateJobsResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.results_size(), kCreateItemsMax);
  EXPECT_EQ(response.results(kCreateItemsMax - 1).name(), absl::StrCat("jobs/", kCreateItemsMax));
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

// More messages than the server reads ahead: the client must read as it writes.
TEST_F(CreateJobsTest, MoreMessagesThanMayWaitAreAllAnswered) {
  constexpr int kMessages = 5 * static_cast<int>(kCreateMessagesMax);
  const auto stream = jobs_->CreateJobs(context_.get());
  int answered = 0;
  std::thread reader([&] {
    v1::CreateJobsResponse response;
    while (stream->Read(&response)) {
      EXPECT_EQ(response.results(0).name(), absl::StrCat("jobs/", ++answered));
    }
  });
  for (int i = 0; i < kMessages; ++i) {
    v1::CreateJobsRequest request;
    *request.add_requests() = Item("many");
    ASSERT_TRUE(stream->Write(request));
  }
  stream->WritesDone();
  reader.join();
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(answered, kMessages);
}

TEST_F(CreateJobsTest, AStreamThatIsOpenEndsWithTheServer) {
  const auto stream = jobs_->CreateJobs(context_.get());
  v1::CreateJobsRequest request;
  *request.add_requests() = Item("one");
  ASSERT_TRUE(stream->Write(request));
  v1::CreateJobsResponse response;
  ASSERT_TRUE(stream->Read(&response));
  open_streams_.EndAll(absl::UnavailableError("shutting down"));
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(CreateJobsTest, AClientThatGoesLeavesNoStreamBehind) {
  auto stream = jobs_->CreateJobs(context_.get());
  v1::CreateJobsRequest request;
  *request.add_requests() = Item("one");
  ASSERT_TRUE(stream->Write(request));
  v1::CreateJobsResponse response;
  ASSERT_TRUE(stream->Read(&response));
  context_->TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(testing::WaitUntil([this] { return open_streams_.size() == 0; }));
  EXPECT_EQ(GetJob("jobs/1").name(), "jobs/1");
}

}  // namespace
}  // namespace trainyard::rpc
