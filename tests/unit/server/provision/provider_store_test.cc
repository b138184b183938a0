#include "server/provision/provider_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/errors.h"
#include "server/provision/core/step.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::provision {
namespace {

class ProviderStoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<ProviderStore> Open() {
    auto store = ProviderStore::Open(dir_.File("providers.db"));
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }

  static Kept Some() {
    Kept kept;
    kept.state.server_id = "1a2b3c";
    kept.state.next_number = 9;
    for (const char* name : {"cheap", "gpu"}) {
      Provider& provider = kept.state.providers[name];
      provider.spec.name = name;
      provider.spec.owner = "anna";
      provider.spec.node = {4, "h200", 32, int64_t{64} << 30};
      provider.spec.cost_per_hour = 2.5;
      provider.spec.datasets = {"mnist", "images:flowers/small"};
      provider.is_paused = true;
      provider.pause_reason = "paused by olga: \"new\" power\n";
      provider.breaker.state = Breaker::State::kHalfOpen;
      provider.breaker.reason = "no such partition";
      Pilot& pilot = provider.pilots[8];
      pilot.number = 8;
      pilot.name = "ty-1a2b3c-gpu-8";
      pilot.foreign_id = "123";
      pilot.state = PilotState::kStarting;
      pilot.expire_us = 17;
      kept.clusters[name] = {
          {"-p", "gpu"}, "/shared", "/usr/bin/trainyard-worker", "tls://a:1", "{}",
          "ml",          "team",    "/etc/kubeconfig",           "lab"};
    }
    return kept;
  }

  testing::TempDir dir_;
};

TEST_F(ProviderStoreTest, NothingIsKeptAtFirst) {
  const auto kept = Open()->Load();
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(*kept, Kept());
}

TEST_F(ProviderStoreTest, AllComesBack) {
  ASSERT_TRUE(Open()->Save({}, Some()).ok());
  const auto kept = Open()->Load();
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(*kept, Some());
}

TEST_F(ProviderStoreTest, ChangesAndRemovalsAreWrittenDown) {
  const auto store = Open();
  const Kept before = Some();
  ASSERT_TRUE(store->Save({}, before).ok());
  Kept after = before;
  after.state.providers.erase("cheap");
  after.clusters.erase("cheap");
  Provider& gpu = after.state.providers["gpu"];
  gpu.pilots.erase(8);
  gpu.pilots[9].number = 9;
  gpu.is_paused = false;
  after.state.next_number = 10;
  ASSERT_TRUE(store->Save(before, after).ok());
  EXPECT_EQ(*Open()->Load(), after);
}

TEST_F(ProviderStoreTest, ADamagedRecordIsTold) {
  ASSERT_TRUE(Open()->Save({}, Some()).ok());
  auto db = store::Database::Open(dir_.File("providers.db"), store::Database::Mode::kDurable);
  ASSERT_TRUE((*db)->Execute("UPDATE pilots SET record = '{\"number\": \"x\"}'").ok());
  db->reset();
  const auto kept = Open()->Load();
  EXPECT_EQ(ErrorReason(kept.status()), "CORRUPT_FILE") << kept.status();
}

}  // namespace
}  // namespace trainyard::provision
