// Tests what users ask of sweeps, and what the server answers. Their trials are jobs that wait
// here, since no worker runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/errors.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace trainyard::rpc {
namespace {

using ::testing::HasSubstr;

class SweepServiceTest : public RpcTest {
 protected:
  using Stub = v1::SweepService::Stub;

  std::unique_ptr<Stub> As(const std::string& user) {
    return v1::SweepService::NewStub(Connect(User(user, access::Role::kSubmitter)));
  }

  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(Stub& stub,
                                grpc::Status (Stub::*call)(grpc::ClientContext*, const Request&,
                                                           Response*),
                                const Request& request) {
    const auto context = Context("");
    Response response;
    const grpc::Status status = (stub.*call)(context.get(), request, &response);
    if (!status.ok()) return FromGrpcStatus(status);
    return response;
  }

  static v1::CreateSweepRequest Search(const std::string& name) {
    v1::CreateSweepRequest request;
    *request.mutable_spec() = Spec(name);
    v1::SweepSpec& sweep = *request.mutable_spec()->mutable_sweep();
    (*sweep.mutable_parameters())["optimizer.sgd.lr"] = "log(1e-4, 1)";
    sweep.set_maximize("test.accuracy");
    sweep.set_search(v1::SWEEP_SEARCH_ASHA);
    sweep.set_trials(16);
    request.mutable_options()->set_wait_for_devices(true);
    return request;
  }

  absl::StatusOr<v1::Sweep> Create(Stub& stub, const v1::CreateSweepRequest& request) {
    return Call(stub, &Stub::CreateSweep, request);
  }
  absl::StatusOr<v1::Sweep> Get(Stub& stub, const std::string& name) {
    v1::GetSweepRequest request;
    request.set_name(name);
    request.set_with_decisions(true);
    return Call(stub, &Stub::GetSweep, request);
  }
};

TEST_F(SweepServiceTest, ADryRunShowsWhatWouldBegin) {
  const auto anna = As("anna");
  v1::CreateSweepRequest request = Search("look");
  request.set_validate_only(true);
  const auto shown = Create(*anna, request);
  ASSERT_TRUE(shown.ok()) << shown.status();
  EXPECT_EQ(shown->name(), "");
  EXPECT_EQ(shown->trials_total(), 16);
  ASSERT_EQ(shown->trials_size(), 16);
  EXPECT_NE(shown->trials(0).values().at("optimizer.sgd.lr"),
            shown->trials(1).values().at("optimizer.sgd.lr"));
  ASSERT_EQ(shown->rungs_size(), 3) << "16 trials have room for 3 rungs with a factor of 4";
  EXPECT_DOUBLE_EQ(shown->rungs(0), 1.0 / 16);
  EXPECT_EQ(shown->spec().sweep().rungs(), 3) << "what was chosen stands in the spec";
  EXPECT_EQ(ErrorReason(Get(*anna, "sweeps/1").status()), "SWEEP_NOT_FOUND");
}

TEST_F(SweepServiceTest, MistakesAreReportedTogether) {
  const auto anna = As("anna");
  v1::CreateSweepRequest request = Search("look");
  (*request.mutable_spec()->mutable_sweep()->mutable_parameters())["train.sed"] = "int(1, 2)";
  request.mutable_options()->set_array_size(3);
  request.mutable_options()->add_after("jobs/1");
  EXPECT_EQ(GetFieldViolations(Create(*anna, request).status()).size(), 3u);
  request = Search("look");
  request.mutable_spec()->clear_sweep();
  const auto none = GetFieldViolations(Create(*anna, request).status());
  ASSERT_EQ(none.size(), 1u);
  EXPECT_EQ(none[0].field, "spec.sweep");
  // A value that no trial can have is found before any begins.
  request = Search("look");
  (*request.mutable_spec()->mutable_sweep()->mutable_parameters())["optimizer.sgd.lr"] =
      "uniform(-2, -1)";
  EXPECT_EQ(Create(*anna, request).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(SweepServiceTest, ARepeatedRequestBeginsNothingElse) {
  const auto anna = As("anna");
  v1::CreateSweepRequest request = Search("look");
  request.set_request_id("once");
  const auto first = Create(*anna, request);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->name(), "sweeps/1");
  EXPECT_EQ(Create(*anna, request)->name(), "sweeps/1");
  EXPECT_EQ(Create(*As("bert"), request)->name(), "sweeps/2") << "ids are each user's own";
  request.mutable_spec()->mutable_sweep()->set_trials(17);
  EXPECT_EQ(ErrorReason(Create(*anna, request).status()), "REQUEST_ID_REUSED");
}

TEST_F(SweepServiceTest, OnlyItsOwnerSteersIt) {
  const auto anna = As("anna");
  const auto bert = As("bert");
  ASSERT_TRUE(Create(*anna, Search("look")).ok());
  const auto seen = Get(*bert, "sweeps/1");
  ASSERT_TRUE(seen.ok()) << seen.status();
  EXPECT_EQ(seen->user(), "anna");
  EXPECT_EQ(seen->title(), "look");
  EXPECT_EQ(seen->state(), v1::SWEEP_STATE_RUNNING);
  EXPECT_EQ(seen->best_trial(), -1);
  v1::StopSweepRequest stop;
  stop.set_name("sweeps/1");
  EXPECT_EQ(ErrorReason(Call(*bert, &Stub::StopSweep, stop).status()), "NOT_OWNER");
  v1::DeleteSweepRequest forget;
  forget.set_name("sweeps/1");
  EXPECT_EQ(ErrorReason(Call(*anna, &Stub::DeleteSweep, forget).status()), "SWEEP_STATE_CONFLICT");
  EXPECT_EQ(Call(*anna, &Stub::StopSweep, stop)->state(), v1::SWEEP_STATE_STOPPED);
  v1::ResumeSweepRequest resume;
  resume.set_name("sweeps/1");
  EXPECT_EQ(ErrorReason(Call(*bert, &Stub::ResumeSweep, resume).status()), "NOT_OWNER");
  EXPECT_EQ(Call(*anna, &Stub::ResumeSweep, resume)->state(), v1::SWEEP_STATE_RUNNING);
  stop.set_cancel(true);
  const auto cancelled = Call(*anna, &Stub::StopSweep, stop);
  ASSERT_TRUE(cancelled.ok()) << cancelled.status();
  EXPECT_EQ(cancelled->state(), v1::SWEEP_STATE_STOPPED);
  EXPECT_THAT(Get(*bert, "sweeps/1")->decisions().rbegin()->text(), HasSubstr("has ended"));
  EXPECT_EQ(ErrorReason(Call(*anna, &Stub::ResumeSweep, resume).status()), "SWEEP_STATE_CONFLICT");
  for (const bool cancel : {true, false}) {
    stop.set_cancel(cancel);
    const absl::Status ended = Call(*anna, &Stub::StopSweep, stop).status();
    EXPECT_EQ(ErrorReason(ended), "SWEEP_STATE_CONFLICT");
    EXPECT_THAT(ended.message(), HasSubstr("sweeps/1 has ended, so there is nothing to stop"));
  }
  EXPECT_EQ(ErrorReason(Call(*bert, &Stub::DeleteSweep, forget).status()), "NOT_OWNER");
  EXPECT_TRUE(Call(*anna, &Stub::DeleteSweep, forget).ok());
  EXPECT_EQ(ErrorReason(Get(*anna, "sweeps/1").status()), "SWEEP_NOT_FOUND");
}

TEST_F(SweepServiceTest, ThoseOfAPrivateProjectAreSeenByItsMembers) {
  directory_.SetProject({"secret", /*is_private=*/true, {"anna"}});
  const auto anna = As("anna");
  const auto bert = As("bert");
  v1::CreateSweepRequest request = Search("look");
  request.mutable_spec()->set_project("secret");
  EXPECT_EQ(ErrorReason(Create(*bert, request).status()), "NOT_A_MEMBER");
  ASSERT_TRUE(Create(*anna, request).ok());
  EXPECT_EQ(ErrorReason(Get(*bert, "sweeps/1").status()), "SWEEP_NOT_FOUND");
  EXPECT_EQ(Call(*bert, &Stub::ListSweeps, v1::ListSweepsRequest())->sweeps_size(), 0);
  EXPECT_EQ(Call(*anna, &Stub::ListSweeps, v1::ListSweepsRequest())->sweeps_size(), 1);
}

TEST_F(SweepServiceTest, TrialsHaveTheRightsThatTheirOwnerHasWhenTheyBegin) {
  directory_.SetProject({"secret", /*is_private=*/true, {}});
  store::SweepRecord sweep;
  sweep.number = 1;
  sweep.user = "anna";
  sweep.spec = Search("look").spec();
  sweep.spec.set_project("secret");
  const sweeps::NewJob job{3, 0, {{{"optimizer.sgd.lr", "0.5"}}, std::nullopt}};
  // The system says that she is an administrator, who may submit to each project.
  const auto submitted = SubmissionOfTrial(sweep, job, *services_);
  ASSERT_TRUE(submitted.ok()) << submitted.status();
  EXPECT_EQ(submitted->submission->trial, "sweeps/1/trials/3");
  EXPECT_EQ(submitted->submission->name, "look-3");
  EXPECT_EQ(SubmissionOfTrial(sweep, job, *services_)->request_id, submitted->request_id);
  directory_.SetUser({"anna", access::Role::kSubmitter, "root", 0});
  EXPECT_EQ(ErrorReason(SubmissionOfTrial(sweep, job, *services_).status()), "NOT_A_MEMBER");
  directory_.SetUser({"anna", access::Role::kViewer, "root", 0});
  EXPECT_EQ(SubmissionOfTrial(sweep, job, *services_).status().code(),
            absl::StatusCode::kPermissionDenied);
}

TEST_F(SweepServiceTest, ListsPageByPage) {
  const auto anna = As("anna");
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Create(*anna, Search("look")).ok());
  ASSERT_TRUE(Create(*As("bert"), Search("other")).ok());
  v1::ListSweepsRequest request;
  request.set_page_size(2);
  request.set_user("anna");
  std::vector<std::string> names;
  do {
    const auto page = Call(*anna, &Stub::ListSweeps, request);
    ASSERT_TRUE(page.ok()) << page.status();
    ASSERT_LE(page->sweeps_size(), 2);
    for (const v1::Sweep& sweep : page->sweeps()) {
      names.push_back(sweep.name());
      EXPECT_EQ(sweep.trials_size(), 0);
      EXPECT_FALSE(sweep.spec().has_model());
    }
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  EXPECT_THAT(names,
              ::testing::ElementsAre("sweeps/5", "sweeps/4", "sweeps/3", "sweeps/2", "sweeps/1"));
}

TEST_F(SweepServiceTest, AJobIsNoSweep) {
  v1::CreateJobRequest request;
  *request.mutable_spec() = Search("look").spec();
  const auto context = Context();
  v1::Job job;
  const absl::Status status = FromGrpcStatus(jobs_->CreateJob(context.get(), request, &job));
  const auto violations = GetFieldViolations(status);
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_THAT(violations[0].description, HasSubstr("trainyard sweep run"));
}

}  // namespace
}  // namespace trainyard::rpc
