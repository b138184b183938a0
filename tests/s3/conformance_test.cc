// Runs against the fake, and against a real store where TRAINYARD_S3_ENDPOINT names one: then
// TRAINYARD_S3_BUCKET is an empty bucket, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY may do all in
// it. So what the fake promises is what a real store does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/s3/file_transfer.h"
#include "common/s3/manifest_store.h"
#include "common/s3/sign.h"
#include "tests/testing/s3/fake_s3.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::s3 {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int64_t kBytesMax = 1 << 20;

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

class ConformanceTest : public ::testing::Test {
 protected:
  ConformanceTest() {
    const std::string endpoint = Variable("TRAINYARD_S3_ENDPOINT");
    if (endpoint.empty()) {
      fake_.emplace();
      options_ = fake_->ClientOptions();
    } else {
      const auto found = FindCredentials(Variable);
      EXPECT_TRUE(found.ok()) << found.status();
      options_.endpoint = endpoint;
      options_.bucket = Variable("TRAINYARD_S3_BUCKET");
      options_.credentials = found->credentials;
    }
    client_ = Make(options_);
    // Each test has a folder of its own, so that it need not clean up.
    prefix_ = absl::StrCat("conformance/", MakeUuid(*Rng::Real()), "/");
  }
  static std::unique_ptr<Client> Make(const ClientOptions& options) {
    auto client = Client::Create(options, *Clock::Real(), *Rng::Real());
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }
  std::string Key(absl::string_view name) const { return absl::StrCat(prefix_, name); }

  std::optional<testing::FakeS3> fake_;
  ClientOptions options_;
  std::unique_ptr<Client> client_;
  std::string prefix_;
  testing::TempDir dir_;
};

TEST_F(ConformanceTest, AnObjectIsWrittenReadAndDeleted) {
  const auto etag = client_->Put(Key("k"), "content");
  ASSERT_TRUE(etag.ok()) << etag.status();
  EXPECT_FALSE(etag->empty());
  const auto object = client_->Get(Key("k"), kBytesMax);
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_EQ(object->content, "content");
  EXPECT_EQ(object->info.etag, *etag);
  const auto info = client_->Head(Key("k"));
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->size, 7);
  EXPECT_EQ(info->etag, *etag);
  EXPECT_TRUE(client_->Delete(Key("k")).ok());
  EXPECT_TRUE(absl::IsNotFound(client_->Head(Key("k")).status()));
  EXPECT_TRUE(absl::IsNotFound(client_->Get(Key("k"), kBytesMax).status()));
  EXPECT_TRUE(client_->Delete(Key("k")).ok()) << "it may be gone already";
}

TEST_F(ConformanceTest, AnEmptyObjectIsAnObject) {
  ASSERT_TRUE(client_->Put(Key("empty"), "").ok());
  const auto object = client_->Get(Key("empty"), kBytesMax);
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_EQ(object->content, "");
  EXPECT_EQ(client_->Head(Key("empty"))->size, 0);
}

TEST_F(ConformanceTest, KeysMayHaveAllKindsOfCharacters) {
  const std::vector<std::string> names = {"a b",  "a+b", "a&b=c", "ünï",     "x'y\"",
                                          "(1)!", "%41", "~t",    "d/e/f.g", "c:d@e,f;g$h"};
  for (const std::string& name : names) {
    ASSERT_TRUE(client_->Put(Key(name), name).ok()) << name;
  }
  for (const std::string& name : names) {
    const auto object = client_->Get(Key(name), kBytesMax);
    ASSERT_TRUE(object.ok()) << object.status();
    EXPECT_EQ(object->content, name);
  }
  const auto page = client_->List({.prefix = prefix_});
  ASSERT_TRUE(page.ok()) << page.status();
  std::vector<std::string> listed;
  for (const ListedObject& entry : page->objects) listed.push_back(entry.key);
  std::vector<std::string> wanted;
  for (const std::string& name : names) wanted.push_back(Key(name));
  EXPECT_THAT(listed, ::testing::UnorderedElementsAreArray(wanted));
}

TEST_F(ConformanceTest, RangesAreRead) {
  ASSERT_TRUE(client_->Put(Key("k"), "0123456789").ok());
  std::string read;
  const auto take = [&read](absl::string_view piece) {
    absl::StrAppend(&read, piece);
    return absl::OkStatus();
  };
  auto info = client_->Read(Key("k"), {.offset = 3, .size = 4}, take);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(read, "3456");
  EXPECT_EQ(info->size, 10);
  read.clear();
  ASSERT_TRUE(client_->Read(Key("k"), {.offset = 8}, take).ok());
  EXPECT_EQ(read, "89");
  read.clear();
  ASSERT_TRUE(client_->Read(Key("k"), {.offset = 8, .size = 100}, take).ok());
  EXPECT_EQ(read, "89");
  EXPECT_TRUE(absl::IsInvalidArgument(client_->Read(Key("k"), {.offset = 10}, take).status()));
}

TEST_F(ConformanceTest, ListsHavePages) {
  for (int i = 0; i < 7; ++i) ASSERT_TRUE(client_->Put(Key(absl::StrCat("k", i)), "x").ok());
  ASSERT_TRUE(client_->Put(Key("other"), "x").ok());
  std::vector<std::string> keys;
  int pages = 0;
  ListRequest request{.prefix = Key("k"), .keys_max = 3};
  do {
    const auto page = client_->List(request);
    ASSERT_TRUE(page.ok()) << page.status();
    for (const ListedObject& object : page->objects) {
      EXPECT_EQ(object.size, 1);
      EXPECT_GT(object.modified, absl::FromUnixSeconds(1'700'000'000));
      keys.push_back(object.key);
    }
    request.token = page->next;
    ++pages;
  } while (!request.token.empty() && pages < 10);
  EXPECT_EQ(pages, 3);
  EXPECT_THAT(keys, ElementsAre(Key("k0"), Key("k1"), Key("k2"), Key("k3"), Key("k4"), Key("k5"),
                                Key("k6")));
  const auto rest = client_->List({.prefix = Key("k"), .after = Key("k5")});
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_THAT(rest->objects, SizeIs(1));
}

TEST_F(ConformanceTest, ConditionsOfWritesAreHonoured) {
  const auto conditions = Probe(*client_, prefix_, *Rng::Real());
  ASSERT_TRUE(conditions.ok()) << conditions.status();
  EXPECT_THAT(client_->List({.prefix = prefix_})->objects, SizeIs(0)) << "the probe cleans up";
  ASSERT_TRUE(AreHonoured(*conditions)) << "the suite is for stores that honour conditions";
  const auto first = client_->Put(Key("k"), "1", {.is_new = true});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(ErrorReason(client_->Put(Key("k"), "2", {.is_new = true}).status()),
            "S3_CONDITION_FAILED");
  const auto second = client_->Put(Key("k"), "2", Replaces(*first, *conditions));
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(ErrorReason(client_->Put(Key("k"), "3", Replaces(*first, *conditions)).status()),
            "S3_CONDITION_FAILED");
  EXPECT_EQ(client_->Get(Key("k"), kBytesMax)->content, "2");
}

TEST_F(ConformanceTest, OfManyWritersOfANewObjectOneWins) {
  std::vector<std::thread> threads;
  std::atomic<int> winners = 0;
  std::atomic<int> losers = 0;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const absl::Status status =
          client_->Put(Key("race"), absl::StrCat(i), {.is_new = true}).status();
      if (status.ok()) ++winners;
      if (absl::IsAborted(status)) ++losers;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(winners, 1);
  EXPECT_EQ(losers, 7);
}

TEST_F(ConformanceTest, ALargeFileGoesInPartsAndComesBack) {
  std::string content;
  while (content.size() < 11'000'000) absl::StrAppend(&content, content.size() * 31, "\n");
  const std::string path = dir_.Write("large", content);
  const auto size = static_cast<int64_t>(content.size());
  absl::Status status =
      UploadFile(*client_, Key("large"), path, size, {},
                 {.multipart_from = kPartBytesMin, .part_bytes = kPartBytesMin, .parallel = 3});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(client_->Head(Key("large"))->size, size);
  status = DownloadFile(*client_, Key("large"), dir_.File("copy"), size, HexSha256(content));
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(*ReadFile(dir_.File("copy")) == content);
}

TEST_F(ConformanceTest, AnUploadThatIsAbortedIsNoObject) {
  const auto upload = client_->CreateUpload(Key("k"));
  ASSERT_TRUE(upload.ok()) << upload.status();
  const auto part = client_->UploadPart(Key("k"), *upload, 1, "part");
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_TRUE(client_->AbortUpload(Key("k"), *upload).ok());
  // AWS answers 404 NoSuchUpload. radosgw answers 500, as if the upload were being completed.
  ClientOptions options = options_;
  options.tries = 1;
  EXPECT_FALSE(Make(options)->CompleteUpload(Key("k"), *upload, {*part}).ok());
  EXPECT_TRUE(absl::IsNotFound(client_->Head(Key("k")).status()));
}

TEST_F(ConformanceTest, TheBucketMayStandInTheNameOfTheHost) {
  ClientOptions options = options_;
  // All names below localhost lead to this host.
  options.endpoint = absl::StrReplaceAll(options.endpoint, {{"127.0.0.1", "localhost"}});
  options.has_bucket_in_path = false;
  const auto client = Make(options);
  const auto put = client->Put(Key("a b/c"), "content");
  ASSERT_TRUE(put.ok()) << put.status();
  const auto object = client_->Get(Key("a b/c"), kBytesMax);
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_EQ(object->content, "content");
  EXPECT_THAT(client->List({.prefix = prefix_})->objects, SizeIs(1));
  EXPECT_TRUE(client->Delete(Key("a b/c")).ok());
}

TEST_F(ConformanceTest, WrongKeysAndBucketsAreNamed) {
  ClientOptions options = options_;
  options.credentials.secret_access_key = "wrong";
  absl::Status status = Make(options)->Put(Key("k"), "x").status();
  EXPECT_EQ(ErrorReason(status), "S3_ACCESS_DENIED") << status;
  EXPECT_THAT(status.message(), HasSubstr("SignatureDoesNotMatch"));
  options = options_;
  options.credentials.access_key_id = "nobody";
  EXPECT_EQ(ErrorReason(Make(options)->Put(Key("k"), "x").status()), "S3_ACCESS_DENIED");
  options = options_;
  options.bucket = "no-such-bucket";
  status = Make(options)->Put(Key("k"), "x").status();
  EXPECT_EQ(ErrorReason(status), "S3_NO_SUCH_BUCKET") << status;
}

TEST_F(ConformanceTest, VersionsAreKeptAndPruned) {
  const auto conditions = Probe(*client_, prefix_, *Rng::Real());
  ASSERT_TRUE(conditions.ok()) << conditions.status();
  ManifestStore store(*client_, prefix_, *conditions);
  const auto blobs_of = [](const std::string& content) -> absl::StatusOr<std::set<std::string>> {
    return std::set<std::string>{content};
  };
  for (const std::string text : {"a", "b", "c"}) {
    const Blob blob{HexSha256(text), 1};
    const auto sent = store.PutBlob(dir_.Write("f", text), blob);
    ASSERT_TRUE(sent.ok()) << sent.status();
    EXPECT_TRUE(*sent);
    EXPECT_FALSE(*store.PutBlob(dir_.File("f"), blob));
    const auto before = store.Latest();
    ASSERT_TRUE(before.ok()) << before.status();
    const auto number = store.Commit(blob.sha256, *before);
    ASSERT_TRUE(number.ok()) << number.status();
    // Another writer that saw the same is told.
    EXPECT_EQ(ErrorReason(store.Commit("other", *before).status()), "S3_CONDITION_FAILED");
  }
  const auto latest = store.Latest();
  ASSERT_TRUE(latest.ok()) << latest.status();
  EXPECT_EQ(latest->number, 3);
  EXPECT_TRUE(store.GetBlob({latest->content, 1}, dir_.File("got"), 0600).ok());
  const auto removed =
      store.Prune(1, blobs_of, Clock::Real()->Now() + absl::Hours(2), absl::Hours(1));
  ASSERT_TRUE(removed.ok()) << removed.status();
  EXPECT_EQ(*removed, 2);
  EXPECT_EQ(store.Latest()->number, 3);
}

}  // namespace
}  // namespace trainyard::s3
