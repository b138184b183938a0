// Tests what calls with tokens of pods get, while a cluster is asked and after that.
#include "server/rpc/pod_sign_in.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/base/errors.h"
#include "common/base/mutex.h"
#include "tests/testing/wait.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace trainyard::rpc {
namespace {

using access::PodIdentity;
using access::PodUse;

constexpr char kToken[] = "eyJhIjoxfQ.eyJiIjoxfQ.c2ln";

class PodSignInTest : public RpcTest {
 protected:
  PodSignInTest() {
    SignIn& sign_in = *services_->sign_in;
    sign_in.clock = &clock_;
    sign_in.role_of_pods = access::Role::kViewer;
    sign_in.learn_pod = [this](absl::string_view, PodUse use, absl::string_view address,
                               std::function<void()> done) {
      {
        const MutexLock lock(&mutex_);
        asked_.push_back(use);
        addresses_.push_back(std::string(address));
        if (is_slow_) {
          waiting_.push_back(std::move(done));
          return;
        }
      }
      done();
    };
    sign_in.find_pod = [this](absl::string_view, PodUse) {
      const MutexLock lock(&mutex_);
      return answer_;
    };
    sign_in.sign_worker = [](absl::string_view request, absl::string_view worker) {
      return absl::StatusOr<WorkerCertificate>(
          {std::string("certificate of ") + std::string(worker), std::string(request)});
    };
    access::Peer stranger;
    stranger.address = "10.1.0.7";
    channel_ = Connect(stranger);
  }

  void AnswerWith(absl::StatusOr<PodIdentity> answer) {
    const MutexLock lock(&mutex_);
    answer_ = std::move(answer);
  }
  PodIdentity Builder() {
    return {"ml:builder", "builder@ml", {}, clock_.Now() + absl::Minutes(10)};
  }
  PodIdentity Worker(std::set<std::string> names) {
    return {"trainyard:trainyard-worker", "", std::move(names), clock_.Now() + absl::Minutes(10)};
  }

  std::unique_ptr<grpc::ClientContext> ContextWith(const std::string& token) {
    auto context = Context("");
    context->AddMetadata("authorization", "Bearer " + token);
    return context;
  }
  absl::Status WhoAmI(v1::WhoAmIResponse& who, const std::string& token = kToken) {
    return FromGrpcStatus(
        v1::AccessService::NewStub(channel_)->WhoAmI(ContextWith(token).get(), {}, &who));
  }
  absl::Status Join(const std::string& worker, const std::string& key,
                    const std::string& token = kToken) {
    v1::JoinWorkerRequest request;
    request.set_worker(worker);
    request.set_certificate_request(key);
    v1::JoinWorkerResponse response;
    const absl::Status status = FromGrpcStatus(v1::AgentService::NewStub(channel_)->JoinWorker(
        ContextWith(token).get(), request, &response));
    EXPECT_EQ(response.certificate(), status.ok() ? "certificate of " + worker : "");
    return status;
  }

  Mutex mutex_;
  bool is_slow_ = false;
  std::vector<PodUse> asked_;
  std::vector<std::string> addresses_;
  std::vector<std::function<void()>> waiting_;
  absl::StatusOr<PodIdentity> answer_ = absl::UnauthenticatedError("nobody vouches");
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(PodSignInTest, APodIsTheUserOfItsAccountWithTheRoleOfPods) {
  AnswerWith(Builder());
  v1::WhoAmIResponse who;
  ASSERT_TRUE(WhoAmI(who).ok());
  EXPECT_EQ(who.user(), "builder@ml");
  EXPECT_EQ(who.method(), "token");
  // The system would say that everybody is an administrator, and is not asked.
  EXPECT_EQ(who.role(), v1::ROLE_VIEWER);
  EXPECT_EQ(who.token_expire_time().seconds(), absl::ToUnixSeconds(Builder().expires));
  EXPECT_EQ(addresses_, std::vector<std::string>{"10.1.0.7"});
  // The housekeeper ends what the pod follows when its token ends.
  access::PodTokenEnds& ends = services_->sign_in->pod_token_ends;
  const absl::Time end = Builder().expires;
  EXPECT_TRUE(ends.TakeEnded(end - absl::Seconds(1)).empty());
  const auto ended = ends.TakeEnded(end);
  ASSERT_EQ(ended.size(), 1);
  EXPECT_EQ(ended[0].first, who.token());
  EXPECT_EQ(ended[0].second, end);
  EXPECT_TRUE(ends.TakeEnded(end).empty());
  directory_.SetUser({"builder@ml", access::Role::kOperator, "root", 0});
  ASSERT_TRUE(WhoAmI(who).ok());
  EXPECT_EQ(who.role(), v1::ROLE_OPERATOR);
}

TEST_F(PodSignInTest, ATokenOfAPodMakesNoOtherToken) {
  AnswerWith(Builder());
  directory_.SetUser({"builder@ml", access::Role::kAdmin, "root", 0});
  v1::CreateTokenRequest request;
  request.set_scope(v1::TOKEN_SCOPE_FULL);
  v1::CreateTokenResponse made;
  const auto status = FromGrpcStatus(
      v1::AccessService::NewStub(channel_)->CreateToken(ContextWith(kToken).get(), request, &made));
  EXPECT_EQ(ErrorReason(status), "TOKEN_MAKES_NO_TOKEN");
}

TEST_F(PodSignInTest, ACallWaitsForTheClusterAndNoOtherCallDoes) {
  AnswerWith(Builder());
  {
    const MutexLock lock(&mutex_);
    is_slow_ = true;
  }
  std::vector<std::thread> callers;
  // More than gRPC has threads.
  for (int i = 0; i < 40; ++i) {
    callers.emplace_back([this] {
      v1::WhoAmIResponse other;
      EXPECT_TRUE(WhoAmI(other).ok());
    });
  }
  EXPECT_TRUE(testing::WaitUntil([this] {
    const MutexLock lock(&mutex_);
    return waiting_.size() == 40;
  }));
  v1::WhoAmIResponse root;
  EXPECT_TRUE(access_->WhoAmI(Context("").get(), {}, &root).ok());
  std::vector<std::function<void()>> waiting;
  {
    const MutexLock lock(&mutex_);
    waiting.swap(waiting_);
  }
  for (const auto& done : waiting) done();
  for (std::thread& caller : callers) caller.join();
}

TEST_F(PodSignInTest, WhoeverIsRefusedIsSlowedDownButNotForAClusterThatIsAway) {
  v1::WhoAmIResponse who;
  AnswerWith(MakeError(absl::StatusCode::kUnavailable, "CLUSTER_UNAVAILABLE", "it is away"));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(ErrorReason(WhoAmI(who)), "CLUSTER_UNAVAILABLE");
  AnswerWith(MakeError(absl::StatusCode::kUnauthenticated, "TOKEN_NOT_OF_CLUSTER", "no"));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(ErrorReason(WhoAmI(who)), "TOKEN_NOT_OF_CLUSTER");
  EXPECT_EQ(ErrorReason(WhoAmI(who)), "SIGN_IN_DELAYED");
  // A good token is served at once.
  AnswerWith(Builder());
  EXPECT_TRUE(WhoAmI(who).ok());
}

TEST_F(PodSignInTest, OnlyStrangersWithSuchATokenAreAskedFor) {
  AnswerWith(Builder());
  v1::WhoAmIResponse who;
  EXPECT_EQ(ErrorReason(WhoAmI(who, "tyk_x")), "TOKEN_UNKNOWN");
  ASSERT_TRUE(access_->WhoAmI(ContextWith(kToken).get(), {}, &who).ok());
  EXPECT_EQ(who.user(), "root");
  EXPECT_TRUE(asked_.empty());
  services_->sign_in->learn_pod = nullptr;
  services_->sign_in->find_pod = nullptr;
  EXPECT_EQ(ErrorReason(WhoAmI(who)), "TOKEN_UNKNOWN");
}

TEST_F(PodSignInTest, AWorkerJoinsUnderANameOfItsPodAlone) {
  AnswerWith(Worker({"node-1", "trainyard-worker-0"}));
  EXPECT_EQ(ErrorReason(Join("node-2", "key")), "INVITED_AS_ANOTHER");
  EXPECT_TRUE(Join("node-1", "key").ok());
  EXPECT_EQ(asked_, (std::vector<PodUse>(2, PodUse::kWorker)));
  // Its answer may have been lost.
  EXPECT_TRUE(Join("node-1", "key").ok());
  // Nobody else joins with the token, not even under the other name.
  EXPECT_EQ(ErrorReason(Join("trainyard-worker-0", "key")), "TOKEN_REVOKED");
  EXPECT_EQ(ErrorReason(Join("node-1", "another key")), "TOKEN_REVOKED");
  // The pod's next token is as good.
  EXPECT_TRUE(Join("node-1", "another key", std::string(kToken) + "2").ok());
  // The store has what a restart must not forget.
  const auto stored = access_store_.ListTokens();
  ASSERT_TRUE(stored.ok());
  ASSERT_EQ(stored->size(), 2);
  for (const access::TokenRecord& record : *stored) {
    EXPECT_EQ(record.kind, access::TokenKind::kJoin);
    EXPECT_EQ(record.user, "trainyard:trainyard-worker");
    EXPECT_EQ(record.worker, "node-1");
    EXPECT_TRUE(record.revoked.has_value());
    EXPECT_EQ(record.expires, Worker({}).expires);
  }
}

TEST_F(PodSignInTest, AWorkerThatTheClusterRefusesDoesNotJoin) {
  EXPECT_TRUE(absl::IsUnauthenticated(Join("node-1", "key")));
  AnswerWith(MakeError(absl::StatusCode::kUnavailable, "CLUSTER_UNAVAILABLE", "it is away"));
  EXPECT_TRUE(absl::IsUnavailable(Join("node-1", "key")));
  EXPECT_TRUE(access_store_.ListTokens()->empty());
}

}  // namespace
}  // namespace trainyard::rpc
