#include "common/s3/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"

namespace trainyard::s3 {
namespace {

using ::testing::HasSubstr;

absl::Status StatusOf(int status, const std::string& code) {
  curl::Response answer;
  answer.status = status;
  answer.body = absl::StrCat("<Error><Code>", code, "</Code><Message>why</Message></Error>");
  return StatusOfAnswer({"write", "lab", "k", "https://store", "us-east-1", "now"}, answer);
}

// AWS answers so to keys that have expired, and to a token that is none.
TEST(S3Errors, KeysThatAreWrongAreNamedWhateverTheStatusIs) {
  for (const int status : {400, 401, 403}) {
    const absl::Status expired = StatusOf(status, "ExpiredToken");
    EXPECT_EQ(ErrorReason(expired), "S3_ACCESS_DENIED") << expired;
    EXPECT_THAT(expired.message(), HasSubstr("the session token has expired"));
    EXPECT_THAT(StatusOf(status, "InvalidToken").message(), HasSubstr("is not that of the keys"));
  }
  EXPECT_EQ(ErrorReason(StatusOf(400, "MalformedXML")), "S3_REFUSED");
  EXPECT_EQ(ErrorReason(StatusOf(403, "Anything")), "S3_ACCESS_DENIED");
}

}  // namespace
}  // namespace trainyard::s3
