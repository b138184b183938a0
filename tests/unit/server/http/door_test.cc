// Tests of requests and their answers with real sockets.
#include "server/http/door.h"

#include <gmock/gmock.h>
#include <sys/socket.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "tests/testing/wait.h"
#include "tests/unit/server/http/http_fixture.h"

namespace trainyard::http {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSpec[] =
    R"({"spec": {"name": "first", "model": {"mlp": {}}, "data": {"dataset": "glyphs"},
        "train": {"epochs": 2}, "optimizer": {"sgd": {"lr": 5e-2}}, "schedule": "cosine",
        "devices": 2}})";

std::string ReasonIn(const nlohmann::json& error) {
  for (const auto& detail : error.value("details", nlohmann::json::array())) {
    if (detail.value("type", "") == "google.rpc.ErrorInfo") return detail["debug"]["reason"];
  }
  return "";
}

TEST_F(DoorTest, ACallIsAnsweredAsJson) {
  const std::string made = Ask("anna", Post("JobService/CreateJob", kSpec));
  ASSERT_EQ(StatusOf(made), 200) << made;
  EXPECT_EQ(BodyOf(made)["name"], "jobs/1");
  EXPECT_EQ(BodyOf(made)["user"], "anna") << "the connection says who calls";
  EXPECT_EQ(BodyOf(made)["resolved_spec"]["devices"]["count"], 2) << "as people write it";

  const nlohmann::json got = BodyOf(Ask("ben", Post("JobService/GetJob", R"({"name":"jobs/1"})")));
  EXPECT_EQ(got["state"], "JOB_STATE_QUEUED");
  const std::string listed =
      Ask("ben",
          Get("/trainyard.v1.JobService/ListJobs?encoding=json&message=%7B%22page_size%22%3A1%7D"));
  EXPECT_EQ(BodyOf(listed)["jobs"].size(), 1u) << listed;
  EXPECT_THAT(listed, AllOf(HasSubstr("Content-Type: application/json"), HasSubstr("no-store")));
}

TEST_F(DoorTest, ErrorsHaveTheFormOfConnect) {
  const std::string missing = Ask("anna", Post("JobService/GetJob", R"({"name":"jobs/7"})"));
  EXPECT_EQ(StatusOf(missing), 404);
  EXPECT_EQ(BodyOf(missing)["code"], "not_found");
  EXPECT_THAT(std::string(BodyOf(missing)["message"]), HasSubstr("jobs/7"));
  EXPECT_EQ(ReasonIn(BodyOf(missing)), "NOT_FOUND");

  const std::string wrong =
      Ask("anna", Post("JobService/CreateJob", R"({"spec":{"name":"x","program":{}}})"));
  EXPECT_EQ(StatusOf(wrong), 400);
  EXPECT_THAT(wrong, HasSubstr("fieldViolations"));
}

TEST_F(DoorTest, JsonThatIsNoneIsToldWithItsPlace) {
  const std::string answer = Ask("anna", Post("JobService/GetJob", "{\"name\":\n  jobs/7}"));
  EXPECT_EQ(StatusOf(answer), 400);
  EXPECT_THAT(std::string(BodyOf(answer)["message"]), HasSubstr("line 2, column 3"));
  const std::string other = Ask("anna", Post("JobService/GetJob", R"({"nmae": "jobs/7"})"));
  EXPECT_THAT(std::string(BodyOf(other)["message"]),
              AllOf(HasSubstr("no field 'nmae'"), HasSubstr("'name'")));
}

TEST_F(DoorTest, PathsMethodsAndContentTypesThatAreNotServedAreRefused) {
  EXPECT_EQ(StatusOf(Ask("anna", Get("/nothing"))), 404);
  const std::string unknown = Ask("anna", Post("JobService/Nothing", "{}"));
  EXPECT_EQ(StatusOf(unknown), 404);
  EXPECT_EQ(BodyOf(unknown)["code"], "unimplemented");
  EXPECT_EQ(StatusOf(Ask("anna", Post("AgentService/SyncWorker", "{}"))), 404)
      << "workers do not come through this door";
  const std::string changing = Ask("anna", Get("/trainyard.v1.JobService/CancelJob"));
  EXPECT_EQ(StatusOf(changing), 405) << "a link must not change anything";
  EXPECT_THAT(changing, HasSubstr("Allow: POST"));
  std::string form = Post("JobService/ListJobs", "{}");
  form.replace(form.find("application/json"), 16, "text/plain; x=yz");
  EXPECT_EQ(StatusOf(Ask("anna", form)), 415) << "a form of another site must not get through";
}

TEST_F(DoorTest, TheTableOfRulesDecides) {
  ASSERT_EQ(StatusOf(Ask("anna", Post("JobService/CreateJob", kSpec))), 200);
  const std::string other = Ask("ben", Post("JobService/CancelJob", R"({"name":"jobs/1"})"));
  EXPECT_EQ(StatusOf(other), 403);
  EXPECT_EQ(ReasonIn(BodyOf(other)), "NOT_OWNER");
  const std::string low = Ask("ben", Post("FleetService/DrainWorker", R"({"name":"workers/a"})"));
  EXPECT_EQ(ReasonIn(BodyOf(low)), "ROLE_TOO_LOW");

  // Nothing that a client sends makes it another one.
  const std::string claims = "Trainyard-As: anna\r\n";
  const std::string acted =
      Ask("ben", Post("JobService/CancelJob", R"({"name":"jobs/1"})", claims));
  EXPECT_EQ(ReasonIn(BodyOf(acted)), "NOT_ADMIN");
  const std::string forged = Ask("ben", Post("AccessService/WhoAmI", "{}",
                                             "Authorization: Bearer tyk_x\r\nPeer: fd:3\r\n"
                                             "Trainyard-User: root\r\n"));
  EXPECT_EQ(BodyOf(forged)["user"], "ben");

  RawClient admin = OpenAs("carla", access::Role::kAdmin);
  admin.Send(Post("JobService/CancelJob", R"({"name":"jobs/1"})", claims));
  EXPECT_EQ(StatusOf(admin.ReadAll()), 200);
  v1::ListAuditEntriesResponse audit;
  ASSERT_TRUE(access_->ListAuditEntries(Context("").get(), {}, &audit).ok());
  ASSERT_FALSE(audit.entries().empty());
  const v1::AuditEntry& last = audit.entries(0);
  EXPECT_EQ(last.rpc(), "JobService/CancelJob") << "the audit log has what came by HTTP";
  EXPECT_TRUE(last.allowed());
}

TEST_F(DoorTest, AStrangerNeedsATokenAndAHostOfTheCertificate) {
  RawClient stranger = OpenStranger();
  stranger.Send(Get("/trainyard.v1.JobService/ListJobs"));
  const std::string answer = stranger.ReadAll();
  EXPECT_EQ(StatusOf(answer), 401);
  EXPECT_THAT(answer, HasSubstr("WWW-Authenticate: Bearer"));

  RawClient sender = OpenStranger();
  sender.Send(
      "POST /trainyard.v1.JobService/CreateJob HTTP/1.1\r\nHost: lab.example\r\n"
      "Content-Type: application/json\r\nContent-Length: 4000000\r\n\r\n");
  EXPECT_EQ(StatusOf(sender.ReadTo("}")), 401) << "the body is not waited for";

  RawClient guesser = OpenStranger();
  guesser.Send(Get("/trainyard.v1.JobService/ListJobs", "Authorization: Bearer tyk_guess\r\n"));
  EXPECT_EQ(ReasonIn(BodyOf(guesser.ReadAll())), "TOKEN_UNKNOWN");

  access::TokenRecord draft;
  draft.user = "dora";
  draft.expires = services_->sign_in->clock->Now() + absl::Hours(1);
  const access::NewToken token = access::MakeToken(draft, services_->sign_in->clock->Now());
  services_->sign_in->tokens.Add(token.record);
  const std::string header = absl::StrCat("Authorization: Bearer ", token.text, "\r\n");
  auto is_known = std::make_shared<std::atomic<bool>>(false);
  access::Peer peer;
  peer.address = "203.0.113.7";
  RawClient dora = Open(peer, is_known);
  dora.Send(Get("/trainyard.v1.AccessService/WhoAmI", header));
  EXPECT_EQ(BodyOf(dora.ReadAll())["user"], "dora");
  EXPECT_TRUE(*is_known) << "the relay may trust the connection now";

  RawClient rebound = OpenStranger();
  std::string other = Get("/trainyard.v1.AccessService/WhoAmI", header);
  other.replace(other.find("lab.example"), 11, "bad.example");
  rebound.Send(other);
  EXPECT_EQ(StatusOf(rebound.ReadAll()), 421);
}

TEST_F(DoorTest, RequestsThatAreTornOrFollowAtOnceAreServedInOrder) {
  std::string first = Post("AccessService/WhoAmI", "{}");
  first.erase(first.find("Connection: close\r\n"), 19);
  const std::string both = first + Post("JobService/GetJob", R"({"name":"jobs/5"})");
  RawClient at_once = OpenAs("anna");
  at_once.Send(both);
  const std::string answers = at_once.ReadAll();
  EXPECT_LT(answers.find("\"user\":\"anna\""), answers.find("jobs/5")) << answers;
  RawClient torn = OpenAs("anna");
  for (const char byte : both) torn.Send(std::string(1, byte));
  EXPECT_THAT(torn.ReadAll(), AllOf(HasSubstr("\"user\":\"anna\""), HasSubstr("jobs/5")));
}

TEST_F(DoorTest, BytesThatAreNoHttpAreRefused) {
  for (const std::string& bytes :
       std::vector<std::string>{std::string("hello\r\n\r\n"), std::string("GET / HTTP/1.1\r\n\r\n"),
                                std::string("GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n"),
                                std::string("GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"),
                                std::string("GET / HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n"),
                                Post("JobService/ListJobs", "{}", "Content-Length: 3\r\n")}) {
    const std::string answer = Ask("anna", bytes);
    EXPECT_EQ(StatusOf(answer), 400) << bytes << answer;
  }
  EXPECT_EQ(StatusOf(Ask("anna",
                         "POST /trainyard.v1.JobService/ListJobs HTTP/1.1\r\nHost: x\r\n"
                         "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")),
            411);
  EXPECT_EQ(StatusOf(Ask("anna", Get("/trainyard.v1.AccessService/WhoAmI"))), 200)
      << "the door works on";
}

TEST_F(DoorTest, AClientThatAsksForItIsToldToSendItsBody) {
  RawClient client = OpenAs("anna");
  const std::string request =
      Post("JobService/GetJob", R"({"name":"jobs/5"})", "Expect: 100-continue\r\n");
  const size_t body = request.find("\r\n\r\n") + 4;
  client.Send(request.substr(0, body));
  EXPECT_EQ(client.ReadTo("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send(request.substr(body));
  EXPECT_EQ(StatusOf(client.ReadAll()), 404);
}

// Returns `{"key":[element,element,...]}` of about so many bytes.
std::string Many(const std::string& key, const std::string& element, size_t bytes) {
  std::string json = absl::StrCat("{\"", key, "\":[");
  while (json.size() + element.size() + 3 < bytes) absl::StrAppend(&json, element, ",");
  return absl::StrCat(json, element, "]}");
}

std::string ManyLabels(int count) {
  std::string json = R"({"spec":{"placement":{"labels":{)";
  for (int i = 0; i < count; ++i) absl::StrAppend(&json, i > 0 ? "," : "", "\"k", i, "\":\"v\"");
  return json + "}}}}";
}

TEST_F(DoorTest, ABodyThatIsMadeToTakeTimeIsAnsweredAndOthersDoNotWait) {
  constexpr size_t kLargest = size_t{4} << 20;
  const std::vector<std::string> bodies = {
      Many("page_token", "{}", kLargest),
      Many("page_token", "{}", kLargest / 4),
      Many("page_token", R"({"a":{}})", kLargest),
      ManyLabels(1000),
      ManyLabels(200'000),
      absl::StrCat("{\"", std::string(kLargest - 100, 'x'), "\":1}")};
  for (const std::string& body : bodies) {
    const absl::Duration begin = Clock::Real()->Uptime();
    RawClient client = OpenAs("anna");
    client.Send(Post("JobService/CreateJob", body));
    EXPECT_EQ(StatusOf(Ask("ben", Post("AccessService/WhoAmI", "{}"))), 200);
    EXPECT_LT(Clock::Real()->Uptime() - begin, absl::Seconds(20)) << body.substr(0, 40);
    EXPECT_EQ(StatusOf(client.ReadAll()), 400) << body.substr(0, 40);
    EXPECT_LT(Clock::Real()->Uptime() - begin, absl::Seconds(20)) << body.substr(0, 40);
  }
}

TEST_F(DoorTest, BodiesThatAreOnlyAnnouncedTakeNoPlaces) {
  std::vector<RawClient> silent;
  for (int i = 0; i < 64; ++i) {
    silent.push_back(OpenAs("anna"));
    silent.back().Send(
        "POST /trainyard.v1.JobService/CreateJob HTTP/1.1\r\nHost: x\r\n"
        "Content-Type: application/json\r\nContent-Length: 4194304\r\n\r\n");
  }
  EXPECT_EQ(StatusOf(Ask("ben", Post("AccessService/WhoAmI", "{}"))), 200);
  EXPECT_EQ(StatusOf(Ask("anna", Post("AccessService/WhoAmI", "{}"))), 200);
}

TEST_F(DoorTest, ATokenIsLookedAtBeforeTheBodyIsRead) {
  RawClient guesser = OpenStranger();
  guesser.Send(
      "POST /trainyard.v1.JobService/CreateJob HTTP/1.1\r\nHost: lab.example\r\n"
      "Content-Type: application/json\r\nAuthorization: Bearer tyk_guess\r\n"
      "Content-Length: 4000000\r\n\r\n");
  const std::string refused = guesser.ReadAll();
  EXPECT_EQ(StatusOf(refused), 401) << "the body is not waited for";
  EXPECT_EQ(ReasonIn(BodyOf(refused)), "TOKEN_UNKNOWN");

  access::Peer peer;
  peer.address = "203.0.113.8";
  peer.worker = "lab-1";
  RawClient worker = Open(peer, std::make_shared<std::atomic<bool>>(true));
  worker.Send(
      "POST /trainyard.v1.JobService/CreateJob HTTP/1.1\r\nHost: lab.example\r\n"
      "Content-Type: application/json\r\nContent-Length: 4000000\r\n\r\n");
  EXPECT_EQ(ReasonIn(BodyOf(worker.ReadAll())), "NOT_A_USER") << "nor for one that may not call";

  access::TokenRecord draft;
  draft.user = "dora";
  draft.expires = services_->sign_in->clock->Now() + absl::Hours(1);
  const access::NewToken token = access::MakeToken(draft, services_->sign_in->clock->Now());
  services_->sign_in->tokens.Add(token.record);
  const std::string header = absl::StrCat("Authorization: Bearer ", token.text, "\r\n");
  std::string first = Post("AccessService/WhoAmI", "{}", header);
  first.erase(first.find("Connection: close\r\n"), 19);
  RawClient dora = OpenStranger();
  dora.Send(first + first);
  dora.ReadTo("\"user\":\"dora\"");
  dora.ReadTo("\"user\":\"dora\"");
  dora.ReadTo("}");
  dora.Send(Post("AccessService/WhoAmI", "{}", "Authorization: Bearer tyk_guess\r\n"));
  EXPECT_EQ(StatusOf(dora.ReadAll()), 401) << "another token is another question";
}

TEST_F(DoorTest, WhatFollowsAnEncodedBodyIsNoRequest) {
  for (const char* encoding : {"gzip", "identity", "chunked", "gzip, chunked", "x"}) {
    const std::string answers =
        Ask("anna", absl::StrCat("POST /trainyard.v1.AccessService/WhoAmI HTTP/1.1\r\nHost: x\r\n"
                                 "Content-Type: application/json\r\nTransfer-Encoding: ",
                                 encoding, "\r\n\r\n", Get("/trainyard.v1.AccessService/WhoAmI")));
    EXPECT_EQ(StatusOf(answers), 411) << encoding;
    EXPECT_EQ(answers.find("HTTP/1.1", 1), std::string::npos) << encoding << ": " << answers;
  }
}

TEST_F(DoorTest, AnAnswerToHeadHasNoBody) {
  RawClient client = OpenAs("anna");
  client.Send("HEAD /trainyard.v1.AccessService/WhoAmI HTTP/1.1\r\nHost: x\r\n\r\n" +
              Get("/trainyard.v1.AccessService/WhoAmI"));
  EXPECT_EQ(StatusOf(client.ReadTo("\r\n\r\n")), 405);
  EXPECT_EQ(StatusOf(client.ReadAll()), 200) << "the next answer follows at once";
}

Limits SmallLimits() {
  Limits limits;
  limits.connections_of_client = 2;
  limits.header_bytes = 1024;
  limits.body_bytes = 1000;
  limits.head_timeout = absl::Milliseconds(200);
  limits.body_timeout = absl::Milliseconds(200);
  return limits;
}

class SmallDoorTest : public DoorTest {
 protected:
  SmallDoorTest() : DoorTest(SmallLimits()) {}
};

TEST_F(SmallDoorTest, WhatIsTooLargeIsRefused) {
  EXPECT_EQ(StatusOf(Ask("anna", Post("JobService/ListJobs", std::string(1001, ' ')))), 413);
  EXPECT_EQ(StatusOf(Ask("anna", Get("/", absl::StrCat("X: ", std::string(2000, 'x'), "\r\n")))),
            431);
}

TEST_F(SmallDoorTest, AClientThatIsTooSlowIsCutOff) {
  RawClient head = OpenAs("anna");
  head.Send("GET / HT");
  EXPECT_EQ(head.ReadAll(), "");
  RawClient body = OpenAs("anna");
  body.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12");
  EXPECT_EQ(body.ReadAll(), "");
}

TEST_F(DoorTest, ADoorEndsWhileABodyIsOnItsWay) {
  RawClient body = OpenAs("anna");
  body.Send("POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n12");
  EXPECT_NE(body.ReadTo("\r\n\r\n"), "");
  door_.reset();
  EXPECT_EQ(body.ReadAll(), "");
}

TEST_F(SmallDoorTest, AUserHasSoManyConnectionsAndOthersHaveTheirOwn) {
  RawClient first = OpenAs("anna");
  RawClient second = OpenAs("anna");
  RawClient third = OpenAs("anna");
  EXPECT_EQ(third.ReadAll(), "") << "it is closed";
  EXPECT_EQ(StatusOf(Ask("ben", Get("/trainyard.v1.AccessService/WhoAmI"))), 200);
}

Limits ShareLimits() {
  Limits limits;
  limits.body_bytes_of_client = 600;
  limits.all_body_bytes = 2000;
  return limits;
}

class ShareTest : public DoorTest {
 protected:
  ShareTest() : DoorTest(ShareLimits()) {}
};

TEST_F(ShareTest, AClientHasAShareOfTheBytesOfBodies) {
  const std::string request = Post("JobService/ListJobs", std::string(500, ' '));
  RawClient slow = OpenAs("anna");
  slow.Send(request.substr(0, request.size() - 10));
  EXPECT_TRUE(testing::WaitUntil([&] { return StatusOf(Ask("anna", request)) == 503; }));
  EXPECT_EQ(StatusOf(Ask("ben", request)), 200);
  slow.Close();
  EXPECT_TRUE(testing::WaitUntil([&] { return StatusOf(Ask("anna", request)) == 200; }))
      << "the share is there again";
}

Limits CrowdLimits() {
  Limits limits;
  limits.connections_of_client = 3;
  limits.connections = 4;
  return limits;
}

class CrowdTest : public DoorTest {
 protected:
  CrowdTest() : DoorTest(CrowdLimits()) {}

  RawClient OpenAt(const std::string& address) {
    access::Peer peer;
    peer.address = address;
    return Open(std::move(peer), std::make_shared<std::atomic<bool>>(false));
  }
  // Returns a connection that was served, and waits for its next request.
  RawClient OpenServed(const std::string& user) {
    RawClient client = OpenAs(user);
    std::string request = Get("/trainyard.v1.AccessService/WhoAmI");
    request.erase(request.find("Connection: close\r\n"), 19);
    client.Send(request);
    EXPECT_EQ(StatusOf(client.ReadTo("}")), 200);
    return client;
  }
  int StatusFor(const std::string& user) {
    return StatusOf(Ask(user, Get("/trainyard.v1.AccessService/WhoAmI")));
  }
};

TEST_F(CrowdTest, AddressesOfOneNetworkAreOneClient) {
  std::vector<RawClient> same;
  for (const char* address :
       {"2001:db8:0:1::1", "2001:db8:0:1::2", "2001:db8:0:1:ffff::3", "2001:db8:0:1::4"}) {
    same.push_back(OpenAt(address));
  }
  EXPECT_TRUE(testing::WaitUntil([&] { return door_->connections() == 3; }));
  EXPECT_EQ(same.front().ReadAll(), "") << "the oldest one is closed";
  same.back().Send(Get("/trainyard.v1.AccessService/WhoAmI"));
  EXPECT_EQ(StatusOf(same.back().ReadAll()), 401) << "the newest one is served";
  const RawClient other = OpenAt("2001:db8:0:2::1");
  EXPECT_TRUE(testing::WaitUntil([&] { return door_->connections() == 3; }));
}

TEST_F(CrowdTest, ConnectionsThatHaveAskedNothingMakeRoom) {
  std::vector<RawClient> silent;
  RawClient served = OpenServed("anna");
  for (int i = 0; i < 3; ++i) silent.push_back(OpenAs("ben"));
  EXPECT_EQ(StatusFor("carla"), 200);
  EXPECT_EQ(silent.front().ReadAll(), "") << "the oldest one is closed";
  served.Send(Get("/trainyard.v1.AccessService/WhoAmI"));
  EXPECT_EQ(StatusOf(served.ReadAll()), 200) << "although it was opened first";
}

TEST_F(CrowdTest, RequestsThatDoNotComeToAnEndMakeRoom) {
  std::vector<RawClient> slow;
  for (int i = 0; i < 3; ++i) {
    slow.push_back(OpenServed("ben"));
    slow.back().Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12");
  }
  const RawClient served = OpenServed("anna");
  EXPECT_TRUE(testing::WaitUntil([&] { return StatusFor("carla") == 200; }));
  EXPECT_EQ(slow.front().ReadAll(), "");
}

TEST_F(CrowdTest, WhoeverHasMoreConnectionsThatWaitMakesRoom) {
  std::vector<RawClient> served;
  for (int i = 0; i < 3; ++i) served.push_back(OpenServed("ben"));
  served.push_back(OpenServed("anna"));
  EXPECT_EQ(StatusFor("carla"), 200);
  EXPECT_EQ(served.front().ReadAll(), "") << "the oldest one of ben is closed";
  served.back().Send(Get("/trainyard.v1.AccessService/WhoAmI"));
  EXPECT_EQ(StatusOf(served.back().ReadAll()), 200);
}

}  // namespace
}  // namespace trainyard::http
