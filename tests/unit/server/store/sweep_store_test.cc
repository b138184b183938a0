// Tests the file with the sweeps.
#include "server/store/sqlite/sweep_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "common/base/errors.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::store {
namespace {

using core::sweeping::End;
using core::sweeping::Entry;
using core::sweeping::EntryKind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

SweepRecord Asked(const std::string& user) {
  SweepRecord sweep;
  sweep.uid = "uid of " + user;
  sweep.user = user;
  sweep.create_us = 17;
  sweep.request_id = "r";
  sweep.request_hash = "h";
  sweep.spec.mutable_sweep()->set_trials(3);
  sweep.options.set_reservation("mine");
  return sweep;
}

class SweepStoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<SweepStore> Open() { return *SweepStore::Open(dir_.File("sweeps.db")); }

  const testing::TempDir dir_;
};

TEST_F(SweepStoreTest, KeepsSweepsAndTheirRecordsOverARestart) {
  Entry reported;
  reported.kind = EntryKind::kReported;
  reported.trial = 2;
  reported.rung = 1;
  reported.step = 40;
  reported.value = std::numeric_limits<double>::quiet_NaN();
  reported.can_pause = false;
  reported.time_us = 5;
  Entry ended;
  ended.kind = EntryKind::kEnded;
  ended.end = End::kStopped;
  ended.text = "it was stopped";
  {
    const auto store = Open();
    EXPECT_EQ(*store->Create(Asked("anna")), 1);
    EXPECT_EQ(*store->Create(Asked("bert")), 2);
    ASSERT_TRUE(store->Append(1, 1, {reported}).ok());
    ASSERT_TRUE(store->Append(1, 2, {ended}).ok());
    ASSERT_TRUE(store->AddJob(1, {2, 0, JobId{12}}).ok());
    ASSERT_TRUE(store->AddJob(1, {2, 0, JobId{13}}).ok()) << "the first one stays";
    ASSERT_TRUE(store->AddJob(1, {2, 1, JobId{14}}).ok());
  }
  const auto store = Open();
  const auto sweeps = store->ReadAll();
  ASSERT_TRUE(sweeps.ok()) << sweeps.status();
  ASSERT_EQ(sweeps->size(), 2u);
  const SweepRecord& first = sweeps->front();
  EXPECT_EQ(first.number, 1);
  EXPECT_EQ(first.user, "anna");
  EXPECT_EQ(first.uid, "uid of anna");
  EXPECT_EQ(first.create_us, 17);
  EXPECT_EQ(first.request_id, "r");
  EXPECT_EQ(first.request_hash, "h");
  EXPECT_EQ(first.spec.sweep().trials(), 3);
  EXPECT_EQ(first.options.reservation(), "mine");
  const auto history = store->ReadHistory(1);
  ASSERT_TRUE(history.ok()) << history.status();
  EXPECT_THAT(history->entries, ElementsAre(reported, ended));
  EXPECT_THAT(history->jobs, ElementsAre(TrialJob{2, 0, JobId{12}}, TrialJob{2, 1, JobId{14}}));
}

TEST_F(SweepStoreTest, AppendsAllOrNothing) {
  const auto store = Open();
  ASSERT_TRUE(store->Create(Asked("anna")).ok());
  ASSERT_TRUE(store->Append(1, 1, {Entry{}}).ok());
  EXPECT_FALSE(store->Append(1, 1, {Entry{}, Entry{}}).ok()) << "the first one is there already";
  EXPECT_EQ(store->ReadHistory(1)->entries.size(), 1u);
  ASSERT_TRUE(store->Append(1, 2, {Entry{}}).ok());
  EXPECT_EQ(store->ReadHistory(1)->entries.size(), 2u);
}

TEST_F(SweepStoreTest, NumbersAreNeverGivenAgain) {
  const auto store = Open();
  EXPECT_EQ(*store->Create(Asked("anna")), 1);
  ASSERT_TRUE(store->AddJob(1, {0, 0, JobId{1}}).ok());
  ASSERT_TRUE(store->Append(1, 1, {Entry{}}).ok());
  ASSERT_TRUE(store->Delete(1).ok());
  ASSERT_TRUE(store->Delete(1).ok()) << "it is fine if there is none";
  EXPECT_THAT(*store->ReadAll(), IsEmpty());
  EXPECT_THAT(store->ReadHistory(1)->entries, IsEmpty());
  EXPECT_THAT(store->ReadHistory(1)->jobs, IsEmpty());
  EXPECT_EQ(*store->Create(Asked("bert")), 2);
}

}  // namespace
}  // namespace trainyard::store
