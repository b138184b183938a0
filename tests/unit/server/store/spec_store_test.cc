// Tests the file with the catalogue.
#include "server/store/sqlite/spec_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::store {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::SavedSpec Saved(const std::string& user, int devices, const std::string& code = "") {
  v1::SavedSpec saved;
  saved.set_user(user);
  saved.set_code(code);
  saved.mutable_spec()->mutable_devices()->set_count(devices);
  saved.mutable_resolved_spec()->mutable_devices()->set_count(devices);
  saved.mutable_resolved_spec()->mutable_train()->set_seed(7);
  return saved;
}

std::vector<std::string> NamesOf(const SpecStore& store, const std::string& after = "") {
  std::vector<std::string> names;
  store.ForEachNewest(after, [&names](const SpecStore::Summary& newest) {
    names.push_back(newest->name());
    return true;
  });
  return names;
}

class SpecStoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<SpecStore> Open() { return *SpecStore::Open(dir_.File("specs.db")); }

  const testing::TempDir dir_;
};

TEST_F(SpecStoreTest, KeepsVersionsOverARestart) {
  {
    const auto store = Open();
    EXPECT_EQ(store->Put("resnet", Saved("anna", 1))->name(), "specs/resnet/versions/1");
    EXPECT_EQ(store->Put("resnet", Saved("anna", 2))->name(), "specs/resnet/versions/2");
    EXPECT_EQ(store->Put("alexnet", Saved("bert", 4))->name(), "specs/alexnet/versions/1");
  }
  const auto store = Open();
  EXPECT_THAT(NamesOf(*store), ElementsAre("specs/alexnet/versions/1", "specs/resnet/versions/2"));
  EXPECT_THAT(NamesOf(*store, "alexnet"), ElementsAre("specs/resnet/versions/2"));
  EXPECT_EQ(store->VersionsOf("resnet").size(), 2u);
  EXPECT_EQ(store->VersionsOf("resnet")[0]->name(), "specs/resnet/versions/2");
  EXPECT_FALSE(store->Find({"resnet", 0})->has_spec()) << "lists are small";
  const auto old = store->Read({"resnet", 1});
  ASSERT_TRUE(old.ok()) << old.status();
  EXPECT_EQ(old->spec().devices().count(), 1);
  EXPECT_EQ(old->resolved_spec().train().seed(), 7u);
  EXPECT_EQ(store->Read({"resnet", 0})->spec().devices().count(), 2);
}

TEST_F(SpecStoreTest, NeverGivesTheNumberOfAVersionAgain) {
  {
    const auto store = Open();
    ASSERT_TRUE(store->Put("resnet", Saved("anna", 1)).ok());
    ASSERT_TRUE(store->Put("resnet", Saved("anna", 2)).ok());
    EXPECT_EQ(*store->Delete({"resnet", 2}), 1);
    EXPECT_EQ(store->Put("resnet", Saved("anna", 3))->name(), "specs/resnet/versions/3");
    EXPECT_EQ(*store->Delete({"resnet", 0}), 2);
    EXPECT_EQ(store->Find({"resnet", 0}), nullptr);
  }
  const auto store = Open();
  EXPECT_TRUE(store->WasUsed("resnet"));
  EXPECT_FALSE(store->WasUsed("alexnet"));
  EXPECT_TRUE(NamesOf(*store).empty());
  EXPECT_EQ(store->Put("resnet", Saved("bert", 4))->name(), "specs/resnet/versions/4");
}

TEST_F(SpecStoreTest, SaysWhatIsMissingAndWhatMayBeMeant) {
  const auto store = Open();
  ASSERT_TRUE(store->Put("resnet", Saved("anna", 1)).ok());
  const absl::Status misspelt = store->Read({"resnte", 0}).status();
  EXPECT_EQ(ErrorReason(misspelt), "SPEC_NOT_FOUND");
  EXPECT_THAT(misspelt.message(), HasSubstr("did you mean resnet?"));
  EXPECT_THAT(store->Read({"resnet", 9}).status().message(),
              HasSubstr("there is no saved spec resnet@9; `trainyard specs history resnet`"));
  EXPECT_EQ(ErrorReason(store->Delete({"vgg", 0}).status()), "SPEC_NOT_FOUND");
}

TEST_F(SpecStoreTest, KnowsWhoseCodeIsUsed) {
  const auto store = Open();
  const auto everybody = [](const v1::SavedSpec&) { return true; };
  const auto nobody = [](const v1::SavedSpec&) { return false; };
  ASSERT_TRUE(store->Put("own", Saved("anna", 1, "sha256:aa")).ok());
  ASSERT_TRUE(store->Put("own", Saved("anna", 2, "sha256:aa")).ok());
  EXPECT_TRUE(store->IsCodeUsed("sha256:aa", everybody));
  EXPECT_FALSE(store->IsCodeUsed("sha256:aa", nobody));
  EXPECT_FALSE(store->IsCodeUsed("sha256:bb", everybody));
  ASSERT_TRUE(store->Delete({"own", 1}).ok());
  EXPECT_TRUE(store->IsCodeUsed("sha256:aa", everybody));
  ASSERT_TRUE(store->Delete({"own", 2}).ok());
  EXPECT_FALSE(store->IsCodeUsed("sha256:aa", everybody));
}

TEST_F(SpecStoreTest, SavesSeveralAtOnce) {
  const auto store = Open();
  std::vector<std::pair<std::string, v1::SavedSpec>> all;
  for (int i = 0; i < 1000; ++i) all.emplace_back(absl::StrCat("s", i), Saved("anna", 1));
  ASSERT_TRUE(store->PutAll(std::move(all)).ok());
  EXPECT_EQ(NamesOf(*store).size(), 1000u);
}

}  // namespace
}  // namespace trainyard::store
