#include "common/s3/web_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/errors.h"
#include "common/s3/client.h"
#include "common/s3/errors.h"
#include "tests/testing/manual_clock.h"
#include "tests/testing/s3/fake_s3.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::s3 {
namespace {

using ::testing::HasSubstr;

class WebIdentityTest : public ::testing::Test {
 protected:
  WebIdentityTest() {
    variables_ = {{"AWS_WEB_IDENTITY_TOKEN_FILE", dir_.Write("token", "a.token+\n")},
                  {"AWS_ROLE_ARN", "arn:aws:iam::1:role/lab"},
                  {"AWS_ENDPOINT_URL_STS", fake_.endpoint()},
                  {"AWS_REGION", "us-east-1"}};
  }
  Variables variables() {
    return [this](const char* name) {
      const auto found = variables_.find(name);
      return found == variables_.end() ? std::string() : found->second;
    };
  }

  testing::FakeS3 fake_;
  testing::TempDir dir_;
  std::map<std::string, std::string> variables_;
};

TEST_F(WebIdentityTest, ATokenGivesKeysThatSign) {
  ASSERT_TRUE(HasWebIdentity(variables()));
  const auto found = AssumeRoleWithWebIdentity(variables(), "");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->credentials.session_token, "session+token");
  ClientOptions options = fake_.ClientOptions();
  options.credentials = found->credentials;
  const auto client = *Client::Create(options, *Clock::Real(), *Rng::Real());
  EXPECT_TRUE(client->Put("k", "x").ok());
}

TEST_F(WebIdentityTest, ARefusalSaysWhoWasRefused) {
  variables_["AWS_ROLE_ARN"] = "arn:aws:iam::1:role/other";
  const absl::Status status = AssumeRoleWithWebIdentity(variables(), "").status();
  EXPECT_EQ(ErrorReason(status), "S3_NO_CREDENTIALS") << status;
  EXPECT_THAT(status.message(), HasSubstr("role/other"));
  EXPECT_THAT(status.message(), HasSubstr("AccessDenied"));
  EXPECT_THAT(status.message(), ::testing::Not(HasSubstr("a.token")));
}

TEST_F(WebIdentityTest, AnAnswerThatCannotBeReadIsNotShown) {
  fake_.AnswerRolesWith("<Other><SecretAccessKey>very secret</SecretAccessKey></Other>");
  const absl::Status status = AssumeRoleWithWebIdentity(variables(), "").status();
  EXPECT_EQ(ErrorReason(status), "S3_NO_CREDENTIALS") << status;
  EXPECT_THAT(status.message(), HasSubstr("the answer has no keys of a role"));
  EXPECT_THAT(status.message(), ::testing::Not(HasSubstr("very secret")));
}

TEST_F(WebIdentityTest, KeysAreRenewedBeforeTheyExpire) {
  testing::ManualClock clock;
  const auto answer = [&](const std::string& key, absl::Duration life) {
    fake_.AnswerRolesWith(absl::StrCat(
        "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>",
        "<AccessKeyId>", key, "</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t",
        "</SessionToken><Expiration>",
        absl::FormatTime(absl::RFC3339_sec, clock.Now() + life, absl::UTCTimeZone()),
        "</Expiration></Credentials></AssumeRoleWithWebIdentityResult>",
        "</AssumeRoleWithWebIdentityResponse>"));
  };
  const auto key_of = [](const absl::StatusOr<Found>& found) {
    return found.ok() ? found->credentials.access_key_id : std::string(found.status().message());
  };
  WebIdentity identity(variables(), "", clock);
  answer("first", absl::Hours(1));
  EXPECT_EQ(key_of(identity.Get()), "first");
  answer("second", absl::Hours(2));
  clock.Advance(absl::Minutes(54));
  EXPECT_EQ(key_of(identity.Get()), "first");
  clock.Advance(absl::Minutes(2));
  EXPECT_EQ(key_of(identity.Get()), "second");
  EXPECT_EQ(fake_.CountRequests("POST"), 2);
  // While the service fails, keys are used to their end.
  fake_.AnswerRolesWith("broken");
  clock.Advance(absl::Minutes(59));
  EXPECT_EQ(key_of(identity.Get()), "second");
  clock.Advance(absl::Minutes(2));
  EXPECT_EQ(ErrorReason(identity.Get().status()), "S3_NO_CREDENTIALS");
}

TEST_F(WebIdentityTest, AClientAsksForKeysBeforeEachTry) {
  ClientOptions options = fake_.ClientOptions();
  const Credentials good = options.credentials;
  options.credentials = {};
  int asked = 0;
  options.find_credentials = [&]() -> absl::StatusOr<Credentials> {
    if (++asked > 2) return error::S3NoCredentials("the token is gone");
    return good;
  };
  const auto client = *Client::Create(options, *Clock::Real(), *Rng::Real());
  EXPECT_TRUE(client->Put("k", "x").ok());
  EXPECT_TRUE(client->Head("k").ok());
  EXPECT_EQ(ErrorReason(client->Head("k").status()), "S3_NO_CREDENTIALS");
  EXPECT_EQ(asked, 3);
}

TEST_F(WebIdentityTest, KeysOfTheEnvironmentComeFirst) {
  variables_["AWS_ACCESS_KEY_ID"] = "id";
  EXPECT_FALSE(HasWebIdentity(variables()));
}

TEST_F(WebIdentityTest, ATokenThatIsMissingIsNamed) {
  variables_["AWS_WEB_IDENTITY_TOKEN_FILE"] = dir_.File("absent");
  EXPECT_TRUE(absl::IsNotFound(AssumeRoleWithWebIdentity(variables(), "").status()));
}

}  // namespace
}  // namespace trainyard::s3
