// Tests of requests and their answers with real sockets.
#include "server/http/door.h"

#include <gmock/gmock.h>
#include <sys/socket.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
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

TEST_F(SmallDoorTest, AUserHasSoManyConnectionsAndOthersHaveTheirOwn) {
  RawClient first = OpenAs("anna");
  RawClient second = OpenAs("anna");
  RawClient third = OpenAs("anna");
  EXPECT_EQ(third.ReadAll(), "") << "it is closed";
  EXPECT_EQ(StatusOf(Ask("ben", Get("/trainyard.v1.AccessService/WhoAmI"))), 200);
}

}  // namespace
}  // namespace trainyard::http
