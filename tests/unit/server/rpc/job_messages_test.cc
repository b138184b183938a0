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
  const JobMessages::Text before = TextOf(messages, 1);
  ASSERT_TRUE(remarks_->Annotate(RemarkedJobOf(board_.FindJob(JobId{1})->record), "a note", {}, {})
                  .ok());
  const JobMessages::Text after = TextOf(messages, 1);
  EXPECT_EQ(Read(before).job().note(), "");
  EXPECT_EQ(Read(after).job().note(), "a note");
  EXPECT_EQ(TextOf(messages, 1), after);
}

TEST_F(JobMessagesTest, FewJobsAreKept) {
  for (int i = 0; i < 3; ++i) CreateJob("a");
  JobMessages messages(/*jobs_max=*/2);
  const JobMessages::Text first = TextOf(messages, 1);
  const JobMessages::Text second = TextOf(messages, 2);
  EXPECT_EQ(TextOf(messages, 1), first);
  const JobMessages::Text third = TextOf(messages, 3);
  EXPECT_EQ(TextOf(messages, 3), third);
  EXPECT_EQ(first.use_count(), 1) << "nobody keeps it";
  EXPECT_EQ(second.use_count(), 1);
  EXPECT_EQ(Read(TextOf(messages, 1)).job().name(), "jobs/1") << "it is written anew";
}

}  // namespace
}  // namespace trainyard::rpc
