// Tests which requests of browsers are served.
#include "client/web/gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace trainyard::web {
namespace {

using ::testing::HasSubstr;

constexpr int kPort = 8123;
constexpr char kHost[] = "127.0.0.1:8123";

std::string HeaderOf(const http::Response& response, absl::string_view name) {
  for (const auto& header : response.headers) {
    if (header.first == name) return header.second;
  }
  return "";
}

http::Request Get(const std::string& path, const std::string& query = "") {
  http::Request request;
  request.method = "GET";
  request.path = path;
  request.query = query;
  request.headers = {{"host", kHost}};
  return request;
}

class GateTest : public ::testing::Test {
 protected:
  // Follows the link, and returns the answer.
  http::Response Follow(const std::string& path = "/") {
    const std::string link = gate_.LinkTo(path);
    http::Request request = Get("/session", link.substr(link.find('?') + 1));
    return gate_.Check(request).value_or(http::Response());
  }
  // Returns what a browser sends back.
  static std::string CookieOf(const http::Response& response) {
    const std::string cookie = HeaderOf(response, "Set-Cookie");
    return cookie.substr(0, cookie.find(';'));
  }
  int StatusOf(http::Request request) {
    const auto answer = gate_.Check(request);
    return answer.has_value() ? answer->status : 0;
  }

  Gate gate_{kPort};
};

TEST_F(GateTest, TheLinkIsGoodOnce) {
  EXPECT_THAT(gate_.LinkTo("/"), HasSubstr("http://127.0.0.1:8123/session?code="));
  const http::Response first = Follow("/jobs/12");
  EXPECT_EQ(first.status, 303);
  EXPECT_EQ(HeaderOf(first, "Location"), "/jobs/12");
  EXPECT_THAT(HeaderOf(first, "Set-Cookie"), HasSubstr("; Path=/; HttpOnly; SameSite=Strict"));

  EXPECT_EQ(Follow().status, 401) << "another browser follows it";
  http::Request again = Get("/session", "code=whatever&to=/queue");
  again.headers["cookie"] = CookieOf(first);
  const auto answer = gate_.Check(again);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status, 303) << "a browser that is signed in just goes there";
  EXPECT_EQ(HeaderOf(*answer, "Set-Cookie"), "");
}

TEST_F(GateTest, TheCookieIsNeeded) {
  EXPECT_EQ(StatusOf(Get("/jobs/1")), 401);
  const std::string cookie = CookieOf(Follow());
  http::Request request = Get("/jobs/1");
  request.headers["cookie"] = absl::StrCat("other=1; ", cookie);
  EXPECT_EQ(StatusOf(request), 0);
  request.headers["cookie"] = absl::StrCat(cookie, "x");
  EXPECT_EQ(StatusOf(request), 401);
  // The cookie of another run, on another port.
  Gate other(kPort + 1);
  request.headers["cookie"] = absl::StrReplaceAll(cookie, {{"8123", "8124"}});
  request.headers["host"] = "127.0.0.1:8124";
  EXPECT_TRUE(other.Check(request).has_value());
}

TEST_F(GateTest, ABrowserSignsOut) {
  http::Request request = Get("/session");
  request.method = "DELETE";
  EXPECT_EQ(StatusOf(request), 401);
  request.headers["cookie"] = CookieOf(Follow());
  const auto answer = gate_.Check(request);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status, 204);
  EXPECT_EQ(HeaderOf(*answer, "Set-Cookie"), "trainyard_8123=; Path=/; Max-Age=0");
}

TEST_F(GateTest, OtherSitesMayNotUseIt) {
  http::Request request = Get("/trainyard.v1.JobService/ListJobs");
  request.headers["cookie"] = CookieOf(Follow());
  request.headers["sec-fetch-site"] = "same-origin";
  EXPECT_EQ(StatusOf(request), 0);
  request.headers["sec-fetch-site"] = "same-site";
  EXPECT_EQ(StatusOf(request), 403) << "a page of another port of this machine";
  request.headers.erase("sec-fetch-site");
  request.headers["origin"] = "http://127.0.0.1:9999";
  EXPECT_EQ(StatusOf(request), 403);
  request.headers["origin"] = absl::StrCat("http://", kHost);
  EXPECT_EQ(StatusOf(request), 0);
  request.headers["host"] = "rebound.example:8123";
  EXPECT_EQ(StatusOf(request), 421) << "a name of another site that was bound to this address";
}

TEST_F(GateTest, TheLinkLeadsToNoOtherServer) {
  for (const char* to :
       {"//evil.example/", "https://evil.example/", "/\\evil.example", "/%0d%0ax"}) {
    Gate gate(kPort);
    const std::string link = gate.LinkTo(to);
    http::Request request = Get("/session", link.substr(link.find('?') + 1));
    const auto answer = gate.Check(request);
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(HeaderOf(*answer, "Location"), "/") << to;
  }
}

TEST_F(GateTest, TheConnectionSaysWhoTheUserIs) {
  http::Request request = Get("/");
  request.headers["cookie"] = CookieOf(Follow());
  request.headers["authorization"] = "Bearer tyk_of_somebody";
  EXPECT_EQ(StatusOf(request), 0);
  EXPECT_FALSE(gate_.Check(request).has_value());
  EXPECT_EQ(request.Header("authorization"), "");
}

TEST_F(GateTest, PeopleAndProgramsReadWhyNot) {
  http::Request request = Get("/jobs/1");
  request.headers["accept"] = "text/html,*/*";
  auto answer = gate_.Check(request);
  ASSERT_TRUE(answer.has_value());
  EXPECT_THAT(answer->content_type, HasSubstr("text/html"));
  EXPECT_THAT(answer->body, HasSubstr("Run `trainyard web`"));
  request.headers["accept"] = "application/json";
  answer = gate_.Check(request);
  ASSERT_TRUE(answer.has_value());
  EXPECT_THAT(answer->body, HasSubstr("\"unauthenticated\""));
}

}  // namespace
}  // namespace trainyard::web
