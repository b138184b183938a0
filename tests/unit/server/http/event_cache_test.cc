// Tests that messages are read and written as JSON once, whoever gets them.
#include "server/http/event_cache.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/deterministic.h"
#include "server/http/json.h"
#include "server/http/rpc_call.h"
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

EventCache::Events EventsOf(EventCache& cache, const google::protobuf::Message& message) {
  auto events = cache.EventsOf(*message.GetDescriptor(), ToBuffer(message));
  EXPECT_TRUE(events.ok()) << events.status();
  return events.ok() ? *events : EventCache::Events();
}

TEST(EventCache, ManyAskAndOneTextIsMade) {
  EventCache cache(kManyBytes);
  const EventCache::Events first = EventsOf(cache, Change(7));
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first.at(0)->json, *ToJson(Change(7)));
  EXPECT_EQ(first.at(0)->message->SerializeAsString(), Change(7).SerializeAsString());
  for (int i = 0; i < 10; ++i) EXPECT_EQ(EventsOf(cache, Change(7)), first) << "the very same";
}

TEST(EventCache, ManyChangesAreManyEvents) {
  EventCache cache(kManyBytes);
  v1::WatchJobsResponse message = Change(6);
  *message.add_more() = Change(7, "jobs/2");
  *message.add_more() = Change(9, "jobs/3");
  const EventCache::Events events = EventsOf(cache, message);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events.at(0)->json, *ToJson(Change(6)));
  EXPECT_EQ(events.at(1)->json, *ToJson(Change(7, "jobs/2")));
  EXPECT_EQ(events.at(2)->json, *ToJson(Change(9, "jobs/3")));
}

TEST(EventCache, AChangeIsKnownInWhateverCompany) {
  EventCache cache(kManyBytes);
  // Messages of protobuf have an order of their own for the entries of each map.
  v1::WatchJobsResponse change = Change(7, "jobs/2");
  auto& params = *change.mutable_job()->mutable_spec()->mutable_program()->mutable_params();
  for (int i = 0; i < 50; ++i) params[absl::StrCat("p", i)] = "1";
  const std::string alone = rpc::DeterministicBytes(change);
  v1::WatchJobsResponse message = Change(6);
  *message.add_more() = change;
  const std::string first = rpc::DeterministicBytes(message);
  *message.mutable_more(0) = Change(8, "jobs/3");
  *message.add_more() = change;
  const std::string second = rpc::DeterministicBytes(message);
  const auto last_of = [&cache](const std::string& bytes) {
    const grpc::Slice slice(bytes);
    const auto events =
        cache.EventsOf(*v1::WatchJobsResponse::descriptor(), grpc::ByteBuffer(&slice, 1));
    EXPECT_TRUE(events.ok()) << events.status();
    return events->back();
  };
  const auto event = last_of(alone);
  EXPECT_EQ(rpc::DeterministicBytes(*event->message), alone);
  EXPECT_EQ(last_of(first), event) << "the very same";
  EXPECT_EQ(last_of(second), event);
}

TEST(EventCache, WhatDiffersHasATextOfItsOwn) {
  EventCache cache(kManyBytes);
  EXPECT_NE(EventsOf(cache, Change(7)).at(0)->json, EventsOf(cache, Change(8)).at(0)->json);
  // The bytes of these two are the same.
  v1::GetJobRequest get;
  get.set_name("jobs/1");
  v1::Job job;
  job.set_name("jobs/1");
  ASSERT_EQ(get.SerializeAsString(), job.SerializeAsString());
  EXPECT_EQ(EventsOf(cache, get).at(0)->json, *ToJson(get));
  EXPECT_EQ(EventsOf(cache, job).at(0)->json, *ToJson(job));
  EXPECT_NE(EventsOf(cache, get), EventsOf(cache, job));
}

TEST(EventCache, BytesThatAreNoMessageAreRefused) {
  EventCache cache(kManyBytes);
  const grpc::Slice slice("\x0a\xff");  // a text whose length is cut off
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(cache.EventsOf(*v1::Job::descriptor(), grpc::ByteBuffer(&slice, 1)).status().code(),
              absl::StatusCode::kInternal);
  }
}

TEST(EventCache, AMessageInPiecesIsTheSame) {
  EventCache cache(kManyBytes);
  const std::string bytes = Change(7).SerializeAsString();
  const grpc::Slice pieces[] = {grpc::Slice(bytes.substr(0, 3)), grpc::Slice(bytes.substr(3))};
  const auto events =
      cache.EventsOf(*v1::WatchJobsResponse::descriptor(), grpc::ByteBuffer(pieces, 2));
  ASSERT_TRUE(events.ok()) << events.status();
  EXPECT_EQ(*events, EventsOf(cache, Change(7)));
}

TEST(EventCache, TheOldestMessagesAreDropped) {
  EventCache cache(/*bytes_max=*/100'000);
  constexpr int kChanges = 2000;
  const EventCache::Events first = EventsOf(cache, Change(0));
  EventCache::Events last;
  for (int i = 1; i < kChanges; ++i) last = EventsOf(cache, Change(i));
  EXPECT_EQ(EventsOf(cache, Change(kChanges - 1)), last) << "the newest one is there";
  EXPECT_NE(EventsOf(cache, Change(0)), first) << "the oldest one is read anew";
  EXPECT_EQ(first.at(0).use_count(), 1) << "nobody keeps it";
}

TEST(EventCache, ALargeMessageDropsNothing) {
  EventCache cache(/*bytes_max=*/100'000);
  const EventCache::Events small = EventsOf(cache, Change(1));
  const v1::WatchJobsResponse large = Change(2, std::string(50'000, 'x'));
  const EventCache::Events first = EventsOf(cache, large);
  EXPECT_EQ(first.at(0)->json, *ToJson(large));
  EXPECT_NE(EventsOf(cache, large), first) << "it is not kept";
  EXPECT_EQ(EventsOf(cache, Change(1)), small);
}

TEST(EventCache, ManyThreadsGetTheTextsOfTheirMessages) {
  EventCache cache(/*bytes_max=*/100'000);
  std::vector<std::string> expected;
  for (int i = 0; i < 200; ++i) expected.push_back(*ToJson(Change(i)));
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(EventsOf(cache, Change(static_cast<int64_t>(i))).at(0)->json, expected[i]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace trainyard::http
