// Says what an adapter and a Kubernetes do together, once with the fake that other tests use and
// once with a real API server, so that the fake cannot be wrong unseen. `make kubernetes` gives the
// real one by variables:
//   KUBERNETES_URL, KUBERNETES_CA    the API server, and the file of its authority
//   KUBERNETES_ADMIN                 the token by which the test plays scheduler and kubelet
//   KUBERNETES_SERVER                the token of an account with the rights of a server
//   KUBERNETES_SPACE                 the beginning of the names of namespaces
//   KUBERNETES_RESTART               a program that ends the API server and starts it again
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "server/provision/kubernetes/kubernetes.h"
#include "server/provision/messenger.h"
#include "tests/testing/http_receiver.h"
#include "tests/testing/kubernetes/fake_kubernetes.h"
#include "tests/testing/process.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"

namespace trainyard::provision::kubernetes {
namespace {

using nlohmann::json;
using ::testing::AnyOf;
using testing::FakeKubernetes;
using ::testing::HasSubstr;
using testing::HttpReceiver;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using testing::WaitUntil;
using Kind = SubmitResult::Kind;

// A controller of a real cluster looks every few seconds.
constexpr absl::Duration kPatience = absl::Seconds(60);

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// A cluster, and the hands of its scheduler and its kubelets.
class Site {
 public:
  virtual ~Site() = default;
  virtual trainyard::kubernetes::Access access() const = 0;
  virtual std::string token() const = 0;
  virtual std::string space() const = 0;
  // Gives a pod a node.
  virtual void Place(const std::string& pod) = 0;
  virtual void SetStatus(const std::string& pod, const json& status) = 0;
  // Takes a pod away, as a kubelet does once it has ended.
  virtual void Take(const std::string& pod) = 0;
  virtual void Put(const std::string& kind, const json& object) = 0;
  // Returns the object, or null.
  virtual json Get(const std::string& kind, const std::string& name) = 0;
  virtual std::vector<std::string> Names(const std::string& kind) = 0;
  virtual void Restart() = 0;
  virtual void DeleteNamespace() = 0;
  // Lets the namespace have no more pods.
  virtual void ForbidPods() = 0;
};

class FakeSite : public Site {
 public:
  FakeSite() { api_.KeepDeleted(true); }
  trainyard::kubernetes::Access access() const override { return {api_.url()}; }
  std::string token() const override { return "token"; }
  std::string space() const override { return FakeKubernetes::kSpace; }
  void Place(const std::string& pod) override {
    TY_CHECK(api_.Patch("pods", pod, R"({"spec": {"nodeName": "node-1"}})"));
  }
  void SetStatus(const std::string& pod, const json& status) override {
    TY_CHECK(api_.Patch("pods", pod, json{{"status", status}}.dump()));
  }
  void Take(const std::string& pod) override { api_.Remove("pods", pod); }
  void Put(const std::string& kind, const json& object) override { api_.Put(kind, object.dump()); }
  json Get(const std::string& kind, const std::string& name) override {
    return json::parse(api_.Get(kind, name), nullptr, /*allow_exceptions=*/false);
  }
  std::vector<std::string> Names(const std::string& kind) override { return api_.Names(kind); }
  void Restart() override {}
  void DeleteNamespace() override { api_.DeleteNamespace(); }
  void ForbidPods() override {
    for (int i = 0; i < 2; ++i) {
      api_.Add({"POST", "/pods", 403,
                R"({"kind": "Status", "reason": "Forbidden",
                    "message": "pods \"x\" is forbidden: exceeded quota: none, requested: pods=1"})"});
    }
  }

 private:
  FakeKubernetes api_;
};

class RealSite : public Site {
 public:
  RealSite() : client_(Admin(), {absl::Seconds(20), int64_t{16} << 20}, is_stopping_) {
    static int number = 0;
    // Each test has a namespace of its own.
    space_ = absl::StrCat(Variable("KUBERNETES_SPACE"), "-", ++number);
    Post("/api/v1/namespaces", {{"metadata", {{"name", space_}}}});
    // The account of pods and its token come a moment later, and no pod is admitted before.
    TY_CHECK(WaitUntil(
        [this] {
          const json account = Get("serviceaccounts", "default");
          return account.is_object() && account.contains("secrets");
        },
        kPatience));
  }
  ~RealSite() override { (void)client_.Call("DELETE", "/api/v1/namespaces/" + space_, ""); }

  trainyard::kubernetes::Access access() const override {
    trainyard::kubernetes::Access access;
    access.url = Variable("KUBERNETES_URL");
    access.authorities_file = Variable("KUBERNETES_CA");
    return access;
  }
  std::string token() const override { return Variable("KUBERNETES_SERVER"); }
  std::string space() const override { return space_; }
  void Place(const std::string& pod) override {
    Post(Path("pods", pod) + "/binding",
         {{"metadata", {{"name", pod}}}, {"target", {{"kind", "Node"}, {"name", "node-1"}}}});
  }
  void SetStatus(const std::string& pod, const json& status) override {
    json object = Get("pods", pod);
    object["status"].update(status);
    const auto answer = client_.Call("PUT", Path("pods", pod) + "/status", object.dump());
    TY_CHECK(answer.ok() && answer->status == 200);
  }
  void Take(const std::string& pod) override {
    const auto answer = client_.Call("DELETE", Path("pods", pod), R"({"kind": "DeleteOptions",
                     "apiVersion": "v1", "gracePeriodSeconds": 0})");
    TY_CHECK(answer.ok() && (answer->status == 200 || answer->status == 404));
  }
  void Put(const std::string& kind, const json& object) override {
    json whole = object;
    whole["spec"] = {{"containers", {{{"name", "worker"}, {"image", "worker:1"}}}},
                     {"schedulerName", "nobody"}};
    Post(Path(kind, ""), whole);
  }
  json Get(const std::string& kind, const std::string& name) override {
    const auto answer = client_.Call("GET", Path(kind, name), "");
    if (!answer.ok() || answer->status != 200) return nullptr;
    return json::parse(answer->body, nullptr, /*allow_exceptions=*/false);
  }
  std::vector<std::string> Names(const std::string& kind) override {
    std::vector<std::string> names;
    const json list = Get(kind, "");
    for (const json& item : list["items"]) {
      const std::string name = item["metadata"]["name"];
      // Each namespace has a token of its own account.
      if (!absl::StartsWith(name, "default-token-")) names.push_back(name);
    }
    return names;
  }
  void Restart() override {
    testing::Process::Options options;
    options.args = {Variable("KUBERNETES_RESTART")};
    const auto done = testing::RunProcess(options, folder_.path(), absl::Minutes(2));
    TY_CHECK(done.ok() && done->exit_code == 0);
  }
  void DeleteNamespace() override {
    (void)client_.Call("DELETE", "/api/v1/namespaces/" + space_, "");
  }
  void ForbidPods() override {
    Post(Path("resourcequotas", ""),
         {{"metadata", {{"name", "none"}}}, {"spec", {{"hard", {{"pods", "0"}}}}}});
    // Its controller has to have counted once.
    TY_CHECK(WaitUntil([this] { return Get("resourcequotas", "none")["status"].contains("used"); },
                       kPatience));
  }

 private:
  static trainyard::kubernetes::Access Admin() {
    trainyard::kubernetes::Access access;
    access.url = Variable("KUBERNETES_URL");
    access.authorities_file = Variable("KUBERNETES_CA");
    access.token = Variable("KUBERNETES_ADMIN");
    return access;
  }
  std::string Path(const std::string& kind, const std::string& name) const {
    return absl::StrCat("/api/v1/namespaces/", space_, "/", kind, name.empty() ? "" : "/", name);
  }
  void Post(const std::string& path, const json& object) {
    const auto answer = client_.Call("POST", path, object.dump());
    TY_CHECK_OK(answer.status());
    if (answer->status != 201) ADD_FAILURE() << path << ": " << answer->body;
  }

  std::atomic<bool> is_stopping_ = false;
  testing::TempDir folder_;
  trainyard::kubernetes::ApiClient client_;
  std::string space_;
};

// Stands between the adapter and its API server, and lets calls and answers get lost.
class Door {
 public:
  enum class Loss { kCall, kAnswer, kExpired };

  Door(trainyard::kubernetes::Access access, const std::string& token) {
    access.token = token;
    client_ = std::make_unique<trainyard::kubernetes::ApiClient>(
        std::move(access),
        trainyard::kubernetes::ApiClient::Limits{absl::Seconds(20), int64_t{16} << 20},
        is_stopping_);
    receiver_.AnswerBy([this](const HttpReceiver::Request& request) { return Pass(request); });
  }
  std::string url() const { return receiver_.Url(""); }
  void Lose(Loss loss, const std::string& method, const std::string& part) {
    const MutexLock lock(&mutex_);
    loss_ = {loss, method, part};
  }

 private:
  struct Rule {
    Loss loss;
    std::string method;
    std::string part;
  };

  HttpReceiver::Reply Pass(const HttpReceiver::Request& request) {
    std::optional<Loss> loss;
    {
      const MutexLock lock(&mutex_);
      if (loss_.has_value() && loss_->method == request.method &&
          absl::StrContains(request.path, loss_->part)) {
        loss = loss_->loss;
        loss_.reset();
      }
    }
    if (loss == Loss::kCall) return {-1};
    if (loss == Loss::kExpired) {
      return {410, R"({"kind": "Status", "reason": "Expired", "message": "too old"})"};
    }
    const auto token = request.headers.find("authorization");
    if (token == request.headers.end() || token->second != "Bearer door") {
      return {401, R"({"kind": "Status", "reason": "Unauthorized", "message": "Unauthorized"})"};
    }
    const auto answer = client_->Call(request.method, request.path, request.body);
    if (!answer.ok() || loss == Loss::kAnswer) return {-1};
    return {answer->status, answer->body};
  }

  std::atomic<bool> is_stopping_ = false;
  Mutex mutex_;
  std::optional<Rule> loss_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<trainyard::kubernetes::ApiClient> client_;
  HttpReceiver receiver_;
};

enum class Which { kFake, kReal };

class ClusterTest : public ::testing::TestWithParam<Which> {
 protected:
  void SetUp() override {
    if (GetParam() == Which::kReal && Variable("KUBERNETES_URL").empty()) {
      GTEST_SKIP() << "there is no API server; `make kubernetes` runs one";
    }
    if (GetParam() == Which::kReal) {
      site_ = std::make_unique<RealSite>();
    } else {
      site_ = std::make_unique<FakeSite>();
    }
    door_ = std::make_unique<Door>(site_->access(), site_->token());
    (void)folder_.Write("token", "door");
    spec_.name = "gpu";
    spec_.kind = ProviderKind::kKubernetes;
    options_ = {R"({"spec": {"containers": [{"image": "worker:1"}], "schedulerName": "nobody"}})",
                site_->space(),
                "",
                {"--server=tls://here:7070"}};
    Connect();
  }

  void Connect() {
    trainyard::kubernetes::Access access;
    access.url = door_->url();
    access.token_file = folder_.File("token");
    cluster_ = std::make_unique<Kubernetes>("s1", spec_, options_, std::move(access),
                                            *Clock::Real(), is_stopping_);
  }

  static std::string Pilot(int64_t number) { return PilotName("s1", "gpu", number); }
  SubmitResult Submit(int64_t number) {
    std::vector<std::string> tokens;
    for (int32_t node = 0; node < spec_.nodes; ++node) tokens.push_back(absl::StrCat("t", node));
    return cluster_->Submit(Pilot(number), tokens);
  }
  std::vector<ListedPilot> List(const std::vector<std::string>& known = {}) {
    const Listing listing = cluster_->List(known);
    EXPECT_EQ(listing.failure, "");
    return listing.pilots;
  }
  // Returns the only pilot.
  ListedPilot Only(const std::vector<std::string>& known = {}) {
    const std::vector<ListedPilot> pilots = List(known);
    EXPECT_THAT(pilots, SizeIs(1));
    return pilots.empty() ? ListedPilot() : pilots[0];
  }

  static json Running() {
    return {
        {"phase", "Running"},
        {"startTime", "2026-01-01T12:00:00Z"},
        {"containerStatuses", Statuses({{"running", {{"startedAt", "2026-01-01T12:00:00Z"}}}})}};
  }
  static json Statuses(const json& state) {
    return {{{"name", "worker"},
             {"state", state},
             {"ready", false},
             {"restartCount", 0},
             {"image", "worker:1"},
             {"imageID", ""}}};
  }

  testing::TempDir folder_;
  std::atomic<bool> is_stopping_ = false;
  std::unique_ptr<Site> site_;
  std::unique_ptr<Door> door_;
  ProviderSpec spec_;
  ManifestOptions options_;
  std::unique_ptr<Kubernetes> cluster_;
};

TEST_P(ClusterTest, APilotIsAPodWithItsTokens) {
  ASSERT_TRUE(cluster_->TryOut().ok()) << cluster_->TryOut();
  EXPECT_THAT(site_->Names("pods"), IsEmpty());
  EXPECT_THAT(site_->Names("secrets"), IsEmpty());
  EXPECT_THAT(List(), IsEmpty());
  const SubmitResult result = Submit(1);
  ASSERT_EQ(result.kind, Kind::kAccepted) << result.reason;
  EXPECT_EQ(result.foreign_id, Pilot(1));
  EXPECT_EQ(Only().name, Pilot(1));
  EXPECT_EQ(Only().state, ForeignState::kWaiting);
  const json pod = site_->Get("pods", Pilot(1));
  EXPECT_EQ(pod["metadata"]["labels"]["trainyard.dev/pilot"], Pilot(1));
  const json secret = site_->Get("secrets", Pilot(1));
  EXPECT_EQ(secret["data"], (json{{"token-0", absl::Base64Escape("t0")}}));
  EXPECT_EQ(secret["metadata"]["ownerReferences"][0]["uid"], pod["metadata"]["uid"]);
  cluster_->DropTokens(Pilot(1));
  EXPECT_THAT(site_->Names("secrets"), IsEmpty());
  EXPECT_THAT(site_->Names("pods"), SizeIs(1));
}

TEST_P(ClusterTest, TokensGoWithTheirPod) {
  ASSERT_EQ(Submit(1).kind, Kind::kAccepted);
  EXPECT_THAT(site_->Names("secrets"), SizeIs(1));
  site_->Take(Pilot(1));
  EXPECT_TRUE(WaitUntil([this] { return site_->Names("secrets").empty(); }, kPatience));
}

TEST_P(ClusterTest, NoAnswerMakesASecondPilot) {
  door_->Lose(Door::Loss::kAnswer, "POST", "/pods");
  EXPECT_EQ(Submit(1).kind, Kind::kAccepted);
  EXPECT_EQ(Submit(1).kind, Kind::kAccepted);
  EXPECT_THAT(site_->Names("pods"), SizeIs(1));
  EXPECT_THAT(List(), SizeIs(1));
  // A call that is lost on its way is told by the next list alone.
  door_->Lose(Door::Loss::kCall, "POST", "/pods");
  EXPECT_EQ(Submit(2).kind, Kind::kUnknown);
  EXPECT_THAT(List(), SizeIs(1));
  door_->Lose(Door::Loss::kAnswer, "POST", "/secrets");
  EXPECT_EQ(Submit(3).kind, Kind::kAccepted);
  EXPECT_THAT(site_->Names("secrets"), SizeIs(2));
}

TEST_P(ClusterTest, APilotWhoseTokensWereNeverMadeIsNotAdopted) {
  // The server died after it had made the pod of the first pilot, and before its Secret was there.
  ASSERT_EQ(Submit(1).kind, Kind::kAccepted);
  ASSERT_EQ(Submit(2).kind, Kind::kAccepted);
  cluster_->DropTokens(Pilot(1));
  const auto begin = absl::ToUnixMicros(Clock::Real()->Now());
  Messenger messenger(
      std::make_unique<std::atomic<bool>>(false), std::move(cluster_), spec_.nodes,
      [](const std::string&) { return std::string("token"); }, absl::Milliseconds(20));
  messenger.Watch({}, {Pilot(1), Pilot(2)});
  std::vector<SubmitResult> results;
  std::vector<ListedPilot> listed;
  ASSERT_TRUE(WaitUntil(
      [&] {
        ProviderNews news = messenger.TakeNews();
        for (const SubmitResult& result : news.submitted) results.push_back(result);
        if (news.listing.has_value()) listed = news.listing->pilots;
        return listed.size() == 1 && listed[0].name == Pilot(2);
      },
      kPatience));
  ASSERT_THAT(results, SizeIs(1));
  EXPECT_EQ(results[0].pilot, Pilot(1));
  EXPECT_EQ(results[0].kind, Kind::kRefused);
  EXPECT_THAT(results[0].reason, HasSubstr("before the tokens of the workers were there"));
  EXPECT_LT(absl::ToUnixMicros(Clock::Real()->Now()) - begin, kPodsSettleUs);
  EXPECT_THAT(site_->Names("pods"), SizeIs(1));
  EXPECT_THAT(site_->Names("secrets"), SizeIs(1));
}

TEST_P(ClusterTest, APilotOfWhichNobodyKnowsIsShownLater) {
  ASSERT_EQ(Submit(1).kind, Kind::kAccepted);
  door_->Lose(Door::Loss::kCall, "POST", "/secrets");
  Messenger messenger(
      std::make_unique<std::atomic<bool>>(false), std::move(cluster_), spec_.nodes,
      [](const std::string&) { return std::string("token"); }, absl::Milliseconds(20));
  messenger.Watch({}, {Pilot(1)});
  std::vector<std::vector<ListedPilot>> lists;
  ASSERT_TRUE(WaitUntil(
      [&] {
        ProviderNews news = messenger.TakeNews();
        for (const SubmitResult& result : news.submitted) {
          EXPECT_EQ(result.kind, Kind::kUnknown) << result.reason;
        }
        if (news.listing.has_value()) lists.push_back(news.listing->pilots);
        return !lists.empty() && lists.back().size() == 1;
      },
      kPatience));
  EXPECT_THAT(site_->Names("pods"), SizeIs(1));
}

TEST_P(ClusterTest, APodOfOthersIsNotTaken) {
  site_->Put("pods", {{"metadata", {{"name", Pilot(1)}}}});
  const SubmitResult result = Submit(1);
  EXPECT_EQ(result.kind, Kind::kRefused);
  EXPECT_THAT(result.reason, HasSubstr("not of this provider"));
  EXPECT_THAT(List(), IsEmpty());
  ASSERT_TRUE(cluster_->Cancel(Pilot(1)).ok());
  EXPECT_THAT(site_->Names("pods"), SizeIs(1));
}

TEST_P(ClusterTest, WhatWaitsIsCancelledAtOnce) {
  ASSERT_EQ(Submit(1).kind, Kind::kAccepted);
  EXPECT_TRUE(cluster_->Cancel(Pilot(1)).ok());
  EXPECT_THAT(site_->Names("pods"), IsEmpty());
  EXPECT_THAT(List({Pilot(1)}), IsEmpty());
  EXPECT_TRUE(cluster_->Cancel(Pilot(1)).ok());
}

TEST_P(ClusterTest, WhatRunsHasTimeToLeave) {
  ASSERT_EQ(Submit(1).kind, Kind::kAccepted);
  site_->Place(Pilot(1));
  site_->SetStatus(Pilot(1), Running());
  const ListedPilot active = Only();
  EXPECT_EQ(active.state, ForeignState::kActive);
  EXPECT_EQ(active.expire_us - active.start_us, spec_.time_limit_us);
  EXPECT_TRUE(cluster_->Cancel(Pilot(1)).ok());
  EXPECT_EQ(Only().state, ForeignState::kLeaving);
  EXPECT_GE(site_->Get("pods", Pilot(1))["metadata"].value("deletionGracePeriodSeconds", 330), 330);
  EXPECT_TRUE(cluster_->Cancel(Pilot(1)).ok());
  site_->Take(Pilot(1));
  EXPECT_EQ(Only({Pilot(1)}).state, ForeignState::kCancelled);
  EXPECT_THAT(List(), IsEmpty());
}

TEST_P(ClusterTest, AnEndIsShownWithItsReason) {
  const json evicted = {{"phase", "Failed"},
                        {"reason", "Evicted"},
                        {"message", "The node was low on resource: memory."}};
  const json late = {{"phase", "Failed"}, {"reason", "DeadlineExceeded"}, {"message", "too long"}};
  json oom = Running();
  oom["phase"] = "Failed";
  oom["containerStatuses"] =
      Statuses({{"terminated", {{"exitCode", 137}, {"reason", "OOMKilled"}}}});
  const json done = {{"phase", "Succeeded"}};
  const std::vector<std::tuple<json, ForeignState, std::string>> cases = {
      {evicted, ForeignState::kFailed, "Evicted: The node was low on resource: memory."},
      {late, ForeignState::kTimedOut, "DeadlineExceeded: too long"},
      {oom, ForeignState::kFailed,
       "OOMKilled: it needed more memory than its limit (exit code 137)"},
      {done, ForeignState::kCompleted, ""}};
  int64_t number = 0;
  for (const auto& [status, state, reason] : cases) {
    ASSERT_EQ(Submit(++number).kind, Kind::kAccepted);
    site_->Place(Pilot(number));
    site_->SetStatus(Pilot(number), status);
    const ListedPilot pilot = Only();
    EXPECT_EQ(pilot.state, state);
    EXPECT_EQ(pilot.reason, reason);
    site_->Take(Pilot(number));
  }
}

TEST_P(ClusterTest, WhatHindersAPodIsShown) {
  ASSERT_EQ(Submit(1).kind, Kind::kAccepted);
  const json unplaced = {{"type", "PodScheduled"},
                         {"status", "False"},
                         {"reason", "Unschedulable"},
                         {"message", "0/1 nodes are available"}};
  site_->SetStatus(Pilot(1), {{"conditions", json::array({unplaced})}});
  EXPECT_EQ(Only().state, ForeignState::kWaiting);
  EXPECT_EQ(Only().reason, "Unschedulable: 0/1 nodes are available");
  site_->Place(Pilot(1));
  site_->SetStatus(
      Pilot(1),
      {{"phase", "Pending"},
       {"containerStatuses",
        Statuses(
            {{"waiting", {{"reason", "ImagePullBackOff"}, {"message", "Back-off pulling"}}}})}});
  EXPECT_EQ(Only().state, ForeignState::kActive);
  EXPECT_EQ(Only().reason, "ImagePullBackOff: Back-off pulling");
}

TEST_P(ClusterTest, APilotOfTwoPodsIsOneThing) {
  spec_.nodes = 2;
  Connect();
  ASSERT_TRUE(cluster_->TryOut().ok()) << cluster_->TryOut();
  ASSERT_EQ(Submit(1).kind, Kind::kAccepted);
  EXPECT_THAT(site_->Names("pods"), SizeIs(2));
  EXPECT_THAT(site_->Names("secrets"), SizeIs(1));
  const std::string first = Pilot(1) + "-n0";
  const std::string second = Pilot(1) + "-n1";
  site_->Place(first);
  EXPECT_EQ(Only().state, ForeignState::kWaiting);
  site_->Place(second);
  EXPECT_EQ(Only().state, ForeignState::kActive);
  site_->SetStatus(first, {{"phase", "Failed"}, {"reason", "Evicted"}});
  EXPECT_EQ(Only().state, ForeignState::kLeaving);
  EXPECT_TRUE(site_->Get("pods", second)["metadata"].contains("deletionTimestamp"));
  site_->Take(second);
  EXPECT_EQ(Only().state, ForeignState::kFailed);
  EXPECT_EQ(Only().reason, "Evicted");
}

TEST_P(ClusterTest, OrphansAreSeenAndOldEndsGo) {
  // A server that lost its state does not know these.
  ASSERT_EQ(Submit(7).kind, Kind::kAccepted);
  ASSERT_EQ(Submit(8).kind, Kind::kAccepted);
  Connect();
  EXPECT_THAT(List(), SizeIs(2));
  EXPECT_TRUE(cluster_->Cancel(Pilot(7)).ok());
  site_->Place(Pilot(8));
  json ended = Running();
  ended["phase"] = "Succeeded";
  ended["containerStatuses"] =
      Statuses({{"terminated", {{"exitCode", 0}, {"finishedAt", "2026-01-01T12:00:05Z"}}}});
  site_->SetStatus(Pilot(8), ended);
  EXPECT_EQ(Only().state, ForeignState::kCompleted);
  EXPECT_TRUE(WaitUntil(
      [this] {
        (void)List();
        for (const std::string& name : site_->Names("pods")) {
          if (site_->Get("pods", name)["metadata"].contains("deletionTimestamp")) site_->Take(name);
        }
        return site_->Names("pods").empty();
      },
      kPatience));
}

TEST_P(ClusterTest, LongListsAreReadInPages) {
  constexpr int kPilots = kPageSize + 3;
  for (int number = 1; number <= kPilots; ++number) {
    ASSERT_EQ(Submit(number).kind, Kind::kAccepted);
  }
  EXPECT_THAT(List(), SizeIs(kPilots));
  door_->Lose(Door::Loss::kExpired, "GET", "continue=");
  EXPECT_THAT(List(), SizeIs(kPilots));
  door_->Lose(Door::Loss::kAnswer, "GET", "continue=");
  const Listing listing = cluster_->List({});
  EXPECT_NE(listing.failure, "");
  EXPECT_THAT(listing.pilots, IsEmpty());
}

TEST_P(ClusterTest, ATokenIsReadAgain) {
  (void)folder_.Write("token", "old");
  EXPECT_THAT(cluster_->List({}).failure, HasSubstr("does not accept our token"));
  EXPECT_EQ(Submit(1).kind, Kind::kRefused);
  (void)folder_.Write("token", "door");
  EXPECT_EQ(Submit(1).kind, Kind::kAccepted);
}

TEST_P(ClusterTest, AQuotaIsAReason) {
  site_->ForbidPods();
  const absl::Status tried = cluster_->TryOut();
  EXPECT_EQ(ErrorReason(tried), "PROVIDER_REFUSES");
  EXPECT_THAT(tried.message(), HasSubstr("exceeded quota: none"));
  const SubmitResult result = Submit(1);
  EXPECT_EQ(result.kind, Kind::kRefused);
  EXPECT_THAT(result.reason, HasSubstr("exceeded quota: none"));
}

TEST_P(ClusterTest, PilotsOutliveARestartOfTheApiServer) {
  ASSERT_EQ(Submit(1).kind, Kind::kAccepted);
  site_->Restart();
  EXPECT_TRUE(WaitUntil([this] { return cluster_->List({}).failure.empty(); }, kPatience));
  EXPECT_EQ(Only().name, Pilot(1));
  EXPECT_TRUE(cluster_->Cancel(Pilot(1)).ok());
}

TEST_P(ClusterTest, ANamespaceThatGoesTakesItsPilots) {
  ASSERT_EQ(Submit(1).kind, Kind::kAccepted);
  site_->DeleteNamespace();
  EXPECT_TRUE(WaitUntil([this] { return List().empty(); }, kPatience));
  const SubmitResult result = Submit(2);
  EXPECT_EQ(result.kind, Kind::kRefused);
  EXPECT_THAT(result.reason, AnyOf(HasSubstr("not found"), HasSubstr("being terminated")));
  EXPECT_TRUE(cluster_->Cancel(Pilot(1)).ok());
}

// `make kubernetes` gives these to kubectl, which knows all fields of its version, and to schemas
// of newer versions.
TEST(Manifests, AreWrittenForOtherJudges) {
  const std::string path = Variable("KUBERNETES_MANIFESTS");
  if (path.empty()) GTEST_SKIP() << "nobody looks at them; `make kubernetes` does";
  ProviderSpec spec;
  spec.name = "gpu";
  spec.kind = ProviderKind::kKubernetes;
  spec.owner = "anna";
  spec.node = {4, "h200", 32, int64_t{64} << 30};
  spec.nodes = 2;
  const ManifestOptions options = {R"({"spec": {"containers": [{"image": "worker:1"}]}})",
                                   "default",
                                   "team",
                                   {"--server=tls://here:7070"}};
  const std::string pilot = PilotName("s1", "gpu", 1);
  const json all = {
      json::parse(PodManifest("s1", spec, options, pilot, 1)),
      json::parse(SecretManifest("s1", spec, pilot, {"a", "b"}, {{"v1", "Pod", "p", "u"}})),
      json::parse(JobManifest("s1", spec, options, pilot))};
  ASSERT_TRUE(WriteFileAtomically(path, all.dump(), 0600).ok());
}

INSTANTIATE_TEST_SUITE_P(Fake, ClusterTest, ::testing::Values(Which::kFake));
INSTANTIATE_TEST_SUITE_P(Real, ClusterTest, ::testing::Values(Which::kReal));

}  // namespace
}  // namespace trainyard::provision::kubernetes
