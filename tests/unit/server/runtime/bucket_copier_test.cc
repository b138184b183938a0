// Tests that checkpoints arrive whole in a bucket whatever it does, and that nothing is removed
// that somebody needs.
#include "server/runtime/bucket_copier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <future>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "common/s3/sign.h"
#include "server/core/yard/deletion.h"
#include "server/runtime/runtime.h"
#include "server/store/memory_store.h"
#include "tests/testing/manual_clock.h"
#include "tests/testing/s3/fake_s3.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"
#include "tests/unit/server/runtime/inputs.h"

namespace trainyard::runtime {
namespace {

using ::testing::Contains;
using testing::FakeS3;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using testing::WaitUntil;

class BucketCopierTest : public ::testing::Test {
 protected:
  explicit BucketCopierTest(s3::Conditions conditions = s3::Conditions::kHonoured)
      : fake_({.conditions = conditions}), conditions_(conditions) {
    blobs_ = *BlobStore::Open(dir_.path());
    client_options_ = fake_.ClientOptions();
    client_options_.tries = 2;
    client_options_.stall_timeout = absl::Seconds(1);
    Runtime::Options options;
    options.on_fatal = [](const absl::Status& status) { FAIL() << status; };
    options.on_turn = [this](const core::Turn& turn) {
      const MutexLock lock(&mutex_);
      if (copier_ != nullptr) copier_->Take(turn);
    };
    // The worker does not report any more, so no time passes in which its lease could end.
    runtime_ = *Runtime::Start(std::move(options), store_, clock_, board_);
    EXPECT_TRUE(Post(testing::SubmitJob("a")).ok());
    EXPECT_TRUE(Post(testing::RegisterWorker("s1")).ok());
    core::SyncReport report;
    report.session = "s1";
    report.sequence = 1;
    runtime_->Sync(report, absl::ZeroDuration(), [](const auto&) {});
    EXPECT_TRUE(WaitUntil([this] { return board_.FindAttempt({JobId{1}, 1}) != nullptr; }));
  }
  ~BucketCopierTest() override {
    fake_.Wake();
    StopCopier();
    runtime_->Stop();
  }

  void StartCopier(size_t queue_max = 100) {
    BucketCopier::Options options;
    options.place = absl::StrCat("s3://", client_options_.bucket, "/yard");
    options.connect = [this] {
      return s3::Client::Create(client_options_, *Clock::Real(), *Rng::Real());
    };
    options.describe = [](const core::CheckpointRecord& checkpoint,
                          const BucketCopier::Digests& digests) {
      std::string text = absl::StrCat("step ", checkpoint.id.step);
      for (const auto& [name, digest] : digests) absl::StrAppend(&text, "\n", name, " ", digest);
      return text;
    };
    options.was_deleted = [this](JobId job) -> absl::StatusOr<bool> {
      const auto events = *store_.ListEvents(JobName(job), 0, 10);
      return !events.empty() && events.back().type == core::kJobDeleted;
    };
    options.skip_numbers = [this](JobId last) {
      if (!skips_) return;
      runtime_->Post(core::SkipJobNumbers{last}, [](const auto&) {});
    };
    options.doubt = [this](const core::CheckpointRef& id) {
      const MutexLock lock(&mutex_);
      doubted_.push_back(id);
    };
    options.note = [this](core::NoteCheckpointCopy note, PostDone done) {
      {
        const MutexLock lock(&mutex_);
        if (!note.failure.empty()) failures_.push_back(note.failure);
      }
      runtime_->Post(std::move(note), std::move(done));
    };
    options.queue_max = queue_max;
    options.first_pause = absl::Milliseconds(5);
    options.longest_pause = absl::Milliseconds(20);
    auto copier =
        BucketCopier::Create(std::move(options), *blobs_, board_, *Clock::Real(), *Rng::Real());
    ASSERT_TRUE(copier.ok()) << copier.status();
    {
      const MutexLock lock(&mutex_);
      copier_ = *std::move(copier);
    }
    copier_->Start("server-1", store_.Load()->next_job);
  }
  void StopCopier() {
    std::unique_ptr<BucketCopier> ended;
    {
      const MutexLock lock(&mutex_);
      ended.swap(copier_);
    }
  }

  absl::StatusOr<core::Reply> Post(core::Input input) {
    std::promise<absl::StatusOr<core::Reply>> reply;
    runtime_->Post(std::move(input),
                   [&reply](absl::StatusOr<core::Reply> got) { reply.set_value(std::move(got)); });
    return reply.get_future().get();
  }
  static core::CheckpointFile FileOf(const std::string& name, const std::string& content) {
    return {name, static_cast<int64_t>(content.size()), ContentHash(content)};
  }
  // Commits a checkpoint of the running job 1, of which the newest one stays.
  void Commit(int64_t step) {
    const std::vector<std::string> contents = {Content(step), "the same"};
    const std::vector<core::CheckpointFile> files = {FileOf("model", contents[0]),
                                                     FileOf("optimizer", contents[1])};
    const UploadId upload{{JobId{1}, 1}, step};
    for (size_t i = 0; i < files.size(); ++i) {
      ASSERT_TRUE(blobs_->Append(upload, files[i], 0, contents[i]).ok());
    }
    const auto pin = blobs_->Seal(upload, files);
    ASSERT_TRUE(pin.ok()) << pin.status();
    const auto reply = Post(core::CommitCheckpoint{"s1", {JobId{1}, 1}, 1, step, files});
    ASSERT_TRUE(reply.ok()) << reply.status();
  }
  // Makes a job that ran elsewhere, of which all checkpoints stay, and commits some.
  JobId Import(const std::vector<int64_t>& steps) {
    auto imported = std::make_shared<core::ImportedJob>();
    auto submission = std::make_shared<core::Submission>();
    submission->uid = "uid-imported";
    submission->name = "imported";
    submission->user = "anna";
    submission->import_origin = "elsewhere";
    imported->job.submission = submission;
    imported->job.state = core::job_fsm::Succeeded{};
    imported->job.end_us = 1;
    imported->job.attempt = 1;
    core::AttemptRecord attempt;
    attempt.id.number = 1;
    attempt.state = core::attempt_fsm::Succeeded{};
    imported->attempts.push_back(attempt);
    const auto made = Post(core::ImportJob{imported, "", "", "user:anna"});
    EXPECT_TRUE(made.ok()) << made.status();
    for (const int64_t step : steps) {
      const std::string content = Content(step);
      const core::CheckpointFile file = FileOf("model", content);
      const UploadId upload{{made->job, 1}, step};
      EXPECT_TRUE(blobs_->Append(upload, file, 0, content).ok());
      const auto pin = blobs_->Seal(upload, {file});
      EXPECT_TRUE(pin.ok()) << pin.status();
      EXPECT_TRUE(Post(core::CommitImport{{made->job, step}, {file}, {}, 0, "user:anna"}).ok());
    }
    return made->job;
  }
  static std::string Content(int64_t step) { return absl::StrCat("the weights of ", step); }

  std::string CopyOf(JobId job, int64_t step) const {
    const auto checkpoint = board_.FindCheckpoint({job, step});
    return checkpoint == nullptr ? "" : checkpoint->copy;
  }
  bool AwaitCopy(int64_t step, JobId job = JobId{1}) {
    return WaitUntil([&] { return !CopyOf(job, step).empty(); });
  }
  static std::string Folder(int64_t step, JobId job = JobId{1}) {
    return absl::StrCat("yard/checkpoints/", job.value, "/", step, "/");
  }
  // Returns the key of a manifest that only a list shows.
  static std::string Manifest(int64_t step, JobId job = JobId{1}) {
    return absl::StrCat(Folder(step, job), "manifests/", std::string(20, '0'), "-x");
  }
  // Expects that the copy can be read, and is what was committed.
  void ExpectWhole(int64_t step, JobId job = JobId{1}) {
    auto client = s3::Client::Create(fake_.ClientOptions(), *Clock::Real(), *Rng::Real());
    ASSERT_TRUE(client.ok());
    s3::ManifestStore store(**client, Folder(step, job), conditions_);
    const auto version = store.Latest();
    ASSERT_TRUE(version.ok()) << version.status();
    const std::string digits = s3::HexSha256(Content(step));
    EXPECT_EQ(version->number, 1);
    EXPECT_THAT(version->content,
                HasSubstr(absl::StrCat("step ", step, "\nmodel sha256:", digits)));
    const auto size = static_cast<int64_t>(Content(step).size());
    const std::string path = dir_.File("fetched");
    ASSERT_TRUE(store.GetBlob({digits, size}, path, 0600).ok());
    EXPECT_EQ(*ReadFile(path), Content(step));
  }
  bool AwaitFailure() {
    return WaitUntil([this] {
      const MutexLock lock(&mutex_);
      return !failures_.empty();
    });
  }
  std::string FirstFailure() {
    const MutexLock lock(&mutex_);
    return failures_.empty() ? "" : failures_.front();
  }

  testing::TempDir dir_;
  std::atomic<bool> skips_ = true;
  FakeS3 fake_;
  const s3::Conditions conditions_;
  s3::ClientOptions client_options_;
  store::MemoryStore store_;
  testing::ManualClock clock_;
  Notifier notifier_;
  Board board_{notifier_};
  std::unique_ptr<BlobStore> blobs_;
  Mutex mutex_;
  std::vector<std::string> failures_ ABSL_GUARDED_BY(mutex_);
  std::vector<core::CheckpointRef> doubted_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<BucketCopier> copier_;
  std::unique_ptr<Runtime> runtime_;
};

// All kinds of stores get whole copies.
class AnyStoreTest : public BucketCopierTest, public ::testing::WithParamInterface<s3::Conditions> {
 protected:
  AnyStoreTest() : BucketCopierTest(GetParam()) {}
};

TEST_P(AnyStoreTest, ACheckpointIsThereOnceItIsCommitted) {
  StartCopier();
  Commit(10);
  ASSERT_TRUE(AwaitCopy(10));
  EXPECT_EQ(CopyOf(JobId{1}, 10),
            absl::StrCat("s3://", client_options_.bucket, "/yard/checkpoints/1/10"));
  ExpectWhole(10);
  EXPECT_TRUE(WaitUntil([this] { return copier_->figures().copied == 1; }));
  const BucketCopier::Figures figures = copier_->figures();
  EXPECT_EQ(figures.sent_bytes, static_cast<int64_t>(Content(10).size()) + 8);
  EXPECT_EQ(figures.failures, 0);
  EXPECT_EQ(figures.waiting, 0);
  EXPECT_EQ(figures.oldest_us, 0);
}

TEST_P(AnyStoreTest, TheCopyOfAReplacedCheckpointGoes) {
  StartCopier();
  Commit(10);
  ASSERT_TRUE(AwaitCopy(10));
  Commit(20);
  ASSERT_TRUE(AwaitCopy(20));
  EXPECT_TRUE(WaitUntil([this] { return fake_.Keys(Folder(10)).empty(); }));
  ExpectWhole(20);
}

TEST_P(AnyStoreTest, FailuresPassAndAreTold) {
  fake_.Inject(FakeS3::Fault::kInternalError, 4, "PUT", "blobs");
  fake_.Inject(FakeS3::Fault::kSlowDown, 4, "PUT", "manifests");
  StartCopier();
  Commit(10);
  ASSERT_TRUE(AwaitFailure());
  EXPECT_THAT(FirstFailure(), HasSubstr("yard/checkpoints/1/10/blobs"));
  ASSERT_TRUE(AwaitCopy(10));
  EXPECT_EQ(board_.FindCheckpoint({JobId{1}, 10})->copy_failure, "");
  EXPECT_GE(copier_->figures().failures, 2);
  ExpectWhole(10);
}

TEST_P(AnyStoreTest, BrokenAndSlowConnectionsHarmNothing) {
  using Fault = FakeS3::Fault;
  for (const Fault fault : {Fault::kClose, Fault::kLoseAnswer, Fault::kCut, Fault::kDrip}) {
    fake_.Inject(fault, 1, "PUT", "checkpoints/1/");
    fake_.Inject(fault, 1, "GET", "checkpoints/1/");
    fake_.Inject(fault, 1, "HEAD", "checkpoints/1/");
  }
  StartCopier();
  Commit(10);
  ASSERT_TRUE(AwaitCopy(10));
  ExpectWhole(10);
}

INSTANTIATE_TEST_SUITE_P(Stores, AnyStoreTest,
                         ::testing::Values(s3::Conditions::kHonoured,
                                           s3::Conditions::kHonouredWithoutQuotes,
                                           s3::Conditions::kIgnored, s3::Conditions::kRefused));

TEST_F(BucketCopierTest, ANewStartTakesUpWhatIsNotThere) {
  Commit(10);
  const JobId imported = Import({5, 6});
  StartCopier();
  EXPECT_TRUE(AwaitCopy(10));
  EXPECT_TRUE(AwaitCopy(5, imported));
  EXPECT_TRUE(AwaitCopy(6, imported));
  StopCopier();
  const int sent = fake_.CountRequests("PUT yard/checkpoints/1/");
  StartCopier();
  Commit(20);
  ASSERT_TRUE(AwaitCopy(20));
  EXPECT_EQ(fake_.CountRequests("PUT yard/checkpoints/1/10/"), sent) << "what is there stays";
}

TEST_F(BucketCopierTest, TheNewestCopyStaysUntilANewerOneIsWhole) {
  StartCopier();
  Commit(10);
  ASSERT_TRUE(AwaitCopy(10));
  fake_.Inject(FakeS3::Fault::kInternalError, 40, "PUT", "checkpoints/1/20/");
  Commit(20);
  ASSERT_TRUE(AwaitFailure());
  EXPECT_EQ(board_.FindCheckpoint({JobId{1}, 10}), nullptr);
  ExpectWhole(10);
  ASSERT_TRUE(AwaitCopy(20));
  EXPECT_TRUE(WaitUntil([this] { return fake_.Keys(Folder(10)).empty(); }));
  EXPECT_TRUE(WaitUntil([this] { return copier_->figures().removed == 1; }));
}

TEST_F(BucketCopierTest, FilesStayWhileTheyAreSent) {
  StartCopier();
  fake_.Inject(FakeS3::Fault::kHang, 1, "PUT", "checkpoints/1/10/");
  Commit(10);
  ASSERT_TRUE(WaitUntil([this] { return fake_.CountRequests("PUT yard/checkpoints/1/10/") > 0; }));
  Commit(20);
  std::vector<std::string> dropped = board_.TakeDropped();
  EXPECT_THAT(dropped, SizeIs(1));
  const auto is_referenced = [this](const std::string& hash) { return board_.IsReferenced(hash); };
  EXPECT_EQ(blobs_->RemoveUnreferenced(dropped, is_referenced), 0);
  const std::string path = *blobs_->PathOf(ContentHash(Content(10)));
  EXPECT_TRUE(FileExists(path));
  fake_.Wake();
  ASSERT_TRUE(AwaitCopy(20));
  EXPECT_TRUE(WaitUntil([&] { return !FileExists(path); })) << "they go after that";
}

TEST_F(BucketCopierTest, ADeletedJobLosesItsCopies) {
  StartCopier();
  const JobId job = Import({5, 6});
  ASSERT_TRUE(AwaitCopy(5, job));
  ASSERT_TRUE(AwaitCopy(6, job));
  ASSERT_TRUE(Post(core::DeleteJob{job, {}, "user:anna"}).ok());
  const std::string folder = absl::StrCat("yard/checkpoints/", job.value, "/");
  EXPECT_TRUE(WaitUntil([&] { return fake_.Keys(folder).empty(); }));
}

TEST_F(BucketCopierTest, DeletedCheckpointsLoseTheirCopies) {
  StartCopier();
  const JobId job = Import({5, 6});
  ASSERT_TRUE(AwaitCopy(5, job));
  ASSERT_TRUE(AwaitCopy(6, job));
  ASSERT_TRUE(Post(core::DeleteJob{job, {.checkpoints = true}, "user:anna"}).ok());
  const std::string folder = absl::StrCat("yard/checkpoints/", job.value, "/");
  EXPECT_TRUE(WaitUntil([&] { return fake_.Keys(folder).empty(); }));
}

TEST_F(BucketCopierTest, AStartRemovesOnlyWhatTheDatabaseKnowsToBeGone) {
  Commit(10);
  ASSERT_TRUE(Post(testing::SubmitJob("b")).ok());
  const JobId deleted = Import({});
  ASSERT_TRUE(Post(core::DeleteJob{deleted, {}, "user:anna"}).ok());
  const std::string replaced = Manifest(5);
  const std::string newer = Manifest(30);
  const std::string of_deleted = Manifest(7, deleted);
  const std::string unknown = Manifest(7, JobId{77});
  const std::string foreign = "yard/checkpoints/readme";
  for (const std::string& key : {replaced, newer, of_deleted, unknown, foreign}) {
    fake_.Write(key, "text");
  }
  StartCopier();
  EXPECT_TRUE(WaitUntil([&] { return copier_->figures().removed == 2; }));
  const std::vector<std::string> keys = fake_.Keys();
  EXPECT_THAT(keys, Not(Contains(replaced)));
  EXPECT_THAT(keys, Not(Contains(of_deleted)));
  EXPECT_THAT(keys, Contains(newer)) << "a backup that was restored knows less than the bucket";
  EXPECT_THAT(keys, Contains(unknown));
  EXPECT_THAT(keys, Contains(foreign));
}

TEST_F(BucketCopierTest, JobsThatWereLostWithARestoreKeepTheirCopies) {
  // The number was given to a job of which the database knows nothing any more.
  ASSERT_TRUE(Post(core::SkipJobNumbers{JobId{5}}).ok());
  const std::string lost = Manifest(7, JobId{3});
  const std::string ahead = Manifest(7, JobId{9});
  const std::string absurd = Manifest(7, JobId{int64_t{1} << 60});
  for (const std::string& key : {lost, ahead, absurd}) fake_.Write(key, "text");
  Commit(10);
  StartCopier();
  ASSERT_TRUE(AwaitCopy(10)) << "the bucket was looked through before";
  EXPECT_EQ(copier_->figures().removed, 0);
  for (const std::string& key : {lost, ahead, absurd}) EXPECT_THAT(fake_.Keys(), Contains(key));
  ASSERT_TRUE(WaitUntil([this] { return store_.Load()->next_job > 9; }));
  EXPECT_EQ(Import({1}), JobId{10}) << "no job gets the number of another one";
}

TEST_F(BucketCopierTest, AJobWithTheNumberOfALostOneHarmsNoCopies) {
  skips_ = false;  // as if the job had come before the server has looked at the bucket
  const JobId next{store_.Load()->next_job};
  const std::string lost = Manifest(7, next);
  fake_.Write(lost, "text");
  StartCopier();
  Commit(10);
  ASSERT_TRUE(AwaitCopy(10));
  ASSERT_EQ(Import({9}), next);
  ASSERT_TRUE(AwaitFailure());
  EXPECT_THAT(FirstFailure(), HasSubstr("has copies of another job with the same number"));
  EXPECT_THAT(fake_.Keys(Folder(7, next)), SizeIs(1));
  EXPECT_THAT(fake_.Keys(Folder(9, next)), IsEmpty());
  fake_.Remove(lost);
  EXPECT_TRUE(AwaitCopy(9, next));
}

TEST_F(BucketCopierTest, WhatGoesDuringASweepIsLeftToTheNextOne) {
  StartCopier();
  Commit(10);
  ASSERT_TRUE(AwaitCopy(10));
  fake_.Inject(FakeS3::Fault::kHang, 1, "DELETE", "checkpoints/1/10/");
  Commit(20);
  ASSERT_TRUE(
      WaitUntil([this] { return fake_.CountRequests("DELETE yard/checkpoints/1/10/") > 0; }));
  fake_.Inject(FakeS3::Fault::kInternalError, 40, "PUT", "checkpoints/1/30/");
  Commit(30);
  fake_.Wake();
  ASSERT_TRUE(AwaitFailure());
  EXPECT_EQ(board_.FindCheckpoint({JobId{1}, 20}), nullptr);
  ExpectWhole(20);
  ASSERT_TRUE(AwaitCopy(30));
  EXPECT_TRUE(WaitUntil([this] { return fake_.Keys(Folder(20)).empty(); }));
}

TEST_F(BucketCopierTest, ADamagedCheckpointReplacesNoCopy) {
  StartCopier();
  Commit(10);
  ASSERT_TRUE(AwaitCopy(10));
  fake_.Inject(FakeS3::Fault::kInternalError, 1000, "PUT", "checkpoints/1/20/");
  Commit(20);
  ASSERT_TRUE(AwaitFailure());
  const auto damaged = board_.FindCheckpoint({JobId{1}, 20});
  ASSERT_NE(damaged, nullptr);
  ASSERT_TRUE(Post(core::JudgeCheckpoint{*damaged, "its weights are gone"}).ok());
  StopCopier();
  const int lists = fake_.CountRequests("GET");
  StartCopier();
  ASSERT_TRUE(WaitUntil([&] { return fake_.CountRequests("GET") > lists; }));
  const JobId other = Import({1});
  ASSERT_TRUE(AwaitCopy(1, other)) << "the bucket was looked through before";
  ExpectWhole(10);
}

TEST_F(BucketCopierTest, ACopyThatIsGoneIsSentAgain) {
  StartCopier();
  Commit(10);
  ASSERT_TRUE(AwaitCopy(10));
  StopCopier();
  for (const std::string& key : fake_.Keys(Folder(10))) fake_.Remove(key);
  StartCopier();
  ASSERT_TRUE(AwaitFailure());
  EXPECT_EQ(FirstFailure(), "the copy that was there is gone from the bucket");
  EXPECT_TRUE(WaitUntil([this] { return !fake_.Keys(Folder(10) + "manifests").empty(); }));
  ASSERT_TRUE(AwaitCopy(10));
  ExpectWhole(10);
}

TEST_F(BucketCopierTest, AFileThatCannotBeReadNowIsTriedAgain) {
  Commit(10);
  const std::string path = *blobs_->PathOf(ContentHash(Content(10)));
  const std::string aside = dir_.File("aside");
  ASSERT_EQ(rename(path.c_str(), aside.c_str()), 0);
  ASSERT_EQ(symlink(aside.c_str(), path.c_str()), 0);  // nobody follows it
  StartCopier();
  ASSERT_TRUE(AwaitFailure());
  EXPECT_EQ(copier_->figures().waiting, 1);
  ASSERT_EQ(rename(aside.c_str(), path.c_str()), 0);
  EXPECT_TRUE(AwaitCopy(10));
  ExpectWhole(10);
}

TEST_F(BucketCopierTest, AStaleListHarmsNothing) {
  StartCopier();
  Commit(10);
  ASSERT_TRUE(AwaitCopy(10));
  fake_.FreezeLists();
  Commit(20);
  ASSERT_TRUE(AwaitCopy(20));
  EXPECT_TRUE(WaitUntil([this] { return fake_.Keys(Folder(10)).empty(); }));
  fake_.ThawLists();
  ExpectWhole(20);
}

TEST_F(BucketCopierTest, TheFolderOfAnotherServerIsLeftAlone) {
  fake_.Write("yard/checkpoints/owner", "server-2");
  StartCopier();
  Commit(10);
  ASSERT_TRUE(AwaitFailure());
  EXPECT_THAT(FirstFailure(), HasSubstr("has the checkpoints of another server"));
  EXPECT_THAT(fake_.Keys("yard/checkpoints/1/"), IsEmpty());
  fake_.Remove("yard/checkpoints/owner");
  EXPECT_TRUE(AwaitCopy(10));
}

TEST_F(BucketCopierTest, ADamagedFileIsNotSent) {
  Commit(10);
  const std::string path = *blobs_->PathOf(ContentHash(Content(10)));
  ASSERT_TRUE(ReplaceFile(path, "other weights of 10").ok());
  StartCopier();
  ASSERT_TRUE(AwaitFailure());
  EXPECT_THAT(FirstFailure(), HasSubstr("model"));
  EXPECT_TRUE(WaitUntil([this] { return copier_->figures().waiting == 0; }));
  EXPECT_THAT(fake_.Keys(Folder(10)), IsEmpty());
  {
    const MutexLock lock(&mutex_);
    EXPECT_THAT(doubted_, Contains(core::CheckpointRef{JobId{1}, 10})) << "the server verifies it";
  }
  Commit(20);
  EXPECT_TRUE(AwaitCopy(20)) << "others are sent";
}

TEST_F(BucketCopierTest, ALongQueuePassesOverWhatIsReplaced) {
  fake_.Inject(FakeS3::Fault::kHang, 1, "", "checkpoints/owner");
  StartCopier(/*queue_max=*/2);
  const JobId job = Import({1, 2, 3, 4, 5});
  EXPECT_EQ(copier_->figures().waiting, 2);
  EXPECT_GT(copier_->figures().oldest_us, 0);
  fake_.Wake();
  for (const int64_t step : {5, 4, 3, 2, 1}) {
    EXPECT_TRUE(AwaitCopy(step, job)) << step << " comes once nothing else waits";
  }
}

TEST_F(BucketCopierTest, AStopDoesNotWaitForTheBucket) {
  StartCopier();
  fake_.Inject(FakeS3::Fault::kHang, 1, "PUT", "checkpoints/1/10/");
  Commit(10);
  ASSERT_TRUE(WaitUntil([this] { return fake_.CountRequests("PUT yard/checkpoints/1/10/") > 0; }));
  StopCopier();
  EXPECT_EQ(CopyOf(JobId{1}, 10), "");
  StartCopier();
  EXPECT_TRUE(AwaitCopy(10));
}

}  // namespace
}  // namespace trainyard::runtime
