// Tests of who may read /metrics, and of its answer.
#include "server/http/metrics_page.h"

#include <gmock/gmock.h>

#include "common/base/errors.h"
#include "tests/unit/server/http/http_fixture.h"

namespace trainyard::http {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class MetricsPageTest : public DoorTest {
 protected:
  std::string AskAs(access::Role role, const std::string& request) {
    RawClient client = OpenAs("anna", role);
    client.Send(request);
    return client.ReadAll();
  }
};

TEST_F(MetricsPageTest, AViewerGetsTheText) {
  const std::string answer = AskAs(access::Role::kViewer, Get("/metrics"));
  EXPECT_EQ(StatusOf(answer), 200) << answer;
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\n\r\ntest_metric 1\n"));
}

TEST_F(MetricsPageTest, AUserWithoutARoleGetsNothing) {
  const std::string answer = AskAs(access::Role::kNone, Get("/metrics"));
  EXPECT_EQ(StatusOf(answer), 403) << answer;
  EXPECT_THAT(answer, HasSubstr("--role viewer"));
  EXPECT_THAT(answer, Not(HasSubstr("test_metric")));
}

TEST_F(MetricsPageTest, AStrangerNeedsAToken) {
  RawClient client = OpenStranger();
  client.Send(Get("/metrics"));
  const std::string answer = client.ReadAll();
  EXPECT_EQ(StatusOf(answer), 401) << answer;
  EXPECT_THAT(answer, Not(HasSubstr("test_metric")));
}

TEST_F(MetricsPageTest, OnlyGetIsServed) {
  const std::string answer = AskAs(access::Role::kViewer,
                                   "POST /metrics HTTP/1.1\r\nHost: lab.example\r\n"
                                   "Connection: close\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(StatusOf(answer), 405) << answer;
}

TEST_F(MetricsPageTest, AFailureIsAnswered) {
  metrics_ = absl::UnavailableError("the server is shutting down; try again");
  const std::string answer = AskAs(access::Role::kViewer, Get("/metrics"));
  EXPECT_EQ(StatusOf(answer), 503) << answer;
}

}  // namespace
}  // namespace trainyard::http
