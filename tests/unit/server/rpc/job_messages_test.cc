// Tests that a job is written once for all who watch it, and anew when anything of it changes.
#include "server/rpc/job_messages.h"

#include <gtest/gtest.h>

#include <string>

#include "server/rpc/remarks.h"
#include "tests/unit/server/rpc/rpc_fixture.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::rpc {
namespace {

class JobMessagesTest : public RpcTest {
 protected:
  JobMessages::Text TextOf(JobMessages& messages, int64_t job) {
    return messages.Of(*services_, board_.FindJob(JobId{job}));
  }
  static v1::WatchJobsResponse Read(const JobMessages::Text& text) {
    v1::WatchJobsResponse message;
    EXPECT_TRUE(message.ParseFromString(*text));
    return message;
  }
};

TEST_F(JobMessagesTest, AJobIsWrittenOnceUntilItChanges) {
  CreateJob("a");
  JobMessages messages;
  const JobMessages::Text first = TextOf(messages, 1);
  EXPECT_EQ(Read(first).job().SerializeAsString(), GetJob("jobs/1").SerializeAsString());
  EXPECT_EQ(TextOf(messages, 1), first) << "the very same";
  v1::CancelJobRequest cancel;
  cancel.set_name("jobs/1");
  v1::Job cancelled;
  ASSERT_TRUE(jobs_->CancelJob(Context().get(), cancel, &cancelled).ok());
  EXPECT_EQ(Read(TextOf(messages, 1)).job().state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(JobMessagesTest, RemarksAreNoChangesOfTheJobAndAreShown) {
  CreateJob("a");
  JobMessages messages;
  const auto annotate = [this](const std::string& note) {
    const store::RemarkedJob job = RemarkedJobOf(board_.FindJob(JobId{1})->record);
    ASSERT_TRUE(remarks_->Annotate(job, note, {}, {}).ok());
  };
  const JobMessages::Text before = TextOf(messages, 1);
  annotate("a note");
  const JobMessages::Text noted = TextOf(messages, 1);
  EXPECT_EQ(TextOf(messages, 1), noted);
  annotate("");
  EXPECT_EQ(Read(before).job().note(), "");
  EXPECT_EQ(Read(noted).job().note(), "a note");
  EXPECT_EQ(Read(TextOf(messages, 1)).job().note(), "");
}

TEST_F(JobMessagesTest, WhatIsKeptIsBounded) {
  constexpr int kJobs = 300;
  for (int i = 0; i < kJobs; ++i) CreateJob("a");
  const size_t bytes = TextOf(*std::make_unique<JobMessages>(), 1)->size();
  JobMessages messages(/*bytes_max=*/bytes * kJobs / 2);
  const JobMessages::Text first = TextOf(messages, 1);
  EXPECT_EQ(TextOf(messages, 1), first);
  for (int i = 2; i <= kJobs; ++i) TextOf(messages, i);
  EXPECT_EQ(first.use_count(), 1) << "nobody keeps it";
  EXPECT_EQ(*TextOf(messages, 1), *first) << "it is written anew";
  // A large one would take the place of all others.
  JobMessages small(/*bytes_max=*/bytes * 50);
  EXPECT_NE(TextOf(small, 1), TextOf(small, 1));
}

}  // namespace
}  // namespace trainyard::rpc
