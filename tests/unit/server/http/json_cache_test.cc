// Tests that messages are written as JSON once, whoever asks for them.
#include "server/http/json_cache.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/http/json.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::http {
namespace {

constexpr size_t kManyBytes = size_t{1} << 20;

v1::WatchJobsResponse Change(int64_t revision, const std::string& name = "jobs/1") {
  v1::WatchJobsResponse change;
  change.mutable_job()->set_name(name);
  change.set_revision(revision);
  return change;
}

TEST(JsonCache, ManyAskAndOneTextIsMade) {
  JsonCache cache(kManyBytes);
  const v1::WatchJobsResponse change = Change(7);
  const auto first = cache.ToJson(change);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(**first, *ToJson(change));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(*cache.ToJson(Change(7)), *first);
  EXPECT_EQ(cache.written(), 1u);
}

TEST(JsonCache, WhatDiffersHasATextOfItsOwn) {
  JsonCache cache(kManyBytes);
  EXPECT_NE(**cache.ToJson(Change(7)), **cache.ToJson(Change(8)));
  // The bytes of these two are the same.
  v1::GetJobRequest get;
  get.set_name("jobs/1");
  v1::Job job;
  job.set_name("jobs/1");
  ASSERT_EQ(get.SerializeAsString(), job.SerializeAsString());
  EXPECT_EQ(**cache.ToJson(get), *ToJson(get));
  EXPECT_EQ(**cache.ToJson(job), *ToJson(job));
  EXPECT_EQ(cache.written(), 4u);
}

TEST(JsonCache, EqualMapsAreEqual) {
  JsonCache cache(kManyBytes);
  // Maps of protobuf have an order of their own in each message.
  v1::WatchJobsResponse up = Change(1);
  v1::WatchJobsResponse down = Change(1);
  auto& first = *up.mutable_job()->mutable_spec()->mutable_program()->mutable_params();
  auto& second = *down.mutable_job()->mutable_spec()->mutable_program()->mutable_params();
  for (int i = 0; i < 50; ++i) first[absl::StrCat("p", i)] = "1";
  for (int i = 49; i >= 0; --i) second[absl::StrCat("p", i)] = "1";
  EXPECT_EQ(*cache.ToJson(up), *cache.ToJson(down));
}

TEST(JsonCache, TheOldestTextsAreDropped) {
  JsonCache cache(/*bytes_max=*/10'000);
  constexpr int kChanges = 500;
  for (int i = 0; i < kChanges; ++i) ASSERT_TRUE(cache.ToJson(Change(i)).ok());
  EXPECT_EQ(cache.written(), static_cast<size_t>(kChanges));
  ASSERT_TRUE(cache.ToJson(Change(kChanges - 1)).ok());
  EXPECT_EQ(cache.written(), static_cast<size_t>(kChanges)) << "the newest one is there";
  ASSERT_TRUE(cache.ToJson(Change(0)).ok());
  EXPECT_EQ(cache.written(), static_cast<size_t>(kChanges) + 1) << "the oldest one is not";
}

TEST(JsonCache, ALargeMessageDropsNothing) {
  JsonCache cache(/*bytes_max=*/10'000);
  ASSERT_TRUE(cache.ToJson(Change(1)).ok());
  const v1::WatchJobsResponse large = Change(2, std::string(5'000, 'x'));
  EXPECT_EQ(**cache.ToJson(large), *ToJson(large));
  EXPECT_EQ(**cache.ToJson(large), *ToJson(large));
  EXPECT_EQ(cache.written(), 3u);
  ASSERT_TRUE(cache.ToJson(Change(1)).ok());
  EXPECT_EQ(cache.written(), 3u);
}

TEST(JsonCache, ManyThreadsGetTheTextsOfTheirMessages) {
  JsonCache cache(/*bytes_max=*/10'000);
  std::vector<std::string> expected;
  for (int i = 0; i < 200; ++i) expected.push_back(*ToJson(Change(i)));
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(**cache.ToJson(Change(static_cast<int64_t>(i))), expected[i]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace trainyard::http
