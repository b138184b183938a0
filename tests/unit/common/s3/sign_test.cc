#include "common/s3/sign.h"

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "nlohmann/json.hpp"
#include "tests/testing/paths.h"

namespace trainyard::s3 {
namespace {

const Credentials kCredentials{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                               ""};
constexpr char kEmptySha256[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

absl::Time TimeOf(const std::string& text) {
  absl::Time time;
  std::string error;
  EXPECT_TRUE(absl::ParseTime("%E4Y%m%dT%H%M%SZ", text, &time, &error)) << error;
  return time;
}

std::string SignatureOf(const UnsignedRequest& request, const std::string& time,
                        const Credentials& credentials = kCredentials,
                        const SigningScope& scope = {"us-east-1"}) {
  const std::string text = AuthorizationOf(request, credentials, scope, TimeOf(time));
  return text.substr(text.find("Signature=") + 10);
}

// These four are the examples of "Authenticating Requests: Using the Authorization Header" in AWS's
// API Reference of S3.
TEST(Sign, TheExamplesOfS3sReferenceAreSignedAlike) {
  const std::string time = "20130524T000000Z";
  const std::string host = "examplebucket.s3.amazonaws.com";
  EXPECT_EQ(SignatureOf({"GET",
                         PathOf("test.txt"),
                         {},
                         {{"host", host},
                          {"range", "bytes=0-9"},
                          {"x-amz-content-sha256", kEmptySha256},
                          {"x-amz-date", time}},
                         kEmptySha256},
                        time),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  const std::string body = HexSha256("Welcome to Amazon S3.");
  EXPECT_EQ(SignatureOf({"PUT",
                         PathOf("test$file.text"),
                         {},
                         {{"date", "Fri, 24 May 2013 00:00:00 GMT"},
                          {"host", host},
                          {"x-amz-content-sha256", body},
                          {"x-amz-date", time},
                          {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
                         body},
                        time),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
  const std::map<std::string, std::string> headers = {
      {"host", host}, {"x-amz-content-sha256", kEmptySha256}, {"x-amz-date", time}};
  EXPECT_EQ(SignatureOf({"GET", "/", {{"lifecycle", ""}}, headers, kEmptySha256}, time),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
  EXPECT_EQ(
      SignatureOf({"GET", "/", {{"prefix", "J"}, {"max-keys", "2"}}, headers, kEmptySha256}, time),
      "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

// The vector get-vanilla of AWS's test suite for Signature Version 4, which is not for S3.
TEST(Sign, TheVanillaVectorOfAwssSuiteIsSignedAlike) {
  const Credentials credentials{"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", ""};
  EXPECT_EQ(SignatureOf({"GET",
                         "/",
                         {},
                         {{"host", "example.amazonaws.com"}, {"x-amz-date", "20150830T123600Z"}},
                         kEmptySha256},
                        "20150830T123600Z", credentials, {"us-east-1", "service"}),
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
}

// make_vectors.py made these with botocore.
TEST(Sign, RequestsAreSignedAsBotocoreSignsThem) {
  const auto text = ReadFile(testing::SourcePath("tests/data/s3/signatures.json"));
  ASSERT_TRUE(text.ok()) << text.status();
  const auto json = nlohmann::json::parse(*text);
  const absl::Time time = TimeOf(json["time"]);
  ASSERT_EQ(json["vectors"].size(), 50u);
  for (const auto& vector : json["vectors"]) {
    UnsignedRequest request;
    request.method = vector["method"];
    request.path = "/bucket" + PathOf(std::string(vector["key"]));
    for (const auto& pair : vector["query"]) request.query.emplace_back(pair[0], pair[1]);
    request.headers = vector["headers"].get<std::map<std::string, std::string>>();
    request.body_sha256 = HexSha256(std::string(vector["body"]));
    const Credentials credentials{"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", ""};
    EXPECT_EQ(AuthorizationOf(request, credentials, {json["region"]}, time),
              std::string(vector["authorization"]))
        << vector.dump(1);
  }
}

TEST(Sign, PathsAreEscapedOnceAndAreNotNormalized) {
  EXPECT_EQ(PathOf(""), "/");
  EXPECT_EQ(PathOf("a b//c/../%41~é"), "/a%20b//c/../%2541~%C3%A9");
}

TEST(Sign, QueriesAreSortedByTheirEscapedNames) {
  EXPECT_EQ(QueryText({{"uploads", ""}}), "uploads=");
  EXPECT_EQ(QueryText({{"b", "2"}, {"a", "x y"}, {"B", "&="}}), "B=%26%3D&a=x%20y&b=2");
}

}  // namespace
}  // namespace trainyard::s3
