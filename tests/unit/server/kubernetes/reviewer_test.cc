// Tests reviews against an API server that is played here.
#include "server/kubernetes/reviewer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/errors.h"
#include "tests/testing/http_receiver.h"
#include "tests/testing/manual_clock.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"
#include "tests/unit/server/kubernetes/pod_token.h"

namespace trainyard::kubernetes {
namespace {

using access::PodUse;
using nlohmann::json;
using testing::HttpReceiver;

constexpr char kWorkerUser[] = "system:serviceaccount:trainyard:trainyard-worker";

// Returns the answer of an API server that vouches for a token.
json Vouch(const std::string& user, const std::string& audience,
           const json& extra = json::object()) {
  return {{"kind", "TokenReview"},
          {"apiVersion", "authentication.k8s.io/v1"},
          {"status",
           {{"authenticated", true},
            {"audiences", json::array({audience})},
            {"user", {{"username", user}, {"uid", "1"}, {"extra", extra}}}}}};
}

json BoundTo(const std::string& pod, const std::string& node = "") {
  json extra = {{"authentication.kubernetes.io/pod-name", json::array({pod})},
                {"authentication.kubernetes.io/pod-uid", json::array({"uid-of-" + pod})}};
  if (!node.empty()) extra["authentication.kubernetes.io/node-name"] = json::array({node});
  return extra;
}

const char* Refused() {
  return R"({"kind": "TokenReview", "status": {"user": {}, "error": "invalid bearer token"}})";
}

class ReviewerTest : public ::testing::Test {
 protected:
  ReviewerTest() {
    folder_.Write("token", "token-of-the-server\n");
    options_.users = {*ParseUserRule("ml:*")};
    options_.workers = {*ParseAccount("trainyard:trainyard-worker")};
    options_.api_url = api_.Url("");
    options_.access_folder = folder_.path();
    limits_.pause_after_refusal = absl::Milliseconds(1);
    Answer(Vouch("system:serviceaccount:ml:builder", "trainyard"));
  }

  Reviewer& reviewer() {
    if (reviewer_ == nullptr) {
      reviewer_ = std::make_unique<Reviewer>(options_, clock_, limits_, timeout_);
    }
    return *reviewer_;
  }

  void Answer(const json& body, int status = 201) {
    api_.AnswerBy([text = body.dump(), status](const HttpReceiver::Request&) {
      return HttpReceiver::Reply{status, text};
    });
  }
  void AnswerText(const std::string& text, int status = 201) {
    api_.AnswerBy([text, status](const HttpReceiver::Request&) {
      return HttpReceiver::Reply{status, text};
    });
  }

  std::string Token(const std::string& id, const std::string& audience = "trainyard") {
    return PodToken(audience, clock_.Now() + absl::Minutes(10), id);
  }

  // Presents a token as a call does.
  absl::StatusOr<access::PodIdentity> Present(const std::string& token,
                                              PodUse use = PodUse::kClient,
                                              const std::string& address = "10.1.0.7") {
    absl::Notification done;
    reviewer().Learn(token, use, address, [&done] { done.Notify(); });
    EXPECT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(30)));
    return reviewer().Find(token, use);
  }
  std::string ReasonOf(const std::string& token, PodUse use = PodUse::kClient) {
    return ErrorReason(Present(token, use).status());
  }

  // The thread of the API server may be the last that looks at these.
  absl::Notification asked_;
  absl::Notification release_;
  testing::TempDir folder_;
  testing::ManualClock clock_;
  HttpReceiver api_;
  Options options_;
  ReviewLimits limits_;
  absl::Duration timeout_ = ApiServer::kTimeout;
  std::unique_ptr<Reviewer> reviewer_;
};

TEST_F(ReviewerTest, AClientIsTheUserOfItsAccount) {
  const auto pod = Present(Token("a"));
  ASSERT_TRUE(pod.ok()) << pod.status();
  EXPECT_EQ(pod->user, "builder@ml");
  EXPECT_EQ(pod->account, "ml:builder");
  EXPECT_EQ(pod->expires, clock_.Now() + absl::Minutes(10));
  EXPECT_TRUE(pod->workers.empty());
  const auto requests = api_.requests();
  ASSERT_EQ(requests.size(), 1);
  EXPECT_EQ(requests[0].path, "/apis/authentication.k8s.io/v1/tokenreviews");
  EXPECT_EQ(requests[0].headers.at("authorization"), "Bearer token-of-the-server");
  const json sent = json::parse(requests[0].body);
  EXPECT_EQ(sent["kind"], "TokenReview");
  EXPECT_EQ(sent["spec"]["token"], Token("a"));
  EXPECT_EQ(sent["spec"]["audiences"], json::array({"trainyard"}));
}

TEST_F(ReviewerTest, AWorkerHasTheNameOfItsPodOrNode) {
  Answer(Vouch(kWorkerUser, "trainyard-worker", BoundTo("trainyard-worker-x7k2p", "Node-1.lab")));
  const auto pod = Present(Token("a", "trainyard-worker"), PodUse::kWorker);
  ASSERT_TRUE(pod.ok()) << pod.status();
  EXPECT_EQ(pod->workers, (std::set<std::string>{"trainyard-worker-x7k2p", "node-1-lab"}));
  EXPECT_EQ(pod->user, "");
  EXPECT_EQ(api_.requests().size(), 1);
}

// Before 1.30, the API server does not say on which node a pod is.
TEST_F(ReviewerTest, TheNodeOfThePodIsLookedUp) {
  std::string uid = "uid-of-w";
  int status = 200;
  api_.AnswerBy([&](const HttpReceiver::Request& request) -> HttpReceiver::Reply {
    if (request.path == "/api/v1/namespaces/trainyard/pods/w") {
      const json pod = {
          {"kind", "Pod"}, {"metadata", {{"uid", uid}}}, {"spec", {{"nodeName", "node-1"}}}};
      return {status, pod.dump()};
    }
    return {201, Vouch(kWorkerUser, "trainyard-worker", BoundTo("w")).dump()};
  });
  const auto names = [&](const std::string& id) {
    const auto pod = Present(Token(id, "trainyard-worker"), PodUse::kWorker);
    EXPECT_TRUE(pod.ok()) << pod.status();
    return pod.ok() ? pod->workers : std::set<std::string>();
  };
  EXPECT_EQ(names("a"), (std::set<std::string>{"node-1", "w"}));
  uid = "uid-of-a-later-pod";
  EXPECT_EQ(names("b"), (std::set<std::string>{"w"}));
  uid = "uid-of-w";
  status = 403;  // the server may not look at pods
  EXPECT_EQ(names("c"), (std::set<std::string>{"w"}));
  status = 500;
  EXPECT_EQ(ReasonOf(Token("d", "trainyard-worker"), PodUse::kWorker), "CLUSTER_UNAVAILABLE");
}

TEST_F(ReviewerTest, WhoeverIsNotPermittedIsRefused) {
  Answer(Vouch("system:serviceaccount:web:builder", "trainyard"));
  EXPECT_EQ(ReasonOf(Token("a")), "ACCOUNT_NOT_PERMITTED");
  Answer(Vouch("anna", "trainyard"));
  EXPECT_EQ(ReasonOf(Token("b")), "ACCOUNT_NOT_PERMITTED");
  Answer(Vouch("system:serviceaccount:ml:builder", "trainyard-worker", BoundTo("w", "n")));
  EXPECT_EQ(ReasonOf(Token("c", "trainyard-worker"), PodUse::kWorker), "ACCOUNT_NOT_PERMITTED");
  // A token that a person has asked for is bound to no pod.
  Answer(Vouch(kWorkerUser, "trainyard-worker"));
  EXPECT_EQ(ReasonOf(Token("d", "trainyard-worker"), PodUse::kWorker), "TOKEN_NOT_BOUND");
}

TEST_F(ReviewerTest, NothingButAnAnswerForOurAudienceIsOne) {
  const json good = Vouch("system:serviceaccount:ml:builder", "trainyard");
  std::vector<json> refusals(5, good);
  refusals[0]["status"]["authenticated"] = false;
  refusals[1]["status"]["authenticated"] = "true";
  refusals[2]["status"].erase("audiences");
  refusals[3]["status"]["audiences"] = json::array({"https://kubernetes.default.svc"});
  refusals[4]["status"]["audiences"] = "trainyard";
  int id = 0;
  for (const json& refusal : refusals) {
    Answer(refusal);
    EXPECT_EQ(ReasonOf(Token(absl::StrCat(++id))), "TOKEN_NOT_OF_CLUSTER") << refusal;
  }
  AnswerText(Refused());
  EXPECT_EQ(ReasonOf(Token("refused")), "TOKEN_NOT_OF_CLUSTER");
  json no_user = good;
  no_user["status"]["user"] = "system:serviceaccount:ml:builder";
  Answer(no_user);
  EXPECT_EQ(ReasonOf(Token("no user")), "ACCOUNT_NOT_PERMITTED");
}

TEST_F(ReviewerTest, WhatIsLocallyWrongIsNotAsked) {
  EXPECT_EQ(ReasonOf("eyJ.eyJ.x"), "TOKEN_UNKNOWN");
  EXPECT_EQ(ReasonOf(Token("a", "trainyard-worker")), "TOKEN_FOR_OTHERS");
  EXPECT_EQ(ReasonOf(Token("a"), PodUse::kWorker), "TOKEN_FOR_OTHERS");
  const std::string token = Token("a");
  clock_.Advance(absl::Minutes(10));
  EXPECT_EQ(ReasonOf(token), "TOKEN_EXPIRED");
  EXPECT_TRUE(api_.requests().empty());
}

TEST_F(ReviewerTest, AnApiServerWithoutAnAnswerSignsNobodyIn) {
  int id = 0;
  const auto is_unavailable = [&](absl::string_view cause) {
    const absl::Status status = Present(Token(absl::StrCat("x", ++id))).status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_EQ(ErrorReason(status), "CLUSTER_UNAVAILABLE");
    EXPECT_TRUE(absl::StrContains(status.message(), cause)) << status;
    EXPECT_EQ(GetRetryDelay(status), absl::Seconds(1));
    clock_.Advance(absl::Seconds(2));
  };
  for (const std::string& text : std::vector<std::string>{
           "", "{", "[]", "null", R"({"kind": "TokenReview"})", R"({"kind": "Status"})",
           R"({"kind": "TokenReview", "status": "authenticated"})", R"({"kind": 7, "status": {}})",
           std::string(3 << 20, ' ')}) {
    AnswerText(text);
    is_unavailable("the API server of the cluster cannot be asked");
  }
  const std::string good = Vouch("system:serviceaccount:ml:builder", "trainyard").dump();
  AnswerText(good, 500);
  is_unavailable("the status 500");
  AnswerText(good, 302);
  is_unavailable("the status 302");
  AnswerText(good, 401);
  is_unavailable("does not accept the token of the server's own pod");
  AnswerText(good, 403);
  is_unavailable("may not create tokenreviews");
  AnswerText(good, -1);
  is_unavailable("cannot be asked");
  AnswerText(good);
  EXPECT_TRUE(Present(Token("b")).ok());
}

TEST_F(ReviewerTest, NobodyListensAtAll) {
  {
    const HttpReceiver gone;
    options_.api_url = gone.Url("");
  }
  EXPECT_EQ(ReasonOf(Token("a")), "CLUSTER_UNAVAILABLE");
  // A call that this review has released may look late.
  clock_.Advance(limits_.failure_kept * 2);
  EXPECT_EQ(ErrorReason(reviewer().Find(Token("a"), PodUse::kClient).status()),
            "CLUSTER_UNAVAILABLE");
}

TEST_F(ReviewerTest, ASlowApiServerHoldsNobodyForLong) {
  timeout_ = absl::Milliseconds(200);
  api_.AnswerBy([this](const HttpReceiver::Request&) {
    release_.WaitForNotification();
    return HttpReceiver::Reply{-1, ""};
  });
  EXPECT_EQ(ReasonOf(Token("a")), "CLUSTER_UNAVAILABLE");
  // For a while, others are told at once.
  EXPECT_EQ(ReasonOf(Token("b")), "CLUSTER_UNAVAILABLE");
  release_.Notify();
  EXPECT_TRUE(api_.WaitFor(1));
  EXPECT_EQ(api_.requests().size(), 1);
}

TEST_F(ReviewerTest, AnAnswerIsKeptForAMinuteAndNotLonger) {
  const std::string token = Token("a");
  EXPECT_TRUE(Present(token).ok());
  AnswerText(Refused());
  clock_.Advance(absl::Seconds(59));
  EXPECT_TRUE(Present(token).ok());
  EXPECT_EQ(api_.requests().size(), 1);
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(ReasonOf(token), "TOKEN_NOT_OF_CLUSTER");
  EXPECT_EQ(api_.requests().size(), 2);
  // A refusal is kept too, for a shorter time.
  Answer(Vouch("system:serviceaccount:ml:builder", "trainyard"));
  EXPECT_EQ(ReasonOf(token), "TOKEN_NOT_OF_CLUSTER");
  clock_.Advance(absl::Seconds(10));
  EXPECT_TRUE(Present(token).ok());
}

TEST_F(ReviewerTest, ATokenIsNotAcceptedAfterItsEnd) {
  const std::string token = PodToken("trainyard", clock_.Now() + absl::Seconds(20), "a");
  EXPECT_TRUE(Present(token).ok());
  clock_.Advance(absl::Seconds(20));
  EXPECT_EQ(ReasonOf(token), "TOKEN_EXPIRED");
}

TEST_F(ReviewerTest, TheServersOwnTokenIsReadAgain) {
  EXPECT_TRUE(Present(Token("a")).ok());
  folder_.Write("token", "renewed");
  EXPECT_TRUE(Present(Token("b")).ok());
  EXPECT_EQ(api_.requests()[1].headers.at("authorization"), "Bearer renewed");
}

TEST_F(ReviewerTest, AServerWithoutATokenSaysSo) {
  options_.access_folder = folder_.File("missing");
  const absl::Status status = Present(Token("a")).status();
  EXPECT_EQ(ErrorReason(status), "CLUSTER_UNAVAILABLE");
  EXPECT_TRUE(absl::StrContains(status.message(), "missing/token")) << status;
  EXPECT_TRUE(api_.requests().empty());
}

TEST_F(ReviewerTest, CallsWithTheSameTokenWaitForOneReview) {
  api_.AnswerBy([&](const HttpReceiver::Request&) {
    release_.WaitForNotification();
    return HttpReceiver::Reply{201, Vouch("system:serviceaccount:ml:builder", "trainyard").dump()};
  });
  std::atomic<int> done = 0;
  for (int i = 0; i < 50; ++i) {
    reviewer().Learn(Token("a"), PodUse::kClient, "10.1.0.7", [&done] { ++done; });
  }
  EXPECT_EQ(done, 0);
  // It does not block, and does not let anybody in.
  EXPECT_EQ(ErrorReason(reviewer().Find(Token("a"), PodUse::kClient).status()), "SERVER_BUSY");
  release_.Notify();
  EXPECT_TRUE(testing::WaitUntil([&done] { return done == 50; }));
  EXPECT_TRUE(reviewer().Find(Token("a"), PodUse::kClient).ok());
  EXPECT_EQ(api_.requests().size(), 1);
}

TEST_F(ReviewerTest, AFloodFromOneAddressDoesNotTakeThePlacesOfOthers) {
  limits_.waiting_of_address_max = 4;
  limits_.waiting_max = 6;
  api_.AnswerBy([&](const HttpReceiver::Request& request) {
    release_.WaitForNotification();
    const std::string token = json::parse(request.body)["spec"]["token"];
    if (token == Token("good")) {
      return HttpReceiver::Reply{201,
                                 Vouch("system:serviceaccount:ml:builder", "trainyard").dump()};
    }
    return HttpReceiver::Reply{201, Refused()};
  });
  std::atomic<int> done = 0;
  for (int i = 0; i < 1000; ++i) {
    reviewer().Learn(Token(absl::StrCat("flood", i)), PodUse::kClient, "10.9.9.9",
                     [&done] { ++done; });
  }
  EXPECT_EQ(done, 996);
  std::atomic<bool> is_good_done = false;
  reviewer().Learn(Token("good"), PodUse::kClient, "10.1.0.7", [&] { is_good_done = true; });
  EXPECT_FALSE(is_good_done);
  release_.Notify();
  EXPECT_TRUE(testing::WaitUntil([&] { return is_good_done && done == 1000; }));
  EXPECT_TRUE(reviewer().Find(Token("good"), PodUse::kClient).ok());
  EXPECT_EQ(api_.requests().size(), 5);
}

TEST_F(ReviewerTest, TheAnswersThatAreKeptAreBounded) {
  limits_.accepted_max = 3;
  limits_.refused_max = 3;
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(Present(Token(absl::StrCat("a", i))).ok());
  AnswerText(Refused());
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(ReasonOf(Token(absl::StrCat("b", i))), "TOKEN_NOT_OF_CLUSTER");
  }
  int accepted = 0;
  int refused = 0;
  for (int i = 0; i < 10; ++i) {
    accepted += reviewer().Find(Token(absl::StrCat("a", i)), PodUse::kClient).ok() ? 1 : 0;
    const auto other = reviewer().Find(Token(absl::StrCat("b", i)), PodUse::kClient);
    refused += absl::IsUnauthenticated(other.status()) ? 1 : 0;
  }
  EXPECT_EQ(accepted, 3);
  EXPECT_EQ(refused, 3);
}

TEST_F(ReviewerTest, StrangersCauseFewReviews) {
  limits_.pause_after_refusal = absl::Milliseconds(100);
  AnswerText(Refused());
  const absl::Duration begun = Clock::Real()->Uptime();
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(ReasonOf(Token(absl::StrCat(i))), "TOKEN_NOT_OF_CLUSTER");
  }
  EXPECT_GE(Clock::Real()->Uptime() - begun, absl::Milliseconds(400));
}

TEST_F(ReviewerTest, AnEndAnswersThoseWhoWait) {
  api_.AnswerBy([&](const HttpReceiver::Request&) {
    if (!asked_.HasBeenNotified()) asked_.Notify();
    release_.WaitForNotification();
    return HttpReceiver::Reply{-1, ""};
  });
  std::atomic<int> done = 0;
  reviewer().Learn(Token("a"), PodUse::kClient, "10.1.0.7", [&done] { ++done; });
  reviewer().Learn(Token("b"), PodUse::kClient, "10.1.0.7", [&done] { ++done; });
  EXPECT_TRUE(asked_.WaitForNotificationWithTimeout(absl::Seconds(30)));
  reviewer().Stop();
  EXPECT_EQ(done, 2);
  EXPECT_TRUE(absl::IsUnavailable(Present(Token("c")).status()));
  release_.Notify();
}

}  // namespace
}  // namespace trainyard::kubernetes
