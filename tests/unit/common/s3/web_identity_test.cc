#include "common/s3/web_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "common/base/errors.h"
#include "common/s3/client.h"
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
  const auto found = AssumeRoleWithWebIdentity(variables());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->credentials.session_token, "session+token");
  ClientOptions options = fake_.ClientOptions();
  options.credentials = found->credentials;
  const auto client = *Client::Create(options, *Clock::Real(), *Rng::Real());
  EXPECT_TRUE(client->Put("k", "x").ok());
}

TEST_F(WebIdentityTest, ARefusalSaysWhoWasRefused) {
  variables_["AWS_ROLE_ARN"] = "arn:aws:iam::1:role/other";
  const absl::Status status = AssumeRoleWithWebIdentity(variables()).status();
  EXPECT_EQ(ErrorReason(status), "S3_NO_CREDENTIALS") << status;
  EXPECT_THAT(status.message(), HasSubstr("role/other"));
  EXPECT_THAT(status.message(), HasSubstr("AccessDenied"));
  EXPECT_THAT(status.message(), ::testing::Not(HasSubstr("a.token")));
}

TEST_F(WebIdentityTest, AnAnswerThatCannotBeReadIsNotShown) {
  fake_.AnswerRolesWith("<Other><SecretAccessKey>very secret</SecretAccessKey></Other>");
  const absl::Status status = AssumeRoleWithWebIdentity(variables()).status();
  EXPECT_EQ(ErrorReason(status), "S3_NO_CREDENTIALS") << status;
  EXPECT_THAT(status.message(), HasSubstr("the answer has no keys of a role"));
  EXPECT_THAT(status.message(), ::testing::Not(HasSubstr("very secret")));
}

TEST_F(WebIdentityTest, KeysOfTheEnvironmentComeFirst) {
  variables_["AWS_ACCESS_KEY_ID"] = "id";
  EXPECT_FALSE(HasWebIdentity(variables()));
}

TEST_F(WebIdentityTest, ATokenThatIsMissingIsNamed) {
  variables_["AWS_WEB_IDENTITY_TOKEN_FILE"] = dir_.File("absent");
  EXPECT_TRUE(absl::IsNotFound(AssumeRoleWithWebIdentity(variables()).status()));
}

}  // namespace
}  // namespace trainyard::s3
