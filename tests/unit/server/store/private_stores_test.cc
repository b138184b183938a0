// Tests the files with secrets and with notifications.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "server/store/sqlite/notify_store.h"
#include "server/store/sqlite/remark_store.h"
#include "server/store/sqlite/secret_store.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::store {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;

const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

mode_t ModeOf(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 ? info.st_mode & 0777 : 0;
}

// All that lies in the folder, byte for byte.
std::string EverythingIn(const testing::TempDir& dir) {
  std::string all;
  const auto names = ListDirectory(dir.path());
  for (const std::string& name : *names) all += *ReadFile(dir.File(name));
  return all;
}

TEST(SecretStore, KeepsSecretsOfEachUserAndForgetsThemForGood) {
  const testing::TempDir dir;
  const std::string value = "hf_the-value-of-anna";
  {
    auto store = SecretStore::Open(dir.path());
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE((*store)->Put("anna", "token", value, kNow).ok());
    ASSERT_TRUE((*store)->Put("bert", "token", std::string("b\0b", 3), kNow).ok());
    EXPECT_EQ(*(*store)->Read("anna", "token"), value);
    EXPECT_EQ(*(*store)->Read("bert", "token"), std::string("b\0b", 3));
    EXPECT_EQ(ErrorReason((*store)->Read("mia", "token").status()), "SECRET_NOT_FOUND");
  }
  for (const char* file : {"secrets.db", "secrets.key"}) EXPECT_EQ(ModeOf(dir.File(file)), 0600u);
  EXPECT_THAT(EverythingIn(dir), Not(HasSubstr(value)));
  auto store = SecretStore::Open(dir.path());
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ(*(*store)->Read("anna", "token"), value);
  EXPECT_THAT((*store)->List("anna"), ElementsAre(SecretInfo{"token", 20, kNow, kNow}));
  const absl::Time later = kNow + absl::Hours(1);
  ASSERT_TRUE((*store)->Put("anna", "token", "new", later).ok());
  EXPECT_THAT((*store)->List("anna"), ElementsAre(SecretInfo{"token", 3, kNow, later}));
  ASSERT_TRUE((*store)->Delete("anna", "token").ok());
  EXPECT_FALSE((*store)->Has("anna", "token"));
  EXPECT_TRUE((*store)->Has("bert", "token"));
  const absl::Status gone = (*store)->Delete("anna", "token");
  EXPECT_EQ(ErrorReason(gone), "SECRET_NOT_FOUND");
  EXPECT_EQ(gone.message(),
            "'anna' has no secret 'token'; `trainyard secrets ls` lists those there are");
}

TEST(SecretStore, AUserHasAtMostAHundred) {
  const testing::TempDir dir;
  const auto store = *SecretStore::Open(dir.path());
  for (size_t i = 0; i < kSecretsOfUserMax; ++i) {
    ASSERT_TRUE(store->Put("anna", absl::StrCat("s", i), "v", kNow).ok());
  }
  EXPECT_EQ(ErrorReason(store->Put("anna", "more", "v", kNow).status()), "TOO_MANY_SECRETS");
  EXPECT_TRUE(store->Put("anna", "s0", "w", kNow).ok()) << "a new value needs no room";
  EXPECT_TRUE(store->Put("bert", "s0", "v", kNow).ok());
}

TEST(SecretStore, WithoutItsKeyItIsRefusedAndAMovedValueDoesNotOpen) {
  const testing::TempDir dir;
  {
    const auto store = *SecretStore::Open(dir.path());
    ASSERT_TRUE(store->Put("anna", "token", "value", kNow).ok());
    ASSERT_TRUE(store->Put("eve", "token", "other", kNow).ok());
  }
  {
    const auto db = *Database::Open(dir.File("secrets.db"), Database::Mode::kDurable);
    ASSERT_TRUE(db->Execute("UPDATE secrets SET sealed = (SELECT sealed FROM secrets WHERE user = "
                            "'anna') WHERE user = 'eve'")
                    .ok());
  }
  {
    const auto store = *SecretStore::Open(dir.path());
    EXPECT_EQ(ErrorReason(store->Read("eve", "token").status()), "CORRUPT_FILE");
    EXPECT_EQ(*store->Read("anna", "token"), "value");
  }
  ASSERT_EQ(unlink(dir.File("secrets.key").c_str()), 0);
  const auto refused = SecretStore::Open(dir.path());
  EXPECT_EQ(ErrorReason(refused.status()), "CORRUPT_FILE");
  EXPECT_FALSE(FileExists(dir.File("secrets.key"))) << "a new key would make it worse";
}

DeliveryRecord Delivery(const std::string& id, const std::string& target = "hook") {
  DeliveryRecord delivery;
  delivery.id = id;
  delivery.user = "anna";
  delivery.target = target;
  delivery.webhook = "https://a/" + target;
  delivery.event = "end";
  delivery.job = JobId{3};
  delivery.message = "{}";
  delivery.create_us = 5;
  return delivery;
}

TEST(NotifyStore, TargetsAreNamedOncePerUserAndBounded) {
  const testing::TempDir dir;
  const auto store = *NotifyStore::Open(dir.File("notify.db"));
  EXPECT_EQ(ModeOf(dir.File("notify.db")), 0600u);
  const TargetRecord target{"anna", "hook", "https://a/", "", 6, "key", 5};
  ASSERT_TRUE(store->AddTarget(target).ok());
  EXPECT_EQ(ErrorReason(store->AddTarget(target)), "TARGET_EXISTS");
  EXPECT_EQ(*store->FindTarget("anna", "hook"), target);
  EXPECT_EQ(ErrorReason(store->FindTarget("bert", "hook").status()), "TARGET_NOT_FOUND");
  for (size_t i = 1; i < kTargetsOfUserMax; ++i) {
    ASSERT_TRUE(store->AddTarget({"anna", absl::StrCat(i), "", "a@b", 6, "", 5}).ok());
  }
  EXPECT_EQ(ErrorReason(store->AddTarget({"anna", "x", "", "a@b", 6, "", 5})), "TOO_MANY_TARGETS");
}

TEST(NotifyStore, ADeliveryIsAddedOnceAndGoesWithItsTarget) {
  const testing::TempDir dir;
  const auto store = *NotifyStore::Open(dir.File("notify.db"));
  EXPECT_EQ(*store->LastEvent(), std::nullopt);
  ASSERT_TRUE(store->AddTarget({"anna", "hook", "https://a/hook", "", 6, "", 0}).ok());
  ASSERT_TRUE(store->AddDeliveries({Delivery("d1"), Delivery("d2", "other")}, 7).ok());
  ASSERT_TRUE(store->AddDeliveries({Delivery("d1")}, 8).ok());
  EXPECT_EQ(*store->LastEvent(), 8);
  EXPECT_EQ(store->ListDeliveries("anna", "", 10)->size(), 2u);
  DeliveryRecord sent = store->Due(10)->at(0);
  EXPECT_EQ(sent.id, "d1");
  sent.state = DeliveryState::kDelivered;
  sent.tries = 1;
  sent.result = "HTTP 200";
  ASSERT_TRUE(store->Update(sent).ok());
  EXPECT_THAT(*store->Due(10), ElementsAre(Field(&DeliveryRecord::id, "d2")));
  ASSERT_TRUE(store->AddDeliveries({Delivery("d1")}, 8).ok());
  EXPECT_EQ(store->Due(10)->size(), 1u) << "what was delivered is not told again";
  ASSERT_TRUE(store->AddDeliveries({Delivery("d3")}, 9).ok());
  ASSERT_TRUE(store->DeleteTarget("anna", "hook").ok());
  EXPECT_THAT(*store->Due(10), ElementsAre(Field(&DeliveryRecord::id, "d2")));
}

TEST(NotifyStore, AUserOfManyReceiversLeavesRoomForOthers) {
  const testing::TempDir dir;
  const auto store = *NotifyStore::Open(dir.File("notify.db"));
  std::vector<DeliveryRecord> many;
  for (int i = 0; i < 1500; ++i) {
    many.push_back(Delivery(absl::StrCat("d", i)));
    many.back().webhook = absl::StrCat("https://dead-", i, "/");
  }
  many.push_back(Delivery("b"));
  many.back().user = "bert";
  ASSERT_TRUE(store->AddDeliveries(many, 1).ok());
  const auto due = *store->Due(10);
  EXPECT_EQ(due.size(), 21u);
  EXPECT_THAT(due, ::testing::Contains(Field(&DeliveryRecord::user, "bert")));
}

TEST(NotifyStore, TheQueueOfATargetIsBoundedAndWhatIsDoneIsForgotten) {
  const testing::TempDir dir;
  const auto store = *NotifyStore::Open(dir.File("notify.db"));
  std::vector<DeliveryRecord> many;
  for (int64_t i = 0; i < kWaitingOfTargetMax + kDoneOfUserMax + 50; ++i) {
    many.push_back(Delivery(absl::StrCat("d", i)));
  }
  ASSERT_TRUE(store->AddDeliveries(many, 1).ok());
  const auto all = *store->ListDeliveries("anna", "", 1000);
  EXPECT_EQ(all.size(), static_cast<size_t>(kWaitingOfTargetMax + kDoneOfUserMax));
  EXPECT_EQ(all.front().state, DeliveryState::kGivenUp);
  EXPECT_EQ(all.front().result, "100 messages wait for this target already");
  EXPECT_EQ(all.back().state, DeliveryState::kPending);
  EXPECT_EQ(store->Due(10)->size(), 1u) << "a target gets one message at a time";
}

v1::Verification VerificationBy(const std::string& job) {
  v1::Verification verification;
  verification.set_job(job);
  verification.set_result(v1::VERIFICATION_RESULT_IDENTICAL);
  return verification;
}

TEST(RemarkStore, KeepsNotesTagsAndVerificationsOfEachJob) {
  const testing::TempDir dir;
  const RemarkedJob job{JobId{7}, "u7"};
  {
    auto store = RemarkStore::Open(dir.File("remarks.db"));
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ((*store)->Find(job), nullptr);
    ASSERT_TRUE((*store)->Annotate(job, "good", {"b", "a", "a"}, {}).ok());
    ASSERT_TRUE((*store)->Annotate(job, std::nullopt, {"c"}, {"b", "never"}).ok());
    ASSERT_TRUE((*store)->AddVerification(job, VerificationBy("jobs/9")).ok());
    v1::Verification other = VerificationBy("jobs/9");
    other.set_result(v1::VERIFICATION_RESULT_DIFFERENT);
    ASSERT_TRUE((*store)->AddVerification(job, other).ok());
    EXPECT_FALSE((*store)->AddVerification(job, VerificationBy("nine")).ok());
    ASSERT_TRUE((*store)->Annotate({JobId{8}, "u8"}, "bad", {}, {}).ok());
  }
  EXPECT_EQ(ModeOf(dir.File("remarks.db")), 0600u);
  const auto store = *RemarkStore::Open(dir.File("remarks.db"));
  const auto remarks = store->Find(job);
  ASSERT_NE(remarks, nullptr);
  EXPECT_EQ(remarks->note, "good");
  EXPECT_THAT(remarks->tags, ElementsAre("a", "c"));
  ASSERT_EQ(remarks->verifications.size(), 1u);
  EXPECT_EQ(remarks->verifications.at(JobId{9}).result(), v1::VERIFICATION_RESULT_IDENTICAL)
      << "the first result stays";
  EXPECT_EQ(store->ListJobs().size(), 2u);
  ASSERT_TRUE(store->Forget(JobId{7}).ok());
  EXPECT_EQ(store->Find(job), nullptr);
  ASSERT_TRUE(store->Annotate({JobId{8}, "u8"}, "", {}, {}).ok());
  EXPECT_TRUE(store->ListJobs().empty()) << "nothing is left to be said";
}

TEST(RemarkStore, AnotherJobOfTheSameNumberHasNoneOfThem) {
  const testing::TempDir dir;
  auto store = *RemarkStore::Open(dir.File("remarks.db"));
  ASSERT_TRUE(store->Annotate({JobId{7}, "old"}, "note", {"tag"}, {}).ok());
  const RemarkedJob other{JobId{7}, "new"};
  EXPECT_EQ(store->Find(other), nullptr);
  ASSERT_TRUE(store->AddVerification(other, VerificationBy("jobs/8")).ok());
  EXPECT_EQ(store->Find({JobId{7}, "old"}), nullptr);
  store.reset();
  store = *RemarkStore::Open(dir.File("remarks.db"));
  ASSERT_NE(store->Find(other), nullptr);
  EXPECT_EQ(store->Find(other)->note, "");
  EXPECT_TRUE(store->Find(other)->tags.empty());
}

TEST(RemarkStore, ADamagedVerificationIsSaid) {
  const testing::TempDir dir;
  ASSERT_TRUE((*RemarkStore::Open(dir.File("remarks.db")))
                  ->AddVerification({JobId{7}, "u"}, VerificationBy("jobs/8"))
                  .ok());
  {
    const auto db = *Database::Open(dir.File("remarks.db"), Database::Mode::kDurable);
    ASSERT_TRUE(db->Execute("UPDATE verifications SET verification = x'ff'").ok());
  }
  EXPECT_EQ(ErrorReason(RemarkStore::Open(dir.File("remarks.db")).status()), "CORRUPT_FILE");
}

}  // namespace
}  // namespace trainyard::store
