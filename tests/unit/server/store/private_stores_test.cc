// Tests the files with secrets and with notifications.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "server/store/sqlite/notify_store.h"
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
  EXPECT_EQ(ErrorReason((*store)->Delete("anna", "token")), "SECRET_NOT_FOUND");
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

}  // namespace
}  // namespace trainyard::store
