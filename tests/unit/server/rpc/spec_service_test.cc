// Tests who may save, see, run and delete which specs of the catalogue.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/base/code_errors.h"
#include "common/base/errors.h"
#include "common/tls/digest.h"
#include "server/published/published.h"
#include "server/rpc/saved_specs.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace trainyard::rpc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SpecServiceTest : public RpcTest {
 protected:
  using Stub = v1::SpecService::Stub;

  // The calls of a user of this host who is no administrator.
  struct Client {
    std::unique_ptr<v1::SpecService::Stub> specs;
    std::unique_ptr<v1::JobService::Stub> jobs;
    std::unique_ptr<v1::CodeService::Stub> code;
  };
  Client As(const std::string& user) {
    const auto channel = Connect(User(user));
    return {v1::SpecService::NewStub(channel), v1::JobService::NewStub(channel),
            v1::CodeService::NewStub(channel)};
  }

  template <typename Response, typename Request, typename Stub, typename Method>
  static absl::StatusOr<Response> Call(Stub& stub, Method method, const Request& request) {
    grpc::ClientContext context;
    Response response;
    const grpc::Status status = (stub.*method)(&context, request, &response);
    if (!status.ok()) return FromGrpcStatus(status);
    return response;
  }
  static absl::StatusOr<v1::SavedSpec> Save(const Client& client,
                                            const v1::SaveSpecRequest& request) {
    return Call<v1::SavedSpec>(*client.specs, &Stub::SaveSpec, request);
  }
  static absl::StatusOr<v1::SavedSpec> SaveJob(const Client& client, const std::string& job,
                                               const std::string& name) {
    v1::SaveSpecRequest request;
    request.set_job(job);
    request.set_name(name);
    return Save(client, request);
  }
  static absl::StatusOr<v1::SavedSpec> Get(const Client& client, const std::string& name) {
    v1::GetSavedSpecRequest request;
    request.set_name(name);
    return Call<v1::SavedSpec>(*client.specs, &Stub::GetSavedSpec, request);
  }
  static absl::StatusOr<v1::DeleteSavedSpecResponse> Delete(const Client& client,
                                                            const std::string& name) {
    v1::DeleteSavedSpecRequest request;
    request.set_name(name);
    return Call<v1::DeleteSavedSpecResponse>(*client.specs, &Stub::DeleteSavedSpec, request);
  }
  static std::vector<std::string> List(const Client& client, v1::ListSavedSpecsRequest request) {
    std::vector<std::string> names;
    while (true) {
      const auto page =
          Call<v1::ListSavedSpecsResponse>(*client.specs, &Stub::ListSavedSpecs, request);
      EXPECT_TRUE(page.ok()) << page.status();
      for (const v1::SavedSpec& saved : page->specs()) {
        EXPECT_FALSE(saved.has_spec());
        names.push_back(saved.name());
      }
      if (page->next_page_token().empty()) return names;
      request.set_page_token(page->next_page_token());
    }
  }
  static absl::StatusOr<v1::Job> Submit(const Client& client, const v1::JobSpec& spec,
                                        const std::string& saved_spec = "") {
    v1::CreateJobRequest request;
    *request.mutable_spec() = spec;
    request.mutable_options()->set_saved_spec(saved_spec);
    return Call<v1::Job>(*client.jobs, &v1::JobService::Stub::CreateJob, request);
  }
  static absl::Status Upload(const Client& client, const std::string& content) {
    v1::UploadCodeRequest request;
    request.set_digest(tls::Sha256Text(content));
    request.set_size(static_cast<int64_t>(content.size()));
    request.set_data(content);
    return Call<v1::UploadCodeResponse>(*client.code, &v1::CodeService::Stub::UploadCode, request)
        .status();
  }
  static absl::StatusOr<std::string> Download(const Client& client, const std::string& name) {
    v1::DownloadCodeRequest request;
    request.set_name(name);
    grpc::ClientContext context;
    const auto reader = client.code->DownloadCode(&context, request);
    v1::DownloadCodeResponse chunk;
    std::string content;
    while (reader->Read(&chunk)) content += chunk.data();
    const grpc::Status status = reader->Finish();
    if (!status.ok()) return FromGrpcStatus(status);
    return content;
  }
};

TEST_F(SpecServiceTest, AJobIsSavedAndRunAgain) {
  const Client anna = As("anna");
  const auto job = Submit(anna, Spec("resnet"));
  ASSERT_TRUE(job.ok()) << job.status();
  v1::SaveSpecRequest request;
  request.set_job(job->name());
  request.set_name("baseline");
  request.set_note("before the new data");
  request.add_tags("paper");
  request.set_validate_only(true);
  EXPECT_EQ(Save(anna, request)->name(), "specs/baseline");
  EXPECT_EQ(ErrorReason(Get(anna, "specs/baseline").status()), "SPEC_NOT_FOUND");
  request.set_validate_only(false);
  EXPECT_EQ(Save(anna, request)->name(), "specs/baseline/versions/1");
  EXPECT_EQ(Save(anna, request)->name(), "specs/baseline/versions/2");

  const Client bert = As("bert");
  const auto saved = Get(bert, "specs/baseline");
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->name(), "specs/baseline/versions/2");
  EXPECT_EQ(saved->versions(), 2);
  EXPECT_EQ(saved->user(), "anna");
  EXPECT_EQ(saved->note(), "before the new data");
  EXPECT_EQ(saved->title(), "resnet");
  EXPECT_EQ(saved->server_version(), "1.2.3");
  EXPECT_EQ(saved->result().job(), job->name());
  EXPECT_EQ(saved->result().uid(), job->uid());
  EXPECT_EQ(saved->result().state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(saved->resolved_spec().train().seed(), job->resolved_spec().train().seed());

  const auto again = Submit(bert, saved->resolved_spec(), saved->name());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->provenance().saved_spec(), "specs/baseline/versions/2");
  for (const char* wrong : {"specs/baseline", "baseline", "specs/a/b"}) {
    EXPECT_EQ(GetFieldViolations(Submit(bert, Spec("x"), wrong).status()).size(), 1u) << wrong;
  }
  EXPECT_EQ(ErrorReason(Submit(bert, Spec("x"), "specs/baseline/versions/9").status()),
            "SPEC_NOT_FOUND");
}

TEST_F(SpecServiceTest, AddressesAreThoseOfWhoeverWroteThem) {
  const Client anna = As("anna");
  v1::SaveSpecRequest request;
  request.set_name("told");
  *request.mutable_spec() = Spec("a");
  request.mutable_spec()->mutable_notify()->set_mail("anna@lab.example");
  ASSERT_TRUE(Save(anna, request).ok());
  const auto saved = Get(anna, "specs/told");
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_FALSE(saved->spec().has_notify());
  EXPECT_FALSE(saved->resolved_spec().has_notify());
}

TEST_F(SpecServiceTest, ANameBelongsToWhoeverHasTakenIt) {
  const Client anna = As("anna");
  const Client bert = As("bert");
  const auto job = Submit(anna, Spec("a"));
  ASSERT_TRUE(SaveJob(anna, job->name(), "mine").ok());
  EXPECT_EQ(ErrorReason(SaveJob(bert, job->name(), "mine").status()), "NOT_OWNER");
  EXPECT_EQ(ErrorReason(Delete(bert, "specs/mine").status()), "NOT_OWNER");
  EXPECT_EQ(Delete(anna, "specs/mine/versions/1")->versions(), 1);
  EXPECT_EQ(SaveJob(bert, job->name(), "mine")->name(), "specs/mine/versions/2")
      << "a name that is free again can be taken";
}

TEST_F(SpecServiceTest, MistakesAreReportedTogether) {
  const Client anna = As("anna");
  v1::SaveSpecRequest request;
  request.set_name("last");
  request.set_note(std::string(5000, 'x'));
  request.add_tags("not a tag");
  std::vector<std::string> fields;
  for (const auto& violation : GetFieldViolations(Save(anna, request).status())) {
    fields.push_back(violation.field);
  }
  EXPECT_THAT(fields, ElementsAre("name", "note", "tags[0]", "source"));
  request.Clear();
  request.set_name("new");
  request.mutable_spec()->set_name("no model");
  EXPECT_FALSE(GetFieldViolations(Save(anna, request).status()).empty());
  request.set_job("jobs/99");
  EXPECT_EQ(ErrorReason(Save(anna, request).status()), "NOT_FOUND");
}

TEST_F(SpecServiceTest, ListsPageByPage) {
  const Client anna = As("anna");
  const auto job = Submit(anna, Spec("a"));
  for (const char* name : {"delta", "alpha", "beta", "gamma"}) {
    ASSERT_TRUE(SaveJob(anna, job->name(), name).ok());
  }
  ASSERT_TRUE(SaveJob(anna, job->name(), "beta").ok());
  v1::ListSavedSpecsRequest request;
  request.set_page_size(3);
  EXPECT_THAT(List(anna, request), ElementsAre("specs/alpha/versions/1", "specs/beta/versions/2",
                                               "specs/delta/versions/1", "specs/gamma/versions/1"));
  request.set_text("LTA");
  EXPECT_THAT(List(anna, request), ElementsAre("specs/delta/versions/1"));
  request.Clear();
  request.set_page_size(1);
  request.set_parent("specs/beta");
  EXPECT_THAT(List(anna, request), ElementsAre("specs/beta/versions/2", "specs/beta/versions/1"));
  request.Clear();
  request.add_tags("none");
  EXPECT_THAT(List(anna, request), IsEmpty());
}

TEST_F(SpecServiceTest, ThoseOfAPrivateProjectAreSeenByItsMembers) {
  directory_.SetProject({"secret", /*is_private=*/true, {"anna"}});
  const Client anna = As("anna");
  const Client bert = As("bert");
  v1::JobSpec spec = Spec("a");
  spec.set_project("secret");
  const auto job = Submit(anna, spec);
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_TRUE(SaveJob(anna, job->name(), "hidden").ok());
  EXPECT_EQ(ErrorReason(SaveJob(bert, job->name(), "stolen").status()), "NOT_FOUND");
  const absl::Status unseen = Get(bert, "specs/hidden").status();
  EXPECT_EQ(ErrorReason(unseen), "SPEC_NOT_FOUND");
  EXPECT_THAT(List(bert, {}), IsEmpty());
  EXPECT_THAT(List(anna, {}), ElementsAre("specs/hidden/versions/1"));
  v1::SaveSpecRequest request;
  request.set_name("theirs");
  *request.mutable_spec() = spec;
  EXPECT_EQ(ErrorReason(Save(bert, request).status()), "NOT_A_MEMBER");
}

TEST_F(SpecServiceTest, TheCodeComesWithTheSpec) {
  const Client anna = As("anna");
  const Client bert = As("bert");
  const std::string content = "an archive";
  v1::SaveSpecRequest request;
  request.set_name("own");
  request.mutable_spec()->set_name("program");
  request.mutable_spec()->mutable_program()->add_command("true");
  request.mutable_spec()->mutable_program()->set_code(tls::Sha256Text(content));
  request.mutable_code_origin()->set_commit("abc");
  EXPECT_EQ(ErrorReason(Save(anna, request).status()), error::kCodeNotFound);
  ASSERT_TRUE(Upload(anna, content).ok());
  const auto saved = Save(anna, request);
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->model(), "program");
  EXPECT_EQ(*Download(bert, "specs/own"), content);
  const auto job = Submit(bert, saved->resolved_spec(), saved->name());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->provenance().code().commit(), "abc");
  EXPECT_EQ(ErrorReason(Download(bert, "specs/none").status()), "SPEC_NOT_FOUND");
}

TEST_F(SpecServiceTest, PublishedOnesComeOnceAndStayAwayIfDeleted) {
  ASSERT_TRUE(SavePublished(*specs_, "1.2.3", clock_.Now()).ok());
  const Client anna = As("anna");
  const std::vector<std::string> names = List(anna, {});
  EXPECT_GT(names.size(), 10u);
  ASSERT_TRUE(SavePublished(*specs_, "1.2.4", clock_.Now()).ok());
  EXPECT_EQ(List(anna, {}), names) << "nothing has changed";
  const auto convnet = Get(anna, "specs/convnet-glyphs");
  ASSERT_TRUE(convnet.ok()) << convnet.status();
  EXPECT_EQ(convnet->user(), published::kPublisher);
  EXPECT_EQ(ErrorReason(Delete(anna, "specs/convnet-glyphs").status()), "NOT_OWNER");
  EXPECT_TRUE(Submit(anna, convnet->resolved_spec(), convnet->name()).ok());
  ASSERT_TRUE(specs_->Delete({"convnet-glyphs", 0}).ok());
  ASSERT_TRUE(SavePublished(*specs_, "1.2.4", clock_.Now()).ok());
  EXPECT_EQ(ErrorReason(Get(anna, "specs/convnet-glyphs").status()), "SPEC_NOT_FOUND");
}

}  // namespace
}  // namespace trainyard::rpc
