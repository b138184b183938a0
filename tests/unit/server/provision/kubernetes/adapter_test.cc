// Tests the adapter against an API server that fails as it is told. What a real one does as well is
// in tests/kubernetes/cluster_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/errors.h"
#include "server/provision/kubernetes/kubernetes.h"
#include "tests/testing/kubernetes/fake_kubernetes.h"
#include "tests/testing/manual_clock.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::provision::kubernetes {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using testing::FakeKubernetes;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Fault = FakeKubernetes::Fault;
using Kind = SubmitResult::Kind;

constexpr char kPilot[] = "ty-s1-gpu-1";

class AdapterTest : public ::testing::Test {
 protected:
  AdapterTest() {
    spec_.name = "gpu";
    spec_.kind = ProviderKind::kKubernetes;
    options_ = {R"({"spec": {"containers": [{"image": "worker:1"}]}})",
                FakeKubernetes::kSpace,
                "",
                {"--server=tls://here:7070"}};
    (void)folder_.Write("token", "token\n");
    access_.url = api_.url();
    access_.token_file = folder_.File("token");
  }

  const Kubernetes& cluster() {
    if (cluster_ == nullptr) {
      cluster_ = std::make_unique<Kubernetes>("s1", spec_, options_, access_, clock_, is_stopping_,
                                              timeout_);
    }
    return *cluster_;
  }
  SubmitResult Submit(const std::string& pilot = kPilot) {
    return cluster().Submit(pilot,
                            std::vector<std::string>(static_cast<size_t>(spec_.nodes), "secret"));
  }
  static Fault Status(const std::string& method, const std::string& path, int status,
                      const std::string& message = "told", const std::string& reason = "Told") {
    Fault fault{method, path, status};
    fault.body = json{{"kind", "Status"}, {"message", message}, {"reason", reason}}.dump();
    return fault;
  }

  FakeKubernetes api_;
  testing::TempDir folder_;
  testing::ManualClock clock_;
  std::atomic<bool> is_stopping_ = false;
  trainyard::kubernetes::Access access_;
  ProviderSpec spec_;
  ManifestOptions options_;
  absl::Duration timeout_ = absl::Seconds(20);
  std::unique_ptr<Kubernetes> cluster_;
};

TEST_F(AdapterTest, EachFaultOfASubmissionIsJudged) {
  struct Case {
    Fault fault;
    Kind kind;
    bool is_there;
    std::string reason;
  };
  Fault cut = {"POST", "/pods", 0};
  cut.is_cut = true;
  Fault lost_before = {"POST", "/pods", -1};
  Fault lost_after = lost_before;
  lost_after.is_after = true;
  Fault error_after = Status("POST", "/pods", 500, "etcdserver: request timed out");
  error_after.is_after = true;
  Fault odd = {"POST", "/pods", 200, "<html>proxy</html>"};
  Fault odd_after = odd;
  odd_after.is_after = true;
  const std::vector<Case> cases = {
      {Status("POST", "/pods", 403, "pods \"x\" is forbidden: exceeded quota: q", "Forbidden"),
       Kind::kRefused, false, "exceeded quota: q"},
      {Status("POST", "/pods", 400, "unknown field \"spec.x\""), Kind::kRefused, false, "spec.x"},
      {Status("POST", "/pods", 422, "spec.containers: Required"), Kind::kRefused, false,
       "Required"},
      {Status("POST", "/pods", 404, "namespaces \"pilots\" not found"), Kind::kRefused, false,
       "not found"},
      {Status("POST", "/pods", 401, "Unauthorized"), Kind::kRefused, false,
       "does not accept our token"},
      {Status("POST", "/pods", 409, "Operation cannot be fulfilled on resourcequotas", "Conflict"),
       Kind::kRefused, false, "resourcequotas"},
      {Status("POST", "/pods", 429, "too many requests"), Kind::kRefused, false, "too many"},
      {Status("POST", "/pods", 500, "internal error"), Kind::kUnknown, false, "internal error"},
      {Status("POST", "/pods", 503, "starting"), Kind::kUnknown, false, "starting"},
      {Status("POST", "/pods", 504, "timed out"), Kind::kUnknown, false, "timed out"},
      {lost_before, Kind::kUnknown, false, "cannot be asked"},
      {odd, Kind::kUnknown, false, "another form"},
      {cut, Kind::kAccepted, true, ""},
      {lost_after, Kind::kAccepted, true, ""},
      {error_after, Kind::kAccepted, true, ""},
      {odd_after, Kind::kAccepted, true, ""},
  };
  int64_t number = 0;
  for (const Case& each : cases) {
    const std::string pilot = PilotName("s1", "gpu", ++number);
    api_.Add(each.fault);
    const SubmitResult result = Submit(pilot);
    EXPECT_EQ(result.kind, each.kind) << each.fault.status << " " << result.reason;
    EXPECT_THAT(result.reason, HasSubstr(each.reason));
    EXPECT_EQ(result.foreign_id, each.is_there ? pilot : "");
    EXPECT_EQ(api_.Names("pods").size(), each.is_there ? 1 : 0) << each.fault.status;
    EXPECT_EQ(api_.Names("secrets").size(), each.is_there ? 1 : 0);
    EXPECT_EQ(api_.faults_left(), 0);
    api_.Remove("pods", pilot);
  }
}

TEST_F(AdapterTest, ASlowAnswerIsUnknownOnlyWhileNobodyKnows) {
  timeout_ = absl::Milliseconds(300);
  absl::Notification release;
  Fault slow = {"POST", "/pods", 0};
  // The fake carries out the call, and its answer comes too late.
  slow.wait = [&release] { release.WaitForNotificationWithTimeout(absl::Seconds(20)); };
  api_.Add(slow);
  const SubmitResult result = Submit();
  release.Notify();
  // The fake has one thread, so that nobody could look.
  EXPECT_EQ(result.kind, Kind::kUnknown);
  EXPECT_THAT(result.reason, HasSubstr("cannot be asked"));
  timeout_ = absl::Seconds(20);
  cluster_.reset();
  // The pod is there, and is shown by a list; asking again makes no second one.
  EXPECT_THAT(cluster().List({}).pilots, SizeIs(1));
  EXPECT_EQ(Submit().kind, Kind::kAccepted);
  EXPECT_THAT(api_.Names("pods"), ElementsAre(kPilot));
}

TEST_F(AdapterTest, WithoutATokenOrACertificateNothingIsSent) {
  access_.token_file = folder_.File("none");
  EXPECT_EQ(Submit().kind, Kind::kRefused);
  EXPECT_THAT(cluster().List({}).failure, HasSubstr("none"));
  EXPECT_THAT(api_.requests(), IsEmpty());
}

TEST_F(AdapterTest, AServerThatStopsWaitsForNothing) {
  is_stopping_ = true;
  EXPECT_EQ(Submit().kind, Kind::kUnknown);
  EXPECT_NE(cluster().List({}).failure, "");
  EXPECT_THAT(api_.requests(), IsEmpty());
}

TEST_F(AdapterTest, ATokenThatWasRenewedMeanwhileIsTried) {
  api_.SetToken("new");
  Fault renews = {"GET", "/pods", 0};
  renews.wait = [this] { (void)folder_.Write("token", "new"); };
  api_.Add(renews);
  const Listing listing = cluster().List({});
  EXPECT_EQ(listing.failure, "");
  EXPECT_THAT(api_.requests(), SizeIs(2));
  // One that stays wrong is shown once.
  (void)folder_.Write("token", "wrong");
  EXPECT_THAT(cluster().List({}).failure, HasSubstr("does not accept our token"));
  EXPECT_THAT(api_.requests(), SizeIs(3));
}

TEST_F(AdapterTest, WhatIsToldToWaitWaits) {
  Fault busy = Status("POST", "/pods", 429, "too many requests");
  busy.headers = "Retry-After: 7\r\n";
  api_.Add(busy);
  EXPECT_EQ(Submit().kind, Kind::kRefused);
  const size_t calls = api_.requests().size();
  EXPECT_THAT(Submit().reason, HasSubstr("left alone for another 7s"));
  EXPECT_EQ(Submit().kind, Kind::kRefused);
  EXPECT_THAT(cluster().List({}).failure, HasSubstr("left alone"));
  EXPECT_EQ(api_.requests().size(), calls);
  clock_.Advance(absl::Seconds(7));
  EXPECT_EQ(Submit().kind, Kind::kAccepted);
  // Nobody is left alone for a day.
  busy = Status("GET", "/pods", 503, "busy");
  busy.headers = "Retry-After: 86400\r\n";
  api_.Add(busy);
  EXPECT_EQ(cluster().List({}).failure, "busy");
  clock_.Advance(kQuietMax);
  EXPECT_EQ(cluster().List({}).failure, "");
}

TEST_F(AdapterTest, APilotWithoutItsTokensIsTakenBack) {
  api_.Add(Status("POST", "/secrets", 403, "secrets is forbidden"));
  SubmitResult result = Submit();
  EXPECT_EQ(result.kind, Kind::kRefused);
  EXPECT_THAT(result.reason, HasSubstr("secrets is forbidden"));
  EXPECT_THAT(api_.Names("pods"), IsEmpty());
  // If it cannot be taken back, it may still be there.
  api_.Add(Status("POST", "/secrets", 403, "secrets is forbidden"));
  api_.Add(Status("DELETE", "/pods", 500, "down"));
  EXPECT_EQ(Submit().kind, Kind::kUnknown);
}

TEST_F(AdapterTest, WhetherTokensAreThereIsKnownWithoutReadingThem) {
  ASSERT_EQ(Submit().kind, Kind::kAccepted);
  auto lacks_tokens = cluster().LacksTokens(kPilot);
  ASSERT_TRUE(lacks_tokens.ok()) << lacks_tokens.status();
  EXPECT_FALSE(*lacks_tokens);
  api_.Remove("secrets", kPilot);
  lacks_tokens = cluster().LacksTokens(kPilot);
  ASSERT_TRUE(lacks_tokens.ok()) << lacks_tokens.status();
  EXPECT_TRUE(*lacks_tokens);
  EXPECT_THAT(api_.Names("secrets"), IsEmpty());
  for (const Fault& fault : {Status("POST", "/secrets", 403, "exceeded quota", "Forbidden"),
                             Status("POST", "/secrets", 500, "down"), Fault{"POST", "/secrets", -1},
                             Status("POST", "/secrets", 409, "try again", "Conflict")}) {
    api_.Add(fault);
    EXPECT_TRUE(absl::IsUnavailable(cluster().LacksTokens(kPilot).status())) << fault.status;
  }
  EXPECT_EQ(api_.faults_left(), 0);
}

TEST_F(AdapterTest, ASecretIsTriedAgain) {
  Fault lost = {"POST", "/secrets", -1};
  lost.is_after = true;
  api_.Add(lost);
  EXPECT_EQ(Submit().kind, Kind::kAccepted);
  EXPECT_THAT(api_.Names("secrets"), ElementsAre(kPilot));
  // One that somebody left there has other tokens, and is replaced.
  api_.Put("secrets", R"({"metadata": {"name": "ty-s1-gpu-2"}, "data": {"token-0": "b2xk"}})");
  EXPECT_EQ(Submit("ty-s1-gpu-2").kind, Kind::kAccepted);
  EXPECT_EQ(json::parse(api_.Get("secrets", "ty-s1-gpu-2"))["data"]["token-0"], "c2VjcmV0");
  for (int i = 0; i < 3; ++i) api_.Add(Status("POST", "/secrets", 500, "down"));
  EXPECT_EQ(Submit("ty-s1-gpu-3").kind, Kind::kRefused);
  EXPECT_EQ(api_.Get("pods", "ty-s1-gpu-3"), "");
}

TEST_F(AdapterTest, ThePodsOfAPilotAreMadeAllOrNone) {
  spec_.nodes = 3;
  EXPECT_EQ(Submit().kind, Kind::kAccepted);
  EXPECT_THAT(api_.Names("pods"), SizeIs(3));
  const json owners = json::parse(api_.Get("secrets", kPilot))["metadata"]["ownerReferences"];
  EXPECT_THAT(owners, SizeIs(3));
  for (const std::string& name : api_.Names("pods")) api_.Remove("pods", name);
  EXPECT_THAT(api_.Names("secrets"), IsEmpty());
  // The second pod is over the quota.
  api_.Add({"POST", "/pods", 0});
  api_.Add(Status("POST", "/pods", 403, "exceeded quota", "Forbidden"));
  const SubmitResult result = Submit("ty-s1-gpu-2");
  EXPECT_EQ(result.kind, Kind::kRefused);
  EXPECT_EQ(result.reason, "exceeded quota");
  EXPECT_THAT(api_.Names("pods"), IsEmpty());
  // Nobody knows of the second pod, which may come yet.
  api_.Add({"POST", "/pods", 0});
  api_.Add(Status("POST", "/pods", 500, "down"));
  EXPECT_EQ(Submit("ty-s1-gpu-3").kind, Kind::kUnknown);
  EXPECT_THAT(api_.Names("pods"), IsEmpty());
}

TEST_F(AdapterTest, AListIsWholeOrNone) {
  spec_.max_pilots = 10;
  for (int i = 1; i <= 5; ++i) ASSERT_EQ(Submit(PilotName("s1", "gpu", i)).kind, Kind::kAccepted);
  api_.SetPageSize(2);
  EXPECT_THAT(cluster().List({}).pilots, SizeIs(5));
  // Faults of the second page.
  Fault odd = {"GET", "continue=", 200, R"({"kind": "PodList"})"};
  Fault cut = {"GET", "continue=", 0};
  cut.is_cut = true;
  for (const Fault& fault :
       {Status("GET", "continue=", 500, "down"), Status("GET", "continue=", 403, "forbidden"),
        Fault{"GET", "continue=", -1}, odd, cut, Fault{"GET", "continue=", 200, "{"}}) {
    api_.Add(fault);
    const Listing listing = cluster().List({});
    EXPECT_NE(listing.failure, "") << fault.status;
    EXPECT_THAT(listing.pilots, IsEmpty());
  }
  // Whoever is too slow begins again, and not for ever.
  api_.Add(
      Status("GET", "continue=", 410, "The provided continue parameter is too old", "Expired"));
  EXPECT_THAT(cluster().List({}).pilots, SizeIs(5));
  for (int i = 0; i < kListAttemptsMax; ++i) api_.Add(Status("GET", "continue=", 410, "too old"));
  EXPECT_THAT(cluster().List({}).failure, HasSubstr("3 times in a row"));
  EXPECT_EQ(api_.faults_left(), 0);
}

TEST_F(AdapterTest, AListThatNeverEndsIsNone) {
  ASSERT_EQ(Submit().kind, Kind::kAccepted);
  json list = {{"kind", "PodList"}, {"metadata", {{"continue", "again"}}}, {"items", nullptr}};
  for (int i = 0; i < kPagesMax; ++i) api_.Add({"GET", "/pods", 200, list.dump()});
  EXPECT_THAT(cluster().List({}).failure, HasSubstr("more than 10000 entries"));
}

TEST_F(AdapterTest, TheReasonOfAnEndOutlivesThePod) {
  api_.KeepDeleted(true);
  ASSERT_EQ(Submit().kind, Kind::kAccepted);
  // It was made long before the time of this test's clock.
  ASSERT_TRUE(api_.Patch("pods", kPilot, R"({"spec": {"nodeName": "node-1"}, "status": {
      "containerStatuses": [{"name": "worker", "state": {"waiting": {
          "reason": "ImagePullBackOff", "message": "no such image"}}}]}})"));
  for (int i = 0; i < 3; ++i) {
    const Listing listing = cluster().List({kPilot});
    ASSERT_THAT(listing.pilots, SizeIs(1));
    EXPECT_EQ(listing.pilots[0].state, ForeignState::kLeaving);
    EXPECT_EQ(listing.pilots[0].reason, "ImagePullBackOff: no such image");
    // Its node takes its time.
    ASSERT_TRUE(api_.Patch("pods", kPilot, R"({"metadata": {"deletionTimestamp":
        "2027-02-01T12:00:00Z"}})"));
  }
  api_.Remove("pods", kPilot);
  Listing listing = cluster().List({kPilot});
  ASSERT_THAT(listing.pilots, SizeIs(1));
  EXPECT_EQ(listing.pilots[0].state, ForeignState::kFailed);
  EXPECT_EQ(listing.pilots[0].reason, "ImagePullBackOff: no such image");
  // The server has seen it, and asks no more.
  EXPECT_THAT(cluster().List({}).pilots, IsEmpty());
  EXPECT_THAT(cluster().List({kPilot}).pilots, IsEmpty());
}

TEST_F(AdapterTest, ADeadNodeHoldsNoPod) {
  api_.KeepDeleted(true);
  ASSERT_EQ(Submit().kind, Kind::kAccepted);
  ASSERT_TRUE(api_.Patch("pods", kPilot, R"({"spec": {"nodeName": "node-1"}})"));
  ASSERT_TRUE(cluster().Cancel(kPilot).ok());
  EXPECT_THAT(api_.Names("pods"), SizeIs(1));
  ASSERT_TRUE(api_.Patch("pods", kPilot, R"({"metadata": {"deletionTimestamp":
      "2026-01-01T12:00:00Z"}})"));
  EXPECT_THAT(cluster().List({}).pilots, SizeIs(1));
  EXPECT_THAT(api_.Names("pods"), IsEmpty());
}

TEST_F(AdapterTest, OnlyThePodThatWasSeenIsDeleted) {
  ASSERT_EQ(Submit().kind, Kind::kAccepted);
  ASSERT_TRUE(api_.Patch("pods", kPilot, R"({"status": {"phase": "Failed"}})"));
  // Another one of that name takes its place between the list and the call.
  Fault late = {"GET", "/pods", 200,
                json{{"kind", "PodList"},
                     {"metadata", json::object()},
                     {"items", json::array({json::parse(api_.Get("pods", kPilot))})}}
                    .dump()};
  ASSERT_TRUE(api_.Patch("pods", kPilot, R"({"metadata": {"uid": "another"}})"));
  api_.Add(late);
  EXPECT_THAT(cluster().List({}).pilots, SizeIs(1));
  EXPECT_THAT(api_.Names("pods"), SizeIs(1));
}

TEST_F(AdapterTest, TidyingUpStopsWhereItFails) {
  for (int i = 1; i <= 3; ++i) {
    ASSERT_EQ(Submit(PilotName("s1", "gpu", i)).kind, Kind::kAccepted);
    ASSERT_TRUE(
        api_.Patch("pods", PilotName("s1", "gpu", i), R"({"status": {"phase": "Failed"}})"));
  }
  api_.Add(Status("DELETE", "/pods", 500, "down"));
  EXPECT_THAT(cluster().List({}).pilots, SizeIs(3));
  EXPECT_THAT(api_.Names("pods"), SizeIs(3));
  EXPECT_THAT(cluster().List({}).pilots, SizeIs(3));
  EXPECT_THAT(api_.Names("pods"), IsEmpty());
}

TEST_F(AdapterTest, WhatOthersHaveIsNotListed) {
  api_.Put("pods", R"({"metadata": {"name": "a", "labels": {"trainyard.dev/server": "s2",
      "trainyard.dev/provider": "gpu", "trainyard.dev/pilot": "ty-s2-gpu-1"}}})");
  api_.Put("pods", R"({"metadata": {"name": "b", "labels": {"trainyard.dev/server": "s1",
      "trainyard.dev/provider": "other", "trainyard.dev/pilot": "ty-s1-other-1"}}})");
  EXPECT_THAT(cluster().List({}).pilots, IsEmpty());
  EXPECT_TRUE(absl::IsInvalidArgument(cluster().Cancel("ty-s1-other-1")));
  cluster().DropTokens("trainyard-tls");
  EXPECT_THAT(api_.Names("pods"), SizeIs(2));
}

TEST_F(AdapterTest, AQueueGetsOneJobForAllNodes) {
  spec_.nodes = 2;
  options_.queue = "team";
  EXPECT_TRUE(cluster().TryOut().ok()) << cluster().TryOut();
  EXPECT_THAT(api_.Names("jobs"), IsEmpty());
  Fault lost = {"POST", "/jobs", -1};
  lost.is_after = true;
  api_.Add(lost);
  EXPECT_EQ(Submit().kind, Kind::kAccepted);
  EXPECT_THAT(api_.Names("jobs"), ElementsAre(kPilot));
  EXPECT_THAT(api_.Names("pods"), IsEmpty());
  Listing listing = cluster().List({});
  ASSERT_THAT(listing.pilots, SizeIs(1));
  EXPECT_EQ(listing.pilots[0].state, ForeignState::kWaiting);
  EXPECT_EQ(listing.pilots[0].reason, "waits in the queue team");
  // Kueue lets it begin, and the controller of Jobs makes its pods.
  const json job = json::parse(api_.Get("jobs", kPilot));
  ASSERT_TRUE(api_.Patch("jobs", kPilot, R"({"spec": {"suspend": false},
      "status": {"startTime": "2026-01-01T12:00:00Z"}})"));
  for (const char* name : {"a", "b"}) {
    json pod = job["spec"]["template"];
    pod["metadata"]["name"] = name;
    pod["metadata"]["ownerReferences"] = {
        {{"kind", "Job"}, {"name", kPilot}, {"uid", job["metadata"]["uid"]}}};
    pod["spec"]["nodeName"] = "node-1";
    api_.Put("pods", pod.dump());
  }
  listing = cluster().List({});
  ASSERT_THAT(listing.pilots, SizeIs(1));
  EXPECT_EQ(listing.pilots[0].state, ForeignState::kActive);
  EXPECT_GT(listing.pilots[0].expire_us, 0);
  EXPECT_TRUE(cluster().Cancel(kPilot).ok());
  for (const char* kind : {"jobs", "pods", "secrets"}) EXPECT_THAT(api_.Names(kind), IsEmpty());
  // With Jobs that cannot be listed, pods alone say nothing.
  api_.Add(Status("GET", "/jobs", 403, "jobs is forbidden"));
  EXPECT_EQ(cluster().List({}).failure, "jobs is forbidden");
}

TEST_F(AdapterTest, ACancellationThatFailsIsTold) {
  ASSERT_EQ(Submit().kind, Kind::kAccepted);
  for (const Fault& fault :
       {Status("DELETE", "/pods", 500, "down"), Status("DELETE", "/pods", 403, "forbidden"),
        Status("GET", "/pods", 500, "down"), Fault{"DELETE", "/pods", -1}}) {
    api_.Add(fault);
    EXPECT_FALSE(cluster().Cancel(kPilot).ok()) << fault.method << fault.status;
  }
  EXPECT_TRUE(cluster().Cancel(kPilot).ok());
  EXPECT_TRUE(cluster().Cancel(kPilot).ok());
}

TEST_F(AdapterTest, APodThatAnOlderServerHasTakenIsRefused) {
  options_.pod = R"({"spec": {"containers": [{"image": "a", "resources": {"requests": 4}}]}})";
  const SubmitResult result = Submit();
  EXPECT_EQ(result.kind, Kind::kRefused);
  EXPECT_THAT(result.reason, HasSubstr("resources.requests"));
  EXPECT_THAT(api_.requests(), IsEmpty());
}

TEST_F(AdapterTest, TryingOutSaysWhyNot) {
  EXPECT_TRUE(cluster().TryOut().ok()) << cluster().TryOut();
  EXPECT_THAT(api_.Names("pods"), IsEmpty());
  for (const char* path : {"/pods", "/secrets"}) {
    api_.Add(Status("POST", path, 403, "forbidden: cannot create", "Forbidden"));
    const absl::Status refused = cluster().TryOut();
    EXPECT_EQ(ErrorReason(refused), "PROVIDER_REFUSES");
    EXPECT_THAT(refused.message(), HasSubstr("cannot create"));
    api_.Add(Status("POST", path, 500, "down"));
    EXPECT_TRUE(absl::IsUnavailable(cluster().TryOut()));
  }
  api_.Add(Status("GET", "/pods", 403, "cannot list", "Forbidden"));
  EXPECT_EQ(ErrorReason(cluster().TryOut()), "PROVIDER_REFUSES");
  options_.pod = "{}";
  cluster_.reset();
  EXPECT_EQ(ErrorReason(cluster().TryOut()), error::kInvalidSpec);
}

}  // namespace
}  // namespace trainyard::provision::kubernetes
