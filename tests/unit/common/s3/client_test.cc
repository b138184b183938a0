#include "common/s3/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "tests/testing/s3/fake_s3.h"
#include "tests/testing/wait.h"

namespace trainyard::s3 {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::FakeS3;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int64_t kBytesMax = 1 << 20;

// The real clock, and some time added to what the wall shows.
class WrongClock : public Clock {
 public:
  absl::Time Now() override { return Clock::Real()->Now() + absl::Hours(1); }
  absl::Duration Uptime() override { return Clock::Real()->Uptime(); }
  void SleepFor(absl::Duration) override { ADD_FAILURE() << "the client waits by itself"; }
};

std::unique_ptr<Client> Make(ClientOptions options, Clock& clock = *Clock::Real()) {
  auto client = Client::Create(std::move(options), clock, *Rng::Real());
  EXPECT_TRUE(client.ok()) << client.status();
  return *std::move(client);
}

class ClientTest : public ::testing::Test {
 protected:
  FakeS3 fake_;
  std::unique_ptr<Client> client_ = Make(fake_.ClientOptions());
};

TEST_F(ClientTest, FailuresThatMayPassAreTriedAgain) {
  fake_.Inject(FakeS3::Fault::kInternalError);
  fake_.Inject(FakeS3::Fault::kSlowDown);
  fake_.Inject(FakeS3::Fault::kClose);
  EXPECT_TRUE(client_->Put("k", "content").ok());
  EXPECT_EQ(fake_.CountRequests("PUT k"), 4);
  EXPECT_EQ(fake_.Objects()["k"], "content");
}

TEST_F(ClientTest, TriesHaveALimitAndTheErrorSaysWhatTheStoreSaid) {
  fake_.Inject(FakeS3::Fault::kInternalError, 100);
  const absl::Status status = client_->Put("some/key", "content").status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(ErrorReason(status), "S3_UNAVAILABLE");
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("s3://lab-bucket/some/key"), HasSubstr(fake_.endpoint()),
                    HasSubstr("HTTP 500 InternalError")));
  EXPECT_EQ(fake_.CountRequests("PUT"), 4);
}

TEST_F(ClientTest, RefusalsAreNotTriedAgain) {
  fake_.Inject(FakeS3::Fault::kDenied);
  EXPECT_EQ(ErrorReason(client_->Put("k", "x").status()), "S3_ACCESS_DENIED");
  EXPECT_TRUE(absl::IsNotFound(client_->Get("absent", kBytesMax).status()));
  EXPECT_TRUE(absl::IsNotFound(client_->Head("absent").status()));
  fake_.Write("k", "there");
  EXPECT_EQ(ErrorReason(client_->Put("k", "x", {.is_new = true}).status()), "S3_CONDITION_FAILED");
  EXPECT_THAT(fake_.Requests(), SizeIs(4));
}

TEST_F(ClientTest, AReadThatIsCutGoesOnWhereItWasCut) {
  std::string content;
  while (content.size() < 300'000) absl::StrAppend(&content, content.size(), ",");
  fake_.Write("k", content);
  fake_.Inject(FakeS3::Fault::kCut, 2, "GET");
  const auto object = client_->Get("k", kBytesMax);
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_EQ(object->content, content);
  EXPECT_EQ(object->info.size, static_cast<int64_t>(content.size()));
  EXPECT_EQ(fake_.CountRequests("GET k"), 3);
}

TEST_F(ClientTest, AReadThatGetsOnMayBreakMoreOftenThanThereAreTries) {
  const std::string content(16 << 20, 'x');
  fake_.Write("k", content);
  // Each cut halves what is left, and 64 KiB of it are enough to begin to count again.
  fake_.Inject(FakeS3::Fault::kCut, 7, "GET");
  const auto object = client_->Get("k", int64_t{1} << 30);
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_TRUE(object->content == content);
  EXPECT_EQ(fake_.CountRequests("GET k"), 8);
  // Without an advance, the tries are counted as ever.
  fake_.Inject(FakeS3::Fault::kInternalError, 100, "GET");
  EXPECT_TRUE(absl::IsUnavailable(client_->Get("k", int64_t{1} << 30).status()));
  EXPECT_EQ(fake_.CountRequests("GET k"), 12);
}

TEST_F(ClientTest, PiecesOfTwoVersionsAreNotPutTogether) {
  fake_.Write("k", std::string(100'000, 'a'));
  fake_.Inject(FakeS3::Fault::kCut, 1, "GET");
  bool is_replaced = false;
  const absl::Status status = client_
                                  ->Read("k", {},
                                         [&](absl::string_view) {
                                           if (!is_replaced) fake_.Write("k", "another");
                                           is_replaced = true;
                                           return absl::OkStatus();
                                         })
                                  .status();
  EXPECT_EQ(ErrorReason(status), "S3_CONDITION_FAILED") << status;
}

TEST_F(ClientTest, WhatTheSinkRefusesIsNotReadAgain) {
  fake_.Write("k", std::string(100'000, 'a'));
  int calls = 0;
  const absl::Status status = client_
                                  ->Read("k", {},
                                         [&](absl::string_view) {
                                           ++calls;
                                           return absl::UnavailableError("the disk is away");
                                         })
                                  .status();
  EXPECT_EQ(status, absl::UnavailableError("the disk is away"));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(fake_.CountRequests("GET"), 1);
}

TEST_F(ClientTest, AnObjectThatIsTooLargeIsNotTakenIntoMemory) {
  fake_.Write("k", "1234567890");
  EXPECT_TRUE(client_->Get("k", 10).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(client_->Get("k", 9).status()));
}

TEST_F(ClientTest, AStoreThatHangsIsGivenUp) {
  ClientOptions options = fake_.ClientOptions();
  options.tries = 2;
  options.call_timeout = absl::Milliseconds(150);
  fake_.Write("k", "x");
  fake_.Inject(FakeS3::Fault::kHang, 4);
  const auto client = Make(options);
  const absl::Status status = client->Head("k").status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_EQ(fake_.CountRequests("HEAD"), 2);
}

TEST_F(ClientTest, AStoreThatDripsIsGivenUp) {
  ClientOptions options = fake_.ClientOptions();
  options.tries = 1;
  options.call_timeout = absl::Milliseconds(200);
  fake_.Write("k", std::string(10'000, 'x'));
  fake_.Inject(FakeS3::Fault::kDrip, 1);
  const absl::Status status = Make(options)->Get("k", kBytesMax).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
}

TEST_F(ClientTest, CancelEndsAPauseAndACall) {
  ClientOptions options = fake_.ClientOptions();
  options.first_pause = absl::Hours(1);
  options.longest_pause = absl::Hours(1);
  const auto paused = Make(options);
  const auto hanging = Make(options);
  fake_.Inject(FakeS3::Fault::kInternalError, 1, "PUT");
  fake_.Inject(FakeS3::Fault::kHang, 1, "HEAD");
  absl::Status put;
  absl::Status head;
  std::thread first([&] { put = paused->Put("k", "x").status(); });
  std::thread second([&] { head = hanging->Head("k").status(); });
  EXPECT_TRUE(testing::WaitUntil([&] { return fake_.Requests().size() == 2; }));
  paused->Cancel();
  hanging->Cancel();
  first.join();
  second.join();
  EXPECT_TRUE(absl::IsCancelled(put)) << put;
  EXPECT_TRUE(absl::IsCancelled(head)) << head;
  EXPECT_TRUE(absl::IsCancelled(paused->Head("k").status()));
}

TEST_F(ClientTest, MistakesOfTheSetUpAreNamed) {
  ClientOptions options = fake_.ClientOptions();
  options.credentials.secret_access_key = "wrong";
  absl::Status status = Make(options)->Head("k").status();
  EXPECT_EQ(ErrorReason(status), "S3_ACCESS_DENIED");
  status = Make(options)->Put("k", "x").status();
  EXPECT_THAT(status.message(), HasSubstr("the secret key is not that of the key id"));

  options = fake_.ClientOptions();
  options.credentials.access_key_id = "nobody";
  EXPECT_THAT(Make(options)->Put("k", "x").status().message(), HasSubstr("does not know the key"));

  options = fake_.ClientOptions();
  options.region = "eu-west-1";
  status = Make(options)->Put("k", "x").status();
  EXPECT_EQ(ErrorReason(status), "S3_WRONG_REGION");
  EXPECT_THAT(status.message(), HasSubstr("the bucket is in region 'us-east-1', not 'eu-west-1'"));

  options = fake_.ClientOptions();
  options.bucket = "another-bucket";
  EXPECT_EQ(ErrorReason(Make(options)->Put("k", "x").status()), "S3_NO_SUCH_BUCKET");

  WrongClock clock;
  status = Make(fake_.ClientOptions(), clock)->Put("k", "x").status();
  EXPECT_EQ(ErrorReason(status), "S3_CLOCK_SKEW");
  EXPECT_THAT(status.message(), HasSubstr("the clock of this host is wrong"));
  EXPECT_THAT(fake_.Objects(), SizeIs(0));
}

TEST_F(ClientTest, AStoreThatIsAwayIsNamed) {
  ClientOptions options;
  {
    FakeS3 gone;
    options = gone.ClientOptions();
  }
  options.tries = 2;
  const absl::Status status = Make(options)->Put("k", "x").status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.message(), AllOf(HasSubstr(options.endpoint), HasSubstr("connect")));
}

TEST(ClientOptions, EndpointsAndBucketsThatMakeNoSenseAreRefused) {
  const auto status_of = [](const std::string& endpoint, const std::string& bucket) {
    ClientOptions options;
    options.endpoint = endpoint;
    options.bucket = bucket;
    return Client::Create(options, *Clock::Real(), *Rng::Real()).status();
  };
  EXPECT_TRUE(status_of("https://store.lab/", "bucket").ok());
  EXPECT_TRUE(status_of("", "bucket").ok());
  for (const char* endpoint : {"store.lab", "ftp://store.lab", "https://", "https://a/path",
                               "https://user@host", "https://a?b"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(status_of(endpoint, "bucket"))) << endpoint;
  }
  for (const char* bucket : {"", "ab", "a/b", "a..b", "buck et", "host.evil/?"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(status_of("https://store.lab", bucket))) << bucket;
  }
}

TEST_F(ClientTest, KeysThatMakeNoSenseAreRefused) {
  for (const std::string& key :
       {std::string(), std::string("/k"), std::string(1025, 'k'), std::string("\xff")}) {
    EXPECT_TRUE(absl::IsInvalidArgument(client_->Put(key, "x").status())) << key;
  }
  EXPECT_TRUE(client_->Put(std::string(1024, 'k'), "x").ok());
}

TEST(Location, PlacesAreParsed) {
  const auto parsed = [](const char* text) {
    const auto location = ParseLocation(text);
    return location.ok() ? absl::StrCat(location->bucket, "|", location->prefix)
                         : std::string(location.status().message());
  };
  EXPECT_EQ(parsed("s3://bucket"), "bucket|");
  EXPECT_EQ(parsed("s3://bucket/"), "bucket|");
  EXPECT_EQ(parsed("s3://bucket/a/b"), "bucket|a/b/");
  EXPECT_EQ(parsed("s3://bucket/a/b/"), "bucket|a/b/");
  for (const char* text : {"", "bucket/a", "s3:/bucket", "s3://", "s3://a", "s3://bucket//a"}) {
    EXPECT_THAT(parsed(text), HasSubstr("expected s3://BUCKET or s3://BUCKET/FOLDER")) << text;
  }
}

TEST(Probe, AllKindsOfStoresAreToldApart) {
  for (const Conditions conditions : {Conditions::kHonoured, Conditions::kHonouredWithoutQuotes,
                                      Conditions::kIgnored, Conditions::kRefused}) {
    FakeS3 fake({.conditions = conditions});
    const auto client = Make(fake.ClientOptions());
    const auto found = Probe(*client, "some/", *Rng::Real());
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(*found, conditions);
    EXPECT_THAT(fake.Keys(), ElementsAre()) << "the probe removes what it wrote";
  }
}

TEST(Probe, AStoreThatRefusesToWriteIsNoAnswer) {
  FakeS3 fake;
  fake.Inject(FakeS3::Fault::kDenied, 10);
  const auto client = Make(fake.ClientOptions());
  EXPECT_TRUE(absl::IsPermissionDenied(Probe(*client, "", *Rng::Real()).status()));
}

}  // namespace
}  // namespace trainyard::s3
