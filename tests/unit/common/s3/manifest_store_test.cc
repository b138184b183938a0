#include "common/s3/manifest_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/s3/sign.h"
#include "tests/testing/s3/fake_s3.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::s3 {
namespace {

using ::testing::ElementsAre;
using testing::FakeS3;
using ::testing::SizeIs;

Blob BlobOf(const std::string& content) {
  return {HexSha256(content), static_cast<int64_t>(content.size())};
}

// In these tests, the text of a manifest is the digits of its blobs, with spaces.
absl::StatusOr<std::set<std::string>> BlobsOf(const std::string& content) {
  return std::set<std::string>(absl::StrSplit(content, ' '));
}

// All kinds of stores keep these promises.
class ManifestStoreTest : public ::testing::TestWithParam<Conditions> {
 protected:
  std::unique_ptr<Client> MakeClient() {
    return *Client::Create(fake_.ClientOptions(), *Clock::Real(), *Rng::Real());
  }

  FakeS3 fake_{{.conditions = GetParam()}};
  std::unique_ptr<Client> client_ = MakeClient();
  ManifestStore store_{*client_, "lab/", GetParam()};
  testing::TempDir dir_;
};

TEST_P(ManifestStoreTest, ABlobIsSentOnceAndComesBack) {
  const std::string path = dir_.Write("a", "content");
  auto sent = store_.PutBlob(path, BlobOf("content"));
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_TRUE(*sent);
  sent = store_.PutBlob(path, BlobOf("content"));
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_FALSE(*sent);
  EXPECT_EQ(fake_.CountRequests("PUT"), 1);
  EXPECT_THAT(fake_.Keys(), ElementsAre(absl::StrCat("lab/blobs/sha256/", HexSha256("content"))));
  const absl::Status got = store_.GetBlob(BlobOf("content"), dir_.File("b"), 0600);
  ASSERT_TRUE(got.ok()) << got;
  EXPECT_EQ(*ReadFile(dir_.File("b")), "content");
}

TEST_P(ManifestStoreTest, ABlobWhoseAnswerWasLostIsThere) {
  fake_.Inject(FakeS3::Fault::kLoseAnswer, 1, "PUT");
  const auto sent = store_.PutBlob(dir_.Write("a", "content"), BlobOf("content"));
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_THAT(fake_.Keys(), SizeIs(1));
}

TEST_P(ManifestStoreTest, ABlobOfAnotherSizeIsReplaced) {
  fake_.Write(absl::StrCat("lab/blobs/sha256/", HexSha256("content")), "half");
  const auto sent = store_.PutBlob(dir_.Write("a", "content"), BlobOf("content"));
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_TRUE(store_.GetBlob(BlobOf("content"), dir_.File("b"), 0600).ok());
}

TEST_P(ManifestStoreTest, AFileThatIsAnotherOneIsNotSent) {
  EXPECT_TRUE(
      absl::IsDataLoss(store_.PutBlob(dir_.Write("a", "Content"), BlobOf("content")).status()));
  EXPECT_THAT(fake_.Keys(), SizeIs(0));
}

TEST_P(ManifestStoreTest, VersionsFollowEachOther) {
  auto version = store_.Latest();
  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_EQ(version->number, 0);
  for (int64_t i = 1; i <= 12; ++i) {
    const auto number = store_.Commit(absl::StrCat("version ", i), *version);
    ASSERT_TRUE(number.ok()) << number.status();
    EXPECT_EQ(*number, i);
    version = store_.Latest();
    ASSERT_TRUE(version.ok()) << version.status();
    EXPECT_EQ(version->number, i);
    EXPECT_EQ(version->content, absl::StrCat("version ", i));
  }
}

TEST_P(ManifestStoreTest, ACommitWhoseAnswersWereLostIsACommit) {
  const auto before = store_.Latest();
  ASSERT_TRUE(before.ok());
  fake_.Inject(FakeS3::Fault::kLoseAnswer, 1, "PUT", "manifests/");
  fake_.Inject(FakeS3::Fault::kLoseAnswer, 1, "PUT", "latest");
  const auto number = store_.Commit("one", *before);
  ASSERT_TRUE(number.ok()) << number.status();
  EXPECT_EQ(store_.Latest()->content, "one");
}

TEST_P(ManifestStoreTest, ADamagedManifestIsPassedOver) {
  ASSERT_TRUE(store_.Commit("one", *store_.Latest()).ok());
  ASSERT_TRUE(store_.Commit("two", *store_.Latest()).ok());
  fake_.Write(fake_.Keys("lab/manifests/")[1], "damaged");
  fake_.Write("lab/manifests/99999999999999999999-what", "no manifest");
  const auto version = store_.Latest();
  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_EQ(version->content, "one");
}

TEST_P(ManifestStoreTest, AStoreThatIsAwayIsNotAnEmptyOne) {
  ASSERT_TRUE(store_.Commit("one", *store_.Latest()).ok());
  fake_.Inject(FakeS3::Fault::kInternalError, 100);
  EXPECT_TRUE(absl::IsUnavailable(store_.Latest().status()));
}

TEST_P(ManifestStoreTest, PruneRemovesWhatNoKeptVersionNames) {
  Version version;
  for (const char* text : {"a", "b", "c"}) {
    ASSERT_TRUE(store_.PutBlob(dir_.Write("f", text), BlobOf(text)).ok());
    ASSERT_TRUE(store_.PutBlob(dir_.Write("f", "shared"), BlobOf("shared")).ok());
    version = *store_.Latest();
    ASSERT_TRUE(
        store_.Commit(absl::StrCat(HexSha256(text), " ", HexSha256("shared")), version).ok());
  }
  // All objects of the fake are of this moment.
  const absl::Time made =
      absl::FromCivil(absl::CivilSecond(2026, 11, 28, 10, 0, 0), absl::UTCTimeZone());
  auto removed = store_.Prune(3, BlobsOf, made + absl::Hours(30), absl::Hours(24));
  ASSERT_TRUE(removed.ok()) << removed.status();
  EXPECT_EQ(*removed, 0);
  removed = store_.Prune(2, BlobsOf, made + absl::Hours(1), absl::Hours(24));
  ASSERT_TRUE(removed.ok()) << removed.status();
  EXPECT_EQ(*removed, 0) << "young blobs stay";
  EXPECT_THAT(fake_.Keys("lab/manifests/"), SizeIs(2));
  removed = store_.Prune(1, BlobsOf, made + absl::Hours(30), absl::Hours(24));
  ASSERT_TRUE(removed.ok()) << removed.status();
  EXPECT_EQ(*removed, 2);
  EXPECT_THAT(fake_.Keys("lab/manifests/"), SizeIs(1));
  EXPECT_THAT(fake_.Keys("lab/blobs/"), SizeIs(2));
  EXPECT_TRUE(store_.GetBlob(BlobOf("c"), dir_.File("c"), 0600).ok());
  EXPECT_TRUE(store_.GetBlob(BlobOf("shared"), dir_.File("s"), 0600).ok());
}

TEST_P(ManifestStoreTest, PruneRemovesNothingIfAManifestCannotBeRead) {
  ASSERT_TRUE(store_.PutBlob(dir_.Write("f", "a"), BlobOf("a")).ok());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(store_.Commit(HexSha256("a"), *store_.Latest()).ok());
  }
  fake_.Write(fake_.Keys("lab/manifests/")[1], "damaged");
  EXPECT_TRUE(
      absl::IsDataLoss(store_.Prune(2, BlobsOf, absl::InfiniteFuture(), absl::Hours(24)).status()));
  EXPECT_THAT(fake_.Keys("lab/manifests/"), SizeIs(3));
  EXPECT_THAT(fake_.Keys("lab/blobs/"), SizeIs(1));
}

TEST_P(ManifestStoreTest, PruneLeavesWhatIsNoBlob) {
  const std::string old(64, 'a');
  const std::vector<std::string> others = {
      absl::StrCat("lab/blobs/sha256/", old, ".part"), "lab/blobs/sha256/readme",
      absl::StrCat("lab/blobs/sha256/", std::string(64, 'A')), "lab/blobs/sha256/sub/" + old};
  for (const std::string& key : others) fake_.Write(key, "of somebody else");
  fake_.Write("lab/blobs/sha256/" + old, "content");
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(store_.Commit("", *store_.Latest()).ok());
  const auto removed = store_.Prune(1, BlobsOf, absl::InfiniteFuture(), absl::Hours(24));
  ASSERT_TRUE(removed.ok()) << removed.status();
  EXPECT_EQ(*removed, 1);
  EXPECT_THAT(fake_.Keys("lab/blobs/"), ::testing::UnorderedElementsAreArray(others));
}

TEST_P(ManifestStoreTest, AManifestThatIsTooLongToBeReadIsNotWritten) {
  ASSERT_TRUE(store_.Commit("", *store_.Latest()).ok());
  // Nothing of it is read, so none of this memory is ever there.
  constexpr auto kBytes = static_cast<size_t>(ManifestStore::kManifestBytesMax) + 1;
  const auto bytes = std::make_unique_for_overwrite<char[]>(kBytes);
  const int before = fake_.CountRequests("PUT");
  const absl::Status status =
      store_.Commit(absl::string_view(bytes.get(), kBytes), *store_.Latest()).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(fake_.CountRequests("PUT"), before);
  EXPECT_EQ(store_.Latest()->number, 1);
}

TEST_P(ManifestStoreTest, WhoeverTrustsNoStoreReadsLess) {
  ManifestStore wary(*client_, "lab/", GetParam(),
                     {.manifest_bytes = 4, .manifests = 2, .objects = 3});
  ASSERT_TRUE(store_.Commit("four", *store_.Latest()).ok());
  EXPECT_EQ(wary.Latest()->content, "four");
  ASSERT_TRUE(store_.Commit("seven", *store_.Latest()).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(wary.Latest().status()));
  // Without the object `latest`, the manifests are listed.
  ASSERT_TRUE(store_.Commit("nine", *store_.Latest()).ok());
  fake_.Remove("lab/latest");
  const absl::Status many = wary.Latest().status();
  EXPECT_TRUE(absl::IsResourceExhausted(many));
  EXPECT_THAT(many.message(), ::testing::HasSubstr("has over 2 manifests"));
  for (const std::string& key : fake_.Keys("lab/manifests/")) fake_.Remove(key);
  for (const char* name : {"a", "b", "c"}) fake_.Write(absl::StrCat("lab/manifests/", name), "");
  EXPECT_EQ(wary.Latest()->number, 0);
  fake_.Write("lab/manifests/d", "");
  EXPECT_THAT(wary.Latest().status().message(), ::testing::HasSubstr("has over 3 objects"));
}

TEST(ManifestStore, ShortPagesAreNotFree) {
  EXPECT_EQ(CountOf({}), 0);
  EXPECT_EQ(CountOf({.objects = {}, .next = "more"}), 100);
  EXPECT_EQ(CountOf({.objects = std::vector<ListedObject>(101), .next = "more"}), 101);
  EXPECT_EQ(CountOf({.objects = std::vector<ListedObject>(7), .next = ""}), 7);
}

TEST_P(ManifestStoreTest, PruneReadsNothingBeforeItIsWorthIt) {
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(store_.Commit("", *store_.Latest()).ok());
  const int before = fake_.CountRequests("GET lab/manifests/");
  EXPECT_TRUE(store_.Prune(4, BlobsOf, absl::InfiniteFuture(), absl::Hours(24)).ok());
  EXPECT_EQ(fake_.CountRequests("GET lab/manifests/"), before);
  EXPECT_THAT(fake_.Keys("lab/manifests/"), SizeIs(5));
}

INSTANTIATE_TEST_SUITE_P(Stores, ManifestStoreTest,
                         ::testing::Values(Conditions::kHonoured,
                                           Conditions::kHonouredWithoutQuotes, Conditions::kIgnored,
                                           Conditions::kRefused),
                         [](const auto& test) -> std::string {
                           switch (test.param) {
                             case Conditions::kHonoured:
                               return "ThatHonourConditions";
                             case Conditions::kHonouredWithoutQuotes:
                               return "ThatWantNoQuotes";
                             case Conditions::kIgnored:
                               return "ThatIgnoreConditions";
                             case Conditions::kRefused:
                               return "ThatRefuseConditions";
                           }
                           return "";
                         });

TEST(ManifestStoreWriters, OfTwoWritersOneIsTold) {
  FakeS3 fake;
  const auto client = *Client::Create(fake.ClientOptions(), *Clock::Real(), *Rng::Real());
  ManifestStore first(*client, "lab/", Conditions::kHonoured);
  ManifestStore second(*client, "lab/", Conditions::kHonoured);
  const Version before = *first.Latest();
  ASSERT_TRUE(second.Commit("of the second", before).ok());
  const absl::Status status = first.Commit("of the first", before).status();
  EXPECT_EQ(ErrorReason(status), "S3_CONDITION_FAILED") << status;
  EXPECT_EQ(first.Latest()->content, "of the second");
  // It begins again, and its old manifest is not in the way.
  EXPECT_EQ(*first.Commit("of the first", *first.Latest()), 2);
  EXPECT_EQ(second.Latest()->content, "of the first");
}

TEST(ManifestStoreWriters, AStaleListDoesNotHideTheLatestVersion) {
  FakeS3 fake;
  const auto client = *Client::Create(fake.ClientOptions(), *Clock::Real(), *Rng::Real());
  ManifestStore store(*client, "lab/", Conditions::kHonoured);
  fake.FreezeLists();
  ASSERT_TRUE(store.Commit("one", *store.Latest()).ok());
  EXPECT_EQ(store.Latest()->content, "one");
  EXPECT_EQ(*store.Commit("two", *store.Latest()), 2);
}

TEST(ManifestStoreWriters, WithoutConditionsAStaleListHidesAVersionForAWhile) {
  FakeS3 fake({.conditions = Conditions::kIgnored});
  const auto client = *Client::Create(fake.ClientOptions(), *Clock::Real(), *Rng::Real());
  ManifestStore store(*client, "lab/", Conditions::kIgnored);
  ASSERT_TRUE(store.Commit("one", *store.Latest()).ok());
  fake.FreezeLists();
  ASSERT_TRUE(store.Commit("two", *store.Latest()).ok());
  EXPECT_EQ(store.Latest()->content, "one");
  fake.ThawLists();
  EXPECT_EQ(store.Latest()->content, "two");
}

TEST(ManifestStoreWriters, AStoreThatLostItsConditionsHasNoLatestThatHidesVersions) {
  FakeS3 fake;
  const auto client = *Client::Create(fake.ClientOptions(), *Clock::Real(), *Rng::Real());
  ManifestStore with(*client, "lab/", Conditions::kHonoured);
  ASSERT_TRUE(with.Commit("one", *with.Latest()).ok());
  ManifestStore without(*client, "lab/", Conditions::kIgnored);
  ASSERT_TRUE(without.Commit("two", *without.Latest()).ok());
  EXPECT_EQ(with.Latest()->content, "two");
  EXPECT_EQ(*with.Commit("three", *with.Latest()), 3);
  EXPECT_EQ(without.Latest()->content, "three");
}

}  // namespace
}  // namespace trainyard::s3
