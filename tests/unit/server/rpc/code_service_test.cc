// Tests who may send, run and fetch which code.
#include <gtest/gtest.h>

#include "common/base/code_errors.h"
#include "common/base/errors.h"
#include "common/tls/digest.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace trainyard::rpc {
namespace {

class CodeServiceTest : public RpcTest {
 protected:
  absl::Status Upload(const std::string& user, const std::string& content) {
    v1::UploadCodeRequest request;
    request.set_digest(tls::Sha256Text(content));
    request.set_size(static_cast<int64_t>(content.size()));
    request.set_data(content);
    v1::UploadCodeResponse response;
    return FromGrpcStatus(code_calls_->UploadCode(Context(user).get(), request, &response));
  }
  bool Finds(const std::string& user, const std::string& digest) {
    v1::FindCodeRequest request;
    request.add_digests(digest);
    v1::FindCodeResponse response;
    EXPECT_TRUE(code_calls_->FindCode(Context(user).get(), request, &response).ok());
    return response.digests_size() == 1;
  }
  absl::StatusOr<v1::Job> Submit(const std::string& user, const std::string& code,
                                 bool is_trial = false, const std::string& project = "") {
    v1::CreateJobRequest request;
    request.mutable_spec()->set_name("program");
    request.mutable_spec()->set_project(project);
    request.mutable_spec()->mutable_program()->add_command("true");
    request.mutable_spec()->mutable_program()->set_code(code);
    request.mutable_options()->mutable_code_origin()->set_commit("abc");
    request.set_validate_only(is_trial);
    v1::Job job;
    const grpc::Status status = jobs_->CreateJob(Context(user).get(), request, &job);
    if (!status.ok()) return FromGrpcStatus(status);
    return job;
  }
  absl::StatusOr<std::string> Download(const std::string& user, const std::string& job,
                                       v1::CodePart part = v1::CODE_PART_ARCHIVE) {
    v1::DownloadCodeRequest request;
    request.set_name(job);
    request.set_part(part);
    const auto context = Context(user);
    const auto reader = code_calls_->DownloadCode(context.get(), request);
    v1::DownloadCodeResponse chunk;
    std::string content;
    while (reader->Read(&chunk)) content += chunk.data();
    const grpc::Status status = reader->Finish();
    if (!status.ok()) return FromGrpcStatus(status);
    return content;
  }

  const std::string content_ = "an archive";
  const std::string digest_ = tls::Sha256Text(content_);
};

TEST_F(CodeServiceTest, CodeThatWasSentRunsAndIsGivenBack) {
  EXPECT_EQ(ErrorReason(Submit("anna", digest_).status()), error::kCodeNotFound);
  EXPECT_TRUE(Submit("anna", digest_, /*is_trial=*/true).ok()) << "nothing is sent for a trial";
  EXPECT_FALSE(Finds("anna", digest_));
  ASSERT_TRUE(Upload("anna", content_).ok());
  EXPECT_TRUE(Finds("anna", digest_));
  const auto job = Submit("anna", digest_);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->provenance().code().commit(), "abc");
  EXPECT_EQ(*Download("anna", job->name()), content_);
  EXPECT_EQ(ErrorReason(Download("anna", job->name(), v1::CODE_PART_DIFF).status()),
            error::kCodeNotFound);
  EXPECT_EQ(ErrorReason(Download("anna", CreateJob("model").name()).status()),
            error::kCodeNotFound);
  for (const char* wrong : {".", "/home/anna", "sha256:12"}) {
    const absl::Status status = Submit("anna", wrong).status();
    ASSERT_EQ(GetFieldViolations(status).size(), 1U) << status;
    EXPECT_EQ(GetFieldViolations(status)[0].field, "spec.program.code");
  }
}

TEST_F(CodeServiceTest, AClonePointsToTheSameCode) {
  ASSERT_TRUE(Upload("anna", content_).ok());
  ASSERT_TRUE(Submit("anna", digest_).ok());
  clock_.Advance(runtime::CodeStore::kKeep * 2);
  v1::CloneJobRequest request;
  request.set_name("jobs/1");
  v1::CloneJobResponse response;
  const grpc::Status status = jobs_->CloneJob(Context("bert").get(), request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.job().resolved_spec().program().code(), digest_);
  EXPECT_EQ(response.job().provenance().code().commit(), "abc");
  EXPECT_TRUE(board_.IsCodeUsed(digest_));
  EXPECT_EQ(board_.CodeOf("bert").size(), 1U);
}

TEST_F(CodeServiceTest, ToKnowTheDigestOfPrivateCodeIsNotEnough) {
  directory_.SetProject({"vision", true, {"anna", "mia"}});
  ASSERT_TRUE(Upload("anna", content_).ok());
  ASSERT_TRUE(Submit("anna", digest_, false, "vision").ok());
  const auto channel = Connect(User("bert"));
  const auto bert = v1::CodeService::NewStub(channel);
  v1::FindCodeRequest find;
  find.add_digests(digest_);
  v1::FindCodeResponse found;
  grpc::ClientContext first;
  ASSERT_TRUE(bert->FindCode(&first, find, &found).ok());
  EXPECT_EQ(found.digests_size(), 0) << "he is not even told that it is there";
  v1::CreateJobRequest request;
  request.mutable_spec()->set_name("thief");
  request.mutable_spec()->mutable_program()->add_command("true");
  request.mutable_spec()->mutable_program()->set_code(digest_);
  v1::Job job;
  grpc::ClientContext second;
  const auto jobs = v1::JobService::NewStub(channel);
  EXPECT_EQ(ErrorReason(FromGrpcStatus(jobs->CreateJob(&second, request, &job))),
            error::kCodeNotFound);
  v1::DownloadCodeRequest download;
  download.set_name("jobs/1");
  v1::DownloadCodeResponse chunk;
  grpc::ClientContext third;
  const auto reader = bert->DownloadCode(&third, download);
  EXPECT_FALSE(reader->Read(&chunk));
  EXPECT_TRUE(absl::IsNotFound(FromGrpcStatus(reader->Finish())));
  // A member of the project sees the job, and may use its code.
  const auto mia = v1::CodeService::NewStub(Connect(User("mia")));
  grpc::ClientContext fourth;
  ASSERT_TRUE(mia->FindCode(&fourth, find, &found).ok());
  EXPECT_EQ(found.digests_size(), 1);
}

TEST_F(CodeServiceTest, AQuotaOnStorageCountsCodeOnce) {
  v1::SetQuotaRequest quota;
  quota.mutable_quota()->set_subject("user:anna");
  quota.mutable_quota()->set_stored_bytes(15);
  v1::Quota set;
  ASSERT_TRUE(sharing_->SetQuota(Context("").get(), quota, &set).ok());
  ASSERT_TRUE(Upload("anna", content_).ok());
  ASSERT_TRUE(Submit("anna", digest_).ok());
  ASSERT_TRUE(Submit("anna", digest_).ok());
  EXPECT_EQ(ErrorReason(Upload("anna", "other archive")), "QUOTA_EXCEEDED");
  EXPECT_TRUE(Upload("anna", "sm").ok());
  EXPECT_EQ(ErrorReason(Upload("anna", "small")), "QUOTA_EXCEEDED") << "no job has the other yet";
  EXPECT_TRUE(Upload("bert", "other archive").ok());
}

}  // namespace
}  // namespace trainyard::rpc
