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
  for (int i = 0; i < 10; ++i) EXPECT_EQ(*cache.ToJson(Change(7)), *first) << "the very same";
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
  EXPECT_NE(*cache.ToJson(get), *cache.ToJson(job));
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
  std::vector<JsonCache::Text> texts;
  for (int i = 0; i < kChanges; ++i) texts.push_back(*cache.ToJson(Change(i)));
  EXPECT_EQ(*cache.ToJson(Change(kChanges - 1)), texts.back()) << "the newest one is there";
  EXPECT_NE(*cache.ToJson(Change(0)), texts.front()) << "the oldest one is written anew";
}

TEST(JsonCache, ALargeMessageDropsNothing) {
  JsonCache cache(/*bytes_max=*/10'000);
  const JsonCache::Text small = *cache.ToJson(Change(1));
  const v1::WatchJobsResponse large = Change(2, std::string(5'000, 'x'));
  const JsonCache::Text first = *cache.ToJson(large);
  EXPECT_EQ(*first, *ToJson(large));
  EXPECT_NE(*cache.ToJson(large), first) << "it is not kept";
  EXPECT_EQ(*cache.ToJson(Change(1)), small);
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
