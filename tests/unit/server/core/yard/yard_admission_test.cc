// Tests that a submission that no known devices could ever hold is refused, with the numbers.
#include <gmock/gmock.h>

#include "common/base/errors.h"
#include "common/base/isolation.h"
#include "tests/unit/server/core/yard/yard_fixture.h"

namespace trainyard::core {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class YardAdmission : public YardTest {
 protected:
  YardAdmission() { Join("lab-1", 2); }

  static Submission Strict(int32_t devices) {
    Submission submission = Spec(devices);
    submission.wait_for_devices = false;
    return submission;
  }

  absl::StatusOr<Reply> Try(const Submission& submission) {
    auto reply = yard_->Apply(
        SubmitJob{std::make_shared<Submission>(submission), "", "", "user:anna"}, now_);
    Settle();
    return reply;
  }
  // Expects a refusal, and returns its message.
  std::string Refusal(const Submission& submission) {
    const int64_t next_job = yard_->snapshot().next_job;
    const absl::Status status = Try(submission).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(ErrorReason(status), error::kCannotRun);
    EXPECT_EQ(yard_->Admit(submission, now_).status(), status);
    EXPECT_EQ(yard_->snapshot().next_job, next_job);
    return std::string(status.message());
  }
};

TEST_F(YardAdmission, MoreDevicesThanThePoolHasAreRefusedWithTheNumbers) {
  EXPECT_EQ(Refusal(Strict(4)),
            "this job can never run here: it needs 4 devices of type cpu; all known workers "
            "together have 2 devices (lab-1: 2); ask for at most 2 (devices.count); "
            "--wait-for-devices queues it until there are such devices");
  EXPECT_TRUE(Try(Strict(2)).ok());
}

TEST_F(YardAdmission, AGangOfOneHostIsJudgedByTheLargestHost) {
  Join("lab-2", 3);
  Submission submission = Strict(4);
  submission.demand.one_host = true;
  EXPECT_THAT(Refusal(submission),
              HasSubstr("it needs 4 devices of type cpu on one host; all known workers together "
                        "have 5 devices (lab-1: 2, lab-2: 3), and no host has as many that suit "
                        "it; the largest has 3 devices (lab-2); ask for at most 3 "
                        "(devices.count), or allow several hosts (program.ranks: host)"));
  submission.demand.count = 6;
  EXPECT_THAT(Refusal(submission), HasSubstr("ask for at most 3 (devices.count)"));
  submission.demand.count = 3;
  EXPECT_TRUE(Try(submission).ok());
}

TEST_F(YardAdmission, APipelineIsAdvisedAMultipleOfItsStages) {
  Join("lab-2", 1);
  Submission submission = Strict(4);
  submission.demand.multiple_of = 2;
  EXPECT_THAT(Refusal(submission), HasSubstr("ask for at most 2 (devices.count)"));
  submission.demand.multiple_of = 4;
  EXPECT_THAT(Refusal(submission), HasSubstr("cut it into fewer stages (stages.count)"));
}

TEST_F(YardAdmission, AnElasticJobIsJudgedByItsLeast) {
  Submission submission = Strict(8);
  submission.demand.min_count = 3;
  EXPECT_THAT(Refusal(submission), HasSubstr("ask for at most 2 (devices.min)"));
  submission.demand.min_count = 2;
  EXPECT_TRUE(Try(submission).ok());
}

TEST_F(YardAdmission, WorkersThatAreAwayOrSetAsideCount) {
  ASSERT_TRUE(Apply(CordonWorker{"lab-1", "user:root", ""}).ok());
  ASSERT_TRUE(Apply(QuarantineDevice{"lab-1", "cpu-0", "user:root", ""}).ok());
  EXPECT_TRUE(Try(Strict(2)).ok());
  Advance(kHour);
  ASSERT_EQ(WorkerState("lab-1"), "GONE");
  EXPECT_TRUE(Try(Strict(2)).ok());
  EXPECT_THAT(Refusal(Strict(3)), HasSubstr("(lab-1: 2)"));
}

TEST_F(YardAdmission, AnUnknownTypeIsRefusedAndTheTypesAreNamed) {
  Submission submission = Strict(1);
  submission.demand.type = "h200";
  EXPECT_THAT(Refusal(submission),
              HasSubstr("it needs 1 device of type h200; all known workers together have 2 devices "
                        "(lab-1: 2), of which 0 are of that type; choose another (devices.type), "
                        "of which there are: cpu"));
}

TEST_F(YardAdmission, MoreMemoryThanAnyDeviceHasIsRefused) {
  std::vector<DeviceRecord> devices = Cpus(3);
  for (DeviceRecord& device : devices) device.memory_bytes = int64_t{12} << 30;
  devices[0].memory_bytes = int64_t{24} << 30;
  ASSERT_TRUE(Register("lab-1", devices).ok());
  Submission submission = Strict(2);
  submission.demand.memory_bytes = int64_t{80} << 30;
  EXPECT_THAT(Refusal(submission), HasSubstr("of which 0 have that much memory, and the largest "
                                             "has 24 GiB; ask for less (devices.memory)"));
  submission.demand.memory_bytes = int64_t{20} << 30;
  EXPECT_THAT(Refusal(submission),
              AllOf(HasSubstr("of which 1 has that much memory"), HasSubstr("at most 1 (dev")));
  submission.demand.count = 1;
  EXPECT_TRUE(Try(submission).ok());
}

TEST_F(YardAdmission, AJobIsRefusedIfNoDeviceHasTheMemoryOfItsPlan) {
  std::vector<DeviceRecord> devices = Cpus(2);
  for (DeviceRecord& device : devices) device.memory_bytes = int64_t{12} << 30;
  ASSERT_TRUE(Register("lab-1", devices).ok());
  Submission submission = Strict(1);
  submission.demand.type.clear();
  submission.demand.host_need_bytes = int64_t{57} << 30;
  submission.demand.gpu_need_bytes = int64_t{20} << 30;
  EXPECT_THAT(Refusal(submission), HasSubstr("of which 0 have the 57 GiB that the job was planned "
                                             "to need, and the largest has 12 GiB; use a smaller "
                                             "train.global_batch"));
  // A GPU is asked for less, and one of which the memory is unknown may have it.
  std::vector<DeviceRecord> gpus = Cpus(1);
  gpus[0].type = "h200";
  gpus[0].memory_bytes = int64_t{24} << 30;
  ASSERT_TRUE(Register("lab-2", gpus).ok());
  EXPECT_TRUE(Try(submission).ok());
  submission.demand.type = "cpu";
  Refusal(submission);
  devices[1].memory_bytes = 0;
  ASSERT_TRUE(Register("lab-1", devices).ok());
  EXPECT_TRUE(Try(submission).ok());
}

TEST_F(YardAdmission, AJobIsPlacedOnlyWhereItsPlanFits) {
  std::vector<DeviceRecord> devices = Cpus(3);
  for (DeviceRecord& device : devices) device.memory_bytes = int64_t{12} << 30;
  devices[2].memory_bytes = int64_t{64} << 30;
  ASSERT_TRUE(Register("lab-1", devices).ok());
  ASSERT_TRUE(Sync("lab-1", {}).ok());
  Submission submission = Strict(1);
  submission.demand.host_need_bytes = int64_t{57} << 30;
  const auto first = Try(submission);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(yard_->FindAttempt({first->job, 1})->ranks[0].device, "cpu-2");
  const auto second = Try(submission);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(State(second->job), "QUEUED");
  EXPECT_THAT(
      yard_->QueueReasons(second->job),
      ::testing::Contains("2 devices of type cpu have less than the 57 GiB that the job needs"));
}

TEST_F(YardAdmission, LabelsAndNumberTypesThatNobodyHasAreRefused) {
  Submission submission = Strict(1);
  submission.demand.labels = {{"zone", "b"}};
  EXPECT_THAT(Refusal(submission), HasSubstr("0 are on workers with these labels"));
  submission.demand.labels = {{kCgroupLabel, kIsolationYes}};
  EXPECT_THAT(Refusal(submission), AllOf(HasSubstr("0 are on workers that can isolate programs so"),
                                         HasSubstr("choose a weaker program.isolation")));
  submission = Strict(1);
  submission.demand.bf16 = true;
  EXPECT_THAT(Refusal(submission), HasSubstr("set train.precision to f32 or auto"));
}

TEST_F(YardAdmission, AGangOfOneTypeMustFitIntoOneType) {
  std::vector<DeviceRecord> gpus = Cpus(2);
  for (DeviceRecord& device : gpus) device.type = "h200";
  ASSERT_TRUE(Register("lab-2", gpus).ok());
  Submission submission = Strict(3);
  submission.demand.type.clear();
  EXPECT_THAT(Refusal(submission), HasSubstr("it needs 3 devices of one type; all known workers "
                                             "together have 4 devices (lab-1: 2, lab-2: 2); ask "
                                             "for at most 2"));
  submission.demand.mixed = true;
  EXPECT_TRUE(Try(submission).ok());
}

TEST_F(YardAdmission, AReservationMustExistAndBeForTheOwner) {
  ReservationRecord night;
  night.name = "night";
  night.start_us = now_.wall_us + kHour;
  night.end_us = now_.wall_us + 2 * kHour;
  night.devices = {{"lab-1", "cpu-0"}};
  night.subjects = {"user:ben", "project:vision"};
  night.actor = "user:root";
  ASSERT_TRUE(Apply(CreateReservation{night, 0, ""}).ok());
  Submission submission = Strict(1);
  submission.reservation = "nihgt";
  EXPECT_THAT(Refusal(submission),
              HasSubstr("reservation 'nihgt' does not exist; did you mean 'night'?"));
  submission.reservation = "night";
  EXPECT_THAT(Refusal(submission), HasSubstr("reservation 'night' is for user:ben, project:vision, "
                                             "and this is user:anna; submit it without"));
  submission.project = "vision";
  EXPECT_TRUE(Try(submission).ok());
  submission.demand.count = 2;
  EXPECT_THAT(Refusal(submission), HasSubstr("reservation 'night' has 1 device (lab-1: 1)"));
}

TEST_F(YardAdmission, AJobWithoutADeviceNeedsAHostThatSuits) {
  RegisterWorker host{"lab-2", "lab-2", "lab-2/1", "1.0", "lab-2", "10.0.0.1", {}};
  host.host = {8, int64_t{64} << 30};
  ASSERT_TRUE(Apply(host).ok());
  Submission submission = Strict(1);
  submission.demand.is_deviceless = true;
  submission.demand.type = "";
  submission.demand.labels = {{"zone", "b"}};
  EXPECT_THAT(Refusal(submission), HasSubstr("there is no known worker with these labels; change "
                                             "devices.labels"));
  submission.demand.labels = {{kSandboxLabel, kIsolationYes}};
  EXPECT_THAT(Refusal(submission),
              HasSubstr("there is no known worker that can isolate programs so; choose a weaker"));
}

TEST_F(YardAdmission, ADataSetThatNoWorkerHasIsRefused) {
  Submission submission = Strict(1);
  submission.demand.dataset = "cifar10";
  EXPECT_TRUE(yard_->Admit(submission, now_).ok()) << "the worker has not told its data sets";
  ASSERT_TRUE(TellDatasets("lab-1", {{"mnist", "xxh3-128:1"}}).ok());
  EXPECT_THAT(Refusal(submission),
              AllOf(HasSubstr("0 are on workers with the data set cifar10; put it into the folder"),
                    HasSubstr("`trainyard data ls`")));
  // A worker's data sets count while it is away, and when it comes back.
  Advance(kHour);
  Refusal(submission);
  ASSERT_TRUE(Register("lab-1", 2).ok());
  Refusal(submission);
  ASSERT_TRUE(TellDatasets("lab-1", {{"cifar10", "xxh3-128:2"}}).ok());
  submission.demand.data_digest = "xxh3-128:1";
  EXPECT_THAT(Refusal(submission), HasSubstr("the data set cifar10 of data.digest xxh3-128:1"));
  submission.demand.data_digest = "xxh3-128:2";
  EXPECT_TRUE(Try(submission).ok());
}

TEST_F(YardAdmission, AJobRunsWhereItsDataSetIs) {
  Join("lab-2", 2);
  ASSERT_TRUE(TellDatasets("lab-1", {}).ok());
  ASSERT_TRUE(TellDatasets("lab-2", {{"cifar10", ""}}).ok());
  Submission submission = Strict(1);
  submission.demand.dataset = "cifar10";
  submission.demand.data_digest = "xxh3-128:1";
  for (int i = 0; i < 2; ++i) {
    const auto reply = Try(submission);
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(yard_->FindAttempt({reply->job, 1})->ranks[0].worker, "lab-2");
  }
  const auto third = Try(submission);
  ASSERT_TRUE(third.ok());
  EXPECT_EQ(State(third->job), "QUEUED");
  EXPECT_THAT(yard_->QueueReasons(third->job),
              ::testing::Contains("2 devices of type cpu are on workers without the data set "
                                  "cifar10 of data.digest xxh3-128:1"));
  ASSERT_TRUE(TellDatasets("lab-1", {{"cifar10", "xxh3-128:1"}}).ok());
  EXPECT_EQ(State(third->job), "STARTING");
  EXPECT_EQ(yard_->FindAttempt({third->job, 1})->ranks[0].worker, "lab-1");
}

TEST_F(YardAdmission, WaitForDevicesQueuesItWithAWarning) {
  Submission submission = Strict(4);
  submission.wait_for_devices = true;
  const auto reply = Try(submission);
  ASSERT_TRUE(reply.ok());
  EXPECT_THAT(reply->warnings, ElementsAre("it waits for devices that no known worker has"));
  EXPECT_EQ(State(reply->job), "QUEUED");
  Join("lab-2", 2);
  EXPECT_EQ(State(reply->job), "STARTING");
}

TEST_F(YardAdmission, NothingIsRefusedBeforeAnyWorkerHasJoined) {
  const Yard empty(config_, Snapshot{}, now_);
  const auto warnings = empty.Admit(Strict(4000), now_);
  ASSERT_TRUE(warnings.ok());
  EXPECT_THAT(*warnings, ElementsAre(HasSubstr("no worker has ever joined")));
}

TEST_F(YardAdmission, AUserIsWarnedBeforeTheQuotaOnStorageIsUsedUp) {
  Join("lab-1", 1);
  const JobId job = Submit(1);
  QuotaRecord quota;
  quota.subject = "user:anna";
  quota.stored_bytes = 1000;
  ASSERT_TRUE(Apply(SetQuota{quota, "user:root"}).ok());
  const auto warnings = [&](int64_t logs) {
    TY_CHECK_OK(Apply(NoteStreams{{{job, {logs, 0}}}}));
    return yard_->Admit(Spec(1), now_);
  };
  EXPECT_THAT(*warnings(790), ElementsAre());
  EXPECT_THAT(*warnings(800), ElementsAre(HasSubstr("user:anna stores 800 B of the 1000 B")));
  EXPECT_THAT(*warnings(999), ElementsAre(HasSubstr("`trainyard usage --largest 10`")));
  const auto refused = warnings(1000);
  EXPECT_EQ(ErrorReason(refused.status()), "QUOTA_EXCEEDED");
  EXPECT_THAT(refused.status().message(), HasSubstr("checkpoints, logs and metrics"));
}

TEST_F(YardAdmission, ARefusedSubmissionCostsNothingOfAQuota) {
  QuotaRecord quota;
  quota.subject = "user:anna";
  quota.submits_per_minute = 1;
  ASSERT_TRUE(Apply(SetQuota{quota, "user:root"}).ok());
  Refusal(Strict(4));
  EXPECT_TRUE(Try(Strict(1)).ok());
  EXPECT_EQ(ErrorReason(Try(Strict(1)).status()), "QUOTA_EXCEEDED");
}

}  // namespace
}  // namespace trainyard::core
