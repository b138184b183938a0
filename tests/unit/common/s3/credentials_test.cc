#include "common/s3/credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "common/base/errors.h"
#include "common/base/files.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::s3 {
namespace {

using ::testing::HasSubstr;

class CredentialsTest : public ::testing::Test {
 protected:
  CredentialsTest() {
    EXPECT_TRUE(MakeDirectories(home_.File(".aws")).ok());
    variables_["HOME"] = home_.path();
  }
  absl::StatusOr<Found> Find() {
    return FindCredentials([this](const char* name) {
      const auto found = variables_.find(name);
      return found == variables_.end() ? std::string() : found->second;
    });
  }

  testing::TempDir home_;
  std::map<std::string, std::string> variables_;
};

TEST_F(CredentialsTest, TheEnvironmentComesFirst) {
  home_.Write(".aws/credentials",
              "[default]\naws_access_key_id = file\naws_secret_access_key = file\n");
  variables_["AWS_ACCESS_KEY_ID"] = "id";
  variables_["AWS_SECRET_ACCESS_KEY"] = "secret";
  variables_["AWS_SESSION_TOKEN"] = "token";
  variables_["AWS_DEFAULT_REGION"] = "eu-west-1";
  variables_["AWS_ENDPOINT_URL"] = "https://store.lab";
  const auto found = Find();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->credentials.access_key_id, "id");
  EXPECT_EQ(found->credentials.secret_access_key, "secret");
  EXPECT_EQ(found->credentials.session_token, "token");
  EXPECT_EQ(found->region, "eu-west-1");
  EXPECT_EQ(found->endpoint, "https://store.lab");
}

TEST_F(CredentialsTest, AProfileOfTheFilesIsRead) {
  home_.Write(".aws/credentials",
              "# keys\n[default]\naws_access_key_id=other\naws_secret_access_key=other\n\n"
              "[ lab ]\r\n; mine\naws_access_key_id = id\r\nAWS_SECRET_ACCESS_KEY = a=b/c+ \n"
              "s3 =\n  aws_access_key_id = nested\n");
  home_.Write(".aws/config",
              "[default]\nregion = us-west-2\n[profile lab]\nregion = eu-north-1\n"
              "endpoint_url = http://10.0.0.1:9000\n");
  variables_["AWS_PROFILE"] = "lab";
  const auto found = Find();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->credentials.access_key_id, "id");
  EXPECT_EQ(found->credentials.secret_access_key, "a=b/c+");
  EXPECT_EQ(found->region, "eu-north-1");
  EXPECT_EQ(found->endpoint, "http://10.0.0.1:9000");
  EXPECT_THAT(found->source, HasSubstr("profile 'lab'"));
}

TEST_F(CredentialsTest, WithoutKeysAllPlacesAreNamed) {
  home_.Write(".aws/credentials", "[other]\naws_access_key_id = id\n");
  const absl::Status status = Find().status();
  EXPECT_TRUE(absl::IsUnauthenticated(status));
  EXPECT_EQ(ErrorReason(status), "S3_NO_CREDENTIALS");
  EXPECT_THAT(status.message(), HasSubstr("AWS_ACCESS_KEY_ID"));
  EXPECT_THAT(status.message(), HasSubstr(home_.File(".aws/credentials")));
  EXPECT_THAT(status.message(), HasSubstr("[default]"));
}

TEST_F(CredentialsTest, HalfOfAPairIsAMistake) {
  variables_["AWS_ACCESS_KEY_ID"] = "id";
  EXPECT_THAT(Find().status().message(), HasSubstr("only one of"));
}

TEST_F(CredentialsTest, AFileThatIsTooLargeIsNotRead) {
  home_.Write(".aws/credentials", std::string((size_t{1} << 20) + 1, '#'));
  EXPECT_TRUE(absl::IsResourceExhausted(Find().status())) << Find().status();
}

}  // namespace
}  // namespace trainyard::s3
